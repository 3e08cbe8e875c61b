// Events. A record enqueues a task that sets a flag; the event refers to the flag of the last
// record.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/flag.h"
#include "tensord/tests/cuda_emulation/handles.h"
#include "tensord/tests/cuda_emulation/memory_pool.h"
#include "tensord/tests/cuda_emulation/stream.h"

namespace tensord::cuda_emulation {
namespace {

class Event {
 public:
  explicit Event(int device) : device_(device) {}

  int device() const { return device_; }
  // Returns null if the event has not been recorded.
  FlagRef flag() {
    MutexLock lock(&mu_);
    return flag_;
  }
  void set_flag(FlagRef flag) {
    MutexLock lock(&mu_);
    flag_ = std::move(flag);
  }

 private:
  const int device_;
  Mutex mu_;
  FlagRef flag_ ABSL_GUARDED_BY(mu_);
};

HandleTable<cudaEvent_t, Event>& Events() {
  static auto* table = new HandleTable<cudaEvent_t, Event>("an event");  // never destroyed
  return *table;
}

}  // namespace

void ResetEvents(int device) { Events().RemoveAllOf(device); }
size_t LiveEvents() { return Events().size(); }

}  // namespace tensord::cuda_emulation

using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

// Declares `event`, the event that `handle` refers to. If it doesn't exist, returns an error from
// the function.
#define TENSORD_EMULATION_FIND_EVENT(event, handle)   \
  const auto event = Events().Find(handle, __func__); \
  if (event == nullptr) return RecordError(cudaErrorInvalidResourceHandle)

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  *event = Events().Add(std::make_shared<Event>(CurrentDevice()));
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const bool existed = Events().Remove(handle, "cudaEventDestroy") != nullptr;
  return RecordError(existed ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t stream_handle) {
  TENSORD_EMULATION_ENTER_STREAM(stream, stream_handle);
  TENSORD_EMULATION_FIND_EVENT(event, event_handle);
  if (event->device() != stream->device()) {
    Report(absl::StrCat("cudaEventRecord: an event of device ", event->device(),
                        " in a stream of device ", stream->device()));
    return RecordError(cudaErrorInvalidResourceHandle);
  }
  auto flag = std::make_shared<Flag>();
  const cudaError_t error = stream->EnqueueControl([flag] { flag->Set(); }, "cudaEventRecord");
  if (error == cudaSuccess) event->set_flag(std::move(flag));
  return RecordError(error);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  TENSORD_EMULATION_FIND_EVENT(event, handle);
  TENSORD_EMULATION_ENTER(event->device());
  const FlagRef flag = event->flag();
  return RecordError(flag == nullptr || flag->IsSet() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  TENSORD_EMULATION_FIND_EVENT(event, handle);
  TENSORD_EMULATION_ENTER(event->device());
  if (const FlagRef flag = event->flag()) flag->Wait();
  ReleaseUnusedMemory(event->device());
  return RecordError(StickyError(event->device()));
}

// Makes the stream wait for the event's last record before this call, on any device.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle,
                                unsigned /*flags*/) {
  TENSORD_EMULATION_ENTER_STREAM(stream, stream_handle);
  TENSORD_EMULATION_FIND_EVENT(event, event_handle);
  const FlagRef flag = event->flag();
  if (flag == nullptr) return cudaSuccess;
  return RecordError(stream->EnqueueControl([flag] { flag->Wait(); }, "cudaStreamWaitEvent"));
}

}  // extern "C"
