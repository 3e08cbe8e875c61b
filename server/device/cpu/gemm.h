// One or many matrix products of one shape, by the library that is fastest for them.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "tensord/server/device/cpu/kernel.h"
#include "tensord/server/device/cpu/onednn.h"
#include "tensord/server/device/cpu/strided_axes.h"

namespace tensord::server::cpu {

// For each item: (M,K)·(K,N) -> (M,N), dense and row-major. A transposed operand is stored as (K,M)
// or (N,K). The items of c lie one after another.
struct BatchedGemm {
  DType dtype = DType::kUnspecified;  // of all operands; not bool
  int64_t items = 1;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  // Map the number of an item to its position in a and b, in items. If it is nullopt, the items lie
  // one after another.
  std::optional<StridedAxes> a_axes, b_axes;
  // The number of elements of a and b, with all items.
  int64_t a_elements = 0, b_elements = 0;

  int64_t a_offset(int64_t item) const {
    return (a_axes.has_value() ? a_axes->ComputeOffset(item) : item) * m * k;
  }
  int64_t b_offset(int64_t item) const {
    return (b_axes.has_value() ? b_axes->ComputeOffset(item) : item) * k * n;
  }
  // Returns the number of multiplications of an item. An int64_t could overflow.
  double products() const {
    return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// Returns the product of a call of matmul or linear, with its addresses. The output must have
// elements.
BatchedGemm MatmulGemm(const Attributes& attrs, absl::Span<const Operand> inputs,
                       const Operand& output);
BatchedGemm LinearGemm(absl::Span<const Operand> inputs, const Operand& output);

// Computes the products, on the whole team. Products of 16-bit operands accumulate in float32.
// Integers wrap around.
absl::Status RunGemm(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm);

// Computes a product of one item over a floating dtype. Then adds the bias (N), unless it is null,
// to each row of (M,N), and applies the activation. 16-bit results are rounded once.
absl::Status RunLinear(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                       const void* bias, std::optional<UnaryFunction> activation);

// Computes the product of a block in the wider dtype. `column` is the block's first column.
using WideProduct = absl::FunctionRef<absl::Status(const BatchedGemm& block, int64_t column)>;

// Computes products of 16-bit operands: converts them to float32 or int32, calls `run` for their
// product, and converts the result back. It is rounded once, or keeps the low bits. Large products
// are divided into blocks, which `run` gets one after another, so that the copies of the operands
// and of the result are small. If the op must stop, returns CANCELLED.
absl::Status RunWideBlocks(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                           WideProduct run);

// Runs a product of oneDNN (OneDnn::Run), and allocates the scratch memory for it.
absl::Status RunProduct(const Context& ctx, const KernelCall& call, OneDnnProduct& product,
                        const void* a, const void* b, const void* bias, void* c);

// Adds the bias and applies the activation to a product of one item, in place. Takes float32 and
// float64.
void RunEpilogue(const Context& ctx, const BatchedGemm& gemm, const void* bias,
                 std::optional<UnaryFunction> activation);

// Returns true if oneDNN should compute a float32 or bfloat16 product. oneDNN can then also apply
// the bias, and the activations for which OneDnnHas() is true.
bool PrefersOneDnn(const BatchedGemm& gemm);

// The largest m·n·k of a matrix product that may run inline: one thread takes a few microseconds.
// oneDNN uses one thread for all products up to this size, inline or not, because with AVX2 the bits
// of the result depend on the number of threads.
constexpr double kMaxInlineMultiplications = 64 * 64 * 64;

// Returns oneDNN's description of one item's product.
OneDnnMatmul MakeOneDnnMatmul(const Context& ctx, const BatchedGemm& gemm, bool has_bias,
                              std::optional<UnaryFunction> activation);

}  // namespace tensord::server::cpu
