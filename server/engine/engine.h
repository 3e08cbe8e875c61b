// Accepts ops, finds their inputs, posts work to the executors of the devices, and keeps errors on
// handles.
//
// Ops run by dataflow. The engine posts an op to its device as soon as no input is pending. An
// input is pending while it waits for an upload, another device or another lane (readiness.h). The
// engine allocates the memory of a result when the op runs. So a long queue of ops needs no more
// memory than ops that are sent one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/device/backend.h"
#include "tensord/server/engine/device_monitor.h"
#include "tensord/server/engine/fusion.h"
#include "tensord/server/engine/inline_watch.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/engine/prepared_op_cache.h"
#include "tensord/server/engine/program.h"
#include "tensord/server/engine/scalar_input.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// One op, as a client requests it. The views must be valid during the call only.
struct OpRequest {
  absl::string_view op;
  absl::Span<const Handle> inputs;
  Handle output = 0;
  Attributes attrs;
  absl::string_view device;  // may be empty if there are inputs
  // The outputs have consecutive handles: `output`, `output` + 1, ….
  uint32_t num_outputs = 1;
  // Positions in `inputs`, each at most once, of handles that the op donates: if the op is
  // accepted, these handles are removed, that of a promised upload when the upload has ended. The
  // op may then overwrite their memory.
  absl::Span<const uint32_t> donate = {};
  // Inputs that are scalars. The handles at their positions in `inputs` are ignored. At least one
  // input must be a tensor.
  absl::Span<const ScalarInput> scalars = {};
};

// Thread-safe. Owns the devices and their executors. Must outlive every session and tensor.
class Engine {
 public:
  // `fusion` says whether a chain of elementwise ops, or a linear and its activation, may run as
  // one kernel, also in programs. `graphs` says whether programs may run as graphs of their device.
  // `threading` says how the executors run tasks. With kCallerThread, tasks run only when the
  // caller drains the executors of slots().
  explicit Engine(std::vector<std::unique_ptr<Device>> devices, bool fusion = true,
                  bool graphs = true,
                  Executor::Threading threading = Executor::Threading::kOwnThread);
  ~Engine();

  const std::vector<DeviceSlot*>& slots() const { return slots_; }

  // Calls `listener` for the events of devices that can be lost, on a thread of the engine. If a
  // device is lost already, calls `listener` before this function returns. `listener` must not call
  // this function: a lock is held. Null removes the listener: it is not called after this function
  // has returned.
  void SetDeviceListener(DeviceMonitor::Listener listener);

  // Sets the kinds of which this host has no device. FindDevice() gives their reasons. Call it
  // before any other thread uses the engine.
  void SetUnavailableKinds(std::vector<UnavailableKind> kinds) {
    unavailable_kinds_ = std::move(kinds);
  }

  // Sets the limit of memory for prepared ops that are kept for reuse. Call it before any other
  // thread uses the engine.
  void SetMaxPreparedBytes(int64_t max_bytes) { prepared_ops_.SetMaxBytes(max_bytes); }

  // Returns the device of this name; "cuda" is cuda:0. If the name is malformed, returns
  // INVALID_ARGUMENT. If the server has no such device, returns NOT_FOUND that lists its devices,
  // and says why it has none of this kind, if it knows.
  absl::StatusOr<DeviceSlot*> FindDevice(absl::string_view name) const;

  // Entry point: infers an op, promises its outputs, and runs or queues the op. Returns the
  // promised tensors, which may be done already. If the handles, the inference or the devices are
  // wrong, returns an error and changes nothing. If an input has failed already, returns the root
  // error of that input. Later errors stick to the tensors. While the device is lost, this function
  // and those below return an error that names the device: the DATA_LOSS of an input in its memory,
  // or else UNAVAILABLE.
  absl::StatusOr<TensorRefs> RunOp(const SessionRef& session, const OpRequest& request);
  // Does the same for an op with one output.
  absl::StatusOr<TensorRef> Run(const SessionRef& session, const OpRequest& request);

  // Prepares a program for this session. Its host memory, and the device's memory that it keeps,
  // are charged to the session.
  absl::StatusOr<std::shared_ptr<Program>> Prepare(Session& session, const ProgramSpec& spec,
                                                   absl::string_view device);

  // Runs a program as RunOp() runs an op: promises the outputs and returns them. If the inputs or
  // outputs do not fit the program, returns INVALID_ARGUMENT. `donate` has the meaning of
  // OpRequest::donate.
  absl::StatusOr<TensorRefs> Run(const SessionRef& session, const std::shared_ptr<Program>& program,
                                 absl::Span<const Handle> inputs, absl::Span<const Handle> outputs,
                                 absl::Span<const uint32_t> donate = {});

  // Returns the prepared op that RunOp() would use for these inputs, or the error that RunOp()
  // would return. Does not check handles.
  absl::StatusOr<PreparedOpRef> FindPreparedOp(const Session& session, const OpRequest& request,
                                               absl::Span<const TensorRef> inputs);

  // Promises a copy of the input on another device. If the input is on `device` already, copies
  // nothing. In this case, if `share` is true, returns a tensor at `output` with the same memory.
  // If `share` is false, returns the input, and `output` stays free.
  absl::StatusOr<TensorRef> Copy(const SessionRef& session, Handle input, Handle output,
                                 absl::string_view device, bool share);

  // Inserts a tensor that a later upload fills. Ops may use the handle at once.
  absl::StatusOr<TensorRef> Promise(Session& session, Handle handle, const TensorSpec& spec,
                                    absl::string_view device);

  // An upload that one call has begun or continued.
  struct Upload {
    TensorRef tensor;
    BufferRef buffer;       // null until the memory is allocated
    bool promised = false;  // whether the handle was promised before
    Charge in_flight;       // counts the upload against the principal's limit
    int64_t written_bytes = 0;
  };
  // Returns ABORTED: the error of a resumable upload that another call has continued.
  static absl::Status UploadContinuedError(Handle handle);
  // Begins an upload to a promised or a free handle: allocates the memory, or continues an upload
  // that was parked. If the handle is promised with another spec or device, fails the promise and
  // returns INVALID_ARGUMENT. The caller then fills the buffer by Device::Write() and calls
  // FinishUpload(). `stop` has the meaning of UploadState::Claim(). If the upload can't be aborted,
  // `stop` is empty. If `stop` is not empty, and another call has claimed the promise, returns
  // UploadContinuedError().
  absl::StatusOr<Upload> BeginUpload(Session& session, Handle handle, const TensorSpec& spec,
                                     absl::string_view device, std::function<void()> stop = {});
  // These two functions together do the same as BeginUpload(), for callers that may wait before
  // they write anything. After ClaimUpload() of a promised handle, no other call can write the
  // tensor. AllocateMemory() allocates the memory. If that fails, a promise fails with the error.
  absl::StatusOr<Upload> ClaimUpload(Session& session, Handle handle, const TensorSpec& spec,
                                     absl::string_view device, std::function<void()> stop = {});
  absl::Status AllocateMemory(Session& session, Upload* upload);

  // If `outcome` is OK, the tensor becomes done. Otherwise a promise fails with `outcome`, and a
  // handle that was not promised stays free. If the device is lost, its DATA_LOSS replaces an OK
  // `outcome`. If the handle was not promised and is in use by now, returns ALREADY_EXISTS.
  absl::Status FinishUpload(Session& session, Upload upload, absl::Status outcome);

  // Calls `callback` when Device::Read() can read the tensor, or with the tensor's error. It may be
  // called on any thread, and must not block or call the device.
  void WhenReadable(const TensorRef& tensor, std::function<void(absl::Status)> callback);

  // Calls `callback` when everything that the session has started so far has finished, including
  // promised uploads. `callback` may be called on any thread, and must not block. If the session
  // has no host memory left for the wait, returns RESOURCE_EXHAUSTED, and never calls `callback`.
  absl::Status WhenIdle(const SessionRef& session, std::function<void()> callback);

  // Returns how many kernels for chains of ops wait to be compiled or are being compiled. Until its
  // kernel is compiled, a chain runs op by op.
  int64_t kernels_to_compile() const { return chains_.kernels_to_compile(); }

  InlineWatch& inline_watch() { return inline_watch_; }

 private:
  absl::StatusOr<DeviceSlot*> FindSlot(const OpRequest& request,
                                       absl::Span<const TensorRef> inputs) const;

  // Inserts `outputs` into the session, all or none of them, removes the donated inputs, and makes
  // the inputs that are scalars. Then runs the executable, or posts it when its inputs are ready.
  absl::Status Start(const SessionRef& session, std::shared_ptr<Executable> executable,
                     TensorRefs inputs, const TensorRefs& outputs,
                     absl::Span<const uint32_t> donate, absl::Span<const ScalarInput> scalars = {});

  void NotifyDeviceListener(DeviceSlot& slot, DeviceEvent event);

  std::vector<std::unique_ptr<DeviceSlot>> owned_;
  std::vector<DeviceSlot*> slots_;
  PreparedOpCache prepared_ops_;
  const bool fusion_;
  const bool graphs_;
  std::vector<UnavailableKind> unavailable_kinds_;
  ChainKernels chains_{&prepared_ops_};
  InlineWatch inline_watch_;
  Mutex listener_mu_;
  DeviceMonitor::Listener listener_ ABSL_GUARDED_BY(listener_mu_);
  std::vector<std::unique_ptr<DeviceMonitor>> monitors_;
};

}  // namespace tensord::server
