#include "tensord/server/device/cpu/onednn.h"

#include <dnnl.hpp>
#include <list>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tensord::server::cpu {
namespace {

using dnnl::memory;

constexpr size_t kMaxPrimitives = 512;

// The one place where the library's exceptions become a Status.
absl::Status Guarded(absl::FunctionRef<absl::Status()> body) {
  try {
    return body();
  } catch (const dnnl::error& error) {
    const std::string text =
        absl::StrCat("oneDNN: ", error.message, " (status ", error.status, ")");
    switch (error.status) {
      case dnnl_out_of_memory:
        return absl::ResourceExhaustedError(text);
      case dnnl_unimplemented:
        return absl::UnimplementedError(text);
      default:
        return absl::InternalError(text);
    }
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("oneDNN: out of host memory");
  }
}

memory::desc Matrix(memory::data_type type, int64_t rows, int64_t cols, bool transposed) {
  return memory::desc({rows, cols}, type,
                      transposed ? memory::dims{1, rows} : memory::dims{cols, 1});
}

void AppendActivation(Activation activation, dnnl::post_ops& ops) {
  const auto append = [&ops](dnnl::algorithm algorithm, float alpha) {
    ops.append_eltwise(1.0f, algorithm, alpha, 0.0f);
  };
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kRelu:
      return append(dnnl::algorithm::eltwise_relu, 0.0f);
    case Activation::kGeluErf:
      return append(dnnl::algorithm::eltwise_gelu_erf, 0.0f);
    case Activation::kGeluTanh:
      return append(dnnl::algorithm::eltwise_gelu_tanh, 0.0f);
    case Activation::kSilu:
      return append(dnnl::algorithm::eltwise_swish, 1.0f);
    case Activation::kSigmoid:
      return append(dnnl::algorithm::eltwise_logistic, 0.0f);
    case Activation::kTanh:
      return append(dnnl::algorithm::eltwise_tanh, 0.0f);
  }
}

// A primitive and the memory objects that it is run on, which only change their addresses.
struct Primitive {
  dnnl::matmul matmul;
  memory a, b, c, bias;
  std::unordered_map<int, memory> args;
};

// None where only the library's reference code would do it.
std::optional<Primitive> MakePrimitive(const dnnl::engine& engine, const OneDnnMatmul& key) {
  const auto type =
      key.dtype == DType::kBFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc a = Matrix(type, key.m, key.k, key.transpose_a);
  const memory::desc b = Matrix(type, key.k, key.n, key.transpose_b);
  const memory::desc c = Matrix(type, key.m, key.n, false);
  const memory::desc bias = Matrix(type, 1, key.n, false);
  dnnl::primitive_attr attr;
  dnnl::post_ops ops;
  AppendActivation(key.activation, ops);
  attr.set_post_ops(ops);
  const dnnl::matmul::desc desc =
      key.has_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc primitive_desc(desc, attr, engine);
  if (absl::StartsWith(primitive_desc.impl_info_str(), "ref")) return std::nullopt;
  Primitive primitive;
  primitive.matmul = dnnl::matmul(primitive_desc);
  primitive.a = memory(a, engine, nullptr);
  primitive.b = memory(b, engine, nullptr);
  primitive.c = memory(c, engine, nullptr);
  // These share the objects above.
  primitive.args = {
      {DNNL_ARG_SRC, primitive.a}, {DNNL_ARG_WEIGHTS, primitive.b}, {DNNL_ARG_DST, primitive.c}};
  if (key.has_bias) {
    primitive.bias = memory(bias, engine, nullptr);
    primitive.args.emplace(DNNL_ARG_BIAS, primitive.bias);
  }
  return primitive;
}

}  // namespace

// The most recently used primitives.
class OneDnn::Cache {
 public:
  Cache() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  std::optional<Primitive>& Find(const OneDnnMatmul& key) {
    const auto found = index_.find(key);
    if (found != index_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().second;
    }
    std::optional<Primitive> made = MakePrimitive(engine_, key);
    if (entries_.size() >= kMaxPrimitives) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(key, std::move(made));
    index_[key] = entries_.begin();
    return entries_.front().second;
  }

  dnnl::stream& stream() { return stream_; }

 private:
  using Entries = std::list<std::pair<OneDnnMatmul, std::optional<Primitive>>>;

  dnnl::engine engine_;
  dnnl::stream stream_;
  Entries entries_;  // the last used first
  absl::flat_hash_map<OneDnnMatmul, Entries::iterator> index_;
};

OneDnn::OneDnn() = default;
OneDnn::~OneDnn() = default;

absl::Status OneDnn::Run(const OneDnnMatmul& matmul, const void* a, const void* b, const void* bias,
                         void* c) {
  return Guarded([&]() -> absl::Status {
    if (cache_ == nullptr) cache_ = std::make_unique<Cache>();
    std::optional<Primitive>& primitive = cache_->Find(matmul);
    if (!primitive.has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("oneDNN: no fast product of ", DTypeName(matmul.dtype), " here"));
    }
    // The library reads through these, though its interface has no const.
    primitive->a.set_data_handle(const_cast<void*>(a));
    primitive->b.set_data_handle(const_cast<void*>(b));
    primitive->c.set_data_handle(c);
    if (matmul.has_bias) primitive->bias.set_data_handle(const_cast<void*>(bias));
    primitive->matmul.execute(cache_->stream(), primitive->args);
    return absl::OkStatus();
  });
}

}  // namespace tensord::server::cpu
