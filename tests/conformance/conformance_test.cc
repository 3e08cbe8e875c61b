// Runs the table through the execution path that the program links with: one test for each device
// and op.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <ostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/tests/conformance/execution_path.h"
#include "tensord/tests/conformance/reference.h"
#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

constexpr int kMaxFailuresShown = 20;  // per test

// Counts of the rows that have run so far. Report prints them at the end.
struct Tally {
  std::set<const Row*> rows;
  int64_t runs = 0;
  int64_t failed = 0;
  std::map<std::string, int64_t> off;  // reason -> rows
  std::set<std::string> devices;
};
Tally& GetTally() {
  static Tally tally;
  return tally;
}

class Report : public testing::Environment {
 public:
  void TearDown() override {
    const Tally& tally = GetTally();
    if (tally.runs == 0) return;
    std::printf("conformance: %s, %zu rows of %zu, %lld runs on %s, %lld failed\n",
                ExecutionPathName(), tally.rows.size(), AllRows().size(),
                static_cast<long long>(tally.runs), absl::StrJoin(tally.devices, " and ").c_str(),
                static_cast<long long>(tally.failed));
    for (const auto& [reason, rows] : tally.off) {
      std::printf("conformance: %lld rows are off: %s\n", static_cast<long long>(rows),
                  reason.c_str());
    }
  }
};
const auto* const kReport = testing::AddGlobalTestEnvironment(new Report);

// Returns the program's execution path, or the error if it can't be made. The first call makes it.
absl::StatusOr<std::unique_ptr<ExecutionPath>>& GetExecutionPath() {
  static auto* execution_path =
      new absl::StatusOr<std::unique_ptr<ExecutionPath>>(MakeExecutionPath());
  return *execution_path;
}

class DestroyExecutionPath : public testing::Environment {
 public:
  void TearDown() override {
    GetExecutionPath() = absl::FailedPreconditionError("the tests are over");
  }
};
const auto* const kDestroyExecutionPath =
    testing::AddGlobalTestEnvironment(new DestroyExecutionPath);

// The rows that this process runs, by op. The environment variable TENSORD_CONFORMANCE_PART, as
// "FIRST/OF", selects about one in OF rows of each op, and at least one. If it isn't set, or if
// TENSORD_TEST_LONG is set, all rows run.
const std::vector<const Row*>& RowsToRun(const std::string& op) {
  static const auto* const rows = [] {
    size_t first = 0, of = 1;
    const char* const part = std::getenv("TENSORD_CONFORMANCE_PART");
    if (part != nullptr && std::getenv("TENSORD_TEST_LONG") == nullptr) {
      const bool is_part = std::sscanf(part, "%zu/%zu", &first, &of) == 2 && first < of;
      EXPECT_TRUE(is_part) << "TENSORD_CONFORMANCE_PART=" << part << " isn't FIRST/OF";
      if (!is_part) first = 0, of = 1;
    }
    std::map<std::string, std::vector<const Row*>> all;
    for (const Row& row : AllRows()) all[row.op].push_back(&row);
    auto* selected = new std::map<std::string, std::vector<const Row*>>;
    for (const auto& [name, rows_of_op] : all) {
      for (size_t i = 0; i < rows_of_op.size(); ++i) {
        // The dtypes repeat with a period, so every n-th row could have the same dtype.
        const size_t wanted = rows_of_op.size() < of ? first % rows_of_op.size() : first;
        if ((i + i / of) % of == wanted) {
          (*selected)[name].push_back(rows_of_op[i]);
        }
      }
    }
    return selected;
  }();
  static const std::vector<const Row*> none;
  const auto it = rows->find(op);
  return it == rows->end() ? none : it->second;
}

// Returns the op's rows that this process runs, with their inputs and references. Keeps only those
// of the last op: tests are ordered by op, so the devices of an op follow each other.
const std::vector<Prepared>& PreparedRows(const std::string& op) {
  static std::string prepared_op;
  static std::vector<Prepared> prepared;
  if (prepared_op == op) return prepared;
  prepared_op = op;
  prepared.clear();
  for (const Row* row : RowsToRun(op)) {
    prepared.push_back(row->off_reason.empty() ? Prepare(*row) : Prepared{});
    if (!row->off_reason.empty()) ++GetTally().off[row->off_reason];
  }
  return prepared;
}

std::optional<std::string> RunRow(ExecutionPath& execution_path, const Row& row,
                                  const Prepared& prepared, const std::string& device) {
  const absl::StatusOr<std::vector<HostTensor>> got =
      execution_path.Run(row.op, row.attrs, prepared.inputs, device, row.num_outputs);
  if (row.refusal == absl::StatusCode::kOk) {
    if (!got.ok()) return absl::StrCat("failed: ", got.status().ToString());
    return Mismatch(row, prepared.expected, *got);
  }
  if (got.ok()) {
    return absl::StrCat("returned ", (*got)[0].spec.ToString(), " instead of an error");
  }
  if (got.status().code() != row.refusal) {
    return absl::StrCat("returned ", got.status().ToString(), ", not ",
                        absl::StatusCodeToString(row.refusal));
  }
  if (got.status().message().find(row.op) == absl::string_view::npos) {
    return absl::StrCat("returned an error that doesn't name the op: ", got.status().message());
  }
  return std::nullopt;
}

struct Param {
  std::string op;
  std::string device;
};
void PrintTo(const Param& param, std::ostream* out) { *out << param.op << " on " << param.device; }

class ConformanceTest : public testing::TestWithParam<Param> {};

TEST_P(ConformanceTest, AgreesWithTheReference) {
  const auto& [op, device] = GetParam();
  ASSERT_TRUE(GetExecutionPath().ok()) << GetExecutionPath().status();
  ExecutionPath& execution_path = **GetExecutionPath();
  const std::vector<const Row*>& rows = RowsToRun(op);
  ASSERT_FALSE(rows.empty()) << "no row for " << op;
  const std::vector<Prepared>& prepared = PreparedRows(op);
  int failed = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = *rows[i];
    if (!row.off_reason.empty()) continue;
    GetTally().rows.insert(&row);
    ++GetTally().runs;
    const std::optional<std::string> wrong = RunRow(execution_path, row, prepared[i], device);
    if (!wrong.has_value()) continue;
    ++GetTally().failed;
    if (++failed <= kMaxFailuresShown)
      ADD_FAILURE() << row.Name() << " on " << device << ": " << *wrong;
  }
  GetTally().devices.insert(device);
  EXPECT_LE(failed, kMaxFailuresShown) << failed - kMaxFailuresShown << " more rows failed";
}

// Returns all pairs, ordered by op first, so that the reference runs once for all devices.
std::vector<Param> Params(std::vector<std::string> devices) {
  std::vector<Param> params;
  for (const OpSchema* op : AllOps()) {
    for (const std::string& device : devices) params.push_back({op->name, device});
  }
  return params;
}

std::string ParamName(const testing::TestParamInfo<Param>& info) {
  return absl::StrReplaceAll(absl::StrCat(info.param.device, "_", info.param.op), {{":", "_"}});
}

INSTANTIATE_TEST_SUITE_P(Cpu, ConformanceTest, testing::ValuesIn(Params({"cpu:0", "cpu:1"})),
                         ParamName);

// Returns the row with larger bounds where a GPU's libraries need them.
Row OnGpu(Row row) {
  const DType dtype = row.inputs.empty() ? DType::kUnspecified : row.inputs[0].spec.dtype;
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (row.op == "hypot") row.bound.may_overflow = true;
  // Tensor cores cut off the low bits of products before they add them.
  if (row.op.starts_with("conv") && narrow && row.bound.epsilons == 0) row.bound.epsilons = 1;
  // If the stride isn't 1, cuDNN may round partial sums to 16 bits before it adds them.
  if (row.op == "conv_backward_input" && narrow && row.attrs.Find("stride") != nullptr) {
    row.bound.epsilons += dtype == DType::kFloat16 ? 0x1p9 : 0x1p12;
  }
  // The tanh of cuBLASLt has an error of 2^-11.
  const AttrValue* const activation = row.attrs.Find("activation");
  if (row.op == "linear" && narrow && activation != nullptr &&
      *activation == AttrValue(std::string("gelu_tanh"))) {
    row.bound.epsilons += 0x1p11;
  }
  return row;
}

// One test for all ops, so that a machine without a GPU reports one test skipped, not fifty.
TEST(CudaConformanceTest, AgreesWithTheReference) {
  ASSERT_TRUE(GetExecutionPath().ok()) << GetExecutionPath().status();
  ExecutionPath& execution_path = **GetExecutionPath();
  const std::string reason = execution_path.cuda_unavailable_reason();
  if (!reason.empty()) GTEST_SKIP() << reason;
  for (const OpSchema* op : AllOps()) {
    for (const Row* row : RowsToRun(op->name)) {
      if (!row->off_reason.empty()) continue;
      GetTally().rows.insert(row);
      ++GetTally().runs;
      const std::optional<std::string> wrong =
          RunRow(execution_path, OnGpu(*row), Prepare(*row), "cuda:0");
      if (!wrong.has_value()) continue;
      ++GetTally().failed;
      ADD_FAILURE() << row->Name() << " on cuda:0: " << *wrong;
    }
  }
  GetTally().devices.insert("cuda:0");
}

}  // namespace
}  // namespace tensord::conformance
