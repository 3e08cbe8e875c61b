// sort, topk, searchsorted and nonzero on long rows and with several threads. The conformance table
// has short rows, all dtypes and special values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "tensord/common/dtype_of.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/tests/test_launch.h"

namespace tensord::server {
namespace {

using ::testing::ElementsAre;

template <typename T>
struct Result {
  std::vector<T> values;
  std::vector<int64_t> indices;
};

class SortKernelTest : public ::testing::TestWithParam<int> {
 protected:
  SortKernelTest()
      : device_(*MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{1} << 30, /*threads=*/GetParam())) {
    device_->BindThread();
  }

  // Runs an op over inputs of one dtype. Returns the bytes of its outputs.
  template <typename T>
  std::vector<std::string> Run(absl::string_view op,
                               const std::vector<std::pair<Shape, std::vector<T>>>& inputs,
                               const Attributes& attrs) {
    std::vector<TensorSpec> specs;
    std::vector<Operand> operands, results;
    for (const auto& [shape, values] : inputs) specs.push_back({kDTypeOf<T>, shape});
    for (size_t i = 0; i < inputs.size(); ++i) {
      operands.push_back({&specs[i], const_cast<T*>(inputs[i].second.data())});
    }
    const OpPlan plan = PlanOp(op, specs, attrs).value();
    std::vector<BufferRef> buffers;
    for (const TensorSpec& output : plan.outputs) {
      buffers.push_back(*device_->Allocate(output.size_bytes()));
      std::memset(buffers.back()->data(), 0x5a, output.size_bytes());
      results.push_back({&output, buffers.back()->data()});
    }
    const absl::Status status = device_->Launch(
        {TestLaunch(*device_).context(), plan.schema, &plan.attrs, operands, results});
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::string> bytes;
    for (const BufferRef& buffer : buffers) {
      bytes.emplace_back(static_cast<const char*>(buffer->data()), buffer->size_bytes());
    }
    return bytes;
  }

  template <typename T>
  static std::vector<T> Elements(const std::string& bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  template <typename T>
  Result<T> RunSort(absl::string_view op, const Shape& shape, const std::vector<T>& x,
                    const Attributes& attrs) {
    const std::vector<std::string> bytes = Run<T>(op, {{shape, x}}, attrs);
    return {Elements<T>(bytes[0]), Elements<int64_t>(bytes[1])};
  }

  std::unique_ptr<Device> device_;
};

// Returns whether a precedes b. NaN is greater than all numbers.
template <typename T>
bool Precedes(T a, T b, bool descending) {
  if (descending) std::swap(a, b);
  return std::isnan(static_cast<double>(b)) ? !std::isnan(static_cast<double>(a)) : a < b;
}

template <typename T>
std::vector<int64_t> StableOrder(const T* x, int64_t n, bool descending) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return Precedes(x[a], x[b], descending); });
  return order;
}

template <typename T>
bool SameElement(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Expects that the rows of the result are the first k elements of the sorted rows of x.
template <typename T>
void ExpectSorted(const Result<T>& got, const std::vector<T>& x, int64_t n, int64_t k,
                  bool descending) {
  const int64_t rows = static_cast<int64_t>(x.size()) / n;
  ASSERT_EQ(static_cast<int64_t>(got.indices.size()), rows * k);
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<int64_t> order = StableOrder(x.data() + row * n, n, descending);
    for (int64_t i = 0; i < k; ++i) {
      ASSERT_EQ(got.indices[row * k + i], order[i]) << "row " << row << ", element " << i;
      ASSERT_TRUE(SameElement(got.values[row * k + i], x[row * n + order[i]]));
    }
  }
}

// Returns numbers of many magnitudes, some of them equal; of a floating type also NaNs, infinities
// and zeros.
template <typename T>
std::vector<T> Mixed(int64_t n, int seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(n);
  for (T& value : values) {
    const auto bits = static_cast<int64_t>(random());
    const int64_t whole = bits >> (8 + random() % 48);
    value = static_cast<T>(whole);
    if constexpr (std::is_floating_point_v<T>) {
      constexpr T kInf = std::numeric_limits<T>::infinity();
      const T special[] = {std::numeric_limits<T>::quiet_NaN(), kInf, -kInf, T{0}, -T{0}};
      if (random() % 16 == 0) value = special[random() % 5];
      if (random() % 4 == 0) value /= 1024;
    }
  }
  return values;
}

// Lengths on both sides of each change of the algorithm.
constexpr int64_t kLengths[] = {1, 2, 255, 1023, 1024, 5000, 16384, 70000, 140001, 300000};

TEST_P(SortKernelTest, SortsRowsOfAnyLength) {
  const auto check = [&]<typename T>(T) {
    for (const int64_t n : kLengths) {
      for (const bool descending : {false, true}) {
        const std::vector<T> x = Mixed<T>(n, 1);
        ExpectSorted(RunSort<T>("sort", {n}, x, {{"descending", descending}}), x, n, n, descending);
      }
    }
  };
  check(float{});
  check(double{});
  check(int32_t{});
  check(int64_t{});
  check(uint8_t{});
}

TEST_P(SortKernelTest, SortsManyRows) {
  for (const int64_t n : {3, 100, 2000, 150000}) {
    const int64_t rows = n == 3 ? 5000 : 5;
    const std::vector<float> x = Mixed<float>(rows * n, 2);
    ExpectSorted(RunSort<float>("sort", {rows, n}, x, {}), x, n, n, false);
  }
}

TEST_P(SortKernelTest, SortsAlongAnyAxis) {
  const int64_t outer = 3, n = 1500, inner = 7;
  const std::vector<int32_t> x = Mixed<int32_t>(outer * n * inner, 3);
  const Result<int32_t> got =
      RunSort<int32_t>("sort", {outer, n, inner}, x, {{"axis", int64_t{1}}});
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t c = 0; c < inner; ++c) {
      std::vector<int32_t> column(n);
      for (int64_t i = 0; i < n; ++i) column[i] = x[(o * n + i) * inner + c];
      const std::vector<int64_t> order = StableOrder(column.data(), n, false);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(got.indices[(o * n + i) * inner + c], order[i]);
        ASSERT_EQ(got.values[(o * n + i) * inner + c], column[order[i]]);
      }
    }
  }
}

TEST_P(SortKernelTest, KeepsTheOrderOfEqualElements) {
  std::vector<float> x(200000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 3 == 0 ? 0.0f : i % 3 == 1 ? -0.0f : 1.0f;
  const auto n = static_cast<int64_t>(x.size());
  for (const bool descending : {false, true}) {
    ExpectSorted(RunSort<float>("sort", {n}, x, {{"descending", descending}}), x, n, n, descending);
  }
}

TEST_P(SortKernelTest, TakesTheFirstOfTheSortedElements) {
  const auto check = [&]<typename T>(T) {
    for (const int64_t n : {70, 1000, 50257, 300000}) {
      for (const int64_t k : {int64_t{1}, int64_t{7}, int64_t{50}, n / 5, n / 2, n}) {
        if (k > n) continue;
        for (const bool largest : {false, true}) {
          const std::vector<T> x = Mixed<T>(2 * n, 4);
          ExpectSorted(RunSort<T>("topk", {2, n}, x, {{"k", k}, {"largest", largest}}), x, n, k,
                       largest);
        }
      }
    }
  };
  check(float{});
  check(int64_t{});
}

// The candidates must be replaced again and again, or never.
TEST_P(SortKernelTest, TopKOfOrderedAndOfEqualElements) {
  const int64_t n = 200000;
  std::vector<float> x(n);
  for (const float step : {1.0f, -1.0f, 0.0f}) {
    for (int64_t i = 0; i < n; ++i) x[i] = step * static_cast<float>(i);
    for (const bool largest : {false, true}) {
      ExpectSorted(RunSort<float>("topk", {n}, x, {{"k", int64_t{100}}, {"largest", largest}}), x,
                   n, 100, largest);
    }
  }
  // The least key of all: nothing can replace the candidates.
  std::vector<uint8_t> zeros(n, 0);
  zeros[n - 1] = 1;
  ExpectSorted(RunSort<uint8_t>("topk", {n}, zeros, {{"k", int64_t{3}}, {"largest", false}}), zeros,
               n, 3, false);
}

TEST_P(SortKernelTest, SearchesLongRows) {
  std::vector<double> sorted = Mixed<double>(100000, 5);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](double a, double b) { return Precedes(a, b, false); });
  const std::vector<double> x = Mixed<double>(100000, 6);
  for (const bool right : {false, true}) {
    const auto got = Elements<int64_t>(
        Run<double>("searchsorted", {{{100000}, sorted}, {{100000}, x}}, {{"right", right}})[0]);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto less = [](double a, double b) { return Precedes(a, b, false); };
      const auto at = right ? std::upper_bound(sorted.begin(), sorted.end(), x[i], less)
                            : std::lower_bound(sorted.begin(), sorted.end(), x[i], less);
      ASSERT_EQ(got[i], at - sorted.begin()) << x[i];
    }
  }
}

// The result of a search in elements without order is unspecified, but it is an index.
TEST_P(SortKernelTest, SearchOfUnsortedElementsStaysInRange) {
  const std::vector<float> sorted = Mixed<float>(1000, 7), x = Mixed<float>(1000, 8);
  for (const int64_t at :
       Elements<int64_t>(Run<float>("searchsorted", {{{1000}, sorted}, {{1000}, x}}, {})[0])) {
    EXPECT_GE(at, 0);
    EXPECT_LE(at, 1000);
  }
}

TEST_P(SortKernelTest, FindsNonzeroElementsOfLargeTensors) {
  const Shape shape = {300, 1, 701};
  std::vector<float> x(shape.num_elements());
  std::vector<int64_t> found;
  std::mt19937 random(9);
  for (size_t i = 0; i < x.size(); ++i) {
    const float values[] = {0.0f, -0.0f, NAN, 1e-45f, -3.0f};
    x[i] = values[random() % 5];
    if (x[i] != 0) found.push_back(static_cast<int64_t>(i));
  }
  const auto count = static_cast<int64_t>(found.size());
  for (const int64_t size : {count, count + 1000, count / 2, int64_t{1}}) {
    const auto got = Elements<int64_t>(Run<float>("nonzero", {{shape, x}}, {{"size", size}})[0]);
    ASSERT_EQ(static_cast<int64_t>(got.size()), 3 * size);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t at = i < count ? found[i] : 0;
      ASSERT_THAT((std::vector<int64_t>{got[i], got[size + i], got[2 * size + i]}),
                  ElementsAre(at / 701, 0, at % 701));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, SortKernelTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace tensord::server
