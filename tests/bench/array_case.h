// One op on large tensors beside PyTorch 2.
#pragma once

#include <functional>
#include <string>

#include "tensord/tests/bench/bench.h"

namespace tensord::bench {

// An op on resident tensors.
struct ArrayCase {
  std::string measure;
  // The number of runs in a row, before one wait. All runs together should take some milliseconds,
  // because the wait and the start of idle threads take between 0.1 and 0.5 ms.
  int count;
  // Makes the inputs, and returns a function that runs the op once.
  std::function<std::function<Tensor()>(const Device&)> prepare;
  // The same in Python. In `setup`, "|" separates statements. If the op has an out= form, the
  // statement uses it, so that PyTorch allocates nothing.
  std::string setup;
  std::string statement;
  double goal;
};

// Adds a row with the time of the op, and PyTorch's.
void RunArrayCase(Bench& bench, const ArrayCase& array_case);

}  // namespace tensord::bench
