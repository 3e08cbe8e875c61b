// Hides the differences between the interfaces of oneDNN 2 and oneDNN 3. All other code compiles
// with both.
#pragma once

#include <dnnl.hpp>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "tensord/server/device/conv_attributes.h"

namespace tensord::server::cpu {

// Appends `algorithm`, applied to each element of the result, to `ops`.
inline void AppendElementwise(dnnl::algorithm algorithm, float alpha, dnnl::post_ops& ops) {
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(algorithm, alpha, /*beta=*/0.0f);
#else
  ops.append_eltwise(/*scale=*/1.0f, algorithm, alpha, /*beta=*/0.0f);
#endif
}

// Describes c = a·b, or c = a·b + bias if `bias` isn't null. Throws dnnl::error. If the library has
// no code for this product on this processor, the error's status is dnnl_unimplemented.
inline dnnl::matmul::primitive_desc DescribeMatmul(
    const dnnl::engine& engine, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
    const dnnl::memory::desc* bias, const dnnl::memory::desc& c, const dnnl::primitive_attr& attr) {
  using Matmul = dnnl::matmul;
#if DNNL_VERSION_MAJOR >= 3
  return bias != nullptr ? Matmul::primitive_desc(engine, a, b, *bias, c, attr)
                         : Matmul::primitive_desc(engine, a, b, c, attr);
#else
  const Matmul::desc desc = bias != nullptr ? Matmul::desc(a, b, *bias, c) : Matmul::desc(a, b, c);
  return {desc, attr, engine};
#endif
}

// A convolution and the layouts of its tensors, each of which may be "any".
struct ConvDescs {
  dnnl::memory::desc x, weight, y;
  std::optional<dnnl::memory::desc> bias;          // of the forward convolution
  dnnl::memory::dims stride, dilation, low, high;  // the dilation of adjacent elements is 0
};

// A primitive with the layouts that the library has chosen.
struct ConvPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc x, weight, y, scratchpad;
  std::string implementation;
};

namespace internal {

// Returns the library's first implementation without AMX. If operands have infinite elements, the
// code of oneDNN 2.6 for AMX gives NaN also for results that don't depend on them. What `desc` was
// made from must still exist.
template <typename Desc>
Desc WithoutAmx(Desc desc) {
  while (absl::StrContains(desc.impl_info_str(), "amx") && desc.next_impl()) {
  }
  return desc;
}

inline dnnl::convolution_forward::primitive_desc DescribeConvForward(
    const dnnl::engine& engine, const ConvDescs& d, const dnnl::primitive_attr& attr) {
  using Forward = dnnl::convolution_forward;
  // For inference, oneDNN 2.6 chooses layouts with the channels last. To copy tensors to them takes
  // longer.
  constexpr auto kKind = dnnl::prop_kind::forward_training;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return WithoutAmx(d.bias.has_value()
                        ? Forward::primitive_desc(engine, kKind, kDirect, d.x, d.weight, *d.bias,
                                                  d.y, d.stride, d.dilation, d.low, d.high, attr)
                        : Forward::primitive_desc(engine, kKind, kDirect, d.x, d.weight, d.y,
                                                  d.stride, d.dilation, d.low, d.high, attr));
#else
  const Forward::desc desc =
      d.bias.has_value()
          ? Forward::desc(kKind, kDirect, d.x, d.weight, *d.bias, d.y, d.stride, d.dilation, d.low,
                          d.high)
          : Forward::desc(kKind, kDirect, d.x, d.weight, d.y, d.stride, d.dilation, d.low, d.high);
  return WithoutAmx(Forward::primitive_desc(desc, attr, engine));
#endif
}

// Describes the gradient of the input (dnnl::convolution_backward_data) or of the weight
// (dnnl::convolution_backward_weights).
template <typename Backward>
typename Backward::primitive_desc DescribeConvBackward(const dnnl::engine& engine,
                                                       const ConvDescs& d,
                                                       const dnnl::primitive_attr& attr) {
  // The library asks for the forward convolution, but doesn't use it.
  const auto forward = DescribeConvForward(engine, d, dnnl::primitive_attr());
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return WithoutAmx(typename Backward::primitive_desc(engine, kDirect, d.x, d.weight, d.y, d.stride,
                                                      d.dilation, d.low, d.high, forward, attr));
#else
  const typename Backward::desc desc(kDirect, d.x, d.weight, d.y, d.stride, d.dilation, d.low,
                                     d.high);
  return WithoutAmx(typename Backward::primitive_desc(desc, attr, engine, forward));
#endif
}

}  // namespace internal

// Makes the primitive of a convolution or of a gradient. Throws dnnl::error. If the library has no
// code for it on this processor, the error's status is dnnl_unimplemented.
inline ConvPrimitive MakeConvPrimitive(const dnnl::engine& engine, ConvKind kind,
                                       const ConvDescs& descs, const dnnl::primitive_attr& attr) {
  switch (kind) {
    case ConvKind::kForward: {
      const auto desc = internal::DescribeConvForward(engine, descs, attr);
      return {dnnl::convolution_forward(desc),
              desc.src_desc(),
              desc.weights_desc(),
              desc.dst_desc(),
              desc.scratchpad_desc(),
              desc.impl_info_str()};
    }
    case ConvKind::kBackwardInput: {
      using Backward = dnnl::convolution_backward_data;
      const auto desc = internal::DescribeConvBackward<Backward>(engine, descs, attr);
      return {Backward(desc),       desc.diff_src_desc(),   desc.weights_desc(),
              desc.diff_dst_desc(), desc.scratchpad_desc(), desc.impl_info_str()};
    }
    case ConvKind::kBackwardWeight:
      break;
  }
  using Backward = dnnl::convolution_backward_weights;
  const auto desc = internal::DescribeConvBackward<Backward>(engine, descs, attr);
  return {Backward(desc),       desc.src_desc(),        desc.diff_weights_desc(),
          desc.diff_dst_desc(), desc.scratchpad_desc(), desc.impl_info_str()};
}

}  // namespace tensord::server::cpu
