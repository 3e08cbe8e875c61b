#include "tensord/server/device/cpu/onednn.h"

#include <algorithm>
#include <cmath>
#include <dnnl.hpp>
#include <list>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/onednn_api.h"
#include "tensord/server/device/cpu/onednn_support.h"
#include "tensord/server/device/cpu/team.h"
#include "tensord/server/device/cpu/tiles.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

using dnnl::memory;

// The maximum number of primitives that the cache keeps.
constexpr size_t kMaxPrimitives = 256;
// The library's own cache holds 1,024 primitives by default. They would be duplicates of those that
// this file and the prepared kernels keep.
constexpr int kMaxLibraryPrimitives = 16;

// `stride` is the distance between stored rows, in elements.
memory::desc Matrix(memory::data_type type, int64_t rows, int64_t cols, bool transposed,
                    int64_t stride) {
  return memory::desc({rows, cols}, type,
                      transposed ? memory::dims{1, stride} : memory::dims{stride, 1});
}

// The primitive of tiles of one shape, and its memory objects. Each run sets their addresses.
struct Primitive {
  int64_t rows, cols;  // of a tile
  dnnl::matmul matmul;
  memory a, b, c, bias, scratch;
  memory::desc plain_b;
  std::vector<dnnl_exec_arg_t> args;  // the memory objects above
};

// A tile and where its operands begin.
struct TileRun {
  Primitive& primitive;
  int64_t a_bytes, b_bytes, c_bytes, bias_bytes;
  int64_t packed_bytes;  // in the packed b
};

void SetArguments(Primitive& primitive) {
  primitive.args = {{DNNL_ARG_SRC, primitive.a.get()},
                    {DNNL_ARG_WEIGHTS, primitive.b.get()},
                    {DNNL_ARG_DST, primitive.c.get()},
                    {DNNL_ARG_SCRATCHPAD, primitive.scratch.get()}};
  if (primitive.bias) primitive.args.push_back({DNNL_ARG_BIAS, primitive.bias.get()});
}

int64_t BytesOf(const memory& m) { return static_cast<int64_t>(m.get_desc().get_size()); }

// Returns the size of a tile's part of the packed b. Each part is aligned.
int64_t PackedBytesOf(const Primitive& primitive) {
  constexpr int64_t kAlignment = 64;
  return (BytesOf(primitive.b) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

// The primitives of a product. A product that isn't large has one tile.
class OneDnnProduct {
 public:
  // Calls fn(const TileRun&) for all tiles, column by column. If the op must stop, returns
  // CANCELLED.
  template <typename Fn>
  absl::Status ForEachTile(Fn fn) {
    const int64_t size = SizeOf(matmul.dtype);
    int64_t packed_at = 0;
    for (int64_t col = 0; col < matmul.n; col += tile.n) {
      const int64_t cols = std::min(tile.n, matmul.n - col);
      for (int64_t row = 0; row < matmul.m; row += tile.m) {
        TENSORD_RETURN_IF_ERROR(CheckStop());
        fn(TileRun{PrimitiveOf(std::min(tile.m, matmul.m - row), cols),
                   (matmul.transpose_a ? row : row * matmul.k) * size,
                   (matmul.transpose_b ? col * matmul.k : col) * size,
                   (row * matmul.n + col) * size, col * size, packed_at});
      }
      // A packed product has one row of tiles.
      if (matmul.packed_b) packed_at += PackedBytesOf(PrimitiveOf(matmul.m, cols));
    }
    return absl::OkStatus();
  }

  OneDnnMatmul matmul;
  TileSize tile = {};                 // the last row and the last column may have smaller tiles
  std::vector<Primitive> primitives;  // one for each shape of a tile: at most four
  int64_t scratch_bytes = 0;
  int64_t packed_bytes = 0;
  bool is_clone = false;
  dnnl::stream own_stream;  // of a clone; other products share that of OneDnn

 private:
  Primitive& PrimitiveOf(int64_t rows, int64_t cols) {
    size_t i = 0;
    while (primitives[i].rows != rows || primitives[i].cols != cols) ++i;
    return primitives[i];
  }
};

namespace {

// The number of multiplications that take one thread about 20 ms. Measured with oneDNN 2.6, float32
// and 4096^3: tiles of this size are up to 8 % faster than one call, or 3 % slower if b is
// transposed.
constexpr int64_t kTileProducts = int64_t{1} << 30;
constexpr int64_t kMinTileSide = 128;

// Returns the size of the tiles, so that the team computes one in about 20 ms. If b is packed, it
// doesn't depend on m: all products with a weight read the same copy.
TileSize TileSizeOf(const OneDnnMatmul& key) {
  const int64_t area = std::clamp<int64_t>(kTileProducts * key.threads / key.k, 1, kTileProducts);
  const auto side = [](int64_t wanted, int64_t whole) {
    return EvenTileLength(whole, std::clamp(wanted, std::min(kMinTileSide, whole), whole));
  };
  if (key.packed_b) return {key.m, side(area / OneDnn::kMaxPackedRows, key.n), key.k};
  if (key.m * key.n <= area) return {key.m, key.n, key.k};
  // Makes a tile twice as high as wide, if the product has enough rows and columns.
  const auto wanted_cols = static_cast<int64_t>(std::sqrt(static_cast<double>(area / 2)));
  const int64_t rows = side(area / std::min(wanted_cols, key.n), key.m);
  return {rows, side(area / rows, key.n), key.k};
}

// Makes the primitive of a tile. Returns false if the library has only reference code for it, or if
// a packed b would have the same layout.
bool MakePrimitive(const dnnl::engine& engine, const OneDnnMatmul& key, const TileSize& tile,
                   Primitive* made) {
  const auto type =
      key.dtype == DType::kBFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc a =
      Matrix(type, tile.m, tile.k, key.transpose_a, key.transpose_a ? key.m : key.k);
  const memory::desc plain_b =
      Matrix(type, tile.k, tile.n, key.transpose_b, key.transpose_b ? key.k : key.n);
  const memory::desc b =
      key.packed_b ? memory::desc({tile.k, tile.n}, type, memory::format_tag::any) : plain_b;
  const memory::desc c = Matrix(type, tile.m, tile.n, false, key.n);
  const memory::desc bias = Matrix(type, 1, tile.n, false, tile.n);
  dnnl::primitive_attr attr;
  // The caller provides the scratchpad: the library's scratchpad belongs to the thread that makes
  // the primitive.
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (!SetActivation(key.activation, attr)) return false;
  const dnnl::matmul::primitive_desc primitive_desc =
      DescribeMatmul(engine, a, b, key.has_bias ? &bias : nullptr, c, attr);
  if (IsReference(primitive_desc.impl_info_str())) return false;
  if (key.packed_b && primitive_desc.weights_desc() == plain_b) return false;
  made->rows = tile.m;
  made->cols = tile.n;
  made->matmul = dnnl::matmul(primitive_desc);
  made->plain_b = plain_b;
  made->a = memory(a, engine, nullptr);
  made->b = memory(primitive_desc.weights_desc(), engine, nullptr);
  made->c = memory(c, engine, nullptr);
  made->scratch = memory(primitive_desc.scratchpad_desc(), engine, nullptr);
  if (key.has_bias) made->bias = memory(bias, engine, nullptr);
  SetArguments(*made);
  return true;
}

// Returns the lengths of the parts of [0, n), which are `length` long except the last one.
absl::InlinedVector<int64_t, 2> PartLengths(int64_t n, int64_t length) {
  absl::InlinedVector<int64_t, 2> lengths = {length};
  if (n % length != 0) lengths.push_back(n % length);
  return lengths;
}

// Takes the same time and memory for all sizes. If MakePrimitive() returns false, returns null.
std::shared_ptr<OneDnnProduct> MakeProduct(const dnnl::engine& engine, const OneDnnMatmul& key) {
  auto product = std::make_shared<OneDnnProduct>();
  product->matmul = key;
  product->tile = TileSizeOf(key);
  for (const int64_t cols : PartLengths(key.n, product->tile.n)) {
    for (const int64_t rows : PartLengths(key.m, product->tile.m)) {
      Primitive& made = product->primitives.emplace_back();
      if (!MakePrimitive(engine, key, {rows, cols, key.k}, &made)) return nullptr;
      product->scratch_bytes = std::max(product->scratch_bytes, BytesOf(made.scratch));
      if (!key.packed_b) continue;
      const int64_t columns_of_tiles = cols == product->tile.n ? key.n / cols : 1;
      product->packed_bytes += columns_of_tiles * PackedBytesOf(made);
    }
  }
  return product;
}

}  // namespace

// The most recently used products.
class OneDnn::Cache {
 public:
  Cache() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    dnnl::set_primitive_cache_capacity(kMaxLibraryPrimitives);
  }

  // Makes a product without the lock, so that other threads don't wait for it.
  std::shared_ptr<OneDnnProduct> Find(const OneDnnMatmul& key) {
    if (const auto found = FindKept(key); found.has_value()) return *found;
    std::shared_ptr<OneDnnProduct> made;
    {
      const ScopedThreads threads(key.threads);
      made = MakeProduct(engine_, key);
    }
    Entries evicted;  // destroyed without the lock
    MutexLock lock(&mu_);
    const auto [entry, is_new] = index_.try_emplace(key);
    if (!is_new) return entry->second->second;  // another thread added it
    entries_.emplace_front(key, made);
    entry->second = entries_.begin();
    primitives_ += NumPrimitives(made.get());
    while (primitives_ > kMaxPrimitives) {
      primitives_ -= NumPrimitives(entries_.back().second.get());
      index_.erase(entries_.back().first);
      evicted.splice(evicted.end(), entries_, std::prev(entries_.end()));
    }
    return made;
  }

  const dnnl::engine& engine() { return engine_; }
  dnnl::stream& stream() { return stream_; }

 private:
  using Entries = std::list<std::pair<OneDnnMatmul, std::shared_ptr<OneDnnProduct>>>;

  // An entry without a product counts as one primitive, so that the number of entries is bounded.
  static size_t NumPrimitives(const OneDnnProduct* product) {
    return product == nullptr ? 1 : product->primitives.size();
  }

  std::optional<std::shared_ptr<OneDnnProduct>> FindKept(const OneDnnMatmul& key) {
    MutexLock lock(&mu_);
    const auto found = index_.find(key);
    if (found == index_.end()) return std::nullopt;
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().second;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  Mutex mu_;
  size_t primitives_ ABSL_GUARDED_BY(mu_) = 0;  // of all entries
  Entries entries_ ABSL_GUARDED_BY(mu_);        // the most recently used first
  absl::flat_hash_map<OneDnnMatmul, Entries::iterator> index_ ABSL_GUARDED_BY(mu_);
};

OneDnn::OneDnn() : cache_(std::make_unique<Cache>()) {}
OneDnn::~OneDnn() = default;

absl::StatusOr<std::shared_ptr<OneDnnProduct>> OneDnn::Find(const OneDnnMatmul& matmul) {
  std::shared_ptr<OneDnnProduct> product;
  TENSORD_RETURN_IF_ERROR(GuardOneDnn([&] {
    product = cache_->Find(matmul);
    return absl::OkStatus();
  }));
  if (product != nullptr) return product;
  return absl::UnimplementedError(
      absl::StrCat("oneDNN: no fast product of ", DTypeName(matmul.dtype), " here"));
}

absl::StatusOr<std::shared_ptr<OneDnnProduct>> OneDnn::Clone(const OneDnnProduct& product) {
  auto clone = std::make_shared<OneDnnProduct>();
  TENSORD_RETURN_IF_ERROR(GuardOneDnn([&] {
    const auto again = [this](const memory& m) {
      return m ? memory(m.get_desc(), cache_->engine(), nullptr) : memory();
    };
    clone->matmul = product.matmul;
    clone->tile = product.tile;
    clone->scratch_bytes = product.scratch_bytes;
    clone->packed_bytes = product.packed_bytes;
    for (const Primitive& primitive : product.primitives) {
      clone->primitives.push_back({primitive.rows,
                                   primitive.cols,
                                   primitive.matmul,
                                   again(primitive.a),
                                   again(primitive.b),
                                   again(primitive.c),
                                   again(primitive.bias),
                                   again(primitive.scratch),
                                   primitive.plain_b,
                                   {}});
      SetArguments(clone->primitives.back());
    }
    clone->is_clone = true;
    clone->own_stream = dnnl::stream(cache_->engine());
    return absl::OkStatus();
  }));
  return clone;
}

int64_t OneDnn::ScratchBytes(const OneDnnProduct& product) { return product.scratch_bytes; }

absl::Status OneDnn::Run(OneDnnProduct& product, const void* a, const void* b, const void* bias,
                         void* c, void* scratch) {
  return GuardOneDnn([&] {
    dnnl::stream& stream = product.is_clone ? product.own_stream : cache_->stream();
    const ScopedThreads threads(product.matmul.threads);
    return product.ForEachTile([&](const TileRun& tile) {
      Primitive& primitive = tile.primitive;
      // The library doesn't write to a, b and bias, but its interface has no const.
      const auto at = [](const void* data, int64_t bytes) {
        return const_cast<char*>(static_cast<const char*>(data) + bytes);
      };
      primitive.a.set_data_handle(at(a, tile.a_bytes));
      primitive.b.set_data_handle(
          at(b, product.matmul.packed_b ? tile.packed_bytes : tile.b_bytes));
      primitive.c.set_data_handle(at(c, tile.c_bytes));
      if (product.matmul.has_bias) primitive.bias.set_data_handle(at(bias, tile.bias_bytes));
      if (product.scratch_bytes > 0) primitive.scratch.set_data_handle(scratch);
      dnnl::error::wrap_c_api(
          dnnl_primitive_execute(primitive.matmul.get(), stream.get(),
                                 static_cast<int>(primitive.args.size()), primitive.args.data()),
          "could not execute a product");
    });
  });
}

namespace {

class PackedProduct final : public PackedLayout {
 public:
  PackedProduct(OneDnn* onednn, std::shared_ptr<OneDnnProduct> product)
      : onednn_(onednn), product_(std::move(product)) {}

  int64_t bytes() const override { return product_->packed_bytes; }
  bool IsSame(const PackedLayout& other) const override;
  absl::Status Pack(const void* b, void* packed) const override {
    return onednn_->Pack(*product_, b, packed);
  }

 private:
  OneDnn* const onednn_;
  const std::shared_ptr<OneDnnProduct> product_;
};

bool PackedProduct::IsSame(const PackedLayout& other) const {
  const auto* packed = dynamic_cast<const PackedProduct*>(&other);
  if (packed == nullptr) return false;
  const std::vector<Primitive>&mine = product_->primitives, &theirs = packed->product_->primitives;
  return std::equal(
      mine.begin(), mine.end(), theirs.begin(), theirs.end(),
      [](const Primitive& x, const Primitive& y) { return x.b.get_desc() == y.b.get_desc(); });
}

}  // namespace

std::shared_ptr<const PackedLayout> OneDnn::LayoutOf(std::shared_ptr<OneDnnProduct> product) {
  return std::make_shared<PackedProduct>(this, std::move(product));
}

absl::Status OneDnn::Pack(OneDnnProduct& product, const void* b, void* packed) {
  return GuardOneDnn([&] {
    const ScopedThreads threads(product.matmul.threads);
    return product.ForEachTile([&](const TileRun& tile) {
      memory from(tile.primitive.plain_b, cache_->engine(),
                  const_cast<char*>(static_cast<const char*>(b)) + tile.b_bytes);
      memory to(tile.primitive.b.get_desc(), cache_->engine(),
                static_cast<char*>(packed) + tile.packed_bytes);
      dnnl::reorder(from, to).execute(cache_->stream(), from, to);
    });
  });
}

int64_t OneDnn::HostBytes(const OneDnnProduct& product) {
  return kPrimitiveBytes * static_cast<int64_t>(product.primitives.size());
}

}  // namespace tensord::server::cpu
