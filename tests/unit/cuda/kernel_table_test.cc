#include "tensord/server/device/cuda/kernel_table.h"

#include <gtest/gtest.h>

#include "tensord/common/op_schema.h"

namespace tensord::server::cuda {
namespace {

TEST(KernelTableTest, HasAKernelForEveryOpButConstant) {
  for (const OpSchema* schema : AllOps()) {
    const bool by_engine = schema->name == "constant";
    EXPECT_EQ(FindKernel(schema->name) == nullptr, by_engine) << schema->name;
  }
}

TEST(KernelTableTest, HasAKernelForEveryActivationOfLinear) {
  for (const char* activation : {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"}) {
    EXPECT_NE(FindKernel(activation), nullptr) << activation;
  }
}

TEST(KernelTableTest, KnowsNoOtherOps) { EXPECT_EQ(FindKernel("fft"), nullptr); }

}  // namespace
}  // namespace tensord::server::cuda
