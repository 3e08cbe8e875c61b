// Ops that divide calls of more than 32 to 128 MiB of scratch memory into blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tensord/common/float16.h"
#include "tensord/tests/unit/device/op_runner.h"

namespace tensord::server {
namespace {

using Ints = std::vector<int64_t>;

template <typename T>
HostTensor TensorOf(DType dtype, const Shape& shape, const std::vector<T>& values) {
  return {{dtype, shape},
          {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}};
}

template <typename T>
std::vector<T> ValuesOf(const HostTensor& tensor) {
  std::vector<T> values(tensor.spec.num_elements());
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// Returns pseudorandom numbers in [0, below).
std::vector<int64_t> Numbers(int64_t n, int64_t below, uint64_t seed) {
  std::vector<int64_t> numbers(n);
  for (int64_t& number : numbers) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    number = static_cast<int64_t>((seed >> 33) % static_cast<uint64_t>(below));
  }
  return numbers;
}

// Small integers, whose products and sums are exact.
HostTensor Halves(const Shape& shape, uint64_t seed) {
  std::vector<Half> values;
  for (const int64_t number : Numbers(shape.num_elements(), 5, seed)) {
    values.emplace_back(static_cast<float>(number - 2));
  }
  return TensorOf(DType::kFloat16, shape, values);
}

// An element of a matrix (rows, cols), or of its transpose.
int64_t At(int64_t row, int64_t col, int64_t rows, int64_t cols, bool transposed) {
  return transposed ? col * rows + row : row * cols + col;
}

struct Product {
  int64_t items, m, k, n;
  bool transpose_a = false, transpose_b = false;
  bool one_a = false, one_b = false;  // all items have the same operand
};

void ExpectProduct(OpRunner& runner, const Product& p) {
  const auto shape = [&](bool one, bool transposed, int64_t rows, int64_t cols) {
    if (transposed) std::swap(rows, cols);
    return p.items == 1 ? Shape{rows, cols} : Shape{one ? 1 : p.items, rows, cols};
  };
  const HostTensor a = Halves(shape(p.one_a, p.transpose_a, p.m, p.k), 1);
  const HostTensor b = Halves(shape(p.one_b, p.transpose_b, p.k, p.n), 2);
  const auto c = runner.Run("matmul", {a, b},
                            {{"transpose_a", p.transpose_a}, {"transpose_b", p.transpose_b}});
  ASSERT_TRUE(c.ok()) << c.status();
  const auto as = ValuesOf<Half>(a), bs = ValuesOf<Half>(b), cs = ValuesOf<Half>(*c);
  // Compares rows and columns at distances that are prime, so some of them are in each block.
  for (int64_t item = 0; item<p.items; item += p.items> 40 ? 37 : 1) {
    for (int64_t row = 0; row<p.m; row += p.m> 40 ? 37 : 1) {
      for (int64_t col = 0; col<p.n; col += p.n> 50 ? 47 : 1) {
        float sum = 0;
        for (int64_t i = 0; i < p.k; ++i) {
          const int64_t x = (p.one_a ? 0 : item * p.m * p.k) + At(row, i, p.m, p.k, p.transpose_a);
          const int64_t y = (p.one_b ? 0 : item * p.k * p.n) + At(i, col, p.k, p.n, p.transpose_b);
          sum += static_cast<float>(as[x]) * static_cast<float>(bs[y]);
        }
        const int64_t at = (item * p.m + row) * p.n + col;
        ASSERT_EQ(static_cast<float>(cs[at]), sum) << item << " " << row << " " << col;
      }
    }
  }
}

TEST(BlocksTest, ProductOfHalves) {
  OpRunner runner;
  ExpectProduct(runner, {1, 9001, 16, 5003});
  ExpectProduct(runner, {1, 5003, 16, 9001, true, true});
  ExpectProduct(runner, {1, 300, 30000, 900, true, false});
  ExpectProduct(runner, {1, 900, 30000, 300, false, true});
}

TEST(BlocksTest, ProductsOfManyHalves) {
  OpRunner runner;
  ExpectProduct(runner, {600, 150, 160, 140});
  ExpectProduct(runner, {700, 160, 150, 140, false, true, /*one_a=*/true});
  ExpectProduct(runner, {700, 160, 150, 140, true, false, false, /*one_b=*/true});
  ExpectProduct(runner, {2, 5801, 8, 5801});
}

TEST(BlocksTest, LinearOfHalves) {
  constexpr int64_t kRows = 9001, kIn = 8, kOut = 5003;
  OpRunner runner;
  const HostTensor x = Halves({kRows, kIn}, 1), w = Halves({kOut, kIn}, 2),
                   bias = Halves({kOut}, 3);
  const auto y = runner.Run("linear", {x, w, bias}, {{"activation", std::string("relu")}});
  ASSERT_TRUE(y.ok()) << y.status();
  const auto xs = ValuesOf<Half>(x), ws = ValuesOf<Half>(w), biases = ValuesOf<Half>(bias);
  const auto ys = ValuesOf<Half>(*y);
  for (int64_t row = 0; row < kRows; row += 37) {
    for (int64_t col = 0; col < kOut; col += 47) {
      auto sum = static_cast<float>(biases[col]);
      for (int64_t i = 0; i < kIn; ++i) {
        sum += static_cast<float>(xs[row * kIn + i]) * static_cast<float>(ws[col * kIn + i]);
      }
      ASSERT_EQ(static_cast<float>(ys[row * kOut + col]), std::max(sum, 0.0f)) << row << " " << col;
    }
  }
}

// Sorts (outer, n, inner) along n.
void ExpectSorted(int64_t outer, int64_t n, int64_t inner) {
  OpRunner runner;
  std::vector<uint8_t> x;
  for (const int64_t number : Numbers(outer * n * inner, 256, 7)) {
    x.push_back(static_cast<uint8_t>(number));
  }
  const auto sorted = runner.RunAll("sort", {TensorOf(DType::kUInt8, {outer, n, inner}, x)},
                                    {{"axis", int64_t{1}}});
  ASSERT_TRUE(sorted.ok()) << sorted.status();
  const auto values = ValuesOf<uint8_t>((*sorted)[0]);
  const auto indices = ValuesOf<int64_t>((*sorted)[1]);
  for (int64_t row = 0; row < outer * inner; ++row) {
    const int64_t first = row / inner * n * inner + row % inner;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = first + i * inner, before = at - inner;
      ASSERT_EQ(values[at], x[first + indices[at] * inner]);
      // Equal elements keep their order, so no index appears twice.
      if (i == 0) continue;
      ASSERT_TRUE(values[before] < values[at] ||
                  (values[before] == values[at] && indices[before] < indices[at]));
    }
  }
}

TEST(BlocksTest, SortAlongAnOuterAxis) {
  ExpectSorted(1, 7'000'003, 2);
  ExpectSorted(3, 50'000, 101);
  ExpectSorted(4099, 130, 31);
}

class IndexBlocksTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 3001, kColumns = 1700;  // of the indices
  static constexpr int64_t kSide = 500;

  static HostTensor Indices(const Shape& shape, uint64_t seed) {
    return TensorOf(DType::kInt64, shape, Numbers(shape.num_elements(), kSide, seed));
  }

  // Calls fn(position, row of x) for all selected rows.
  template <typename Fn>
  void ForEachSelected(Fn fn) {
    const auto rows = ValuesOf<int64_t>(rows_), columns = ValuesOf<int64_t>(columns_);
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      fn(i, rows[i / kColumns] * kSide + columns[i % kColumns]);
    }
  }

  OpRunner runner_;
  const HostTensor rows_ = Indices({kRows, 1}, 1), columns_ = Indices({1, kColumns}, 2);
};

TEST_F(IndexBlocksTest, IndexByTwoTensors) {
  constexpr int64_t kGroups = 2;
  const std::vector<int64_t> x = Numbers(kGroups * kSide * kSide, 1 << 30, 3);
  const auto y =
      runner_.Run("index", {TensorOf(DType::kInt64, {kGroups, kSide, kSide}, x), rows_, columns_},
                  {{"axis", int64_t{1}}});
  ASSERT_TRUE(y.ok()) << y.status();
  const auto ys = ValuesOf<int64_t>(*y);
  for (int64_t group = 0; group < kGroups; ++group) {
    ForEachSelected([&](int64_t i, int64_t row) {
      ASSERT_EQ(ys[group * kRows * kColumns + i], x[group * kSide * kSide + row]);
    });
  }
}

TEST_F(IndexBlocksTest, IndexPutByTwoTensors) {
  constexpr int64_t kGroups = 2, kCount = kRows * kColumns;
  const std::vector<int64_t> x(kGroups * kSide * kSide, 5);
  const std::vector<int64_t> values = Numbers(kGroups * kCount, 1 << 30, 4);
  for (const bool adds : {false, true}) {
    const auto y =
        runner_.Run("index_put",
                    {TensorOf(DType::kInt64, {kGroups, kSide, kSide}, x), rows_, columns_,
                     TensorOf(DType::kInt64, {kGroups, kRows, kColumns}, values)},
                    {{"axis", int64_t{1}}, {"reduce", std::string(adds ? "add" : "none")}});
    ASSERT_TRUE(y.ok()) << y.status();
    std::vector<int64_t> expected = x;
    for (int64_t group = 0; group < kGroups; ++group) {
      ForEachSelected([&](int64_t i, int64_t row) {
        int64_t& element = expected[group * kSide * kSide + row];
        element = values[group * kCount + i] + (adds ? element : 0);
      });
    }
    EXPECT_TRUE(ValuesOf<int64_t>(*y) == expected) << adds;
  }
}

}  // namespace
}  // namespace tensord::server
