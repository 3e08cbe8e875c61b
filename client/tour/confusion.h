// Counts the predictions of each class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensord/client/cli/terminal.h"

namespace tensord::tour {

class Confusion {
 public:
  explicit Confusion(int classes) : classes_(classes), counts_(size_t(classes) * classes) {}

  // Counts one prediction. Both arguments must be from 0 to classes - 1.
  void Add(int label, int prediction) { ++counts_[size_t(label) * classes_ + prediction]; }

  int classes() const { return classes_; }
  int64_t count(int label, int prediction) const {
    return counts_[size_t(label) * classes_ + prediction];
  }
  int64_t total() const;
  int64_t correct() const;

  // Returns a table with a row per true class, a column per prediction, and the share of each row
  // that is right; zeros are dots. If the table is wider than the terminal, returns a list of the
  // most frequent mistakes.
  std::string Render(const cli::Terminal& terminal, int indent) const;

 private:
  std::string RenderMistakes(const cli::Terminal& terminal, int indent) const;

  int classes_;
  std::vector<int64_t> counts_;
};

}  // namespace tensord::tour
