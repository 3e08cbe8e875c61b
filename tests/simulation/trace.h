// The trace of a simulation, and its first failure.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tensord::simulation {

class Trace {
 public:
  // `keep` says whether to keep the lines of the trace.
  explicit Trace(bool keep) : keep_(keep) {}

  template <typename... Args>
  void Note(const Args&... args) {
    if (keep_) lines_.push_back(absl::StrCat(args...));
  }
  // Stores the first failure only, because later ones are likely to be its consequences.
  template <typename... Args>
  void Fail(const Args&... args) {
    if (failure_.empty()) failure_ = absl::StrCat(args...);
    Note("FAILED: ", args...);
  }

  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  const bool keep_;
  std::vector<std::string> lines_;
  std::string failure_;
};

}  // namespace tensord::simulation
