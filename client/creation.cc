#include "tensord/client/creation.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/element_types.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/new_seed.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

using internal::EnqueueCreation;
using internal::ToAttr;

std::vector<int64_t> Dimensions(const Shape& shape) {
  return std::vector<int64_t>(shape.dims().begin(), shape.dims().end());
}

Attributes ArangeAttrs(Scalar stop, const ArangeOptions& options) {
  Attributes attrs = {{"stop", ToAttr(stop)}};
  if (options.dtype.has_value()) attrs.Set("dtype", *options.dtype);
  return attrs;
}

absl::Status CheckHostData(const Device& device, const TensorSpec& spec, size_t size_bytes) {
  if (!device.valid()) {
    return absl::FailedPreconditionError(
        "no device: get one from a connected client, such as client.TryDevice()");
  }
  TENSORD_RETURN_IF_ERROR(spec.Validate());
  if (size_bytes == static_cast<size_t>(spec.size_bytes())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(spec.ToString(), " has ", spec.num_elements(), " elements, ", spec.size_bytes(),
                   " bytes; the data given has ", size_bytes, " bytes, ",
                   size_bytes / SizeOf(spec.dtype), " elements"));
}

template <typename T>
absl::Span<const uint8_t> AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

// Makes a uint64 tensor of one value. The op "full" takes no integer above the range of int64.
Tensor FullOfLarge(const Device& device, const Shape& shape, uint64_t value) {
  const Tensor one = FromSpan<uint64_t>(device, {}, absl::MakeConstSpan(&value, 1));
  const Tensor* inputs[] = {&one};
  return internal::Enqueue("broadcast_to", inputs, {{"shape", Dimensions(shape)}});
}

}  // namespace

Tensor Zeros(const Device& device, const Shape& shape, const CreateOptions& options) {
  return EnqueueCreation("zeros", device, {{"shape", Dimensions(shape)}, {"dtype", options.dtype}});
}

Tensor Ones(const Device& device, const Shape& shape, const CreateOptions& options) {
  return EnqueueCreation("ones", device, {{"shape", Dimensions(shape)}, {"dtype", options.dtype}});
}

Tensor Full(const Device& device, const Shape& shape, Scalar value, const FullOptions& options) {
  if (value.is_large() && options.dtype.value_or(DType::kUInt64) == DType::kUInt64) {
    return FullOfLarge(device, shape, std::get<uint64_t>(value.value()));
  }
  Attributes attrs = {{"shape", Dimensions(shape)}, {"value", ToAttr(value)}};
  if (options.dtype.has_value()) attrs.Set("dtype", *options.dtype);
  return EnqueueCreation("full", device, attrs);
}

Tensor FromScalar(const Device& device, Scalar value, const FullOptions& options) {
  return Full(device, {}, value, options);
}

Tensor Arange(const Device& device, Scalar start, Scalar stop, Scalar step,
              const ArangeOptions& options) {
  Attributes attrs = ArangeAttrs(stop, options);
  attrs.Set("start", ToAttr(start));
  attrs.Set("step", ToAttr(step));
  return EnqueueCreation("arange", device, attrs);
}

Tensor Arange(const Device& device, Scalar stop, const ArangeOptions& options) {
  return EnqueueCreation("arange", device, ArangeAttrs(stop, options));
}

Tensor Linspace(const Device& device, double start, double stop, int64_t count,
                const LinspaceOptions& options) {
  return EnqueueCreation("linspace", device,
                         {{"start", start},
                          {"stop", stop},
                          {"count", count},
                          {"endpoint", options.endpoint},
                          {"dtype", options.dtype}});
}

Tensor Eye(const Device& device, int64_t rows, const EyeOptions& options) {
  Attributes attrs = {{"rows", rows}, {"cols", options.cols}, {"dtype", options.dtype}};
  if (options.k != 0) attrs.Set("k", options.k);
  return EnqueueCreation("eye", device, attrs);
}

Tensor Eye(const Device& device, int64_t rows, int64_t cols, int64_t k) {
  return Eye(device, rows, {.cols = cols, .k = k});
}

Tensor Uniform(const Device& device, const Shape& shape, const UniformOptions& options) {
  return Uniform(device, shape, internal::NewSeed(), options);
}

Tensor Uniform(const Device& device, const Shape& shape, int64_t seed,
               const UniformOptions& options) {
  return EnqueueCreation("uniform", device,
                         {{"shape", Dimensions(shape)},
                          {"seed", seed},
                          {"low", options.low},
                          {"high", options.high},
                          {"dtype", options.dtype}});
}

Tensor Normal(const Device& device, const Shape& shape, const NormalOptions& options) {
  return Normal(device, shape, internal::NewSeed(), options);
}

Tensor Normal(const Device& device, const Shape& shape, int64_t seed,
              const NormalOptions& options) {
  return EnqueueCreation("normal", device,
                         {{"shape", Dimensions(shape)},
                          {"seed", seed},
                          {"mean", options.mean},
                          {"stddev", options.stddev},
                          {"dtype", options.dtype}});
}

Tensor FromBytes(const Device& device, const TensorSpec& spec, absl::Span<const uint8_t> data,
                 const TransferOptions& options) {
  const absl::Status valid = CheckHostData(device, spec, data.size());
  if (!valid.ok()) return Tensor::Failed(valid);
  if (static_cast<int64_t>(data.size()) <= kMaxInlineBytes) {
    std::string bytes(reinterpret_cast<const char*>(data.data()), data.size());
    return EnqueueCreation("constant", device,
                           {{"shape", Dimensions(spec.shape)},
                            {"dtype", spec.dtype},
                            {"data", Bytes{std::move(bytes)}}});
  }
  const std::shared_ptr<internal::Session>& session = device.session();
  const uint64_t handle = session->NextHandle();
  const absl::Status sent = session->Upload(handle, spec, device.id(), data, options);
  if (!sent.ok()) return Tensor::Failed(sent);
  return Tensor(std::make_shared<internal::TensorState>(session, handle, spec, device.id()));
}

template <Element T>
Tensor FromSpan(const Device& device, const Shape& shape, absl::Span<const T> values,
                const TransferOptions& options) {
  return FromBytes(device, {kDTypeOf<T>, shape}, AsBytes(values), options);
}

template <Element T>
Tensor FromVector(const Device& device, const Shape& shape, const std::vector<T>& values,
                  const TransferOptions& options) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::vector<uint8_t> bytes(values.begin(), values.end());  // vector<bool> packs bits
    return FromBytes(device, {DType::kBool, shape}, bytes, options);
  } else {
    return FromSpan<T>(device, shape, values, options);
  }
}

#define TENSORD_INSTANTIATE(T)                                                      \
  template Tensor FromSpan<T>(const Device&, const Shape&, absl::Span<const T>,     \
                              const TransferOptions&);                              \
  template Tensor FromVector<T>(const Device&, const Shape&, const std::vector<T>&, \
                                const TransferOptions&);
TENSORD_ELEMENT_TYPES(TENSORD_INSTANTIATE)
#undef TENSORD_INSTANTIATE

}  // namespace tensord
