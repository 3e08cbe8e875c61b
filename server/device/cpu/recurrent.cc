// Cells of recurrent layers, and their gradients.
#include <algorithm>
#include <cstring>

#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/recurrent_parts.h"

namespace tensord::server::cpu {
namespace {

constexpr double kCellCost = 24;  // the time for an element, relative to a cheap elementwise op
constexpr int64_t kColumns = 4 * kCellBlock;  // that are computed at a time

using CellLoops = RecurrentLoops::CellLoop (RecurrentLoops::*)[2];

// Computes the columns [begin, begin + n) of a row, n <= kColumns. The operands and results go
// through memory of whole blocks, in which 16-bit elements are float32.
void RunThroughBlocks(const Context& ctx, const CellOperands& operands, DType dtype,
                      RecurrentLoops::CellLoop loop, int64_t row, int64_t begin, int64_t n) {
  alignas(64) double memory[kMaxCellInputs + kMaxCellOutputs][kColumns];
  const void* in[kMaxCellInputs];
  void* out[kMaxCellOutputs];
  const DType wide = ComputeDType(dtype);
  const int64_t rounded = (n + kCellBlock - 1) / kCellBlock * kCellBlock;
  const auto place = [&](const auto& parts, int j) {
    return (parts.strides[j] * row + begin) * SizeOf(dtype);
  };
  for (int j = 0; j < operands.inputs.count; ++j) {
    std::memset(memory[j], 0, rounded * SizeOf(wide));
    Convert(ctx.loops, dtype, Advance(operands.inputs.data[j], place(operands.inputs, j)), wide,
            memory[j], n);
    in[j] = memory[j];
  }
  for (int j = 0; j < operands.outputs.count; ++j) out[j] = memory[kMaxCellInputs + j];
  loop(in, out, rounded);
  for (int j = 0; j < operands.outputs.count; ++j) {
    Convert(ctx.loops, wide, out[j], dtype,
            Advance(operands.outputs.data[j], place(operands.outputs, j)), n);
  }
}

void RunInPlace(const CellOperands& operands, int64_t element_bytes, RecurrentLoops::CellLoop loop,
                int64_t row, int64_t begin, int64_t n) {
  const void* in[kMaxCellInputs];
  void* out[kMaxCellOutputs];
  for (int j = 0; j < operands.inputs.count; ++j) {
    in[j] = Advance(operands.inputs.data[j],
                    (operands.inputs.strides[j] * row + begin) * element_bytes);
  }
  for (int j = 0; j < operands.outputs.count; ++j) {
    out[j] = Advance(operands.outputs.data[j],
                     (operands.outputs.strides[j] * row + begin) * element_bytes);
  }
  loop(in, out, n);
}

// `kVariantInputs` is the number of operands of the loops' second variant.
template <CellLoops kLoops, int kVariantInputs>
absl::Status CellKernel(const Context& ctx, const KernelCall& call) {
  const DType dtype = call.output().spec->dtype;
  const auto& loops = BestNetworkLoops().recurrent[Index(ComputeDType(dtype))].*kLoops;
  const RecurrentLoops::CellLoop loop = loops[call.inputs.size() == kVariantInputs ? 1 : 0];
  if (loop == nullptr) return NoKernel(call);
  const CellOperands operands(call);
  const int64_t blocks = (operands.size + kColumns - 1) / kColumns;  // of a row
  ctx.team.For(operands.rows * blocks,
               kGrainElements / kCellCost / std::min(operands.size, kColumns),
               [&](int64_t first, int64_t last) {
                 for (int64_t i = first; i < last; ++i) {
                   const int64_t row = i / blocks, begin = i % blocks * kColumns;
                   const int64_t n = std::min(kColumns, operands.size - begin);
                   if (Is16Bit(dtype) || n % kCellBlock != 0) {
                     RunThroughBlocks(ctx, operands, dtype, loop, row, begin, n);
                   } else {
                     RunInPlace(operands, SizeOf(dtype), loop, row, begin, n);
                   }
                 }
               });
  return absl::OkStatus();
}

}  // namespace

void AppendRecurrentKernels(KernelTable& table) {
  table["lstm_cell"] = CellKernel<&RecurrentLoops::lstm, 5>;
  table["lstm_gates_backward"] = CellKernel<&RecurrentLoops::lstm_backward, 6>;
  table["gru_cell"] = CellKernel<&RecurrentLoops::gru, 5>;
  table["gru_gates_backward"] = CellKernel<&RecurrentLoops::gru_backward, 3>;
}

}  // namespace tensord::server::cpu
