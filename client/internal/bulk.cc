#include "tensord/client/internal/bulk.h"

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/bulk_codec.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/common/util/tsan_annotations.h"

namespace tensord::internal {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(1);

// One call on the calling thread. Each Begin… starts an operation, and one Wait must follow it.
class BulkCall {
 public:
  BulkCall(grpc::GenericStub* stub, grpc::ClientContext* context, const std::string& method,
           grpc::CompletionQueue* queue)
      : queue_(queue), call_(stub->PrepareCall(context, method, queue)) {
    call_->StartCall(this);
  }

  // Blocks until the operation has ended. Returns false if it failed because the call is over.
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_->Next(&tag, &ok) && ok;
  }
  void BeginWrite(const grpc::ByteBuffer& message) { call_->Write(message, this); }
  void BeginWritesDone() { call_->WritesDone(this); }
  void BeginRead(grpc::ByteBuffer* message) { call_->Read(message, this); }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
    return status;
  }

 private:
  grpc::CompletionQueue* const queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// Makes slices of the caller's memory, which gRPC sends without a copy. Counts the slices that gRPC
// hasn't released.
class ZeroCopySlices {
 public:
  explicit ZeroCopySlices(absl::Span<const uint8_t> data) : data_(data) {}

  grpc::Slice MakeSlice(int64_t offset, int64_t size) {
    unreleased_.fetch_add(1, std::memory_order_relaxed);
    TsanRelease(&unreleased_);
    return grpc::Slice(const_cast<uint8_t*>(data_.data() + offset), size, &OnReleased,
                       &unreleased_);
  }

  // Polls until gRPC has released all slices. All calls must have ended: while a connection has
  // calls, it keeps the slices that it hasn't sent.
  void AwaitRelease(grpc::CompletionQueue* queue) const {
    while (unreleased_.load(std::memory_order_acquire) > 0) {
      void* tag = nullptr;
      bool ok = false;
      queue->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kPollInterval);
    }
  }

 private:
  static void OnReleased(void* unreleased) {
    TsanAcquire(unreleased);
    static_cast<std::atomic<int>*>(unreleased)->fetch_sub(1, std::memory_order_release);
  }

  const absl::Span<const uint8_t> data_;
  std::atomic<int> unreleased_{0};
};

// Returns false if the call ended before everything was sent.
bool SendChunks(BulkCall* call, const v1::WriteSpec& spec, ZeroCopySlices* memory,
                absl::FunctionRef<std::optional<ByteRange>()> next_chunk) {
  v1::WriteRequest first;
  *first.mutable_spec() = spec;
  if (!call->Wait()) return false;
  call->BeginWrite(EncodeMessage(first));
  if (!call->Wait()) return false;
  while (const std::optional<ByteRange> chunk = next_chunk()) {
    const int64_t size = chunk->end - chunk->begin;
    call->BeginWrite(EncodeChunk(chunk->begin, memory->MakeSlice(chunk->begin, size)));
    if (!call->Wait()) return false;
  }
  return true;
}

// By default, glibc maps and unmaps the memory of each chunk that gRPC receives. After a program
// has freed one mapped block of this size, glibc keeps the memory of chunks instead (mallopt(3),
// M_MMAP_THRESHOLD), unless the program has set the threshold.
void MakeMallocKeepChunks() {
  static const bool once = [] {
    void* volatile block = std::malloc(16 << 20);
    std::free(block);
    return true;
  }();
  (void)once;
}

grpc::Status Internal(absl::string_view what) {
  return grpc::Status(grpc::StatusCode::INTERNAL, std::string(what));
}

}  // namespace

grpc::Status Upload(grpc::GenericStub* stub, CallRegistry* calls, bool wait_for_ready,
                    const v1::WriteSpec& spec, absl::Span<const uint8_t> data,
                    absl::FunctionRef<std::optional<ByteRange>()> next_chunk) {
  grpc::CompletionQueue queue;
  ZeroCopySlices memory(data);
  grpc::Status status;
  {
    CallRegistry::Call registered(calls);
    const Interruption::CallScope interruptible(registered.context());
    registered.context()->set_wait_for_ready(wait_for_ready);
    BulkCall call(stub, registered.context(), "/tensord.v1.TensorService/Write", &queue);
    if (SendChunks(&call, spec, &memory, next_chunk)) {
      call.BeginWritesDone();
      call.Wait();
      grpc::ByteBuffer tensor;
      call.BeginRead(&tensor);
      call.Wait();
    }
    status = call.Finish();
  }
  memory.AwaitRelease(&queue);
  return status;
}

grpc::Status Download(grpc::GenericStub* stub, CallRegistry::Call* registered,
                      const v1::ReadRequest& request, absl::Span<uint8_t> out, int64_t* filled,
                      const Progress& progress) {
  MakeMallocKeepChunks();
  grpc::CompletionQueue queue;
  BulkCall call(stub, registered->context(), "/tensord.v1.TensorService/Read", &queue);
  if (!call.Wait()) return call.Finish();
  call.BeginWrite(EncodeMessage(request));
  if (!call.Wait()) return call.Finish();
  call.BeginWritesDone();
  if (!call.Wait()) return call.Finish();

  absl::Status decoded;
  v1::TensorSpec spec;
  bool begun = false;
  grpc::ByteBuffer message;
  grpc::ByteBuffer next;
  call.BeginRead(&next);
  while (call.Wait()) {
    if (!std::exchange(begun, true)) registered->SetUnderWay(true);
    message.Swap(&next);
    call.BeginRead(&next);  // gRPC receives it while this thread copies `message`
    if (!decoded.ok()) continue;
    decoded = DecodeChunk(&message, out, filled, &spec);
    if (!decoded.ok()) registered->context()->TryCancel();
    if (decoded.ok() && progress) progress(*filled, static_cast<int64_t>(out.size()));
  }
  const grpc::Status status = call.Finish();
  if (!decoded.ok()) return Internal(std::string(decoded.message()));
  if (!status.ok()) return status;
  if (*filled != static_cast<int64_t>(out.size())) {
    return Internal(absl::StrCat("the server sent ", *filled, " of ", out.size(), " bytes"));
  }
  return status;
}

}  // namespace tensord::internal
