// A row of the conformance table: an op, its inputs, and the error bounds of its results.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensord/common/attributes.h"
#include "tensord/tests/conformance/host_tensor.h"

namespace tensord::conformance {

// The values of an input. They are a function of the spec and a seed. The parts of complex dtypes
// are filled as floating dtypes.
enum class Fill {
  kPlain,     // floating: uniform in [-4, 4); integers: in [-100, 100] or [0, 200]; bool: both
  kUnit,      // floating: uniform in [-1, 1); integers: in [-3, 3] or [0, 3]
  kPositive,  // floating: uniform in [1/64, 8); integers: 1 to 9; bool: true
  kWide,      // floating: signed powers of e up to 10^4; integers: the whole range
  kSpecial,  // floating: NaN, infinities, both zeros, subnormals, the largest values …; integers:
             // the largest, smallest and small values; bool: bytes 0, 1, 2, 128 and 255
  kTies,     // few distinct values, each many times
  kValues,   // Input::values
};

struct Input {
  TensorSpec spec;
  Fill fill = Fill::kPlain;
  std::vector<double> values = {};
};

HostTensor MakeInput(const Input& input, uint64_t seed);

// The maximum difference between an element and the reference, which is rounded to the dtype:
//   ulps · ulp(reference) + epsilons · epsilon(compute dtype) · scale + absolute
// with scale as in Values. NaNs and infinities must be where the reference has them, except as
// `may_overflow` says. If all terms are zero, the values must be equal, and so must the signs of
// zeros. All NaNs count as equal.
struct Bound {
  double ulps = 0;
  double epsilons = 0;
  double absolute = 0;
  bool any_zero_sign = false;  // with an exact bound: +0 and -0 count as equal
  bool may_overflow = false;   // to infinity, if the bound reaches the largest value of the dtype

  bool exact() const { return ulps == 0 && epsilons == 0 && absolute == 0; }
};

// Returns a bound of `ulps` for float32 and float64. A 16-bit result is a rounded float32 result,
// so its bound is one ulp of its dtype, or 0 if `ulps` is 0.
Bound Ulps(DType dtype, double ulps);

struct Row {
  std::string op;
  std::vector<Input> inputs;
  Attributes attrs = {};
  Bound bound = {};  // of each output that has none in `bounds`
  // The error that the op must return; kOk: the op must return a result.
  absl::StatusCode refusal = absl::StatusCode::kOk;
  // The reason why the row is switched off; empty if it is on.
  std::string off_reason = {};
  int num_outputs = 1;
  std::vector<Bound> bounds = {};  // of the first outputs

  // Returns the name of the row, such as "add float32[2, 3]:plain float32[3]:special".
  std::string Name() const;
};

using Rows = std::vector<Row>;

// Adds a row whose op must return INVALID_ARGUMENT.
void Refuse(Rows& rows, Row row);
// Does the same for an op of inputs of these specs.
void RefuseSpecs(Rows& rows, const char* op, const std::vector<TensorSpec>& specs,
                 Attributes attrs = {});

// The inputs of a row and the expected results.
struct Prepared {
  std::vector<HostTensor> inputs;
  std::vector<Values> expected;  // empty if the op must return an error
};
// Makes the inputs and computes the reference.
Prepared Prepare(const Row& row);

// Compares the results with the expected ones. If they differ, returns a description of the
// difference.
std::optional<std::string> Mismatch(const Row& row, const std::vector<Values>& expected,
                                    const std::vector<HostTensor>& got);

// Returns the whole table.
const Rows& AllRows();

// Each function adds a part of the table.
void AddActivationRows(Rows& rows);
void AddUnaryRows(Rows& rows);
void AddBinaryRows(Rows& rows);
void AddAttentionRows(Rows& rows);
void AddConvRows(Rows& rows);
void AddIndexingRows(Rows& rows);
void AddLossRows(Rows& rows);
void AddMatmulRows(Rows& rows);
void AddMovementRows(Rows& rows);
void AddNetworkRows(Rows& rows);
void AddOptimizerRows(Rows& rows);
void AddPoolRows(Rows& rows);
void AddGroupNormRows(Rows& rows);
void AddRecurrentRows(Rows& rows);
void AddSpecialRows(Rows& rows);
void AddReductionRows(Rows& rows);
void AddVarMeanRows(Rows& rows);
void AddProdRows(Rows& rows);
void AddCountRows(Rows& rows);
void AddScanRows(Rows& rows);
void AddShapeRows(Rows& rows);
void AddSmallRows(Rows& rows);
void AddStridedRows(Rows& rows);
void AddBatchNormRows(Rows& rows);
void AddCreationRows(Rows& rows);
void AddSortRows(Rows& rows);
void AddRandomRows(Rows& rows);

inline constexpr DType kFloatingDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                            DType::kBFloat16};
inline constexpr DType kIntegerDTypes[] = {DType::kUInt8,  DType::kInt8,  DType::kInt32,
                                           DType::kInt64,  DType::kInt16, DType::kUInt16,
                                           DType::kUInt32, DType::kUInt64};
inline constexpr DType kComplexDTypes[] = {DType::kComplex64, DType::kComplex128};

}  // namespace tensord::conformance
