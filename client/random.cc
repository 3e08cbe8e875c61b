#include "tensord/client/random.h"

#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/new_seed.h"
#include "tensord/client/ops.h"

namespace tensord {
namespace {

// Adds the stream to the attributes, unless the numbers come from a state.
void AddStream(const RandomSource& source, Attributes* attrs) {
  if (source.state() != nullptr) return;
  attrs->Set("seed", source.stream().seed);
  attrs->Set("stream", source.stream().stream);
}

Tensor Draw(absl::string_view op, const Device& device, const Shape& shape,
            const RandomSource& source, Attributes attrs) {
  attrs.Set("shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
  AddStream(source, &attrs);
  const Tensor* const state = source.state();
  if (state == nullptr) return internal::EnqueueCreation(op, device, attrs);
  if (state->ok() && !(state->device() == device)) {
    return Tensor::Failed(absl::InvalidArgumentError(
        absl::StrCat(op, ": the state is on ", state->device().name(), " and not on ",
                     device.name(), "; copy it first (Tensor::To)")));
  }
  return internal::Enqueue(op, absl::MakeConstSpan(&state, 1), attrs);
}

absl::InlinedVector<const Tensor*, 2> DropoutInputs(const Tensor& x, const RandomSource& source) {
  absl::InlinedVector<const Tensor*, 2> inputs = {&x};
  if (source.state() != nullptr) inputs.push_back(source.state());
  return inputs;
}

}  // namespace

Generator::Generator() : Generator(internal::NewSeed()) {}

Tensor Generator::NextState(const Device& device) {
  const RandomStream next = Next();
  return FromVector<int64_t>(device, {next.seed, next.stream});
}

Tensor AdvanceState(const Tensor& state, int64_t count) {
  if (!state.ok()) return state;
  return Add(state, FromVector<int64_t>(state.device(), {0, count}));
}

Tensor Uniform(const Device& device, const Shape& shape, RandomSource source,
               const UniformOptions& options) {
  return Draw("uniform", device, shape, source,
              {{"low", options.low}, {"high", options.high}, {"dtype", options.dtype}});
}

Tensor Normal(const Device& device, const Shape& shape, RandomSource source,
              const NormalOptions& options) {
  return Draw("normal", device, shape, source,
              {{"mean", options.mean}, {"stddev", options.stddev}, {"dtype", options.dtype}});
}

Tensor RandInt(const Device& device, const Shape& shape, int64_t low, int64_t high,
               RandomSource source, const RandIntOptions& options) {
  return Draw("randint", device, shape, source,
              {{"low", low}, {"high", high}, {"dtype", options.dtype}});
}

Tensor Dropout(const Tensor& x, double p, RandomSource source) {
  Attributes attrs = {{"p", p}};
  AddStream(source, &attrs);
  return internal::Enqueue("dropout", DropoutInputs(x, source), attrs);
}

DropoutResult DropoutWithMask(const Tensor& x, double p, RandomSource source) {
  Attributes attrs = {{"p", p}, {"mask", true}};
  AddStream(source, &attrs);
  absl::StatusOr<internal::Tensors> outputs =
      internal::EnqueueAll("dropout", DropoutInputs(x, source), attrs, {});
  if (!outputs.ok()) return {Tensor::Failed(outputs.status()), Tensor::Failed(outputs.status())};
  return {(*outputs)[0], (*outputs)[1]};
}

}  // namespace tensord
