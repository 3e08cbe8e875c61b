#include "tensord/server/device/pool_attributes.h"

namespace tensord::server {

Pooling ReadPooling(const Attributes& attrs, const Shape& x, const Shape& pooled) {
  Pooling pooling;
  const auto axes = static_cast<int>(attrs.Ints("kernel").size());
  const int lead = PoolGeometry::kAxes - axes, first = x.rank() - axes;
  for (int d = 0; d < first; ++d) pooling.planes *= x.dim(d);
  for (int a = 0; a < PoolGeometry::kAxes; ++a) {
    const bool used = a >= lead;
    const auto number = [&](const char* name, int64_t otherwise) {
      return used && attrs.Find(name) != nullptr ? attrs.Ints(name)[a - lead] : otherwise;
    };
    pooling.geometry.in[a] = used ? x.dim(first + a - lead) : 1;
    pooling.geometry.out[a] = used ? pooled.dim(first + a - lead) : 1;
    pooling.geometry.kernel[a] = number("kernel", 1);
    pooling.geometry.stride[a] = number("stride", 1);
    pooling.geometry.padding[a] = number("padding", 0);
    pooling.geometry.dilation[a] = number("dilation", 1);
  }
  return pooling;
}

}  // namespace tensord::server
