// What servers report about themselves, and the statistics of a client, as dicts.
#pragma once

#include "tensord/client/client.h"
#include "tensord/client/python/tensord/_core/core.h"

namespace tensord::python {

nb::dict ToDict(const MemoryInfo& memory);
nb::dict ToDict(const DeviceInfo& info);
nb::dict ToDict(const ServerInfo& info);
nb::dict ToDict(const TensorInfo& info);
nb::dict ToDict(const ClientStats& stats);

}  // namespace tensord::python
