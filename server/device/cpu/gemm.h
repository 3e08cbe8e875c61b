// One or many matrix products of one shape, routed to the library that is fastest for them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tensord/server/device/cpu/kernel.h"
#include "tensord/server/device/cpu/onednn.h"

namespace tensord::server::cpu {

// For each item: (M,K)·(K,N) -> (M,N), dense and row-major; a transposed operand is stored as (K,M)
// or (N,K). c's items lie one behind the other.
struct BatchedGemm {
  DType dtype = DType::kUnspecified;  // of all operands; anything but bool
  int64_t items = 1;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  // The item's first element in a and b; empty: the items lie one behind the other there, too.
  std::vector<int64_t> a_offsets, b_offsets;
  // How many elements a and b have altogether.
  int64_t a_elements = 0, b_elements = 0;

  int64_t a_offset(int64_t item) const {
    return a_offsets.empty() ? item * m * k : a_offsets[item];
  }
  int64_t b_offset(int64_t item) const {
    return b_offsets.empty() ? item * k * n : b_offsets[item];
  }
};

// The product that a call of matmul or linear asks for, and its addresses. The output has elements.
BatchedGemm MatmulGemm(const KernelCall& call);
BatchedGemm LinearGemm(const KernelCall& call);

// The products, by the whole team. 16-bit operands accumulate in float32; integers wrap.
absl::Status RunGemm(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm);

// A product of one item over a floating dtype and what follows it: the bias (N), or null, is added
// to each row of (M,N), then the activation is taken; 16-bit results are rounded once.
absl::Status RunLinear(const Context& ctx, const KernelCall& call, const BatchedGemm& gemm,
                       const void* bias, std::optional<UnaryFunction> activation);

// What follows a product of one item, in place. float32 and float64.
void RunEpilogue(const Context& ctx, const BatchedGemm& gemm, const void* bias,
                 std::optional<UnaryFunction> activation);

// Whether oneDNN should compute a float32 or bfloat16 product. It can fuse the bias and the
// activations that OneDnnHas().
bool PrefersOneDnn(const BatchedGemm& gemm);

// A product of one item as oneDNN knows it.
OneDnnMatmul MakeOneDnnMatmul(const Context& ctx, const BatchedGemm& gemm, bool has_bias,
                              std::optional<UnaryFunction> activation);

}  // namespace tensord::server::cpu
