// Dropout.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tensord/client/nn/module.h"
#include "tensord/client/random.h"

namespace tensord::nn {

// In training mode, sets each element to 0 with probability p, from 0 to 1, and divides the others
// by 1 - p. Each call of Forward uses the next stream of the seed. In
// evaluation mode, returns its input. Copies share the generator. If several threads call Forward,
// the order of their calls determines which stream each call gets.
//
// In training mode, Forward fails with FAILED_PRECONDITION while a program is recorded: each run of
// the program would drop the same elements. In a program, call tensord::Dropout with a state.
class Dropout : public Module {
 public:
  // Without a seed, draws one from the system's random numbers.
  explicit Dropout(double p = 0.5, std::optional<int64_t> seed = {});

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;

 private:
  double p_;
  std::shared_ptr<Generator> generator_;
};

}  // namespace tensord::nn
