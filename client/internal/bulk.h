// Large payloads: streams of chunks on a connection of their own.
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

// Fits a core's cache on its way from one buffer to the next.
inline constexpr int64_t kChunkBytes = 512 * 1024;

// Sends a Write with all of `data` from `offset` on, from where it lies, and waits for its end.
// `data` isn't looked at afterwards: a call that is cut short returns when gRPC has let go of it,
// at the latest when the connection counts as lost.
grpc::Status Upload(grpc::GenericStub* stub, CallRegistry* calls, bool wait_for_ready,
                    const v1::WriteSpec& spec, absl::Span<const uint8_t> data, int64_t offset,
                    const Progress& progress);

// Runs a Read from request.offset() on, which must bring what `out` still lacks. `filled` says how
// much of it there is, also where the call breaks off.
grpc::Status Download(grpc::GenericStub* stub, CallRegistry::Call* registered,
                      const v1::ReadRequest& request, absl::Span<uint8_t> out, int64_t* filled,
                      const Progress& progress);

}  // namespace tensord::internal
