// Compares kernels that are launched as a graph with the same kernels launched one by one. Also
// tests programs that run as graphs.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_fixture.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/cuda/checked_cuda_device.h"
#include "tensord/tests/unit/engine/fake_device.h"
#include "tensord/tests/unit/engine/read_tensor.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

class CudaGraphTest : public CudaTest {
 protected:
  struct Step {
    std::unique_ptr<PreparedKernel> kernel;
    std::vector<const Buffer*> inputs;
    Buffer* output;
  };

  // Adds a step that runs the op. Returns its output. The caller keeps all buffers alive.
  BufferRef Add(absl::string_view op, const std::vector<TensorSpec>& specs,
                const std::vector<BufferRef>& inputs, const Attributes& attrs = {}) {
    auto plan = PlanOp(op, specs, attrs);
    EXPECT_TRUE(plan.ok()) << plan.status();
    auto kernel = cuda_->Prepare({plan->schema, &plan->attrs, specs, plan->outputs});
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    BufferRef output = *cuda_->Allocate(plan->output().size_bytes());
    Step step{*std::move(kernel), {}, output.get()};
    for (const BufferRef& input : inputs) step.inputs.push_back(input.get());
    steps_.push_back(std::move(step));
    spec_ = plan->output();
    return output;
  }

  absl::Status Launch() {
    for (Step& step : steps_) {
      const absl::Status launched =
          step.kernel->Launch({*account_, *cuda_}, step.inputs, step.output);
      if (!launched.ok()) return launched;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<KernelGraph>> Capture() {
    return cuda_->Capture(*account_, [this] { return Launch(); });
  }

  // Runs the steps one by one, and then three times as a graph. Expects the same bits each time.
  void ExpectTheSame(const BufferRef& output) {
    ASSERT_TRUE(Launch().ok());
    Wait(*cuda_);
    const std::string expected = Download(spec_, output).bytes;
    auto graph = Capture();
    ASSERT_TRUE(graph.ok()) << graph.status();
    const std::string wrong(expected.size(), '\x55');
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(cuda_->Write(*output, 0, wrong.data(), spec_.size_bytes()).ok());
      const Buffer* const written = output.get();
      ASSERT_TRUE((*graph)->Launch(absl::MakeConstSpan(&written, 1)).ok());
      Wait(*cuda_);
      EXPECT_EQ(Download(spec_, output).bytes, expected);
    }
  }

  MemoryAccount::Ref account_ = MemoryAccount::Open({.device = "cuda:0"});
  std::vector<Step> steps_;
  TensorSpec spec_;  // of the last step's output
};

TEST_F(CudaGraphTest, RunsNothingWhileCapturing) {
  const TensorSpec spec{DType::kFloat32, {1000}};
  const BufferRef x = Upload(*cuda_, MakeValues(spec.dtype, spec.shape, 1));
  const BufferRef y = Add("neg", {spec}, {x});
  ASSERT_TRUE(Launch().ok());
  Wait(*cuda_);
  const std::string before(spec.size_bytes(), '\x11');
  ASSERT_TRUE(cuda_->Write(*y, 0, before.data(), spec.size_bytes()).ok());
  ASSERT_TRUE(Capture().ok());
  Wait(*cuda_);
  EXPECT_EQ(Download(spec, y).bytes, before);
}

TEST_F(CudaGraphTest, ElementwiseOps) {
  const TensorSpec spec{DType::kFloat32, {33, 65}};
  const BufferRef x = Upload(*cuda_, MakeValues(spec.dtype, spec.shape, 1));
  BufferRef y = Add("exp", {spec}, {x});
  std::vector<BufferRef> held;
  for (int i = 0; i < 50; ++i) {
    held.push_back(y);
    y = Add("mul", {spec, spec}, {x, y});
  }
  ExpectTheSame(y);
}

TEST_F(CudaGraphTest, ProductsWithBiasAndActivation) {
  const TensorSpec x_spec{DType::kFloat32, {64, 256}}, w_spec{DType::kFloat32, {128, 256}},
      b_spec{DType::kFloat32, {128}};
  const BufferRef x = Upload(*cuda_, MakeValues(x_spec.dtype, x_spec.shape, 1));
  const BufferRef w = Upload(*cuda_, MakeValues(w_spec.dtype, w_spec.shape, 2));
  const BufferRef b = Upload(*cuda_, MakeValues(b_spec.dtype, b_spec.shape, 3));
  const BufferRef h =
      Add("linear", {x_spec, w_spec, b_spec}, {x, w, b}, {{"activation", std::string("relu")}});
  const TensorSpec h_spec = spec_;
  const BufferRef out = Add("matmul", {h_spec, w_spec}, {h, w});
  ExpectTheSame(out);
}

TEST_F(CudaGraphTest, Convolutions) {
  const TensorSpec x_spec{DType::kFloat16, {2, 3, 9, 9}}, w_spec{DType::kFloat16, {4, 3, 3, 3}},
      b_spec{DType::kFloat16, {4}};
  const BufferRef x = Upload(*cuda_, MakeValues(x_spec.dtype, x_spec.shape, 1));
  const BufferRef w = Upload(*cuda_, MakeValues(w_spec.dtype, w_spec.shape, 2));
  const BufferRef b = Upload(*cuda_, MakeValues(b_spec.dtype, b_spec.shape, 3));
  const BufferRef y =
      Add("conv", {x_spec, w_spec, b_spec}, {x, w, b}, {{"activation", std::string("silu")}});
  const TensorSpec y_spec = spec_;
  const BufferRef w_gradient = Add("conv_backward_weight", {y_spec, x_spec}, {y, x},
                                   {{"shape", std::vector<int64_t>{4, 3, 3, 3}}});
  const BufferRef x_gradient = Add("conv_backward_input", {y_spec, w_spec}, {y, w_gradient},
                                   {{"shape", std::vector<int64_t>{2, 3, 9, 9}}});
  ExpectTheSame(x_gradient);
  auto graph = Capture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_GT(account_->used_bytes(), 0);  // cuDNN's workspace
}

TEST_F(CudaGraphTest, ReductionsCountAndFreeMemoryForPartialSums) {
  const TensorSpec spec{DType::kFloat32, {1 << 20}};
  const BufferRef x = Upload(*cuda_, MakeValues(spec.dtype, spec.shape, 1));
  const BufferRef sum = Add("sum", {spec}, {x});
  const BufferRef max = Add("max", {spec}, {x});
  const int64_t before = cuda_->memory().used_bytes;
  ExpectTheSame(max);
  EXPECT_EQ(cuda_->memory().used_bytes, before);
  EXPECT_EQ(account_->used_bytes(), 0);
  auto graph = Capture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(cuda_->memory().used_bytes - before, account_->used_bytes());
  EXPECT_GT(account_->used_bytes(), 0);
  // The graph may be destroyed while it runs.
  ASSERT_TRUE((*graph)->Launch({}).ok());
  graph->reset();
  EXPECT_EQ(cuda_->memory().used_bytes, before);
  Wait(*cuda_);
}

TEST_F(CudaGraphTest, FillsRandomNumbersAndMovement) {
  const Attributes attrs{
      {"shape", std::vector<int64_t>{40, 50}}, {"seed", int64_t{7}}, {"dtype", DType::kFloat32}};
  const BufferRef random = Add("normal", {}, {}, attrs);
  const TensorSpec spec = spec_;
  const BufferRef zeros =
      Add("zeros", {}, {}, {{"shape", std::vector<int64_t>{40, 50}}, {"dtype", DType::kFloat32}});
  const BufferRef sum = Add("add", {spec, spec}, {random, zeros});
  const BufferRef transposed =
      Add("permute", {spec}, {sum}, {{"axes", std::vector<int64_t>{1, 0}}});
  const TensorSpec transposed_spec = spec_;
  const BufferRef soft = Add("softmax", {transposed_spec}, {transposed}, {{"axis", int64_t{1}}});
  ExpectTheSame(soft);
}

TEST_F(CudaGraphTest, WaitsForUploadsIntoItsInputs) {
  const TensorSpec spec{DType::kFloat32, {1 << 20}};
  const BufferRef x = Upload(*cuda_, MakeValues(spec.dtype, spec.shape, 1));
  const BufferRef y = Add("neg", {spec}, {x});
  ASSERT_TRUE(Launch().ok());
  auto graph = Capture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (uint64_t salt = 2; salt < 10; ++salt) {
    Wait(*cuda_);
    const HostTensor values = MakeValues(spec.dtype, spec.shape, salt);
    ASSERT_TRUE(cuda_->Write(*x, 0, values.bytes.data(), spec.size_bytes()).ok());
    const Buffer* const written = x.get();
    ASSERT_TRUE((*graph)->Launch(absl::MakeConstSpan(&written, 1)).ok());
    Wait(*cuda_);
    const HostTensor result = Download(spec, y);
    for (int64_t i = 0; i < spec.num_elements(); i += 4099) ASSERT_EQ(result.At(i), -values.At(i));
  }
}

TEST_F(CudaGraphTest, CapturesWhileOtherThreadsUseTheDevice) {
  const TensorSpec spec{DType::kFloat32, {1000}};
  const BufferRef x = Upload(*cuda_, MakeValues(spec.dtype, spec.shape, 1));
  BufferRef y = x;
  std::vector<BufferRef> held;
  for (int i = 0; i < 200; ++i) {
    held.push_back(y);
    y = Add("neg", {spec}, {y});
  }
  ASSERT_TRUE(Launch().ok());
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int t = 0; t < 2; ++t) {
    others.emplace_back([&] {
      const HostTensor values = MakeValues(DType::kFloat32, {50'000}, 5);
      while (!stop.load()) {
        const BufferRef buffer = Upload(*cuda_, values);
        EXPECT_EQ(Download(values.spec, buffer).bytes, values.bytes);
        EXPECT_TRUE(cuda_->Check().ok());
      }
    });
  }
  // Allocations of this device fail, and before that wait for all work of the GPU.
  const int64_t too_much = 2 * *CudaTotalMemory(0);
  auto greedy = MakeCheckedCudaDevice({DeviceKind::kCuda, 1}, 0, too_much);
  ASSERT_TRUE(greedy.ok()) << greedy.status();
  others.emplace_back([&] {
    while (!stop.load()) EXPECT_FALSE((*greedy)->Allocate(too_much).ok());
  });
  for (int i = 0; i < 50; ++i) {
    auto graph = Capture();
    EXPECT_TRUE(graph.ok() && (*graph)->Launch({}).ok()) << graph.status();
  }
  stop = true;
  for (std::thread& other : others) other.join();
  Wait(*cuda_);
  EXPECT_EQ(Download(spec, y).bytes, Download(spec, x).bytes);
}

TEST_F(CudaGraphTest, WorksAfterAFailedCapture) {
  const TensorSpec spec{DType::kFloat32, {10}};
  const BufferRef x = Upload(*cuda_, MakeValues(spec.dtype, spec.shape, 1));
  const BufferRef y = Add("neg", {spec}, {x});
  const auto failed = cuda_->Capture(*account_, [this] {
    Launch().IgnoreError();
    return absl::InternalError("no");
  });
  EXPECT_EQ(failed.status(), absl::InternalError("no"));
  ExpectTheSame(y);
}

// An engine over one GPU.
class CudaProgramTest : public CudaTest {
 protected:
  struct Runner {
    explicit Runner(bool graphs) {
      std::vector<std::unique_ptr<Device>> devices;
      devices.push_back(*MakeCheckedCudaDevice({DeviceKind::kCuda, 0}, 0, kLimitBytes));
      engine = std::make_unique<Engine>(std::move(devices), /*fusion=*/true, graphs);
      sessions = std::make_unique<SessionTable>(Limits(), engine->slots());
      session = *sessions->Open(TestPrincipal(), kTestLeaseSeconds, "test");
    }
    ~Runner() {
      session.reset();
      sessions.reset();
      engine.reset();
    }

    Handle Uniform(int64_t seed) {
      const Attributes attrs{
          {"shape", std::vector<int64_t>{48, 48}}, {"seed", seed}, {"dtype", DType::kFloat32}};
      EXPECT_TRUE(engine->Run(session, {"uniform", {}, ++last, attrs, "cuda:0"}).ok());
      return last;
    }
    std::string Read(Handle handle) {
      const auto bytes = ReadTensor<char>(*engine, *session->Find(handle));
      EXPECT_TRUE(bytes.ok()) << bytes.status();
      return bytes.ok() ? std::string(bytes->begin(), bytes->end()) : std::string();
    }
    int64_t used_bytes() { return engine->slots()[0]->device->memory().used_bytes; }

    std::unique_ptr<Engine> engine;
    std::unique_ptr<SessionTable> sessions;
    SessionRef session;
    Handle last = 0;
  };

  // Prepares a program with inputs x and w that sets x to tanh(x · w) thirty times. It has two
  // outputs. One of them is an intermediate value.
  static std::shared_ptr<Program> Prepare(Runner& runner) {
    const TensorSpec spec{DType::kFloat32, {48, 48}};
    const Attributes none;
    ProgramSpec program{{spec, spec}, {}, {61, 31}};
    for (uint32_t i = 0; i < 30; ++i) {
      program.steps.push_back({"matmul", &none, {i == 0 ? 0 : 2 * i + 1, 1}});
      program.steps.push_back({"tanh", &none, {2 * i + 2}});
    }
    return *runner.engine->Prepare(*runner.session, program, "cuda:0");
  }

  // Runs the program several times, and then reads both outputs of each run.
  static std::vector<std::string> Results(Runner& runner) {
    const std::shared_ptr<Program> program = Prepare(runner);
    const Handle w = runner.Uniform(1), other_w = runner.Uniform(2);
    std::vector<Handle> outputs;
    for (int run = 0; run < 20; ++run) {
      const Handle x = runner.Uniform(3 + run), first = ++runner.last, second = ++runner.last;
      EXPECT_TRUE(
          runner.engine->Run(runner.session, program, {x, run < 15 ? w : other_w}, {first, second})
              .ok());
      outputs.insert(outputs.end(), {first, second});
    }
    std::vector<std::string> results;
    for (const Handle output : outputs) results.push_back(runner.Read(output));
    return results;
  }
};

TEST_F(CudaProgramTest, GivesTheSameBitsAsOpsOneByOne) {
  Runner with(true), without(false);
  EXPECT_EQ(Results(with), Results(without));
}

TEST_F(CudaProgramTest, ReleasedProgramFreesItsMemory) {
  Runner runner(true);
  std::shared_ptr<Program> program = Prepare(runner);
  const Handle w = runner.Uniform(1);
  for (int run = 0; run < 5; ++run) {
    const Handle x = runner.Uniform(2 + run), first = ++runner.last, second = ++runner.last;
    ASSERT_TRUE(runner.engine->Run(runner.session, program, {x, w}, {first, second}).ok());
    runner.Read(first);
    runner.session->Drop({x, first, second});
  }
  runner.engine->slots()[0]->executor->Drain();
  EXPECT_GT(runner.used_bytes(), 48 * 48 * 4);
  program.reset();
  EXPECT_TRUE(Eventually([&] { return runner.used_bytes() == 48 * 48 * 4; }));
}

}  // namespace
}  // namespace tensord::server
