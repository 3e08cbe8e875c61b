#include "tensord/client/internal/upload_staged.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/background.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/common/status_details.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {
namespace {

std::atomic<int64_t> staged_bytes{0};

// The copy of an upload's elements. The destructor releases its part of the limit.
class StagingBuffer {
 public:
  // Returns null if there is no room.
  static std::shared_ptr<StagingBuffer> Copy(absl::Span<const uint8_t> data) {
    const auto size = static_cast<int64_t>(data.size());
    auto buffer = std::make_shared<StagingBuffer>(size);
    if (staged_bytes.load() > kMaxStagedBytes) return nullptr;
    buffer->memory_.reset(new (std::nothrow) uint8_t[data.size()]);
    if (buffer->memory_ == nullptr) return nullptr;
    std::memcpy(buffer->memory_.get(), data.data(), data.size());
    return buffer;
  }
  explicit StagingBuffer(int64_t size) : size_(size) { staged_bytes += size; }
  ~StagingBuffer() { staged_bytes -= size_; }
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  absl::Span<const uint8_t> bytes() const { return {memory_.get(), static_cast<size_t>(size_)}; }

 private:
  const int64_t size_;
  std::unique_ptr<uint8_t[]> memory_;
};

}  // namespace

Tensor UploadStaged(const Device& device, const TensorSpec& spec, absl::Span<const uint8_t> data) {
  const bool is_small = static_cast<int64_t>(data.size()) <= kMaxInlineBytes;
  const bool fits = spec.Validate().ok() && spec.size_bytes() == static_cast<int64_t>(data.size());
  if (InForkedChild() || !device.valid() || !fits || is_small) return FromBytes(device, spec, data);
  std::shared_ptr<StagingBuffer> buffer = StagingBuffer::Copy(data);
  if (buffer == nullptr) return FromBytes(device, spec, data);
  const std::shared_ptr<Session>& session = device.session();
  const uint64_t handle = session->NextHandle();
  absl::StatusOr<v1::WriteSpec> write = session->Promise(handle, spec, device.id());
  if (!write.ok()) return Tensor::Failed(write.status());
  const Tensor tensor(std::make_shared<TensorState>(session, handle, spec, device.id()));
  // The work keeps the tensor, so that the server has its handle until the elements have come.
  Background::Get().Post([tensor, buffer = std::move(buffer), write = *std::move(write)] {
    Session& session = *tensor.state()->session;
    const absl::Status sent = session.FillPromise(write, buffer->bytes());
    if (!sent.ok()) session.FailPromise(write.handle(), WithPrefix(sent, "upload: "));
  });
  return tensor;
}

}  // namespace tensord::internal
