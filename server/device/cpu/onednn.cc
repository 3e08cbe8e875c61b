#include "tensord/server/device/cpu/onednn.h"

#include <dnnl.hpp>
#include <list>
#include <new>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/onednn_api.h"
#include "tensord/server/device/cpu/team.h"

namespace tensord::server::cpu {
namespace {

using dnnl::memory;

constexpr size_t kMaxPrimitives = 512;

absl::Status OutOfMemory() { return absl::ResourceExhaustedError("oneDNN: out of host memory"); }

// Converts the library's exceptions to a Status. No other code does so.
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
    return OutOfMemory();
  }
}

memory::desc Matrix(memory::data_type type, int64_t rows, int64_t cols, bool transposed) {
  return memory::desc({rows, cols}, type,
                      transposed ? memory::dims{1, rows} : memory::dims{cols, 1});
}

struct OneDnnFunction {
  dnnl::algorithm algorithm;
  float alpha = 0;
};

std::optional<OneDnnFunction> FindOneDnnFunction(UnaryFunction function) {
  switch (function) {
    case UnaryFunction::kRelu:
      return OneDnnFunction{dnnl::algorithm::eltwise_relu};
    case UnaryFunction::kGelu:
      return OneDnnFunction{dnnl::algorithm::eltwise_gelu_erf};
    case UnaryFunction::kGeluTanh:
      return OneDnnFunction{dnnl::algorithm::eltwise_gelu_tanh};
    case UnaryFunction::kSilu:
      return OneDnnFunction{dnnl::algorithm::eltwise_swish, 1.0f};
    case UnaryFunction::kSigmoid:
      return OneDnnFunction{dnnl::algorithm::eltwise_logistic};
    case UnaryFunction::kTanh:
      return OneDnnFunction{dnnl::algorithm::eltwise_tanh};
    default:
      return std::nullopt;
  }
}

}  // namespace

bool OneDnnHas(std::optional<UnaryFunction> activation) {
  return !activation.has_value() || FindOneDnnFunction(*activation).has_value();
}

// A primitive and its memory objects. Each run sets their addresses.
class OneDnnProduct {
 public:
  OneDnnMatmul matmul;
  dnnl::matmul primitive;
  memory a, b, c, bias, scratch;
  memory::desc plain_b;
  int64_t scratch_bytes = 0;
  // The next two members are used by a clone. Other products share the objects of OneDnn.
  bool is_clone = false;
  Scratch own_scratch;
  dnnl::stream own_stream;
  std::vector<dnnl_exec_arg_t> args;  // the memory objects above
};

namespace {

void SetArguments(OneDnnProduct& product) {
  product.args = {{DNNL_ARG_SRC, product.a.get()},
                  {DNNL_ARG_WEIGHTS, product.b.get()},
                  {DNNL_ARG_DST, product.c.get()},
                  {DNNL_ARG_SCRATCHPAD, product.scratch.get()}};
  if (product.matmul.has_bias) product.args.push_back({DNNL_ARG_BIAS, product.bias.get()});
}

// Returns null if the library has only reference code for the product, or if a packed b would have
// the same layout.
std::shared_ptr<OneDnnProduct> MakeProduct(const dnnl::engine& engine, const OneDnnMatmul& key) {
  const auto type =
      key.dtype == DType::kBFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc a = Matrix(type, key.m, key.k, key.transpose_a);
  const memory::desc plain_b = Matrix(type, key.k, key.n, key.transpose_b);
  const memory::desc b =
      key.packed_b ? memory::desc({key.k, key.n}, type, memory::format_tag::any) : plain_b;
  const memory::desc c = Matrix(type, key.m, key.n, false);
  const memory::desc bias = Matrix(type, 1, key.n, false);
  dnnl::primitive_attr attr;
  // The caller provides the scratchpad: the library's scratchpad belongs to the thread that makes
  // the primitive.
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (key.activation.has_value()) {
    const std::optional<OneDnnFunction> function = FindOneDnnFunction(*key.activation);
    if (!function.has_value()) return nullptr;
    AppendElementwise(function->algorithm, function->alpha, ops);
  }
  attr.set_post_ops(ops);
  const dnnl::matmul::primitive_desc primitive_desc =
      DescribeMatmul(engine, a, b, key.has_bias ? &bias : nullptr, c, attr);
  if (absl::StartsWith(primitive_desc.impl_info_str(), "ref")) return nullptr;
  if (key.packed_b && primitive_desc.weights_desc() == plain_b) return nullptr;
  auto product = std::make_shared<OneDnnProduct>();
  product->matmul = key;
  product->primitive = dnnl::matmul(primitive_desc);
  product->plain_b = plain_b;
  product->a = memory(a, engine, nullptr);
  product->b = memory(primitive_desc.weights_desc(), engine, nullptr);
  product->c = memory(c, engine, nullptr);
  product->scratch = memory(primitive_desc.scratchpad_desc(), engine, nullptr);
  product->scratch_bytes = static_cast<int64_t>(primitive_desc.scratchpad_desc().get_size());
  if (key.has_bias) product->bias = memory(bias, engine, nullptr);
  SetArguments(*product);
  return product;
}

}  // namespace

// The most recently used products.
class OneDnn::Cache {
 public:
  Cache() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  std::shared_ptr<OneDnnProduct> Find(const OneDnnMatmul& key) {
    MutexLock lock(&mu_);
    const auto found = index_.find(key);
    if (found != index_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().second;
    }
    const ScopedThreads threads(key.threads);
    std::shared_ptr<OneDnnProduct> made = MakeProduct(engine_, key);
    if (entries_.size() >= kMaxPrimitives) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(key, std::move(made));
    index_[key] = entries_.begin();
    return entries_.front().second;
  }

  const dnnl::engine& engine() { return engine_; }
  dnnl::stream& stream() { return stream_; }

 private:
  using Entries = std::list<std::pair<OneDnnMatmul, std::shared_ptr<OneDnnProduct>>>;

  dnnl::engine engine_;
  dnnl::stream stream_;
  Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);  // the most recently used first
  absl::flat_hash_map<OneDnnMatmul, Entries::iterator> index_ ABSL_GUARDED_BY(mu_);
};

OneDnn::OneDnn(MemoryPool* pool) : pool_(pool), cache_(std::make_unique<Cache>()) {}
OneDnn::~OneDnn() = default;

absl::StatusOr<std::shared_ptr<OneDnnProduct>> OneDnn::Find(const OneDnnMatmul& matmul) {
  std::shared_ptr<OneDnnProduct> product;
  TENSORD_RETURN_IF_ERROR(Guarded([&] {
    product = cache_->Find(matmul);
    return absl::OkStatus();
  }));
  if (product != nullptr) return product;
  return absl::UnimplementedError(
      absl::StrCat("oneDNN: no fast product of ", DTypeName(matmul.dtype), " here"));
}

absl::StatusOr<std::shared_ptr<OneDnnProduct>> OneDnn::Clone(const OneDnnProduct& product) {
  auto clone = std::make_shared<OneDnnProduct>();
  TENSORD_RETURN_IF_ERROR(Guarded([&] {
    const auto again = [this](const memory& m) {
      return memory(m.get_desc(), cache_->engine(), nullptr);
    };
    clone->matmul = product.matmul;
    clone->primitive = product.primitive;
    clone->plain_b = product.plain_b;
    clone->a = again(product.a);
    clone->b = again(product.b);
    clone->c = again(product.c);
    clone->scratch = again(product.scratch);
    clone->scratch_bytes = product.scratch_bytes;
    if (product.matmul.has_bias) clone->bias = again(product.bias);
    SetArguments(*clone);
    clone->is_clone = true;
    clone->own_stream = dnnl::stream(cache_->engine());
    return absl::OkStatus();
  }));
  if (clone->scratch_bytes > 0) clone->own_scratch = Scratch(pool_, clone->scratch_bytes);
  if (clone->scratch_bytes > 0 && clone->own_scratch.data() == nullptr) return OutOfMemory();
  return clone;
}

absl::Status OneDnn::Run(OneDnnProduct& product, const void* a, const void* b, const void* bias,
                         void* c) {
  if (!product.is_clone && product.scratch_bytes > scratch_bytes_) {
    scratch_ = Scratch(pool_, product.scratch_bytes);
    scratch_bytes_ = scratch_.data() != nullptr ? product.scratch_bytes : 0;
    if (scratch_bytes_ == 0) return OutOfMemory();
  }
  return Guarded([&] {
    // The library doesn't write to a, b and bias, but its interface has no const.
    product.a.set_data_handle(const_cast<void*>(a));
    product.b.set_data_handle(const_cast<void*>(b));
    product.c.set_data_handle(c);
    if (product.matmul.has_bias) product.bias.set_data_handle(const_cast<void*>(bias));
    if (product.scratch_bytes > 0) {
      product.scratch.set_data_handle((product.is_clone ? product.own_scratch : scratch_).data());
    }
    dnnl::stream& stream = product.is_clone ? product.own_stream : cache_->stream();
    const ScopedThreads threads(product.matmul.threads);
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(product.primitive.get(), stream.get(),
                               static_cast<int>(product.args.size()), product.args.data()),
        "could not execute a product");
    return absl::OkStatus();
  });
}

int64_t OneDnn::PackedBytes(const OneDnnProduct& product) {
  return static_cast<int64_t>(product.b.get_desc().get_size());
}

bool OneDnn::ReadSameLayout(const OneDnnProduct& product, const OneDnnProduct& other) {
  return product.b.get_desc() == other.b.get_desc();
}

absl::Status OneDnn::Pack(OneDnnProduct& product, const void* b, void* packed) {
  return Guarded([&] {
    memory from(product.plain_b, cache_->engine(), const_cast<void*>(b));
    memory to(product.b.get_desc(), cache_->engine(), packed);
    const ScopedThreads threads(product.matmul.threads);
    dnnl::reorder(from, to).execute(cache_->stream(), from, to);
    return absl::OkStatus();
  });
}

}  // namespace tensord::server::cpu
