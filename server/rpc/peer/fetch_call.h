// PeerService.Fetch: a tensor's elements for another server.
#pragma once

#include "tensord/server/rpc/bulk/bulk_service.h"
#include "tensord/server/rpc/call_dispatcher.h"

namespace tensord::server {

CallFactory MakeFetchFactory(BulkContext* context);

}  // namespace tensord::server
