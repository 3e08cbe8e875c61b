// The handler of PeerService.Fetch, which sends a tensor's bytes to another server.
#pragma once

#include "tensord/server/rpc/bulk/bulk_service.h"
#include "tensord/server/rpc/call_dispatcher.h"

namespace tensord::server {

CallFactory MakeFetchFactory(BulkContext* context);

}  // namespace tensord::server
