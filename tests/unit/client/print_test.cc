// The expected texts are those that PyTorch 1.13 prints for the same values on a named device.
#include "tensord/client/print.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <sstream>
#include <vector>

#include "tensord/client/element.h"

namespace tensord {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

template <Element T>
std::string Print(const Shape& shape, const std::vector<T>& values,
                  const PrintOptions& options = {}) {
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(values.data()),
                                        values.size() * sizeof(T));
  return FormatTensor({kDTypeOf<T>, shape}, bytes, "cpu:0", options).value();
}

std::string PrintFloats(const std::vector<float>& values) {
  return Print<float>({static_cast<int64_t>(values.size())}, values);
}

std::vector<int64_t> Count(int64_t n) {
  std::vector<int64_t> values(n);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(PrintTest, Scalars) {
  EXPECT_EQ(Print<float>({}, {3.5f}), "tensor(3.5000, device='cpu:0')");
  EXPECT_EQ(Print<int64_t>({}, {7}), "tensor(7, device='cpu:0')");
  const uint8_t yes = 1;
  EXPECT_EQ(FormatTensor({DType::kBool, {}}, {&yes, 1}, "cpu:0").value(),
            "tensor(True, device='cpu:0')");
}

TEST(PrintTest, NamesTheDevice) {
  const uint8_t value = 1;
  EXPECT_EQ(FormatTensor({DType::kUInt8, {1}}, {&value, 1}, "cuda:1").value(),
            "tensor([1], device='cuda:1', dtype=uint8)");
}

TEST(PrintTest, WholeNumbersGetAPoint) {
  EXPECT_EQ(Print<float>({2, 2}, {1, 2, 3, 4}),
            "tensor([[1., 2.],\n"
            "        [3., 4.]], device='cpu:0')");
  EXPECT_EQ(PrintFloats({0, 0, 0}), "tensor([0., 0., 0.], device='cpu:0')");
  EXPECT_EQ(PrintFloats({1000, 1}), "tensor([1000.,    1.], device='cpu:0')");
  EXPECT_EQ(PrintFloats({1, -0.0f}), "tensor([1., -0.], device='cpu:0')");
}

TEST(PrintTest, FractionsGetFourDigits) {
  EXPECT_EQ(PrintFloats({1.5f, -2.25f, 1000}),
            "tensor([   1.5000,   -2.2500, 1000.0000], device='cpu:0')");
}

TEST(PrintTest, WideRangesAreScientific) {
  EXPECT_EQ(PrintFloats({1e-5f, 1}), "tensor([1.0000e-05, 1.0000e+00], device='cpu:0')");
  EXPECT_EQ(PrintFloats({1e9f, 1}), "tensor([1.0000e+09, 1.0000e+00], device='cpu:0')");
  EXPECT_EQ(PrintFloats({1001, 1}), "tensor([1.0010e+03, 1.0000e+00], device='cpu:0')");
  EXPECT_EQ(PrintFloats({1e-4f, 0.5f}), "tensor([1.0000e-04, 5.0000e-01], device='cpu:0')");
  EXPECT_EQ(Print<float>({2, 2}, {1.5f, static_cast<float>(kNaN), 1e-3f, 100}),
            "tensor([[1.5000e+00,        nan],\n"
            "        [1.0000e-03, 1.0000e+02]], device='cpu:0')");
}

TEST(PrintTest, NanAndInfinity) {
  const auto nan = static_cast<float>(kNaN);
  const auto inf = static_cast<float>(kInf);
  EXPECT_EQ(PrintFloats({0, nan, inf, -inf}), "tensor([0., nan, inf, -inf], device='cpu:0')");
  EXPECT_EQ(PrintFloats({0.5f, -nan, inf, -inf}),
            "tensor([0.5000,    nan,    inf,   -inf], device='cpu:0')");
}

TEST(PrintTest, IntegersAndBoolsAreAligned) {
  EXPECT_EQ(Print<int64_t>({3}, {1, -20, 300}), "tensor([  1, -20, 300], device='cpu:0')");
  const uint8_t bools[] = {1, 0};
  EXPECT_EQ(FormatTensor({DType::kBool, {2}}, bools, "cpu:0").value(),
            "tensor([ True, False], device='cpu:0')");
}

TEST(PrintTest, UnsignedIntegersAreExact) {
  EXPECT_EQ(Print<uint64_t>({2}, {1, UINT64_MAX}),
            "tensor([                   1, 18446744073709551615], device='cpu:0',\n"
            "       dtype=uint64)");
  EXPECT_EQ(Print<uint16_t>({2}, {65535, 7}),
            "tensor([65535,     7], device='cpu:0', dtype=uint16)");
  EXPECT_EQ(Print<int16_t>({1}, {-5}), "tensor([-5], device='cpu:0', dtype=int16)");
}

// The two parts have their own notation. The imaginary parts aren't padded.
TEST(PrintTest, ComplexNumbersHaveTwoParts) {
  using Complex = std::complex<float>;
  EXPECT_EQ(Print<Complex>({}, {{1.5f, -2}}), "tensor(1.5000-2.j, device='cpu:0')");
  EXPECT_EQ(Print<Complex>({2}, {{1, 2}, {-30, -4}}),
            "tensor([  1.+2.j, -30.-4.j], device='cpu:0')");
  EXPECT_EQ(Print<Complex>({2}, {{0.5f, 1000}, {2, 3}}),
            "tensor([0.5000+1000.j, 2.0000+3.j], device='cpu:0')");
  EXPECT_EQ(Print<Complex>({2}, {{1, -0.0f}, {static_cast<float>(kNaN), static_cast<float>(kInf)}}),
            "tensor([1.-0.j, nan+infj], device='cpu:0')");
  EXPECT_EQ(Print<std::complex<double>>({1}, {{1, 1e9}}),
            "tensor([1.+1.0000e+09j], device='cpu:0', dtype=complex128)");
}

TEST(PrintTest, ComplexDTypeIsNamedForNoElements) {
  EXPECT_EQ(Print<std::complex<float>>({0}, {}), "tensor([], device='cpu:0', dtype=complex64)");
}

TEST(PrintTest, NamesTheDTypeUnlessTheValuesShowIt) {
  EXPECT_EQ(Print<double>({2}, {1, 2}), "tensor([1., 2.], device='cpu:0', dtype=float64)");
  EXPECT_EQ(Print<BFloat16>({1}, {BFloat16(1.5f)}),
            "tensor([1.5000], device='cpu:0', dtype=bfloat16)");
  EXPECT_EQ(Print<Half>({1}, {Half(-2.0f)}), "tensor([-2.], device='cpu:0', dtype=float16)");
}

TEST(PrintTest, EmptyTensorsShowTheirShape) {
  EXPECT_EQ(Print<float>({0}, {}), "tensor([], device='cpu:0')");
  EXPECT_EQ(Print<int64_t>({0}, {}), "tensor([], device='cpu:0', dtype=int64)");
  EXPECT_EQ(Print<float>({0, 3}, {}), "tensor([], device='cpu:0', size=(0, 3))");
  EXPECT_EQ(Print<Half>({2, 0}, {}), "tensor([], device='cpu:0', size=(2, 0), dtype=float16)");
}

TEST(PrintTest, LongRowsAreBroken) {
  std::vector<float> values;
  for (int i = 0; i < 30; ++i) values.push_back(static_cast<float>(i) * 100 / 7);
  EXPECT_EQ(PrintFloats(values),
            "tensor([  0.0000,  14.2857,  28.5714,  42.8571,  57.1429,  71.4286,  85.7143,\n"
            "        100.0000, 114.2857, 128.5714, 142.8571, 157.1429, 171.4286, 185.7143,\n"
            "        200.0000, 214.2857, 228.5714, 242.8571, 257.1429, 271.4286, 285.7143,\n"
            "        300.0000, 314.2857, 328.5714, 342.8571, 357.1429, 371.4286, 385.7143,\n"
            "        400.0000, 414.2857], device='cpu:0')");
}

TEST(PrintTest, WrapsDeviceAndDTypeToTheirOwnLine) {
  std::vector<int32_t> values(16);
  std::iota(values.begin(), values.end(), 0);
  EXPECT_EQ(Print<int32_t>({16}, values),
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15],\n"
            "       device='cpu:0', dtype=int32)");
}

TEST(PrintTest, SeparatesMatricesByBlankLines) {
  EXPECT_EQ(Print<int64_t>({2, 2, 2}, Count(8)),
            "tensor([[[0, 1],\n"
            "         [2, 3]],\n"
            "\n"
            "        [[4, 5],\n"
            "         [6, 7]]], device='cpu:0')");
}

TEST(PrintTest, LargeTensorsAreSummarised) {
  EXPECT_EQ(Print<int64_t>({1001}, Count(1001)),
            "tensor([   0,    1,    2,  ...,  998,  999, 1000], device='cpu:0')");
  EXPECT_EQ(Print<int64_t>({2, 8, 100}, Count(1600)),
            "tensor([[[   0,    1,    2,  ...,   97,   98,   99],\n"
            "         [ 100,  101,  102,  ...,  197,  198,  199],\n"
            "         [ 200,  201,  202,  ...,  297,  298,  299],\n"
            "         ...,\n"
            "         [ 500,  501,  502,  ...,  597,  598,  599],\n"
            "         [ 600,  601,  602,  ...,  697,  698,  699],\n"
            "         [ 700,  701,  702,  ...,  797,  798,  799]],\n"
            "\n"
            "        [[ 800,  801,  802,  ...,  897,  898,  899],\n"
            "         [ 900,  901,  902,  ...,  997,  998,  999],\n"
            "         [1000, 1001, 1002,  ..., 1097, 1098, 1099],\n"
            "         ...,\n"
            "         [1300, 1301, 1302,  ..., 1397, 1398, 1399],\n"
            "         [1400, 1401, 1402,  ..., 1497, 1498, 1499],\n"
            "         [1500, 1501, 1502,  ..., 1597, 1598, 1599]]], device='cpu:0')");
}

TEST(PrintTest, SummaryIsFormattedByTheShownValues) {
  // The large values in the middle aren't shown, so nothing needs scientific notation.
  std::vector<float> values(1200, 1e9f);
  for (int i : {0, 1, 2, 1197, 1198, 1199}) values[i] = 1;
  EXPECT_EQ(PrintFloats(values), "tensor([1., 1., 1.,  ..., 1., 1., 1.], device='cpu:0')");
}

TEST(PrintTest, FollowsPrintOptions) {
  EXPECT_EQ(Print<float>({2}, {1.25f, 2}, {.precision = 1}), "tensor([1.2, 2.0], device='cpu:0')");
  EXPECT_EQ(Print<int64_t>({6}, Count(6), {.threshold = 5, .edge_items = 1}),
            "tensor([0,  ..., 5], device='cpu:0')");
  EXPECT_EQ(Print<int64_t>({6}, Count(6), {.line_width = 20}),
            "tensor([0, 1, 2, 3,\n"
            "        4, 5],\n"
            "       device='cpu:0')");
}

TEST(PrintTest, RefusesDataOfAnotherSize) {
  const uint8_t bytes[3] = {};
  const absl::Status status = FormatTensor({DType::kFloat32, {1}}, bytes, "cpu:0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "float32[1] has 4 bytes; the given data has 3");
}

TEST(StreamTest, PrintsDevices) {
  std::ostringstream out;
  out << DeviceKind::kCuda << " " << DeviceName{DeviceKind::kCpu, 1};
  EXPECT_EQ(out.str(), "cuda cpu:1");
}

TEST(StreamTest, PrintsDTypesShapesAndSpecs) {
  std::ostringstream out;
  const TensorSpec spec{DType::kFloat32, {2, 3}};
  out << spec.dtype << " " << spec.shape << " " << spec << " " << Shape();
  EXPECT_EQ(out.str(), "float32 [2, 3] float32[2, 3] []");
}

}  // namespace
}  // namespace tensord
