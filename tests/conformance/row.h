// One case of the conformance table: an op, what goes into it, and how near the result must come.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensord/common/attributes.h"
#include "tensord/tests/conformance/host_tensor.h"

namespace tensord::conformance {

// What an input is filled with. Each is a function of the spec and a seed.
enum class Fill {
  kPlain,     // floating: uniform in [-4, 4); integers: in [-100, 100] or [0, 200]; bool: both
  kUnit,      // floating: uniform in [-1, 1); integers: in [-3, 3] or [0, 3]
  kPositive,  // floating: uniform in [1/64, 8); integers: 1 to 9; bool: true
  kWide,      // floating: signed powers of e up to 10^4; integers: the whole range
  kSpecial,  // floating: NaN, infinities, both zeros, subnormals, both ends …; integers: the ends
             // and small numbers; bool: bytes 0, 1, 2 and 255
  kTies,     // few distinct values, each many times
  kValues,   // Input::values
};

struct Input {
  TensorSpec spec;
  Fill fill = Fill::kPlain;
  std::vector<double> values = {};
};

HostTensor MakeInput(const Input& input, uint64_t seed);

// How far an element may lie from the reference rounded to the dtype:
//   ulps · ulp(reference) + epsilons · epsilon(compute dtype) · scale + absolute
// with scale as in Values. NaNs and infinities must be where the reference has them. All zero: the
// bits must be equal, the sign of a zero included, save that any NaN is as good as another.
struct Bound {
  double ulps = 0;
  double epsilons = 0;
  double absolute = 0;
  bool any_zero_sign = false;  // with exact bounds: +0 and -0 are the same

  bool exact() const { return ulps == 0 && epsilons == 0 && absolute == 0; }
};

// `ulps` of float32 or float64. A 16-bit result is the rounded float32 result, so that it may be
// one ulp of its own off, however many the float32 result was.
Bound Ulps(DType dtype, double ulps);

struct Row {
  std::string op;
  std::vector<Input> inputs;
  Attributes attrs = {};
  Bound bound = {};
  // What the op must be refused with; kOk: it gives a result.
  absl::StatusCode refusal = absl::StatusCode::kOk;
  // Why the row isn't run; empty: it is.
  std::string off_reason = {};

  // "add float32[2, 3] float32[3] special".
  std::string Name() const;
};

using Rows = std::vector<Row>;

// The inputs, widened and as bytes, and what must come out.
struct Prepared {
  std::vector<HostTensor> inputs;
  Values expected;  // unset for refusals
};
Prepared Prepare(const Row& row);

// What is wrong with `got`; none where it is right.
std::optional<std::string> Mismatch(const Row& row, const Values& expected, const HostTensor& got);

// The whole table.
const Rows& AllRows();

// Its families.
void AddUnaryRows(Rows& rows);
void AddBinaryRows(Rows& rows);
void AddMatmulRows(Rows& rows);
void AddReductionRows(Rows& rows);
void AddShapeRows(Rows& rows);
void AddCreationRows(Rows& rows);

inline constexpr DType kFloatingDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                            DType::kBFloat16};
inline constexpr DType kIntegerDTypes[] = {DType::kUInt8, DType::kInt8, DType::kInt32,
                                           DType::kInt64};

}  // namespace tensord::conformance
