#include <algorithm>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/pool_attributes.h"

namespace tensord::server::cpu {
namespace {

// The time for an element of a window, relative to a cheap elementwise op.
constexpr double kTapCost = 1;

// 16-bit planes are converted to float32, at most about this number of elements at a time.
constexpr int64_t kMaxConvertedElements = 4 << 20;

// The arguments of a pooling op.
struct PoolArgs : Pooling {
  // `x` has the shape of x, and `y` that of the result.
  PoolArgs(const KernelCall& call, const Shape& x, const Shape& y)
      : Pooling(ReadPooling(*call.attrs, x, y)) {}

  int64_t in() const { return PoolWindows(geometry).in_elements(); }    // of a plane of x
  int64_t out() const { return PoolWindows(geometry).out_elements(); }  // of a plane of the result

  int64_t rows() const { return geometry.out[0] * geometry.out[1]; }  // of a plane
  double taps() const {                                               // of a window, at most
    double taps = 1;
    for (int a = 0; a < PoolGeometry::kAxes; ++a) {
      taps *= static_cast<double>(std::min(geometry.kernel[a], geometry.in[a]));
    }
    return taps;
  }
};

// Calls run(from, to, first, count) for groups of planes that together are all planes. `from` and
// `to` are the addresses of the planes [first, first + count) of `x` and `y`. If elements have 16
// bits, these are copies in float32. Otherwise there is one group.
template <typename Run>
absl::Status ForPlanes(const Context& ctx, const KernelCall& call, const Operand& x,
                       int64_t x_elements, const Operand& y, int64_t y_elements, int64_t planes,
                       Run run) {
  const DType dtype = x.spec->dtype;
  if (!Is16Bit(dtype)) {
    run(x.data, y.data, int64_t{0}, planes);
    return absl::OkStatus();
  }
  const int64_t group =
      std::clamp(kMaxConvertedElements / (x_elements + y_elements), int64_t{1}, planes);
  TENSORD_ASSIGN_OR_RETURN(const Scratch copies,
                           MakeScratch(call, group * (x_elements + y_elements) * 4));
  float* const from = copies.As<float>();
  float* const to = from + group * x_elements;
  for (int64_t first = 0; first < planes; first += group) {
    const int64_t count = std::min(group, planes - first);
    ConvertInParallel(ctx, dtype, Advance(x.data, first * x_elements * 2), DType::kFloat32, from,
                      count * x_elements);
    run(from, to, first, count);
    ConvertInParallel(ctx, DType::kFloat32, to, dtype, Advance(y.data, first * y_elements * 2),
                      count * y_elements);
  }
  return absl::OkStatus();
}

// Calls fn(plane, begin, end) for ranges of output rows that together are all rows of all planes,
// on the whole team.
template <typename Fn>
void ForRowsOfPlanes(const Context& ctx, const PoolArgs& args, int64_t planes, Fn fn) {
  const int64_t rows = args.rows();
  const double cost = kTapCost * args.taps() * static_cast<double>(args.geometry.out[2]);
  ctx.team.For(planes * rows, kGrainElements / cost, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t plane = begin / rows, first = begin % rows;
      const int64_t n = std::min(rows - first, end - begin);
      fn(plane, first, first + n);
      begin += n;
    }
  });
}

// Calls fn(plane) for all planes, on the whole team. `taps` is the time for a window, relative to a
// cheap elementwise op.
template <typename Fn>
void ForWholePlanes(const Context& ctx, const PoolArgs& args, int64_t planes, double taps, Fn fn) {
  const double cost = static_cast<double>(args.in()) + taps * static_cast<double>(args.out());
  ctx.team.For(planes, kGrainElements / cost, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) fn(plane);
  });
}

const PoolLoops& LoopsFor(const Operand& x) {
  return BestNetworkLoops().pool[Index(ComputeDType(x.spec->dtype))];
}

absl::Status MaxPoolKernel(const Context& ctx, const KernelCall& call) {
  const Operand &x = call.inputs[0], &y = call.outputs[0], &indices = call.outputs[1];
  const PoolLoops& loops = LoopsFor(x);
  if (loops.max == nullptr) return NoKernel(call);
  if (y.spec->num_elements() == 0) return absl::OkStatus();
  const PoolArgs args(call, x.spec->shape, y.spec->shape);
  const int64_t in = args.in(), out = args.out();
  const int64_t size = SizeOf(ComputeDType(x.spec->dtype));
  return ForPlanes(ctx, call, x, in, y, out, args.planes,
                   [&](const void* from, void* to, int64_t first, int64_t count) {
                     ForRowsOfPlanes(
                         ctx, args, count, [&](int64_t plane, int64_t begin, int64_t end) {
                           loops.max(args.geometry, Advance(from, plane * in * size), begin, end,
                                     Advance(to, plane * out * size),
                                     indices.AsMutable<int64_t>() + (first + plane) * out);
                         });
                   });
}

absl::Status MaxPoolBackwardKernel(const Context& ctx, const KernelCall& call) {
  const Operand &g = call.inputs[0], &indices = call.inputs[1], &gx = call.output();
  const PoolLoops& loops = LoopsFor(g);
  if (loops.max_backward == nullptr) return NoKernel(call);
  if (gx.spec->num_elements() == 0) return absl::OkStatus();
  const PoolArgs args(call, gx.spec->shape, g.spec->shape);
  const int64_t in = args.in(), out = args.out();
  const int64_t size = SizeOf(ComputeDType(g.spec->dtype));
  return ForPlanes(ctx, call, g, out, gx, in, args.planes,
                   [&](const void* from, void* to, int64_t first, int64_t count) {
                     ForWholePlanes(ctx, args, count, 4, [&](int64_t plane) {
                       loops.max_backward(args.geometry, Advance(from, plane * out * size),
                                          indices.As<int64_t>() + (first + plane) * out,
                                          Advance(to, plane * in * size));
                     });
                   });
}

absl::Status AvgPoolKernel(const Context& ctx, const KernelCall& call) {
  const Operand &x = call.inputs[0], &y = call.output();
  const PoolLoops& loops = LoopsFor(x);
  if (loops.avg == nullptr) return NoKernel(call);
  if (y.spec->num_elements() == 0) return absl::OkStatus();
  const PoolArgs args(call, x.spec->shape, y.spec->shape);
  const bool count_padding = call.attrs->Bool("count_include_pad");
  const int64_t divisor = call.attrs->Int("divisor");
  const int64_t in = args.in(), out = args.out();
  const int64_t size = SizeOf(ComputeDType(x.spec->dtype));
  return ForPlanes(
      ctx, call, x, in, y, out, args.planes,
      [&](const void* from, void* to, int64_t /*first*/, int64_t count) {
        ForRowsOfPlanes(ctx, args, count, [&](int64_t plane, int64_t begin, int64_t end) {
          loops.avg(args.geometry, count_padding, divisor, Advance(from, plane * in * size), begin,
                    end, Advance(to, plane * out * size));
        });
      });
}

absl::Status AvgPoolBackwardKernel(const Context& ctx, const KernelCall& call) {
  const Operand &g = call.inputs[0], &gx = call.output();
  const PoolLoops& loops = LoopsFor(g);
  if (loops.avg_backward == nullptr) return NoKernel(call);
  if (gx.spec->num_elements() == 0) return absl::OkStatus();
  const PoolArgs args(call, gx.spec->shape, g.spec->shape);
  const bool count_padding = call.attrs->Bool("count_include_pad");
  const int64_t divisor = call.attrs->Int("divisor");
  const int64_t in = args.in(), out = args.out();
  const int64_t size = SizeOf(ComputeDType(g.spec->dtype));
  return ForPlanes(ctx, call, g, out, gx, in, args.planes,
                   [&](const void* from, void* to, int64_t /*first*/, int64_t count) {
                     ForWholePlanes(ctx, args, count, args.taps(), [&](int64_t plane) {
                       loops.avg_backward(args.geometry, count_padding, divisor,
                                          Advance(from, plane * out * size),
                                          Advance(to, plane * in * size));
                     });
                   });
}

}  // namespace

void AppendPoolKernels(KernelTable& table) {
  table["max_pool"] = MaxPoolKernel;
  table["max_pool_backward"] = MaxPoolBackwardKernel;
  table["avg_pool"] = AvgPoolKernel;
  table["avg_pool_backward"] = AvgPoolBackwardKernel;
}

}  // namespace tensord::server::cpu
