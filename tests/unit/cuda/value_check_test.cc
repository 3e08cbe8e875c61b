// Kernels that report an index out of range.
#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/server/device/memory_account.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/test_launch.h"
#include "tensord/tests/unit/cuda/checked_cuda_device.h"
#include "tensord/tests/unit/cuda/cuda_fixture.h"
#include "tensord/tests/unit/engine/read_tensor.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using testing::ElementsAre;

class CudaValueCheckTest : public CudaTest {
 protected:
  // A kernel for index(x, indices), with x of 10 elements.
  struct Index {
    std::unique_ptr<PreparedKernel> kernel;
    BufferRef x, indices, output;

    absl::Status Launch(const CheckCell& cell) {
      const Buffer* const inputs[] = {x.get(), indices.get()};
      return kernel->Launch(TestLaunch(output->device(), cell).context(), inputs, output.get());
    }
  };

  Index MakeIndex(const std::vector<int64_t>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const std::vector<TensorSpec> specs = {{DType::kInt64, {10}}, {DType::kInt64, {count}}};
    const auto plan = PlanOp("index", specs, {});
    EXPECT_TRUE(plan.ok()) << plan.status();
    Index index;
    index.kernel = *cuda_->Prepare({plan->schema, &plan->attrs, specs, plan->outputs});
    index.x = Upload(*cuda_, HostTensor::Of<int64_t>(DType::kInt64, {10},
                                                     {10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
    index.indices = Upload(*cuda_, HostTensor::Of(DType::kInt64, {count}, values));
    index.output = *cuda_->Allocate(plan->output().size_bytes());
    return index;
  }

  // Launches the kernel and waits for it. Returns what it has reported.
  CheckRecord Run(Index index) {
    const auto memory = cuda_->MakeCheckMemory();
    EXPECT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE(index.Launch((*memory)->cell()).ok());
    Wait(*cuda_);
    return *(*memory)->Read();
  }

  MemoryAccount::Ref account_ = MemoryAccount::Open({.device = "cuda:0"});
};

TEST_F(CudaValueCheckTest, ReportsTheFirstBadIndex) {
  const CheckRecord record = Run(MakeIndex({3, -10, 10, 9, -11}));
  EXPECT_EQ(record.key, CheckKey(1, 2));
  EXPECT_EQ(record.value, 10);
  EXPECT_EQ(record.size, 10);
  EXPECT_EQ(record.axis, 0);
}

TEST_F(CudaValueCheckTest, ReportsNothingForGoodIndices) {
  EXPECT_EQ(Run(MakeIndex({0, 9, -1, -10})).key, 0u);
}

TEST_F(CudaValueCheckTest, OfManyBadIndicesTheFirstIsReported) {
  std::vector<int64_t> values(50'000, 3);
  for (size_t i = 7; i < values.size(); ++i) values[i] = 1000 + static_cast<int64_t>(i);
  const CheckRecord record = Run(MakeIndex(values));
  EXPECT_EQ(record.key, CheckKey(1, 7));
  EXPECT_EQ(record.value, 1007);
}

TEST_F(CudaValueCheckTest, ACellThatWasUsedIsZeroAgain) {
  EXPECT_NE(Run(MakeIndex({12})).key, 0u);
  EXPECT_EQ(Run(MakeIndex({2})).key, 0u);
  const CheckRecord record = Run(MakeIndex({2, 2, 2, 13}));
  EXPECT_EQ(record.key, CheckKey(1, 3));
  EXPECT_EQ(record.value, 13);
}

TEST_F(CudaValueCheckTest, ManyCellsAtOnce) {
  Index good = MakeIndex({2}), bad = MakeIndex({12});
  std::vector<std::unique_ptr<CheckMemory>> cells;
  for (int i = 0; i < 1000; ++i) {
    cells.push_back(*cuda_->MakeCheckMemory());
    ASSERT_TRUE((i % 3 == 0 ? bad : good).Launch(cells.back()->cell()).ok());
  }
  Wait(*cuda_);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(cells[i]->Read()->key != 0, i % 3 == 0) << i;
}

TEST_F(CudaValueCheckTest, CollectsTheReportOfTheFirstOpOfAGraph) {
  std::vector<Index> steps;
  for (const int64_t value : {2, 12, 13}) steps.push_back(MakeIndex({value}));
  for (Index& step : steps) ASSERT_TRUE(step.Launch({}).ok());  // before a capture
  const int64_t bytes = 3 * static_cast<int64_t>(sizeof(GraphCheckCell));
  const BufferRef buffer = *cuda_->Allocate(bytes);
  auto* const cells = static_cast<GraphCheckCell*>(buffer->data());
  ASSERT_TRUE(cuda_->CollectChecks(*buffer, 3, {}).ok());
  auto graph = cuda_->Capture(*account_, [&] {
    for (int i = 0; i < 3; ++i) {
      const absl::Status launched = steps[i].Launch({&cells[i].guard, &cells[i].record});
      if (!launched.ok()) return launched;
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto before = *cuda_->MakeCheckMemory();
  ASSERT_TRUE(cuda_->CollectChecks(*buffer, 3, before->cell()).ok());
  std::vector<std::unique_ptr<CheckMemory>> runs;
  for (int run = 0; run < 3; ++run) {
    runs.push_back(*cuda_->MakeCheckMemory());
    ASSERT_TRUE((*graph)->Launch({}).ok());
    ASSERT_TRUE(cuda_->CollectChecks(*buffer, 3, runs.back()->cell()).ok());
  }
  const auto after = *cuda_->MakeCheckMemory();
  ASSERT_TRUE(cuda_->CollectChecks(*buffer, 3, after->cell()).ok());
  Wait(*cuda_);
  EXPECT_EQ(before->Read()->key, 0u);
  EXPECT_EQ(after->Read()->key, 0u);
  for (const auto& run : runs) {
    const CheckRecord record = *run->Read();
    EXPECT_EQ(record.key, CheckKey(1, 0));
    EXPECT_EQ(record.value, 12);
    EXPECT_EQ(record.step, 1);
  }
}

TEST_F(CudaValueCheckTest, ACellMayOutliveItsDevice) {
  auto memory = *cuda_->MakeCheckMemory();
  cuda_.reset();
  EXPECT_EQ(memory->Read().status().code(), absl::StatusCode::kDataLoss);
  memory.reset();
}

// Runs the kernels through the engine: the error sticks to the right tensors, and the device
// remains usable.
TEST_F(CudaValueCheckTest, AnErrorSticksToItsTensorAndItsDependents) {
  cuda_.reset();
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*MakeCheckedCudaDevice({DeviceKind::kCuda, 0}, 0, kLimitBytes));
  Engine engine(std::move(devices));
  SessionTable sessions({}, engine.slots());
  const SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
  const auto run = [&](absl::string_view op, std::vector<Handle> inputs, Handle output,
                       const Attributes& attrs = {}) {
    return engine.Run(session, {.op = op,
                                .inputs = inputs,
                                .output = output,
                                .attrs = attrs,
                                .device = inputs.empty() ? "cuda:0" : ""});
  };
  const auto arange = [&](int64_t start, int64_t stop, Handle output) {
    return run("arange", {}, output, {{"start", start}, {"stop", stop}});
  };
  const auto read = [&](Handle handle) {
    return ReadTensor<int64_t>(engine, *session->Find(handle));
  };
  ASSERT_TRUE(arange(10, 20, 1).ok());
  ASSERT_TRUE(arange(8, 12, 2).ok());
  ASSERT_TRUE(arange(-2, 2, 3).ok());
  ASSERT_TRUE(run("index", {1, 2}, 4).ok());
  ASSERT_TRUE(run("neg", {4}, 5).ok());
  ASSERT_TRUE(run("add", {5, 3}, 6).ok());
  ASSERT_TRUE(run("index", {1, 3}, 7).ok());
  const auto error = absl::InvalidArgumentError(
      "index (tensor 4): index 10 at [2] of input 1 is out of range for axis 0 of size 10");
  for (Handle handle : {6, 5, 4}) EXPECT_EQ(read(handle).status(), error) << handle;
  EXPECT_THAT(*read(7), ElementsAre(18, 19, 10, 11));
  EXPECT_THAT(*read(3), ElementsAre(-2, -1, 0, 1));
}

}  // namespace
}  // namespace tensord::server
