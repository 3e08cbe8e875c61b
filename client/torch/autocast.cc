// torch.autocast("tensord"): PyTorch's lists of ops that run in the lower precision, and in
// float32.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

namespace {

using namespace at;  // the lists name types of at::

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define TENSORD_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(TENSORD_LOWER_PRECISION)
#undef TENSORD_LOWER_PRECISION
#define TENSORD_FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(TENSORD_FLOAT32)
#undef TENSORD_FLOAT32
#define TENSORD_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(TENSORD_SET_DTYPE)
#undef TENSORD_SET_DTYPE
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define TENSORD_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(TENSORD_PROMOTE)
#undef TENSORD_PROMOTE
}

}  // namespace
