// Convolutions, and their gradients, by matrix products of windows. oneDNN computes most float32
// convolutions faster.
#pragma once

#include <optional>

#include "tensord/server/device/conv_attributes.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// The operands of an op, dense and row-major: its inputs and its output. A null bias isn't added.
struct ConvOperands {
  const void* a;
  const void* b;
  const void* bias;
  void* output;
};

// Computes conv or a gradient of it on the whole team. Takes float32 and float64, and one or more
// images. If `accumulate` is true, adds the gradient of the weight to the output. `call` names the
// op. If a dimension of a matrix is too large for the library, returns UNIMPLEMENTED.
absl::Status RunConvProducts(const Context& ctx, const KernelCall& call, ConvKind kind,
                             const ConvGeometry& conv, DType dtype, const ConvOperands& operands,
                             std::optional<UnaryFunction> activation, bool accumulate);

}  // namespace tensord::server::cpu
