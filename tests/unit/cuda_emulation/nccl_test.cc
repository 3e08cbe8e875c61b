// The results of the emulated NCCL's operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tensord/common/float16.h"
#include "tensord/tests/unit/cuda_emulation/nccl_fixture.h"

namespace tensord::cuda_emulation {
namespace {

// An element type and its ncclDataType_t.
template <typename T, ncclDataType_t kNumber>
struct Type {
  using Element = T;
  static constexpr ncclDataType_t kType = kNumber;
};

template <typename TypeParam>
class NcclTypeTest : public NcclEmulationTest {
 protected:
  using T = typename TypeParam::Element;
  static constexpr size_t kCount = 6;  // the argument `count` of NCCL's functions

  // 1, 2 or 3: sums and products of four ranks are exact in all types.
  static double Value(int rank, size_t i) {
    return static_cast<double>((static_cast<size_t>(rank) * 7 + i * 5) % 3) + 1;
  }
  static std::vector<T> Encode(const std::vector<double>& values) {
    std::vector<T> elements;
    for (const double value : values) elements.push_back(static_cast<T>(static_cast<float>(value)));
    return elements;
  }
  static std::vector<T> Input(int rank, size_t count) {
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) values.push_back(Value(rank, i));
    return Encode(values);
  }
  std::vector<T> Reduced(ncclRedOp_t op, size_t count) const {
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) {
      double result = Value(0, i);
      for (size_t rank = 1; rank < ranks_.size(); ++rank) {
        const double value = Value(static_cast<int>(rank), i);
        if (op == ncclProd) result *= value;
        if (op == ncclMax) result = std::max(result, value);
        if (op == ncclMin) result = std::min(result, value);
        if (op == ncclSum || op == ncclAvg) result += value;
      }
      values.push_back(op == ncclAvg ? result / static_cast<double>(ranks_.size()) : result);
    }
    return Encode(values);
  }

  // Uploads each rank's input of `count` elements.
  std::vector<DeviceMemory> UploadInputs(size_t count) {
    std::vector<DeviceMemory> inputs;
    for (const Rank& rank : ranks_)
      inputs.push_back(Upload(rank.number, Input(rank.number, count)));
    return inputs;
  }
  std::vector<DeviceMemory> MakeOutputs(size_t count) {
    std::vector<DeviceMemory> outputs;
    for (const Rank& rank : ranks_) outputs.emplace_back(rank, count * sizeof(T));
    return outputs;
  }

  void CheckAllReduce(ncclRedOp_t op) {
    const std::vector<DeviceMemory> inputs = UploadInputs(kCount), outputs = MakeOutputs(kCount);
    for (const auto* results : {&outputs, &inputs}) {  // the second time in place
      RunAll([&](const Rank& rank) {
        return nccl_->AllReduce(inputs[rank.number].data(), (*results)[rank.number].data(), kCount,
                                TypeParam::kType, op, rank.comm, rank.stream);
      });
      for (const DeviceMemory& result : *results) {
        EXPECT_EQ(result.Read(), BytesOf(Reduced(op, kCount))) << "reduction " << op;
      }
    }
  }

  void CheckReduceScatter(ncclRedOp_t op) {
    const std::vector<DeviceMemory> inputs = UploadInputs(kCount * ranks_.size());
    const std::vector<DeviceMemory> outputs = MakeOutputs(kCount);
    const std::string all = BytesOf(Reduced(op, kCount * ranks_.size()));
    constexpr size_t kBytes = kCount * sizeof(T);
    const auto run = [&](const std::function<char*(int rank)>& output) {
      RunAll([&](const Rank& rank) {
        return nccl_->ReduceScatter(inputs[rank.number].data(), output(rank.number), kCount,
                                    TypeParam::kType, op, rank.comm, rank.stream);
      });
    };
    run([&](int rank) { return outputs[rank].data(); });
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(outputs[rank.number].Read(), all.substr(rank.number * kBytes, kBytes));
    }
    run([&](int rank) { return inputs[rank].data() + rank * kBytes; });
    for (const Rank& rank : ranks_) {
      EXPECT_EQ(inputs[rank.number].Read().substr(rank.number * kBytes, kBytes),
                all.substr(rank.number * kBytes, kBytes));
    }
  }

  void CheckAllGather() {
    std::string all;
    for (const Rank& rank : ranks_) all += BytesOf(Input(rank.number, kCount));
    const std::vector<DeviceMemory> inputs = UploadInputs(kCount);
    const std::vector<DeviceMemory> outputs = MakeOutputs(kCount * ranks_.size());
    const auto run = [&](const std::function<char*(int rank)>& input) {
      RunAll([&](const Rank& rank) {
        return nccl_->AllGather(input(rank.number), outputs[rank.number].data(), kCount,
                                TypeParam::kType, rank.comm, rank.stream);
      });
      for (const DeviceMemory& output : outputs) EXPECT_EQ(output.Read(), all);
    };
    run([&](int rank) { return inputs[rank].data(); });
    run([&](int rank) { return outputs[rank].data() + rank * kCount * sizeof(T); });
  }

  void CheckBroadcast() {
    for (const Rank& root : ranks_) {
      const std::vector<DeviceMemory> inputs = UploadInputs(kCount), outputs = MakeOutputs(kCount);
      for (const auto* results : {&outputs, &inputs}) {  // the second time in place
        RunAll([&](const Rank& rank) {
          return nccl_->Broadcast(inputs[rank.number].data(), (*results)[rank.number].data(),
                                  kCount, TypeParam::kType, root.number, rank.comm, rank.stream);
        });
        for (const DeviceMemory& result : *results) {
          EXPECT_EQ(result.Read(), BytesOf(Input(root.number, kCount)));
        }
      }
    }
  }
};

using Types =
    testing::Types<Type<int8_t, ncclInt8>, Type<uint8_t, ncclUint8>, Type<int32_t, ncclInt32>,
                   Type<uint32_t, ncclUint32>, Type<int64_t, ncclInt64>, Type<uint64_t, ncclUint64>,
                   Type<Half, ncclFloat16>, Type<float, ncclFloat32>, Type<double, ncclFloat64>,
                   Type<BFloat16, ncclBfloat16>>;
TYPED_TEST_SUITE(NcclTypeTest, Types);

TYPED_TEST(NcclTypeTest, ComputesEveryOperationOverOneTwoAndFourRanks) {
  for (const int size : {1, 2, 4}) {
    this->Connect(size);
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      this->CheckAllReduce(op);
      this->CheckReduceScatter(op);
    }
    this->CheckAllGather();
    this->CheckBroadcast();
    this->AbortAll();
  }
}

class NcclArithmeticTest : public NcclEmulationTest {
 protected:
  // Runs an in-place all-reduce of one element. Its value at each rank is inputs[rank].
  template <typename T>
  T Reduce(const std::vector<T>& inputs, ncclDataType_t type, ncclRedOp_t op) {
    std::vector<DeviceMemory> memory;
    for (const Rank& rank : ranks_) {
      memory.push_back(Upload<T>(rank.number, {inputs[static_cast<size_t>(rank.number)]}));
    }
    RunAll([&](const Rank& rank) {
      char* data = memory[rank.number].data();
      return nccl_->AllReduce(data, data, 1, type, op, rank.comm, rank.stream);
    });
    return ValuesOf<T>(memory[0].Read())[0];
  }
};

TEST_F(NcclArithmeticTest, AccumulatesHalvesInFloatAndRoundsOnce) {
  Connect(4);
  // In float16, 2048 + 1 is 2048. In bfloat16, 256 + 1 is 256.
  const std::vector<Half> halves = {Half(2048), Half(1), Half(1), Half(0)};
  EXPECT_EQ(static_cast<float>(Reduce(halves, ncclFloat16, ncclSum)), 2050.0f);
  const std::vector<BFloat16> bfloats = {BFloat16(256), BFloat16(1), BFloat16(1), BFloat16(0)};
  EXPECT_EQ(static_cast<float>(Reduce(bfloats, ncclBfloat16, ncclSum)), 258.0f);
  EXPECT_EQ(static_cast<float>(Reduce(halves, ncclFloat16, ncclAvg)), 512.5f);
}

TEST_F(NcclArithmeticTest, ReducesNegativeIntegers) {
  Connect(2);
  EXPECT_EQ(Reduce<int32_t>({-7, 2}, ncclInt32, ncclSum), -5);
  EXPECT_EQ(Reduce<int32_t>({-7, 2}, ncclInt32, ncclProd), -14);
  EXPECT_EQ(Reduce<int32_t>({-7, 2}, ncclInt32, ncclMax), 2);
  EXPECT_EQ(Reduce<int32_t>({-7, 2}, ncclInt32, ncclMin), -7);
  EXPECT_EQ(Reduce<int32_t>({-7, 2}, ncclInt32, ncclAvg), -2);
  EXPECT_EQ(Reduce<int64_t>({INT64_MAX, 1}, ncclInt64, ncclSum), INT64_MIN);
}

}  // namespace
}  // namespace tensord::cuda_emulation
