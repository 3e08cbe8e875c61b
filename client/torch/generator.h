// The generator of random numbers of a device: a seed, and the number of the next stream. Each
// random op takes one stream, so its numbers depend only on the seed and the ops before it.
#pragma once

#include <ATen/core/Generator.h>

#include <utility>

namespace torch_tensord {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override { stream_ = offset; }
  uint64_t get_offset() const override { return stream_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  static at::DeviceType device_type() { return at::kPrivateUse1; }

  // Returns the seed and the stream for an op. The caller needn't hold the mutex.
  std::pair<int64_t, int64_t> Next();

 private:
  Generator* clone_impl() const override;
  uint64_t seed_;
  uint64_t stream_ = 0;
};

const at::Generator& DefaultGenerator(c10::DeviceIndex device);
// Returns the seed and the stream for an op on `device`.
std::pair<int64_t, int64_t> NextStream(const std::optional<at::Generator>& given,
                                       c10::DeviceIndex device);

}  // namespace torch_tensord
