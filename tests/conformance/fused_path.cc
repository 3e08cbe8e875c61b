// The execution path that runs fused ops on the engine in this process. For each result of an op,
// it queues a second op, which returns the result unchanged. None of these ops runs before all are
// queued. So the op and a second op run as one fused kernel, if the op can be part of a chain.
#include <thread>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/tests/await_compiled.h"
#include "tensord/tests/conformance/engine_path.h"

namespace tensord::conformance {
namespace {

class FusedPath : public EnginePath {
 public:
  using EnginePath::EnginePath;

 private:
  absl::StatusOr<server::TensorRefs> Compute(const server::SessionRef& session,
                                             const server::OpRequest& request) override {
    TENSORD_ASSIGN_OR_RETURN(server::DeviceSlot * slot, engine().FindDevice(request.device));
    absl::StatusOr<server::TensorRefs> result = RunChain(session, request, *slot);
    if (!result.ok() || slot->device->host_accessible()) return result;
    // On a GPU, the first run goes op by op while the fused kernel is compiled. Runs the chain
    // again, with that kernel.
    TENSORD_RETURN_IF_ERROR(AwaitCompiled(engine()));
    slot->executor->Drain();
    for (server::Handle past = 0; past <= request.num_outputs; ++past) {
      session->Drop({request.output + request.num_outputs + past});
    }
    return RunChain(session, request, *slot);
  }

  absl::StatusOr<server::TensorRefs> RunChain(const server::SessionRef& session,
                                              const server::OpRequest& request,
                                              server::DeviceSlot& slot) {
    const server::Handle condition = request.output + request.num_outputs;
    const Attributes yes{{"shape", std::vector<int64_t>{}}, {"value", true}};
    TENSORD_RETURN_IF_ERROR(
        engine().Run(session, {"full", {}, condition, yes, request.device}).status());
    server::Executor& executor = *slot.executor;
    executor.Drain();
    // Holds the executor, so that it runs nothing until the chain is queued. Its thread may still
    // be finishing its last task, so this may take several attempts.
    server::Executor::InlineLock lock;
    for (int i = 0; i < 100000 && !lock.held(); ++i) {
      std::this_thread::yield();
      lock = server::Executor::InlineLock(&executor);
    }
    if (!lock.held()) return absl::InternalError("the executor doesn't become idle");
    executor.Post(session->lane(slot), [] {});  // later tasks wait behind this one
    TENSORD_RETURN_IF_ERROR(engine().RunOp(session, request).status());
    server::TensorRefs results;
    for (server::Handle i = 0; i < request.num_outputs; ++i) {
      const server::Handle output = request.output + i;
      const server::Handle inputs[] = {condition, output, output};
      TENSORD_ASSIGN_OR_RETURN(server::TensorRef result,
                               engine().Run(session, {"where", inputs, condition + 1 + i, {}, ""}));
      session->Drop({output});
      results.push_back(std::move(result));
    }
    return results;
  }
};

}  // namespace

const char* ExecutionPathName() { return "fused"; }

absl::StatusOr<std::unique_ptr<ExecutionPath>> MakeExecutionPath() {
  TENSORD_ASSIGN_OR_RETURN(auto devices, MakeTwoCpusAndAGpu());
  return std::make_unique<FusedPath>(std::move(devices));
}

}  // namespace tensord::conformance
