#include "generator.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "api.h"

namespace torch_tensord {

Generator::Generator(c10::DeviceIndex device)
    : GeneratorImpl(at::Device(at::kPrivateUse1, device),
                    c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::default_rng_seed_val) {}

void Generator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  stream_ = 0;
}
uint64_t Generator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void Generator::set_state(const c10::TensorImpl& state) {
  uint64_t words[2];
  TORCH_CHECK_TYPE(state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                   "RNG state must be a torch.ByteTensor");
  TORCH_CHECK(state.is_cpu() && state.is_contiguous() && state.numel() == sizeof(words),
              "the state of a tensord generator is a CPU tensor of ", sizeof(words), " bytes");
  std::memcpy(words, state.data(), sizeof(words));
  seed_ = words[0];
  stream_ = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  const uint64_t words[2] = {seed_, stream_};
  at::Tensor state =
      at::empty({sizeof(words)}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  std::memcpy(state.mutable_data_ptr(), words, sizeof(words));
  return state.getIntrusivePtr();
}

std::pair<int64_t, int64_t> Generator::Next() {
  std::lock_guard<std::mutex> lock(mutex_);
  return {static_cast<int64_t>(seed_), static_cast<int64_t>(stream_++)};
}

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device().index());
  copy->seed_ = seed_;
  copy->stream_ = stream_;
  return copy;
}

const at::Generator& DefaultGenerator(c10::DeviceIndex device) {
  static auto* const all = [] {
    auto* made = new std::vector<at::Generator>;
    for (int i = 0; i < 127; ++i)
      made->push_back(at::make_generator<Generator>(static_cast<c10::DeviceIndex>(i)));
    return made;
  }();
  if (device < 0) device = CurrentDevice();
  return all->at(static_cast<size_t>(device));
}

std::pair<int64_t, int64_t> NextStream(const std::optional<at::Generator>& given,
                                       c10::DeviceIndex device) {
  if (!given.has_value() || !given->defined()) {
    return static_cast<Generator*>(DefaultGenerator(device).unsafeGetGeneratorImpl())->Next();
  }
  TORCH_CHECK(given->device().type() == at::kPrivateUse1,
              "expected a generator of tensord, but got one of ", given->device());
  // The dispatcher calls this device's kernel also if only the generator is of tensord.
  TORCH_CHECK(device >= 0, "expected a generator of cpu, but got one of ", given->device());
  return static_cast<Generator*>(given->unsafeGetGeneratorImpl())->Next();
}

}  // namespace torch_tensord
