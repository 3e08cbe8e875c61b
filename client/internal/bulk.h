// Large transfers: streams of chunks on a connection of their own.
#pragma once

#include <cstdint>
#include <functional>

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/types/span.h"
#include "tensord/client/internal/call_registry.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

using Progress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// A chunk fits a core's cache while it is copied between buffers.
inline constexpr int64_t kChunkBytes = 512 * 1024;

// Makes a Write call with `data` from `offset` on, without a copy of it, and blocks until it has
// ended. `data` isn't used after the return: if the call breaks off, Upload waits until gRPC has
// released it, at the latest when the connection counts as lost. `progress` may be empty.
grpc::Status Upload(grpc::GenericStub* stub, CallRegistry* calls, bool wait_for_ready,
                    const v1::WriteSpec& spec, absl::Span<const uint8_t> data, int64_t offset,
                    const Progress& progress);

// Makes a Read call from request.offset() on into the rest of `out`, and blocks until it has ended.
// `*filled` is the number of bytes that `out` has, before and after, even if the call breaks off.
// INTERNAL if the server sends something else than the rest.
grpc::Status Download(grpc::GenericStub* stub, CallRegistry::Call* registered,
                      const v1::ReadRequest& request, absl::Span<uint8_t> out, int64_t* filled,
                      const Progress& progress);

}  // namespace tensord::internal
