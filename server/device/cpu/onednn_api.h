// Hides the differences between the interfaces of oneDNN 2 and oneDNN 3. All other code compiles
// with both.
#pragma once

#include <dnnl.hpp>

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

}  // namespace tensord::server::cpu
