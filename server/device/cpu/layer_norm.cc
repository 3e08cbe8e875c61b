#include <algorithm>
#include <cstring>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/lines.h"

namespace tensord::server::cpu {
namespace {

// The time for an element, relative to a cheap elementwise op.
constexpr double kLayerNormCost = 4, kLayerNormBackwardCost = 6;

// Returns the normalized dimensions of x as rows.
Lines NormalizedRows(const KernelCall& call, const Shape& x) {
  const int first = x.rank() - static_cast<int>(call.attrs->Int("normalized_rank"));
  Lines rows;
  for (int d = 0; d < x.rank(); ++d) (d < first ? rows.outer : rows.extent) *= x.dim(d);
  return rows;
}

absl::Status LayerNormKernel(const Context& ctx, const KernelCall& call) {
  const Operand &x = call.inputs[0], &y = call.outputs[0];
  const DType dtype = x.spec->dtype, computed = ComputeDType(dtype);
  const auto row = BestNetworkLoops().layer_norm[Index(computed)].row;
  if (row == nullptr) return NoKernel(call);
  const Lines rows = NormalizedRows(call, x.spec->shape);
  const double eps = call.attrs->Float("eps");
  const bool center = call.attrs->Bool("center");
  const Operand& rstd = call.outputs.back();
  const void* const weight = call.inputs.size() > 1 ? call.inputs[1].data : nullptr;
  const void* const bias = call.inputs.size() > 2 ? call.inputs[2].data : nullptr;
  const int64_t size = SizeOf(dtype), computed_size = SizeOf(computed);
  const int64_t copied = Is16Bit(dtype) ? rows.extent : 0;
  TENSORD_ASSIGN_OR_RETURN(const Scratch work, MakeScratch(call, copied * 4 * ctx.team.threads()));
  ForLineGroups(ctx, rows, kLayerNormCost, [&](const LineGroup& group) {
    void* const mean =
        center ? Advance(call.outputs[1].data, group.first * computed_size) : nullptr;
    void* const rstd_at = Advance(rstd.data, group.first * computed_size);
    if (copied == 0) {
      return row(Advance(x.data, group.offset * size), weight, bias,
                 Advance(y.data, group.offset * size), rows.extent, eps, center, mean, rstd_at);
    }
    float* const copy = work.As<float>() + copied * Team::Current();
    WidenLines(ctx, rows, group, dtype, x.data, copy);
    row(copy, weight, bias, copy, rows.extent, eps, center, mean, rstd_at);
    NarrowLines(ctx, rows, group, copy, dtype, y.data);
  });
  return absl::OkStatus();
}

// The gradients of the parameters are sums over the rows. The rows of a part are added in
// ComputeDType() of x, and the parts in float64, in order. So the sums don't depend on the number
// of threads.
constexpr int64_t kRowsOfPart = 32;

// Computes layer_norm_backward.
class LayerNormBackward {
 public:
  LayerNormBackward(const Context& ctx, const KernelCall& call)
      : ctx_(ctx),
        call_(call),
        dtype_(call.inputs[1].spec->dtype),
        computed_(ComputeDType(dtype_)),
        rows_(NormalizedRows(call, call.inputs[1].spec->shape)) {
    const std::vector<int64_t>& gradients = call.attrs->Ints("gradients");
    for (size_t i = 0; i < gradients.size(); ++i) outputs_[gradients[i]] = &call.outputs[i];
    row_.n = rows_.extent;
    row_.center = call.attrs->Bool("center");
    const size_t weight = row_.center ? 4 : 3;
    row_.weight = call.inputs.size() > weight ? call.inputs[weight].data : nullptr;
  }

  absl::Status Run() {
    const NetworkLoops& loops = BestNetworkLoops();
    backward_row_ = loops.layer_norm[Index(computed_)].backward_row;
    if (backward_row_ == nullptr) return NoKernel(call_);
    if (rows_.extent == 0) return absl::OkStatus();
    const int64_t size = SizeOf(computed_);
    const int parameters = (outputs_[1] != nullptr ? 1 : 0) + (outputs_[2] != nullptr ? 1 : 0);
    const int64_t parts = (rows_.outer + kRowsOfPart - 1) / kRowsOfPart;
    part_elements_ = parameters * rows_.extent;
    TENSORD_ASSIGN_OR_RETURN(parts_, MakeScratch(call_, parts * part_elements_ * size));
    const int64_t copied = Is16Bit(dtype_) ? 2 * rows_.extent : 0;
    TENSORD_ASSIGN_OR_RETURN(copies_, MakeScratch(call_, copied * 4 * ctx_.team.threads()));
    ctx_.team.For(
        parts,
        kGrainElements / kLayerNormBackwardCost / static_cast<double>(rows_.extent * kRowsOfPart),
        [&](int64_t begin, int64_t end) {
          for (int64_t part = begin; part < end; ++part) RunPart(part);
        });
    return AddParts(loops.add_parts[Index(computed_)], parts, parameters);
  }

 private:
  // Returns the address of a parameter's gradient in a part. If it isn't computed, returns null.
  void* PartOf(int64_t part, int operand) const {
    if (outputs_[operand] == nullptr) return nullptr;
    const bool second = operand == 2 && outputs_[1] != nullptr;
    return Advance(parts_.data(),
                   (part * part_elements_ + (second ? rows_.extent : 0)) * SizeOf(computed_));
  }

  void RunPart(int64_t part) {
    const int64_t size = SizeOf(computed_);
    if (part_elements_ > 0) {
      std::memset(Advance(parts_.data(), part * part_elements_ * size), 0, part_elements_ * size);
    }
    LayerNormBackwardRow row = row_;
    row.gw = PartOf(part, 1);
    row.gb = PartOf(part, 2);
    const int64_t last = std::min(rows_.outer, (part + 1) * kRowsOfPart);
    Team::InPieces(part * kRowsOfPart, last,
                   kGrainElements / kLayerNormBackwardCost / static_cast<double>(rows_.extent),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t r = begin; r < end; ++r) RunRow(r, row);
                   });
  }

  void RunRow(int64_t r, LayerNormBackwardRow row) {
    row.rstd = StatisticAt(2, r);
    row.mean = row.center ? StatisticAt(3, r) : 0;
    const LineGroup line = {r * rows_.extent, r, 1};
    if (!Is16Bit(dtype_)) {
      const int64_t at = line.offset * SizeOf(dtype_);
      row.g = Advance(call_.inputs[0].data, at);
      row.x = Advance(call_.inputs[1].data, at);
      if (outputs_[0] != nullptr) row.gx = Advance(outputs_[0]->data, at);
      return backward_row_(row);
    }
    float* const g = copies_.As<float>() + 2 * rows_.extent * Team::Current();
    float* const x = g + rows_.extent;
    WidenLines(ctx_, rows_, line, dtype_, call_.inputs[0].data, g);
    WidenLines(ctx_, rows_, line, dtype_, call_.inputs[1].data, x);
    row.g = g;
    row.x = x;
    if (outputs_[0] != nullptr) row.gx = g;
    backward_row_(row);
    if (outputs_[0] != nullptr) NarrowLines(ctx_, rows_, line, g, dtype_, outputs_[0]->data);
  }

  double StatisticAt(int input, int64_t r) const {
    const Operand& operand = call_.inputs[input];
    return computed_ == DType::kFloat64 ? operand.As<double>()[r] : operand.As<float>()[r];
  }

  absl::Status AddParts(AddPartsLoop add_parts, int64_t parts, int parameters) {
    if (parameters == 0) return absl::OkStatus();
    const int64_t size = SizeOf(computed_);
    TENSORD_ASSIGN_OR_RETURN(const Scratch sums, MakeScratch(call_, part_elements_ * size));
    const double grain = kGrainElements / static_cast<double>(std::max<int64_t>(parts, 1));
    ctx_.team.For(part_elements_, grain, [&](int64_t begin, int64_t end) {
      add_parts(Advance(parts_.data(), begin * size), parts, part_elements_, end - begin,
                Advance(sums.data(), begin * size));
    });
    const void* from = sums.data();
    for (const int operand : {1, 2}) {
      if (outputs_[operand] == nullptr) continue;
      ConvertInParallel(ctx_, computed_, from, outputs_[operand]->spec->dtype,
                        outputs_[operand]->data, rows_.extent);
      from = Advance(from, rows_.extent * size);
    }
    return absl::OkStatus();
  }

  const Context& ctx_;
  const KernelCall& call_;
  const DType dtype_, computed_;
  const Lines rows_;
  // The gradients of x, the weight and the bias. Null: isn't computed.
  const Operand* outputs_[3] = {};
  LayerNormBackwardRow row_ = {};  // the members that all rows have in common
  void (*backward_row_)(const LayerNormBackwardRow&) = nullptr;
  int64_t part_elements_ = 0;
  Scratch parts_, copies_;
};

absl::Status LayerNormBackwardKernel(const Context& ctx, const KernelCall& call) {
  return LayerNormBackward(ctx, call).Run();
}

}  // namespace

void AppendLayerNormKernels(KernelTable& table) {
  table["layer_norm"] = LayerNormKernel;
  table["layer_norm_backward"] = LayerNormBackwardKernel;
}

}  // namespace tensord::server::cpu
