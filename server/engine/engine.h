// Takes ops in, finds their inputs, puts work on device queues, keeps errors on handles.
//
// Ops run by dataflow: an op is posted to its device as soon as each input is there or is made by
// something posted earlier to the same lane; only what depends on an upload or on another device
// waits. Memory for a result is taken when the op runs, so that a long backlog needs no more of it
// than running op by op would.
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
#include "tensord/common/mutex.h"
#include "tensord/server/engine/device_monitor.h"
#include "tensord/server/engine/fusion.h"
#include "tensord/server/engine/prepared_op.h"
#include "tensord/server/engine/program.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// One op as a client names it. Views are used during the call only.
struct OpRequest {
  absl::string_view op;
  absl::Span<const Handle> inputs;
  Handle output = 0;
  Attributes attrs;
  absl::string_view device;  // may be empty where there are inputs
};

// Thread-safe. Owns the devices and their executors; outlives every session and tensor.
class Engine {
 public:
  // `fusion`: whether elementwise ops that follow one another may run as one kernel, with the same
  // results, and a linear with its activation; in programs, too. `graphs`: whether programs may run
  // as graphs of their device's. `threading`: of the executors; other than by threads of their own
  // only in tests.
  explicit Engine(std::vector<std::unique_ptr<Device>> devices, bool fusion = true,
                  bool graphs = true,
                  Executor::Threading threading = Executor::Threading::kOwnThread);
  ~Engine();

  const std::vector<DeviceSlot*>& slots() const { return slots_; }

  // `listener` hears of every device that is lost (false) and comes back (true), from a thread of
  // its own, with no lock held that the engine or a session takes; of those that are lost already,
  // from this call. Null ends it: once this returns nobody is being told.
  void SetServingListener(DeviceMonitor::Listener listener);

  // "cuda" is cuda:0. INVALID_ARGUMENT for a malformed name, NOT_FOUND listing the devices there
  // are.
  absl::StatusOr<DeviceSlot*> FindDevice(absl::string_view name) const;

  // Promises request.output and returns it; the work goes on behind. What can be seen at once
  // (handles, inference, devices) is returned as an error, and then nothing has changed; an input
  // that has failed already gives its root error. What happens later sticks to the tensor. Here and
  // below: UNAVAILABLE naming the device while it is lost.
  absl::StatusOr<TensorRef> Run(const SessionRef& session, const OpRequest& request);

  // Makes a program ready to run by this session, which pays for what it keeps.
  absl::StatusOr<std::shared_ptr<Program>> Prepare(Session& session, const ProgramSpec& spec,
                                                   absl::string_view device);

  // As Run: promises the outputs, and returns them. INVALID_ARGUMENT where inputs or outputs don't
  // fit the program.
  absl::StatusOr<TensorRefs> Run(const SessionRef& session, const std::shared_ptr<Program>& program,
                                 absl::Span<const Handle> inputs, absl::Span<const Handle> outputs);

  // What Run would do for these inputs: its errors, but for those of handles.
  absl::StatusOr<PreparedOpRef> FindPreparedOp(const OpRequest& request,
                                               absl::Span<const TensorRef> inputs);

  // Promises a copy on another device. Where the input already lies on `device` nothing is copied:
  // with `share` the output handle is made for the same memory, without it the input is returned
  // and `output` stays free.
  absl::StatusOr<TensorRef> Copy(const SessionRef& session, Handle input, Handle output,
                                 absl::string_view device, bool share);

  // Makes a handle for an upload to come, so that ops may name it already.
  absl::StatusOr<TensorRef> Promise(Session& session, Handle handle, const TensorSpec& spec,
                                    absl::string_view device);

  // Takes the memory for an upload, to a promised or a free handle, or goes on with one that was
  // parked. The spec and device of a promise must be met. Fill the buffer with Device::Write, then
  // call FinishUpload. `stop`: as in UploadState::Claim; empty where the upload can't be.
  // With one, UploadMovedOn where the promise has been taken up by another call.
  struct Upload {
    TensorRef tensor;
    BufferRef buffer;
    bool promised = false;
    UsageHold in_flight;  // counts it as under way
    int64_t written_bytes = 0;
  };
  // What a call that may go on with an upload gets where another has gone on with it: ABORTED.
  static absl::Status UploadMovedOn(Handle handle);
  absl::StatusOr<Upload> BeginUpload(Session& session, Handle handle, const TensorSpec& spec,
                                     absl::string_view device, std::function<void()> stop = {});
  // The same in two steps, for what may have to wait before it brings anything: nobody else brings
  // the tensor from the first on, and memory is taken by the second.
  absl::StatusOr<Upload> ClaimUpload(Session& session, Handle handle, const TensorSpec& spec,
                                     absl::string_view device, std::function<void()> stop = {});
  absl::Status TakeMemory(Session& session, Upload* upload);

  // With OK the tensor is there for all; otherwise a promise fails with `outcome`, and a handle
  // that wasn't promised stays free. ALREADY_EXISTS where the handle was taken meanwhile.
  absl::Status FinishUpload(Session& session, Upload upload, absl::Status outcome);

  // Calls back when the tensor's bytes can be read by Device::Read, or with its error; on any
  // thread, which `callback` must not block.
  void WhenReadable(const TensorRef& tensor, std::function<void(absl::Status)> callback);

  // Calls back when everything posted so far for the session has run.
  void WhenIdle(const SessionRef& session, std::function<void()> callback);

  // Blocks until no kernel for a chain of ops waits for its compilation. For tests.
  void AwaitCompiled() { chains_.AwaitCompiled(); }

 private:
  absl::StatusOr<DeviceSlot*> FindSlot(const OpRequest& request,
                                       absl::Span<const TensorRef> inputs) const;

  // Runs it now, or when its inputs are there, into the handles of `outputs`: all or none of them.
  absl::Status Start(const SessionRef& session, std::shared_ptr<Executable> executable,
                     TensorRefs inputs, const TensorRefs& outputs);

  void TellServing(DeviceSlot& slot, bool serving);

  std::vector<std::unique_ptr<DeviceSlot>> owned_;
  std::vector<DeviceSlot*> slots_;
  PreparedOpCache prepared_ops_;
  const bool fusion_;
  const bool graphs_;
  ChainKernels chains_{&prepared_ops_};
  Mutex listener_mu_;
  DeviceMonitor::Listener listener_ ABSL_GUARDED_BY(listener_mu_);
  std::vector<std::unique_ptr<DeviceMonitor>> monitors_;
};

}  // namespace tensord::server
