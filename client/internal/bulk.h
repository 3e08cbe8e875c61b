// Large transfers: streams of chunks on a connection of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tensord/client/internal/call_registry.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

using Progress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// The size of a chunk. It fits a core's cache while it is copied between buffers.
inline constexpr int64_t kChunkBytes = 512 * 1024;

// The bytes [begin, end) of a tensor.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Makes a Write call that sends chunks of `data`, a whole tensor, without copying them.
// `next_chunk` returns their ranges, and nullopt after the last one. When it is called again, the
// previous chunk has been sent. Blocks until the call has ended and gRPC has released `data`. If
// the call breaks off, gRPC releases `data` at the latest when the connection counts as lost.
grpc::Status Upload(grpc::GenericStub* stub, CallRegistry* calls, bool wait_for_ready,
                    const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                    absl::FunctionRef<std::optional<ByteRange>()> next_chunk);

// Makes a Read call that fills the rest of `out`, from request.offset() on. Blocks until the call
// has ended. `*filled` is the number of bytes that `out` has: the caller sets it to
// request.offset(), and Download updates it, even if the call breaks off. If the server doesn't
// send exactly the rest, returns INTERNAL.
grpc::Status Download(grpc::GenericStub* stub, CallRegistry::Call* registered,
                      const v1::ReadRequest& request, absl::Span<uint8_t> out, int64_t* filled,
                      const Progress& progress);

}  // namespace tensord::internal
