// The operations of groups on GPUs, and failures of single calls.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tensord/common/float16.h"
#include "tensord/tests/cuda_emulation/failure.h"
#include "tensord/tests/unit/collective/nccl_communicator_fixture.h"

namespace tensord::server {
namespace {

// Operations of two members, each on its own GPU.
class NcclOperationTest : public NcclCommunicatorTest {
 protected:
  void TearDown() override {
    cuda_emulation::InjectFailure({});
    NcclCommunicatorTest::TearDown();
  }

  // Runs `op` on both members with `input` at each, and returns the bytes of each output.
  std::vector<std::string> RunOp(const CollectiveOp& op, const std::string& input,
                                 size_t output_bytes) {
    std::vector<std::string> outputs(2, std::string(output_bytes, '\0'));
    for (const absl::Status& status : AtOnce({0, 1}, [&](int rank) -> absl::Status {
           Device& device = *devices_[rank];
           const BufferRef out = *device.Allocate(static_cast<int64_t>(output_bytes));
           BufferRef in;
           if (op.HasInput(rank)) {
             in = *device.Allocate(static_cast<int64_t>(input.size()));
             const absl::Status written =
                 device.Write(*in, 0, input.data(), static_cast<int64_t>(input.size()));
             if (!written.ok()) return written;
           }
           const absl::Status run = members_[rank]->Run(op, in.get(), out.get());
           if (!run.ok()) return run;
           return device.Read(*out, 0, outputs[rank].data(), out->size_bytes());
         })) {
      EXPECT_TRUE(status.ok()) << op.ToString() << ": " << status;
    }
    return outputs;
  }

  template <typename T>
  static std::string Elements(size_t count, T value) {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
    }
    return bytes;
  }

  template <typename T>
  void CheckType(DType dtype) {
    constexpr size_t kCount = 6;
    const TensorSpec spec{dtype, Shape{kCount}};
    const std::string twos = Elements(kCount, T(2));
    const auto expect = [&](CollectiveKind kind, CollectiveReduction reduction, T value,
                            size_t count) {
      const CollectiveOp op{kind, reduction, 0, spec};
      for (const std::string& output : RunOp(op, twos, count * sizeof(T))) {
        EXPECT_EQ(output, Elements(count, value)) << op.ToString();
      }
    };
    expect(CollectiveKind::kAllReduce, CollectiveReduction::kSum, T(4), kCount);
    expect(CollectiveKind::kAllReduce, CollectiveReduction::kMax, T(2), kCount);
    if (IsFloating(dtype)) {
      expect(CollectiveKind::kAllReduce, CollectiveReduction::kMean, T(2), kCount);
    }
    expect(CollectiveKind::kReduceScatter, CollectiveReduction::kSum, T(4), kCount / 2);
    expect(CollectiveKind::kAllGather, CollectiveReduction::kSum, T(2), 2 * kCount);
    expect(CollectiveKind::kBroadcast, CollectiveReduction::kSum, T(2), kCount);
  }
};

TEST_F(NcclOperationTest, ComputesEveryOperationInEveryDType) {
  Connect(2, std::chrono::seconds(30));
  CheckType<Half>(DType::kFloat16);
  CheckType<BFloat16>(DType::kBFloat16);
  CheckType<float>(DType::kFloat32);
  CheckType<double>(DType::kFloat64);
  CheckType<int32_t>(DType::kInt32);
  CheckType<int64_t>(DType::kInt64);
  CheckType<int8_t>(DType::kInt8);
  CheckType<uint8_t>(DType::kUInt8);
  CheckType<uint32_t>(DType::kUInt32);
  CheckType<uint64_t>(DType::kUInt64);
}

TEST_F(NcclOperationTest, MovesElementsOfEveryDType) {
  Connect(2, std::chrono::seconds(30));
  for (const DType dtype : kAllDTypes) {
    const TensorSpec spec{dtype, Shape{3}};
    const std::string input(spec.size_bytes(), '\x5a');
    const CollectiveOp gather{CollectiveKind::kAllGather, CollectiveReduction::kSum, 0, spec};
    for (const std::string& output : RunOp(gather, input, 2 * input.size())) {
      EXPECT_EQ(output, input + input) << gather.ToString();
    }
    const CollectiveOp broadcast{CollectiveKind::kBroadcast, CollectiveReduction::kSum, 0, spec};
    EXPECT_EQ(RunOp(broadcast, input, input.size())[1], input) << broadcast.ToString();
  }
}

// If a call fails, the operation fails at one member at least, and a new group works.
TEST_F(NcclOperationTest, FailsIfACallFails) {
  constexpr int kInternalError = 3;  // ncclInternalError
  const struct {
    const char* call;
    int error;
  } cases[] = {{"ncclAllReduce", kInternalError},
               {"ncclCommGetAsyncError", kInternalError},
               {"cudaLaunchHostFunc", cudaErrorUnknown},
               {"cudaStreamQuery", cudaErrorUnknown}};
  for (const auto& [call, error] : cases) {
    SCOPED_TRACE(call);
    Connect(2, std::chrono::seconds(2));
    cuda_emulation::InjectFailure({call, 1, error});
    const std::vector<absl::Status> statuses =
        AtOnce({0, 1}, [&](int rank) { return AllReduce(rank); });
    EXPECT_EQ(cuda_emulation::InjectedFailures(), 1);
    cuda_emulation::InjectFailure({});
    EXPECT_FALSE(statuses[0].ok() && statuses[1].ok());
    Connect(2, std::chrono::seconds(30));
    for (const absl::Status& status : AtOnce({0, 1}, [&](int rank) { return AllReduce(rank); })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST_F(NcclOperationTest, FailsAtBothMembersIfTheGroupCannotStart) {
  for (const char* call : {"ncclCommInitRankConfig", "cudaStreamCreateWithFlags"}) {
    SCOPED_TRACE(call);
    cuda_emulation::InjectFailure({call, 1, cudaErrorUnknown});
    for (const absl::Status& status : ConnectOn({0, 1}, std::chrono::seconds(2))) {
      EXPECT_FALSE(status.ok());
    }
    cuda_emulation::InjectFailure({});
    Connect(2, std::chrono::seconds(30));
  }
}

}  // namespace
}  // namespace tensord::server
