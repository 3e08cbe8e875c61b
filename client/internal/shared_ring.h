// A ring of memory shared with a server on the same host, and the call that it lives by.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/client/internal/bulk.h"
#include "tensord/client/internal/call_registry.h"
#include "tensord/common/shared_mapping.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::internal {

// Used by one thread at a time; CallRegistry may cancel it from any.
class SharedRing {
 public:
  // Asks the server for a ring and maps it. The error is a reason to do without.
  static absl::StatusOr<std::unique_ptr<SharedRing>> Open(v1::TensorService::Stub* stub,
                                                          const std::string& session,
                                                          CallRegistry* calls);
  ~SharedRing();
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  // As in bulk.h. After an error the ring is of no further use.
  grpc::Status Upload(const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                      const Progress& progress);
  grpc::Status Download(const v1::ReadRequest& request, absl::Span<uint8_t> out,
                        const Progress& progress);

 private:
  explicit SharedRing(CallRegistry* calls) : call_(calls) {}
  bool SendSlot(uint32_t slot, int64_t bytes);
  // The server's next message, which must be of slot `slot`, with at most so many bytes in it.
  // False where there is none, or it says something else: End() knows how it is.
  bool ReceiveSlot(uint32_t slot, int64_t most_bytes, int64_t* bytes);
  grpc::Status End();

  CallRegistry::Call call_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SharedMemoryRequest, v1::SharedMemoryResponse>>
      stream_;
  std::unique_ptr<SharedMapping> ring_;
  bool broken_ = false;  // the server has said what it mustn't
};

}  // namespace tensord::internal
