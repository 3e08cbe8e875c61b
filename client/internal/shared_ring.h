// A ring of memory that a server on the same host shares, and the call that keeps it open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensord/client/internal/bulk.h"
#include "tensord/client/internal/call_registry.h"
#include "tensord/common/util/shared_mapping.h"
#include "tensord/v1/tensord.grpc.pb.h"

namespace tensord::internal {

// One thread at a time may use a ring. Any thread may cancel its call through the CallRegistry.
class SharedRing {
 public:
  // Makes the server open a ring, and maps it. After an error the caller must use the connection.
  static absl::StatusOr<std::unique_ptr<SharedRing>> Open(v1::TensorService::Stub* stub,
                                                          const std::string& session,
                                                          CallRegistry* calls);
  ~SharedRing();
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  // Transfer as the functions of bulk.h do. After an error the ring can't be used any more.
  grpc::Status Upload(const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                      const Progress& progress);
  grpc::Status Download(const v1::ReadRequest& request, absl::Span<uint8_t> out,
                        const Progress& progress);

 private:
  explicit SharedRing(CallRegistry* calls) : call_(calls) {}
  bool SendSlot(uint32_t slot, int64_t bytes);
  // Receives the server's next message, which must be for `slot`, and sets `bytes` to its number of
  // bytes. If there is no such message, or it has more than `max_bytes`, returns false. The caller
  // then calls End.
  bool ReceiveSlot(uint32_t slot, int64_t max_bytes, int64_t* bytes);
  // Ends the call after an error, and returns its status. Never returns OK.
  grpc::Status End();

  CallRegistry::Call call_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SharedMemoryRequest, v1::SharedMemoryResponse>>
      stream_;
  std::unique_ptr<SharedMapping> ring_;
  bool broken_ = false;  // the server has sent an unexpected message
};

}  // namespace tensord::internal
