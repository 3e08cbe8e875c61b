// Events. A record enqueues a task that sets a flag; the event refers to the flag of the last
// record.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/mutex.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/flag.h"
#include "tensord/tests/cuda_emulation/stream.h"

using namespace tensord;                  // NOLINT(google-build-using-namespace)
using namespace tensord::cuda_emulation;  // NOLINT(google-build-using-namespace)

// The name is cudart's.
struct CUevent_st {
 public:
  explicit CUevent_st(int device) : device_(device) {}

  int device() const { return device_; }
  // Null if it has not been recorded.
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

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  TENSORD_EMULATION_ENTER(CurrentDevice());
  *event = new CUevent_st(CurrentDevice());
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaEventRecord");
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

cudaError_t cudaEventQuery(cudaEvent_t event) {
  TENSORD_EMULATION_ENTER(event->device());
  const FlagRef flag = event->flag();
  return RecordError(flag == nullptr || flag->IsSet() ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  TENSORD_EMULATION_ENTER(event->device());
  if (const FlagRef flag = event->flag()) flag->Wait();
  return RecordError(StickyError(event->device()));
}

// Makes the stream wait for the event's last record before this call, on any device.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  TENSORD_EMULATION_ENTER_STREAM(stream, "cudaStreamWaitEvent");
  const FlagRef flag = event->flag();
  if (flag == nullptr) return cudaSuccess;
  return RecordError(stream->EnqueueControl([flag] { flag->Wait(); }, "cudaStreamWaitEvent"));
}

}  // extern "C"
