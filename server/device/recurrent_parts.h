// The operands of a kernel of a recurrent cell, by parts. See recurrent_math.h.
#pragma once

#include <cstdint>

#include "tensord/server/device/device.h"
#include "tensord/server/device/recurrent_math.h"

namespace tensord::server {

// Row n of part j begins `strides[j] * n` elements after `data[j]`. Those of a bias all have one
// place.
template <typename Void, int kMax>
struct CellParts {
  Void* data[kMax];
  int64_t strides[kMax];
  int count = 0;

  // Adds the parts of an operand (N,P·H) or (P·H).
  void Add(const Operand& operand, int64_t size, int64_t element_bytes) {
    const Shape& shape = operand.spec->shape;
    const int64_t columns = shape.dim(shape.rank() - 1);
    for (int64_t part = 0; part < columns / size; ++part) {
      data[count] = static_cast<char*>(operand.data) + part * size * element_bytes;
      strides[count++] = shape.rank() == 1 ? 0 : columns;
    }
  }
};

struct CellOperands {
  CellParts<const void, kMaxCellInputs> inputs;
  CellParts<void, kMaxCellOutputs> outputs;
  int64_t rows = 0;
  int64_t size = 0;  // H

  explicit CellOperands(const KernelCall& call) {
    // The first output or, of a gradient, the last one has the shape (N,H). Others have more parts.
    for (const Operand& output : call.outputs) {
      const Shape& shape = output.spec->shape;
      if (size == 0 || shape.dim(1) < size) size = shape.dim(1);
      rows = shape.dim(0);
    }
    if (size == 0 || rows == 0) return;
    const int64_t bytes = SizeOf(call.output().spec->dtype);
    for (const Operand& input : call.inputs) inputs.Add(input, size, bytes);
    for (const Operand& output : call.outputs) outputs.Add(output, size, bytes);
  }
};

}  // namespace tensord::server
