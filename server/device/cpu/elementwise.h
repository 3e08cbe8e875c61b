// The loops of elementwise ops over dense memory.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/server/device/cpu/isa/loops.h"

namespace tensord::server::cpu {

inline constexpr int kMaxElementwiseInputs = 3;

// An elementwise function over given dtypes. It runs on the calling thread. Results don't depend on
// how a range is divided into calls.
class ElementwiseLoop {
 public:
  // Returns nullopt if the op isn't elementwise or has no loop over these dtypes.
  static std::optional<ElementwiseLoop> Find(const Loops& loops, const OpSchema& schema,
                                             const Attributes& attrs,
                                             absl::Span<const DType> inputs, DType output);
  static std::optional<ElementwiseLoop> Find(const Loops& loops, ElementwiseFunction function,
                                             absl::Span<const DType> inputs, DType output);

  int inputs() const { return inputs_; }
  // A grain (team.h), in elements.
  double grain() const { return grain_; }
  // Returns whether y may be x[input] in Run(). Both must have the same number of elements.
  bool MayOverwrite(int input) const { return (overwritable_ >> input & 1) != 0; }

  // y[i] = f(x[0][i step[0]], …) for i in [0, n). A step is 1, or 0 (one element for all). If all
  // steps are 0, n must be 1.
  void Run(const void* const* x, const int* step, void* y, int64_t n) const {
    switch (form_) {
      case Form::kUnary:
        return unary_(x[0], y, n);
      case Form::kBinary:
        return binary_(x[0], step[0], x[1], step[1], y, n);
      default:
        return RunOther(x, step, y, n);
    }
  }

 private:
  // The 16-bit forms convert blocks to float32 or int32, compute there, and convert back.
  enum class Form : uint8_t { kUnary, kBinary, kWhere, kCast, kCopy, kUnary16, kBinary16, kCast16 };

  ElementwiseLoop() = default;
  bool SetUnary(const Loops& loops, UnaryFunction function, DType dtype);
  bool SetBinary(const Loops& loops, BinaryFunction function, DType dtype);
  void SetCast(const Loops& loops, DType from, DType to);
  // Sets the two steps of a conversion through `via`.
  void SetConversions(const Loops& loops, DType from, DType via, DType to);

  void RunOther(const void* const* x, const int* step, void* y, int64_t n) const;
  void RunUnary16(const void* x, void* y, int64_t n) const;
  void RunBinary16(const void* const* x, const int* step, void* y, int64_t n) const;
  void RunCast16(const void* x, void* y, int64_t n) const;

  Form form_ = Form::kCopy;
  uint8_t inputs_ = 1;
  uint8_t overwritable_ = 0;  // bit i: input i
  uint8_t from_size_ = 0, to_size_ = 0;
  union {
    UnaryLoop unary_ = nullptr;
    BinaryLoop binary_;
    WhereLoop where_;
    CastLoop cast_;
  };
  CastLoop widen_ = nullptr;
  CastLoop narrow_ = nullptr;  // null for a comparison, whose results are bytes
  double grain_ = 0;
};

}  // namespace tensord::server::cpu
