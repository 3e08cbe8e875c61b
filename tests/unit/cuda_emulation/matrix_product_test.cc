#include "tensord/tests/cuda_emulation/matrix_product.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tensord/common/float16.h"

namespace tensord::cuda_emulation {
namespace {

using testing::ElementsAre;

MatrixLayout Dense(cudaDataType_t type, uint64_t rows, uint64_t columns) {
  return {type, rows, columns, static_cast<int64_t>(rows), 1, 0};
}

// The product of a, of shape (rows, inner), and b, of shape (inner, columns).
template <typename T>
MatrixProduct Product(cudaDataType_t type, uint64_t rows, uint64_t inner, uint64_t columns,
                      const T* a, const T* b, T* out) {
  MatrixProduct product;
  product.a_layout = Dense(type, rows, inner);
  product.b_layout = Dense(type, inner, columns);
  product.out_layout = Dense(type, rows, columns);
  product.a = a;
  product.b = b;
  product.out = out;
  return product;
}

// Column-major: a = [1 3 5; 2 4 6], b = [1 0; 0 1; 1 1], a · b = [6 8; 8 10].
constexpr float kA[] = {1, 2, 3, 4, 5, 6};
constexpr float kB[] = {1, 0, 1, 0, 1, 1};

TEST(MatrixProductTest, IsTheProductOfColumnMajorMatrices) {
  float out[4] = {};
  MatrixProduct product = Product(CUDA_R_32F, 2, 3, 2, kA, kB, out);
  ASSERT_TRUE(IsConsistent(product));
  Compute(product);
  EXPECT_THAT(out, ElementsAre(6, 8, 8, 10));
  product.out_layout.rows = 3;
  EXPECT_FALSE(IsConsistent(product));
}

TEST(MatrixProductTest, TransposesAddsABiasAndActivates) {
  float out[9] = {};
  const float bias[] = {-10, 0, 1};
  MatrixProduct product = Product(CUDA_R_32F, 2, 3, 2, kA, kB, out);
  product.transpose_a = true;  // [1 2; 3 4; 5 6]
  product.transpose_b = true;  // [1 0 1; 0 1 1]
  product.out_layout = Dense(CUDA_R_32F, 3, 3);
  product.activation = Activation::kRelu;
  product.bias = bias;
  ASSERT_TRUE(IsConsistent(product));
  Compute(product);
  EXPECT_THAT(out, ElementsAre(0, 3, 6, 0, 4, 7, 0, 7, 12));
}

TEST(MatrixProductTest, RoundsOperandsToTf32IfRequested) {
  const float a = 1 + 0x1p-13f, b = 1;  // beyond TensorFloat-32's 10 bits
  float out = 0;
  MatrixProduct product = Product(CUDA_R_32F, 1, 1, 1, &a, &b, &out);
  Compute(product);
  EXPECT_EQ(out, a);
  product.round_to_tf32 = true;
  Compute(product);
  EXPECT_EQ(out, 1);
}

TEST(MatrixProductTest, SumsNarrowOperandsInFloat32) {
  const Half a[] = {Half(60000.f), Half(60000.f), Half(1.f)};
  const Half b[] = {Half(60000.f), Half(-60000.f), Half(7.f)};
  Half out(0.f);
  Compute(Product(CUDA_R_16F, 1, 3, 1, a, b, &out));
  EXPECT_EQ(static_cast<float>(out), 7);
}

}  // namespace
}  // namespace tensord::cuda_emulation
