// Rows of one op each: products, and memory-bound ops.
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/tests/gpu/direct.h"
#include "tensord/tests/gpu/rows.h"

namespace tensord::gpu {
namespace {

constexpr DType kF32 = DType::kFloat32, kF16 = DType::kFloat16, kBF16 = DType::kBFloat16;

// Returns a tolerance for the rounding of the dtype and for sums in another order.
double ToleranceOf(DType dtype, bool tf32 = false) {
  if (dtype == kF16) return 2e-3;
  if (dtype == kBF16) return 1e-2;
  return tf32 ? 2e-3 : 1e-4;
}

int64_t OutputBytes(const std::string& op, const std::vector<TensorSpec>& inputs,
                    const Attributes& attrs) {
  const absl::StatusOr<OpPlan> plan = PlanOp(op, inputs, attrs);
  return plan.ok() ? plan->output().size_bytes() : 0;
}

// Makes a reference that reads and writes `bytes` in all with cudaMemcpyAsync within the GPU.
std::function<absl::StatusOr<Contender>()> CopyOf(double bytes) {
  return [bytes]() -> absl::StatusOr<Contender> {
    TENSORD_ASSIGN_OR_RETURN(
        auto copy, DirectCopy::Make(static_cast<int64_t>(bytes / 2), cudaMemcpyDeviceToDevice));
    return TimedByHost(
        "cudaMemcpy", [copy](int n) { return copy->Run(n); }, nullptr);
  };
}

Row MemoryRow(const Setup& setup, const std::string& name, const std::string& op,
              const std::vector<TensorSpec>& inputs, const Attributes& attrs = {},
              const std::string& torch_flags = "") {
  Row row = OpRow(setup, op, inputs, attrs, torch_flags);
  row.name = absl::StrCat(name, " ", DTypeName(inputs.back().dtype), " ",
                          absl::StrJoin(inputs, ", ", [](std::string* out, const TensorSpec& spec) {
                            absl::StrAppend(out, SizeText(spec.shape));
                          }));
  row.work = static_cast<double>(OutputBytes(op, inputs, attrs));
  for (const TensorSpec& input : inputs) row.work += static_cast<double>(input.size_bytes());
  row.peak = setup.info.bytes_per_second;
  row.direct = CopyOf(row.work);
  return row;
}

struct Product {
  const char* name;
  DType dtype;
  bool tf32;
};
constexpr Product kProducts[] = {{"float32", kF32, false},
                                 {"tf32", kF32, true},
                                 {"float16", kF16, false},
                                 {"bfloat16", kBF16, false}};

Row ProductRow(const Setup& setup, const Product& product, const DirectProblem& problem,
               const std::string& activation) {
  const auto& [m, k, n] = std::tie(problem.m, problem.k, problem.n);
  std::vector<TensorSpec> inputs = {{product.dtype, {m, k}}};
  Attributes attrs = {{"allow_tf32", product.tf32}};
  std::string op = "matmul", flags = absl::StrCat("tf32=", product.tf32 ? 1 : 0);
  if (problem.linear) {
    op = "linear";
    inputs.push_back({product.dtype, {n, k}});
    inputs.push_back({product.dtype, {n}});
    attrs.Set("activation", activation);
    absl::StrAppend(&flags, " activation=", activation);
  } else {
    inputs.push_back({product.dtype, {k, n}});
  }
  Row row = OpRow(setup, op, inputs, attrs, flags);
  row.name = absl::StrCat(op, problem.linear ? " + " + activation : "", " ", product.name, " ", m,
                          "x", k, "x", n);
  row.unit = Unit::kTeraFlops;
  row.work = 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  row.peak = setup.info.FlopsPerSecond(product.dtype, product.tf32);
  row.tolerance = ToleranceOf(product.dtype, product.tf32);
  // cuBLASLt has no exact gelu. The reference is then the product with its bias alone, and the
  // results aren't compared.
  const bool comparable = activation != "gelu";
  row.direct = [problem, comparable]() -> absl::StatusOr<Contender> {
    TENSORD_ASSIGN_OR_RETURN(auto direct, DirectMatmul::Make(problem));
    std::function<absl::StatusOr<Checksum>()> checksum;
    if (comparable) checksum = [direct] { return direct->ResultChecksum(); };
    return TimedByHost(
        comparable ? "cuBLASLt" : "cuBLASLt, bias alone",
        [direct](int n) { return direct->Run(n); }, std::move(checksum));
  };
  return row;
}

}  // namespace

std::string SizeText(const Shape& shape) {
  return shape.rank() == 0 ? "scalar" : absl::StrJoin(shape.dims(), "x");
}

Row OpRow(const Setup& setup, const std::string& op, std::vector<TensorSpec> inputs,
          const Attributes& attrs, const std::string& torch_flags) {
  Row row;
  row.torch = op;
  for (const TensorSpec& input : inputs) {
    absl::StrAppend(&row.torch, " ", DTypeName(input.dtype), ":",
                    absl::StrJoin(input.shape.dims(), ","));
  }
  if (!torch_flags.empty()) absl::StrAppend(&row.torch, " ", torch_flags);
  row.tolerance = ToleranceOf(inputs.back().dtype);
  row.ours = [gpu = setup.gpu, op, inputs = std::move(inputs),
              attrs]() -> absl::StatusOr<Contender> {
    TENSORD_ASSIGN_OR_RETURN(std::shared_ptr<Op> made, Op::Make(gpu, op, inputs, attrs));
    return TimedByHost(
        "ours", [made](int n) { return made->Run(n); }, [made] { return made->ResultChecksum(); });
  };
  return row;
}

void AppendProductRows(const Setup& setup, std::vector<Row>* rows) {
  const std::vector<int64_t> sizes = setup.quick ? std::vector<int64_t>{16, 24, 32, 48}
                                                 : std::vector<int64_t>{512, 1024, 4096, 8192};
  for (const Product& product : kProducts) {
    for (const int64_t size : sizes) {
      rows->push_back(
          ProductRow(setup, product, {product.dtype, product.tf32, size, size, size}, ""));
    }
  }
  const int64_t tokens = setup.quick ? 32 : 4096, in = setup.quick ? 24 : 4096;
  const int64_t out = setup.quick ? 40 : 16384;
  for (const Product& product : kProducts) {
    for (const char* activation : {"gelu_tanh", "gelu"}) {
      const bool gelu_tanh = std::string(activation) == "gelu_tanh";
      rows->push_back(ProductRow(
          setup, product,
          {product.dtype, product.tf32, tokens, in, out, /*linear=*/true, gelu_tanh}, activation));
    }
  }
}

// A convolution of 3x3 windows with a padding of 1, and its gradients.
void AppendConvRows(const Setup& setup, std::vector<Row>* rows) {
  using Ints = std::vector<int64_t>;
  const int64_t images = setup.quick ? 2 : 32, channels = setup.quick ? 4 : 64;
  const int64_t side = setup.quick ? 8 : 56;
  const Shape x = {images, channels, side, side}, w = {channels, channels, 3, 3};
  const auto ints = [](const Shape& shape) {
    return Ints(shape.dims().begin(), shape.dims().end());
  };
  for (const Product& product : kProducts) {
    const std::string flags = absl::StrCat("tf32=", product.tf32 ? 1 : 0, " padding=1");
    const auto add = [&](const char* op, const Shape& a, const Shape& b,
                         std::vector<TensorSpec> bias, Attributes attrs,
                         const std::string& more_flags) {
      attrs.Set("padding", Ints{1});
      attrs.Set("allow_tf32", product.tf32);
      std::vector<TensorSpec> inputs = {{product.dtype, a}, {product.dtype, b}};
      inputs.insert(inputs.end(), bias.begin(), bias.end());
      Row row = OpRow(setup, op, std::move(inputs), attrs, absl::StrCat(flags, more_flags));
      row.name = absl::StrCat(op, " ", product.name, " ", SizeText(a), ", ", SizeText(b));
      row.unit = Unit::kTeraFlops;
      row.work = 2.0 * static_cast<double>(images * side * side * w.num_elements());
      row.peak = setup.info.FlopsPerSecond(product.dtype, product.tf32);
      row.tolerance = ToleranceOf(product.dtype, product.tf32);
      rows->push_back(std::move(row));
    };
    const auto shape_flag = [](const Shape& shape) {
      return absl::StrCat(" shape=", absl::StrJoin(shape.dims(), ","));
    };
    add("conv", x, w, {{product.dtype, {channels}}}, {{"activation", std::string("relu")}}, "");
    add("conv_backward_input", x, w, {}, {{"shape", ints(x)}}, shape_flag(x));
    add("conv_backward_weight", x, x, {}, {{"shape", ints(w)}}, shape_flag(w));
  }
}

void AppendMemoryRows(const Setup& setup, std::vector<Row>* rows) {
  const auto add = [&](const char* name, const char* op, const std::vector<TensorSpec>& inputs,
                       const Attributes& attrs = {}, const std::string& torch_flags = "") {
    rows->push_back(MemoryRow(setup, name, op, inputs, attrs, torch_flags));
  };
  using Ints = std::vector<int64_t>;
  const int64_t side = setup.quick ? 64 : 8192, n = side * side, few = setup.quick ? 2 : 8;
  const int64_t wide = setup.quick ? 2048 : 131072;
  for (const DType dtype : {kF32, kF16, kBF16}) {
    add("neg", "neg", {{dtype, {n}}});
    add("add", "add", {{dtype, {n}}, {dtype, {n}}});
    add("gelu", "gelu", {{dtype, {n}}});
  }
  add("exp", "exp", {{kF32, {n}}});
  add("cast to bfloat16, from", "cast", {{kF32, {n}}}, {{"dtype", kBF16}}, "dtype=bfloat16");
  for (const DType dtype : {kF32, kBF16}) {
    add("add a scalar", "add", {{dtype, {n}}, {dtype, {}}});
    add("add a row", "add", {{dtype, {side, side}}, {dtype, {side}}});
    add("add a column", "add", {{dtype, {side, side}}, {dtype, {side, 1}}});
    add("where", "where", {{DType::kBool, {n}}, {dtype, {n}}, {dtype, {n}}});
    add("where, else a scalar", "where", {{DType::kBool, {n}}, {dtype, {n}}, {dtype, {}}});
    add("sum of all", "sum", {{dtype, {side, side}}});
    add("sum of rows", "sum", {{dtype, {side, side}}}, {{"axes", Ints{1}}}, "axes=1");
    add("sum of columns", "sum", {{dtype, {side, side}}}, {{"axes", Ints{0}}}, "axes=0");
    add("max of rows", "max", {{dtype, {side, side}}}, {{"axes", Ints{1}}}, "axes=1");
    add("softmax", "softmax", {{dtype, {side, side}}}, {}, "axis=-1");
    add("softmax", "softmax", {{dtype, {few, wide}}}, {}, "axis=-1");
    add("transpose", "permute", {{dtype, {side, side}}}, {{"axes", Ints{1, 0}}}, "axes=1,0");
    add("transpose of heads", "permute", {{dtype, {few, wide / 64, 16, 64}}},
        {{"axes", Ints{0, 2, 1, 3}}}, "axes=0,2,1,3");
  }
  add("transpose", "permute", {{DType::kBool, {side, side}}}, {{"axes", Ints{1, 0}}}, "axes=1,0");
}

}  // namespace tensord::gpu
