#include <string.h>

#include <algorithm>
#include <vector>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/kernel_table.h"

namespace tensord::server::cpu {
namespace {

constexpr int64_t kChunkElements = 1024;  // the number of elements of a chunk of a row
constexpr int64_t kTileColumns = 256;     // the number of columns that are scanned at a time
constexpr int64_t kTileElements = 8192;   // the maximum number of elements of a tile's part
constexpr int64_t kCarryBytes = 8;
// If several threads scan a row, they read it twice. Fewer threads than this take at least as long
// as one thread.
constexpr int kMinThreadsOfRow = 4;
constexpr int64_t kMinChunksOfRow = 64;

struct ScanShape {
  int64_t outer = 1, extent = 1, inner = 1;
};

ScanShape ShapeOf(const Shape& shape, int64_t axis) {
  ScanShape result;
  for (int d = 0; d < shape.rank(); ++d) {
    (d < axis ? result.outer : d == axis ? result.extent : result.inner) *= shape.dim(d);
  }
  return result;
}

// One scan of the middle of three axes. Run() uses the whole team. A row is scanned in chunks. Its
// carry after a chunk is combine(carry, result of the chunk), whether or not several threads
// compute the chunks.
class Scanner {
 public:
  Scanner(const Context& ctx, const ScanLoops& loops, const KernelCall& call)
      : ctx_(ctx),
        loops_(loops),
        dtype_(call.output().spec->dtype),
        size_(SizeOf(dtype_)),
        shape_(ShapeOf(call.output().spec->shape, call.attrs->Int("axis"))),
        mode_{call.attrs->Bool("exclusive"), call.attrs->Bool("reverse")},
        x_(static_cast<const char*>(call.inputs[0].data)),
        y_(static_cast<char*>(call.output().data)) {}

  void Run() {
    if (shape_.inner > 1) return Columns();
    const int64_t chunks = Chunks(shape_.extent, kChunkElements);
    const int threads = ctx_.team.threads();
    if (shape_.outer < threads && threads >= kMinThreadsOfRow && chunks >= kMinChunksOfRow) {
      for (int64_t o = 0; o < shape_.outer; ++o) RowInParallel(o, chunks);
      return;
    }
    const double grain = kGrainElements / 4 / static_cast<double>(shape_.extent);
    ctx_.team.For(shape_.outer, grain, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) Row(o, chunks);
    });
  }

 private:
  static int64_t Chunks(int64_t extent, int64_t length) { return (extent + length - 1) / length; }

  struct Range {
    int64_t begin, count;
  };
  // Returns part `i`, in the order of the scan, of an axis that is divided into parts.
  Range Part(int64_t i, int64_t length) const {
    const int64_t count = std::min(length, shape_.extent - i * length);
    return {mode_.reverse ? shape_.extent - i * length - count : i * length, count};
  }

  // ---- inner == 1: contiguous rows

  void Row(int64_t o, int64_t chunks) const {
    alignas(kCarryBytes) char carry[kCarryBytes];
    loops_.begin(carry, 1);
    const double grain = kGrainElements / 4 / static_cast<double>(kChunkElements);
    Team::InPieces(0, chunks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) Chunk(o, c, /*writes=*/true, carry);
    });
  }

  void RowInParallel(int64_t o, int64_t chunks) const {
    std::vector<char> carries(chunks * kCarryBytes);
    loops_.begin(carries.data(), chunks);
    const auto carry_of = [&](int64_t c) { return carries.data() + c * kCarryBytes; };
    const double grain = kGrainElements / 4 / static_cast<double>(kChunkElements);
    ctx_.team.For(chunks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) Chunk(o, c, /*writes=*/false, carry_of(c));
    });
    alignas(kCarryBytes) char carry[kCarryBytes], next[kCarryBytes];
    loops_.begin(carry, 1);
    for (int64_t c = 0; c < chunks; ++c) {
      memcpy(next, carry_of(c), kCarryBytes);
      memcpy(carry_of(c), carry, kCarryBytes);
      loops_.combine(carry, next, 1);
    }
    ctx_.team.For(chunks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) Chunk(o, c, /*writes=*/true, carry_of(c));
    });
  }

  void Chunk(int64_t o, int64_t c, bool writes, void* carry) const {
    const Range range = Part(c, kChunkElements);
    const int64_t offset = (o * shape_.extent + range.begin) * size_;
    char* y = writes ? y_ + offset : nullptr;
    if (!Is16Bit(dtype_)) return loops_.row(x_ + offset, y, range.count, mode_, carry);
    uint32_t in[kChunkElements], out[kChunkElements];  // floats, or integers
    Convert(ctx_.loops, dtype_, x_ + offset, ComputeDType(dtype_), in, range.count);
    loops_.row(in, writes ? out : nullptr, range.count, mode_, carry);
    if (writes) Convert(ctx_.loops, ComputeDType(dtype_), out, dtype_, y, range.count);
  }

  // ---- inner > 1: columns

  void Columns() const {
    const int64_t tiles = Chunks(shape_.inner, kTileColumns);
    const double grain = kGrainElements / 2 /
                         static_cast<double>(shape_.extent * std::min(shape_.inner, kTileColumns));
    ctx_.team.For(shape_.outer * tiles, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Tile(i / tiles, i % tiles * kTileColumns);
    });
  }

  // Scans up to kTileColumns columns from `column` on.
  void Tile(int64_t outer, int64_t column) const {
    const int64_t width = std::min(kTileColumns, shape_.inner - column);
    const int64_t rows = kTileElements / width;
    const int64_t offset = outer * shape_.extent * shape_.inner + column;
    alignas(kCarryBytes) char carry[kTileColumns * kCarryBytes];
    loops_.begin(carry, width);
    Team::InPieces(0, Chunks(shape_.extent, rows), 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const Range range = Part(part, rows);
        TilePart(offset + range.begin * shape_.inner, range.count, width, carry);
      }
    });
  }

  void TilePart(int64_t first, int64_t rows, int64_t width, void* carry) const {
    const char* x = x_ + first * size_;
    char* y = y_ + first * size_;
    if (!Is16Bit(dtype_)) {
      return loops_.columns(x, y, rows, shape_.inner, width, mode_, carry);
    }
    uint32_t in[kTileElements], out[kTileElements];  // floats, or integers
    const int64_t stride = shape_.inner * size_;
    for (int64_t r = 0; r < rows; ++r) {
      Convert(ctx_.loops, dtype_, x + r * stride, ComputeDType(dtype_), in + r * width, width);
    }
    loops_.columns(in, out, rows, width, width, mode_, carry);
    for (int64_t r = 0; r < rows; ++r) {
      Convert(ctx_.loops, ComputeDType(dtype_), out + r * width, dtype_, y + r * stride, width);
    }
  }

  const Context& ctx_;
  const ScanLoops& loops_;
  const DType dtype_;
  const int64_t size_;
  const ScanShape shape_;
  const ScanMode mode_;
  const char* const x_;
  char* const y_;
};

absl::Status RunScan(const Context& ctx, const KernelCall& call, Scan scan) {
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const DType dtype = call.output().spec->dtype;
  const ScanLoops& loops = ctx.loops.scan[static_cast<int>(scan)][Index(ComputeDType(dtype))];
  if (loops.row == nullptr || call.inputs[0].spec->dtype != dtype) return NoKernel(call);
  Scanner(ctx, loops, call).Run();
  return absl::OkStatus();
}

absl::Status CumsumKernel(const Context& ctx, const KernelCall& call) {
  return RunScan(ctx, call, Scan::kSum);
}

absl::Status CumprodKernel(const Context& ctx, const KernelCall& call) {
  return RunScan(ctx, call, Scan::kProd);
}

}  // namespace

void AppendScanKernels(KernelTable& table) {
  table["cumsum"] = CumsumKernel;
  table["cumprod"] = CumprodKernel;
}

}  // namespace tensord::server::cpu
