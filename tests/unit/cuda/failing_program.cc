#include "tensord/tests/unit/cuda/failing_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/cuda/checked_cuda_device.h"

namespace tensord::server {
namespace {

constexpr int64_t kLimitBytes = int64_t{1} << 30;

TensorSpec Matrix(int64_t rows, int64_t columns) { return {DType::kFloat32, Shape{rows, columns}}; }

}  // namespace

FailingProgram::~FailingProgram() {
  bool lost[kGpus] = {};
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    lost[gpu] = cuda_emulation::StickyError(gpu) != cudaSuccess;
    if (lost[gpu] && devices_[gpu] != nullptr) devices_[gpu]->Abandon();
  }
  buffers_.clear();
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    devices_[gpu].reset();
    if (!lost[gpu]) continue;
    const absl::Status reset = ResetCudaDevice(gpu);
    EXPECT_TRUE(reset.ok()) << reset;
  }
}

absl::Status FailingProgram::Run() {
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    TENSORD_ASSIGN_OR_RETURN(devices_[gpu],
                             MakeCheckedCudaDevice({DeviceKind::kCuda, gpu}, gpu, kLimitBytes));
  }
  if (fused_) return RunFused(*devices_[0]);
  TENSORD_RETURN_IF_ERROR(RunOps(*devices_[0]));
  TENSORD_RETURN_IF_ERROR(RunGraph(*devices_[0]));
  TENSORD_RETURN_IF_ERROR(CopyBetween(*devices_[0], *devices_[1]));
  return devices_[0]->Check();
}

absl::StatusOr<BufferRef> FailingProgram::Upload(Device& device, const std::vector<float>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  TENSORD_ASSIGN_OR_RETURN(BufferRef buffer, device.Allocate(bytes));
  buffers_.push_back(buffer);
  TENSORD_RETURN_IF_ERROR(device.Write(*buffer, 0, values.data(), bytes));
  return buffer;
}

absl::StatusOr<BufferRef> FailingProgram::Compute(Device& device, absl::string_view op,
                                                  const std::vector<TensorSpec>& specs,
                                                  const std::vector<BufferRef>& inputs,
                                                  const Attributes& attrs) {
  TENSORD_ASSIGN_OR_RETURN(const OpPlan plan, PlanOp(op, specs, attrs));
  std::vector<Operand> operands;
  for (size_t i = 0; i < inputs.size(); ++i) operands.push_back({&specs[i], inputs[i]->data()});
  TENSORD_ASSIGN_OR_RETURN(BufferRef output, device.Allocate(plan.output().size_bytes()));
  buffers_.push_back(output);
  TENSORD_RETURN_IF_ERROR(device.Launch({TestLaunch(device).context(),
                                         plan.schema,
                                         &plan.attrs,
                                         operands,
                                         {{&plan.output(), output->data()}}}));
  return output;
}

absl::Status FailingProgram::Expect(Device& device, const BufferRef& buffer,
                                    const std::vector<float>& expected, absl::string_view step) {
  std::promise<absl::Status> fenced;
  device.Fence([&](absl::Status status) { fenced.set_value(std::move(status)); });
  TENSORD_RETURN_IF_ERROR(fenced.get_future().get());
  std::vector<float> values(expected.size());
  TENSORD_RETURN_IF_ERROR(device.Read(*buffer, 0, values.data(), buffer->size_bytes()));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::abs(values[i] - expected[i]) <= 1e-5f * std::max(1.0f, std::abs(expected[i])))
      continue;
    return absl::InternalError(absl::StrCat("wrong result of ", step, ": element ", i, " is ",
                                            values[i], ", not ", expected[i]));
  }
  return absl::OkStatus();
}

// An addition, a linear layer whose sum needs scratch memory, a convolution, a softmax and a sum.
absl::Status FailingProgram::RunOps(Device& device) {
  const std::vector<float> ones(64, 1.0f);
  TENSORD_ASSIGN_OR_RETURN(const BufferRef x, Upload(device, ones));
  TENSORD_ASSIGN_OR_RETURN(const BufferRef w, Upload(device, ones));
  TENSORD_ASSIGN_OR_RETURN(const BufferRef bias, Upload(device, std::vector<float>(8, 0.5f)));
  const TensorSpec m = Matrix(8, 8), b{DType::kFloat32, Shape{8}};
  TENSORD_ASSIGN_OR_RETURN(const BufferRef two, Compute(device, "add", {m, m}, {x, w}));
  TENSORD_RETURN_IF_ERROR(Expect(device, two, std::vector<float>(64, 2.0f), "add"));
  for (const char* activation : {"relu", "silu"}) {
    TENSORD_ASSIGN_OR_RETURN(const BufferRef y, Compute(device, "linear", {m, m, b}, {two, w, bias},
                                                        {{"activation", std::string(activation)}}));
    const float sum = 16.5f;
    const float result = activation[0] == 'r' ? sum : sum / (1 + std::exp(-sum));
    TENSORD_RETURN_IF_ERROR(Expect(device, y, std::vector<float>(64, result), activation));
  }
  const TensorSpec images{DType::kFloat32, Shape{1, 1, 8, 8}};
  TENSORD_ASSIGN_OR_RETURN(const BufferRef convolved,
                           Compute(device, "conv", {images, images}, {two, x}));
  TENSORD_RETURN_IF_ERROR(Expect(device, convolved, {128.0f}, "conv"));
  TENSORD_ASSIGN_OR_RETURN(const BufferRef soft,
                           Compute(device, "softmax", {m}, {two}, {{"axis", int64_t{1}}}));
  TENSORD_RETURN_IF_ERROR(Expect(device, soft, std::vector<float>(64, 0.125f), "softmax"));
  const TensorSpec large{DType::kFloat32, Shape{1 << 18}};
  TENSORD_ASSIGN_OR_RETURN(const BufferRef many,
                           Upload(device, std::vector<float>(size_t{1} << 18, 1.0f)));
  TENSORD_ASSIGN_OR_RETURN(const BufferRef total, Compute(device, "sum", {large}, {many}));
  return Expect(device, total, {float{1 << 18}}, "sum");
}

absl::Status FailingProgram::RunGraph(Device& device) {
  const TensorSpec large{DType::kFloat32, Shape{1 << 18}};
  TENSORD_ASSIGN_OR_RETURN(const BufferRef many,
                           Upload(device, std::vector<float>(size_t{1} << 18, 1.0f)));
  TENSORD_ASSIGN_OR_RETURN(const BufferRef total, Compute(device, "sum", {large}, {many}));
  TENSORD_ASSIGN_OR_RETURN(const OpPlan plan, PlanOp("sum", {large}, {}));
  const Operand input = {&large, many->data()};
  const auto launch = [&] {
    return device.Launch({TestLaunch(device).context(),
                          plan.schema,
                          &plan.attrs,
                          absl::MakeConstSpan(&input, 1),
                          {{&plan.output(), total->data()}}});
  };
  TENSORD_ASSIGN_OR_RETURN(const std::unique_ptr<KernelGraph> graph,
                           device.Capture(*account_, launch));
  const std::vector<float> twos(size_t{1} << 18, 2.0f);
  TENSORD_RETURN_IF_ERROR(device.Write(*many, 0, twos.data(), many->size_bytes()));
  const Buffer* const written = many.get();
  TENSORD_RETURN_IF_ERROR(graph->Launch(absl::MakeConstSpan(&written, 1)));
  return Expect(device, total, {float{1 << 19}}, "a graph");
}

absl::Status FailingProgram::RunFused(Device& device) {
  const TensorSpec m = Matrix(8, 8);
  TENSORD_ASSIGN_OR_RETURN(const BufferRef x, Upload(device, std::vector<float>(64, 3.0f)));
  TENSORD_ASSIGN_OR_RETURN(const OpPlan add, PlanOp("add", {m, m}, {}));
  TENSORD_ASSIGN_OR_RETURN(const OpPlan mul, PlanOp("mul", {m, m}, {}));
  const std::vector<FusedSpec::Step> steps = {{add.schema, &add.attrs, {0, 0}, DType::kFloat32},
                                              {mul.schema, &mul.attrs, {-1, 0}, DType::kFloat32}};
  TENSORD_ASSIGN_OR_RETURN(const auto kernel,
                           device.PrepareFused({absl::MakeConstSpan(&m, 1), steps, &m}));
  TENSORD_ASSIGN_OR_RETURN(const BufferRef out, device.Allocate(m.size_bytes()));
  const Buffer* const input = x.get();
  TENSORD_RETURN_IF_ERROR(
      kernel->Launch(TestLaunch(device).context(), absl::MakeConstSpan(&input, 1), out.get()));
  return Expect(device, out, std::vector<float>(64, 18.0f), "a fused kernel");
}

absl::Status FailingProgram::CopyBetween(Device& from, Device& to) {
  const std::vector<float> values(1000, 4.0f);
  TENSORD_ASSIGN_OR_RETURN(BufferRef source, Upload(from, values));
  TENSORD_ASSIGN_OR_RETURN(const BufferRef copy, to.Allocate(source->size_bytes()));
  TENSORD_RETURN_IF_ERROR(to.CopyFrom(*copy, *source, source->size_bytes()));
  buffers_.clear();
  source.reset();  // the copy may still run
  return Expect(to, copy, values, "a copy between GPUs");
}

}  // namespace tensord::server
