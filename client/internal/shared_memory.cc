#include "tensord/client/internal/shared_memory.h"

#include <utility>

#include "tensord/common/util/boot_id.h"
#include "tensord/common/util/shared_mapping.h"

namespace tensord::internal {
namespace {

// The smallest transfers that use a ring, and that open one. Smaller ones are as fast over the
// connection.
constexpr size_t kMinBytes = 512 * 1024;
constexpr size_t kMinBytesToOpen = 4 * 1024 * 1024;
// The server's limit of rings for a session. Further threads use the connection.
constexpr int kMaxRings = 2;

}  // namespace

SharedMemory::SharedMemory(std::shared_ptr<grpc::Channel> channel, CallRegistry* calls)
    : stub_(v1::TensorService::NewStub(std::move(channel))), calls_(calls) {}

void SharedMemory::Enable(const std::string& boot_id) {
  const bool same_host = !boot_id.empty() && boot_id == BootId() && !SharedMemorySwitchedOff();
  MutexLock lock(&mu_);
  enabled_ = same_host;
}

std::optional<grpc::Status> SharedMemory::Upload(const v1::WriteSpec& spec,
                                                 absl::Span<const uint8_t> data,
                                                 const Progress& progress) {
  std::unique_ptr<SharedRing> ring = TakeRing(spec.session(), data.size());
  if (ring == nullptr) return std::nullopt;
  const grpc::Status status = ring->Upload(spec, data, progress);
  if (!status.ok()) ring.reset();
  ReturnRing(std::move(ring));
  return status;
}

std::optional<grpc::Status> SharedMemory::Download(const v1::ReadRequest& request,
                                                   absl::Span<uint8_t> out,
                                                   const Progress& progress) {
  std::unique_ptr<SharedRing> ring = TakeRing(request.session(), out.size());
  if (ring == nullptr) return std::nullopt;
  const grpc::Status status = ring->Download(request, out, progress);
  if (!status.ok()) ring.reset();
  ReturnRing(std::move(ring));
  return status;
}

std::unique_ptr<SharedRing> SharedMemory::TakeRing(const std::string& session, size_t bytes) {
  if (bytes < kMinBytes) return nullptr;
  {
    MutexLock lock(&mu_);
    if (!enabled_ || closed_) return nullptr;
    if (!idle_.empty()) {
      std::unique_ptr<SharedRing> ring = std::move(idle_.back());
      idle_.pop_back();
      return ring;
    }
    if (bytes < kMinBytesToOpen || rings_ == kMaxRings) return nullptr;
    ++rings_;
  }
  absl::StatusOr<std::unique_ptr<SharedRing>> ring = SharedRing::Open(stub_.get(), session, calls_);
  if (ring.ok()) return *std::move(ring);
  ReturnRing(nullptr);
  MutexLock lock(&mu_);
  // A later attempt may succeed if there were too many rings or the connection broke. After any
  // other error it can't succeed.
  const bool temporary =
      absl::IsResourceExhausted(ring.status()) || absl::IsUnavailable(ring.status());
  if (!temporary) enabled_ = false;
  return nullptr;
}

void SharedMemory::ReturnRing(std::unique_ptr<SharedRing> ring) {
  MutexLock lock(&mu_);
  if (ring != nullptr && !closed_) {
    idle_.push_back(std::move(ring));
  } else {
    --rings_;
  }
}

void SharedMemory::Close() {
  std::vector<std::unique_ptr<SharedRing>> closed;
  MutexLock lock(&mu_);
  closed_ = true;
  closed.swap(idle_);
}

}  // namespace tensord::internal
