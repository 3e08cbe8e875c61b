#include "tensord/client/internal/upload_staged.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/bulk.h"
#include "tensord/client/internal/connection.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/client/internal/upload_connections.h"
#include "tensord/client/internal/upload_plan.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/mutex.h"
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

// Uploads the elements of a promised handle.
absl::Status SendPromised(Session& session, const v1::WriteSpec& write,
                          absl::Span<const uint8_t> data) {
  Session::Connection& connection = session.connection();
  const auto size = static_cast<int64_t>(data.size());
  UploadPlan plan(size);
  plan.Restart(0);
  grpc::Status sent;
  {
    const UploadConnections::Senders senders(&connection.upload_connections, write, data, &plan);
    sent = Upload(&connection.bulk_stub, &connection.calls, /*wait_for_ready=*/false, write, data,
                  [&] { return plan.NextChunk(); });
  }
  // Sends what the server has not received, if it may be repeated.
  if (!sent.ok()) return session.FillPromise(write, data);
  connection.counters.bytes_uploaded += size;
  return absl::OkStatus();
}

// The threads that send staged uploads. Each upload takes a round trip, so several are sent at the
// same time. Threads start when they are needed, and live as long as the process.
class UploadThreads {
 public:
  static UploadThreads& Get() {
    static UploadThreads* const threads = new UploadThreads;
    return *threads;
  }

  // Runs `work`, which sends `bytes` bytes, on a thread. Earlier work starts first.
  void Post(int64_t bytes, std::function<void()> work) {
    MutexLock lock(&mu_);
    waiting_.push_back({bytes, std::move(work)});
    if (idle_ == 0 && threads_ < kMaxUploadThreads) {
      ++threads_;
      std::thread([this] { Run(); }).detach();
    }
    changed_.Signal();
  }

 private:
  struct Item {
    int64_t bytes;
    std::function<void()> work;
  };

  // Returns whether the first item may start now. An item above the limit of bytes runs alone.
  bool CanStart() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !waiting_.empty() &&
           (sending_ == 0 || sending_ + waiting_.front().bytes <= kMaxConcurrentUploadBytes);
  }

  void Run() {
    MutexLock lock(&mu_);
    while (true) {
      ++idle_;
      while (!CanStart()) changed_.Wait(&mu_);
      --idle_;
      Item item = std::move(waiting_.front());
      waiting_.pop_front();
      sending_ += item.bytes;
      mu_.Unlock();
      item.work();
      item.work = nullptr;  // releases the tensor and the buffer
      mu_.Lock();
      sending_ -= item.bytes;
      changed_.SignalAll();
    }
  }

  Mutex mu_;
  CondVar changed_;
  std::deque<Item> waiting_ ABSL_GUARDED_BY(mu_);
  int64_t sending_ ABSL_GUARDED_BY(mu_) = 0;  // bytes of the work that has started
  int threads_ ABSL_GUARDED_BY(mu_) = 0;
  int idle_ ABSL_GUARDED_BY(mu_) = 0;
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
  const auto size = static_cast<int64_t>(data.size());
  UploadThreads::Get().Post(size, [tensor, buffer = std::move(buffer), write = *std::move(write)] {
    Session& session = *tensor.state()->session;
    const absl::Status sent = SendPromised(session, write, buffer->bytes());
    if (!sent.ok()) session.FailPromise(write.handle(), WithPrefix(sent, "upload: "));
  });
  return tensor;
}

}  // namespace tensord::internal
