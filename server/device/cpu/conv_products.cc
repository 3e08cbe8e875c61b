#include "tensord/server/device/cpu/conv_products.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/blas.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// A grain (team.h) in multiplications.
constexpr double kConvGrainProducts = 64 * 1024;
// The approximate limit of the elements of a matrix of windows, so that it stays in the cache.
constexpr int64_t kMaxColumnElements = 128 * 1024;
// The minimum number of columns of a matrix of windows. If there are fewer positions, it has fewer.
constexpr int64_t kMinPositions = 128;
// If there are fewer units of work for each thread, units are divided.
constexpr int64_t kUnitsPerThread = 4;

// The matrix of the windows of a group of channels of an image: K rows, one for each channel and
// tap, and a column for each position of the result. The class reads and writes blocks of it.
template <typename T>
class WindowMatrix {
 public:
  explicit WindowMatrix(const ConvGeometry& conv) : conv_(conv) {}

  // Returns whether the matrix is the image itself.
  bool IsPlain() const {
    for (int a = 0; a < ConvGeometry::kAxes; ++a) {
      if (conv_.kernel[a] != 1 || conv_.stride[a] != 1) return false;
      if (conv_.low[a] != 0 || conv_.high[a] != 0) return false;
    }
    return true;
  }

  // Sets block (rows, columns) to the rows [row, row + rows) and the columns
  // [column, column + columns).
  void Read(const T* image, int64_t row, int64_t rows, int64_t column, int64_t columns,
            T* block) const {
    ForRuns(row, rows, column, columns, [&](const Run& run) {
      T* const to = block + run.at;
      std::fill(to, to + run.first, T{0});
      std::fill(to + run.end, to + run.length, T{0});
      const T* from = image + run.image;
      if (run.stride == 1) {
        std::memcpy(to + run.first, from, (run.end - run.first) * sizeof(T));
        return;
      }
      for (int64_t j = run.first; j < run.end; ++j, from += run.stride) to[j] = *from;
    });
  }

  // Adds a block to the elements of the image.
  void Add(const T* block, int64_t row, int64_t rows, int64_t column, int64_t columns,
           T* image) const {
    ForRuns(row, rows, column, columns, [&](const Run& run) {
      const T* const from = block + run.at;
      T* to = image + run.image;
      for (int64_t j = run.first; j < run.end; ++j, to += run.stride) *to += from[j];
    });
  }

 private:
  // Columns of a row whose positions lie one after another along the last axis: elements [at,
  // at + length) of the block. Of these, [first, end) are elements of the image, and the others are
  // padding.
  struct Run {
    int64_t at, length, first, end;
    int64_t image;   // the element of the image for `first`
    int64_t stride;  // from element to element of the image
  };

  template <typename Fn>
  void ForRuns(int64_t row, int64_t rows, int64_t column, int64_t columns, Fn fn) const {
    const int64_t* const kernel = conv_.kernel;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t channel = (row + r) / conv_.taps(), tap = (row + r) % conv_.taps();
      const int64_t taps[] = {tap / (kernel[1] * kernel[2]), tap / kernel[2] % kernel[1],
                              tap % kernel[2]};
      int64_t done = 0;
      while (done < columns) {
        const int64_t position = column + done, line = position / conv_.out[2];
        const int64_t first = position % conv_.out[2];
        Run run = {};
        run.at = r * columns + done;
        run.length = std::min(conv_.out[2] - first, columns - done);
        run.stride = conv_.stride[2];
        done += run.length;
        const int64_t outer = Coordinate(0, line / conv_.out[1], taps[0]);
        const int64_t middle = Coordinate(1, line % conv_.out[1], taps[1]);
        if (outer >= 0 && outer < conv_.in[0] && middle >= 0 && middle < conv_.in[1]) {
          const int64_t start = Coordinate(2, first, taps[2]);
          const int64_t room = conv_.in[2] - start;
          run.first = start >= 0 ? 0 : std::min(run.length, (-start - 1) / run.stride + 1);
          run.end = room <= 0 ? 0 : std::min(run.length, (room - 1) / run.stride + 1);
          run.end = std::max(run.first, run.end);
          run.image = ((channel * conv_.in[0] + outer) * conv_.in[1] + middle) * conv_.in[2] +
                      start + run.first * run.stride;
        }
        if (run.first == run.end) run.image = 0;
        fn(run);
      }
    }
  }

  int64_t Coordinate(int axis, int64_t position, int64_t tap) const {
    return position * conv_.stride[axis] - conv_.low[axis] + tap * conv_.dilation[axis];
  }

  const ConvGeometry& conv_;
};

int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }

// The range [begin, begin + size).
struct ProductBlock {
  int64_t begin, size;
};

// Calls fn(ProductBlock) for blocks of at most `size` that together are [begin, end), until the op
// must stop.
template <typename Fn>
void ForBlocks(int64_t begin, int64_t end, int64_t size, Fn fn) {
  for (; begin < end && !MustStop(); begin += size)
    fn(ProductBlock{begin, std::min(size, end - begin)});
}

template <typename T>
class ConvProducts {
 public:
  ConvProducts(const Context& ctx, const ConvGeometry& conv, const ConvOperands& operands)
      : ctx_(ctx),
        conv_(conv),
        matrix_(conv),
        plain_(matrix_.IsPlain()),
        k_(conv.group_in() * conv.taps()),
        positions_(conv.out_elements()),
        a_(static_cast<const T*>(operands.a)),
        b_(static_cast<const T*>(operands.b)),
        bias_(static_cast<const T*>(operands.bias)),
        output_(static_cast<T*>(operands.output)) {
    position_block_ =
        std::clamp(kMaxColumnElements / k_, std::min(kMinPositions, positions_), positions_);
    row_block_ = std::min(k_, std::max<int64_t>(1, kMaxColumnElements / position_block_));
  }

  absl::Status Prepare(const KernelCall& call) {
    if (plain_) return absl::OkStatus();
    block_elements_ = position_block_ * row_block_;
    TENSORD_ASSIGN_OR_RETURN(blocks_, MakeScratch(call, ctx_.team.threads() * block_elements_ *
                                                            static_cast<int64_t>(sizeof(T))));
    return absl::OkStatus();
  }

  // Units: an image, a group, a block of output channels, and a block of positions.
  void Forward(std::optional<UnaryFunction> activation) {
    const int64_t position_blocks = DivideUp(positions_, position_block_);
    const int64_t channel_blocks =
        Parts(conv_.batch * conv_.groups * position_blocks, conv_.group_out());
    const int64_t channels = DivideUp(conv_.group_out(), channel_blocks);
    ForUnits(conv_.batch * conv_.groups * channel_blocks * position_blocks, [&](int64_t unit) {
      const int64_t position = unit % position_blocks * position_block_;
      unit /= position_blocks;
      const int64_t channel = unit % channel_blocks * channels;
      unit /= channel_blocks;
      if (channel >= conv_.group_out()) return;
      ForwardBlock(unit, {channel, std::min(channels, conv_.group_out() - channel)},
                   {position, std::min(position_block_, positions_ - position)}, activation);
    });
  }

  // Units: an image, a group, and a block of input channels.
  void BackwardInput() {
    const int64_t channel_blocks = Parts(conv_.batch * conv_.groups, conv_.group_in());
    const int64_t channels = DivideUp(conv_.group_in(), channel_blocks);
    ForUnits(conv_.batch * conv_.groups * channel_blocks, [&](int64_t unit) {
      const int64_t channel = unit % channel_blocks * channels;
      if (channel >= conv_.group_in()) return;
      BackwardInputBlock(unit / channel_blocks,
                         {channel, std::min(channels, conv_.group_in() - channel)});
    });
  }

  // Units: a group, and a block of K.
  void BackwardWeight(bool accumulate) {
    const int64_t min_blocks = Parts(conv_.groups, k_);
    row_block_ = std::min(row_block_, DivideUp(k_, min_blocks));
    const int64_t row_blocks = DivideUp(k_, row_block_);
    ForUnits(conv_.groups * row_blocks, [&](int64_t unit) {
      const int64_t row = unit % row_blocks * row_block_;
      BackwardWeightBlock(unit / row_blocks, {row, std::min(row_block_, k_ - row)}, accumulate);
    });
  }

 private:
  // Returns the number of parts into which each of `units` units of `size` is divided, so that all
  // threads have work.
  int64_t Parts(int64_t units, int64_t size) const {
    if (ctx_.team.threads() == 1) return 1;
    return std::min(size, DivideUp(kUnitsPerThread * ctx_.team.threads(), units));
  }

  template <typename Fn>
  void ForUnits(int64_t units, Fn fn) {
    const double products = static_cast<double>(conv_.y_elements()) * static_cast<double>(k_);
    ctx_.team.For(units, kConvGrainProducts * static_cast<double>(units) / products,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t unit = begin; unit < end; ++unit) fn(unit);
                  });
  }

  // Return the first element of an image's group in x, y or their gradients.
  int64_t XOffset(int64_t image_group) const {
    return image_group * conv_.group_in() * conv_.in_elements();
  }
  int64_t YOffset(int64_t image_group) const {
    return image_group * conv_.group_out() * positions_;
  }
  int64_t WeightOffset(int64_t group) const { return group * conv_.group_out() * k_; }

  T* OwnBlock() const { return blocks_.As<T>() + Team::Current() * block_elements_; }

  // Returns a block of the matrix of windows, and the distance of its rows.
  std::pair<const T*, int64_t> Windows(const T* image, const ProductBlock& rows,
                                       const ProductBlock& columns) {
    if (plain_) return {image + rows.begin * positions_ + columns.begin, positions_};
    matrix_.Read(image, rows.begin, rows.size, columns.begin, columns.size, OwnBlock());
    return {OwnBlock(), columns.size};
  }

  // (channels,K)·(K,positions) -> (channels,positions)
  void ForwardBlock(int64_t image_group, const ProductBlock& channels,
                    const ProductBlock& positions, std::optional<UnaryFunction> activation) {
    const T* const image = a_ + XOffset(image_group);
    const int64_t channel = image_group % conv_.groups * conv_.group_out() + channels.begin;
    T* const y = output_ + YOffset(image_group) + channels.begin * positions_ + positions.begin;
    ForBlocks(0, k_, row_block_, [&](const ProductBlock& rows) {
      const auto [windows, stride] = Windows(image, rows, positions);
      Gemm(BlasMatmul<T>{channels.size, positions.size, rows.size, b_ + channel * k_ + rows.begin,
                         k_, false, windows, stride, false, y, positions_, rows.begin > 0});
    });
    Finish(channel, channels.size, positions.size, activation, y);
  }

  // Adds the bias and applies the activation.
  void Finish(int64_t channel, int64_t channels, int64_t positions,
              std::optional<UnaryFunction> activation, T* y) const {
    constexpr DType kType = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;
    const UnaryLoop activate = activation.has_value()
                                   ? ctx_.loops.unary[static_cast<int>(*activation)][Index(kType)]
                                   : nullptr;
    for (int64_t c = 0; c < channels; ++c, y += positions_) {
      if (bias_ != nullptr) {
        const T bias = bias_[channel + c];
        for (int64_t p = 0; p < positions; ++p) y[p] += bias;
      }
      if (activate != nullptr) activate(y, y, positions);
    }
  }

  // (K,out)·(out,positions) -> (K,positions), of which each element is added to an element of x.
  void BackwardInputBlock(int64_t image_group, const ProductBlock& channels) {
    const int64_t group = image_group % conv_.groups;
    T* const image = output_ + XOffset(image_group);
    if (!plain_) {
      T* const begin = image + channels.begin * conv_.in_elements();
      std::fill(begin, begin + channels.size * conv_.in_elements(), T{0});
    }
    const int64_t first = channels.begin * conv_.taps();
    const int64_t end = first + channels.size * conv_.taps();
    ForBlocks(0, positions_, position_block_, [&](const ProductBlock& positions) {
      ForBlocks(first, end, row_block_, [&](const ProductBlock& rows) {
        T* const windows = plain_ ? image + rows.begin * positions_ + positions.begin : OwnBlock();
        Gemm(BlasMatmul<T>{rows.size, positions.size, conv_.group_out(),
                           b_ + WeightOffset(group) + rows.begin, k_, true,
                           a_ + YOffset(image_group) + positions.begin, positions_, false, windows,
                           plain_ ? positions_ : positions.size});
        if (plain_) return;
        matrix_.Add(windows, rows.begin, rows.size, positions.begin, positions.size, image);
      });
    });
  }

  // The sum over images and positions of (out,positions)·(K,positions)ᵀ -> (out,K)
  void BackwardWeightBlock(int64_t group, const ProductBlock& rows, bool accumulate) {
    for (int64_t n = 0; n < conv_.batch; ++n) {
      const int64_t image_group = n * conv_.groups + group;
      ForBlocks(0, positions_, position_block_, [&](const ProductBlock& positions) {
        const auto [windows, stride] = Windows(b_ + XOffset(image_group), rows, positions);
        Gemm(BlasMatmul<T>{conv_.group_out(), rows.size, positions.size,
                           a_ + YOffset(image_group) + positions.begin, positions_, false, windows,
                           stride, true, output_ + WeightOffset(group) + rows.begin, k_,
                           accumulate});
        accumulate = true;
      });
    }
  }

  const Context& ctx_;
  const ConvGeometry& conv_;
  const WindowMatrix<T> matrix_;
  const bool plain_;
  const int64_t k_;          // the length of the sums of an element of y
  const int64_t positions_;  // of a channel of y
  const T* const a_;
  const T* const b_;
  const T* const bias_;
  T* const output_;
  int64_t position_block_, row_block_;  // the maximum size of a block of the matrix of windows
  int64_t block_elements_ = 0;
  Scratch blocks_;  // one for each thread
};

template <typename T>
absl::Status RunProducts(const Context& ctx, const KernelCall& call, ConvKind kind,
                         const ConvGeometry& conv, const ConvOperands& operands,
                         std::optional<UnaryFunction> activation, bool accumulate) {
  ConvProducts<T> products(ctx, conv, operands);
  TENSORD_RETURN_IF_ERROR(products.Prepare(call));
  switch (kind) {
    case ConvKind::kForward:
      products.Forward(activation);
      break;
    case ConvKind::kBackwardInput:
      products.BackwardInput();
      break;
    case ConvKind::kBackwardWeight:
      products.BackwardWeight(accumulate);
      break;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunConvProducts(const Context& ctx, const KernelCall& call, ConvKind kind,
                             const ConvGeometry& conv, DType dtype, const ConvOperands& operands,
                             std::optional<UnaryFunction> activation, bool accumulate) {
  const int64_t sums = conv.group_in() * conv.taps();
  if (std::max({sums, conv.out_elements(), conv.group_out()}) > kMaxBlasDim) {
    return absl::UnimplementedError(
        absl::StrCat(call.schema->name, ": a window of ", sums, " elements, or ",
                     conv.out_elements(), " positions of a channel, are more than ", kMaxBlasDim,
                     ", which the CPU backend can't compute: split it"));
  }
  return dtype == DType::kFloat32
             ? RunProducts<float>(ctx, call, kind, conv, operands, activation, accumulate)
             : RunProducts<double>(ctx, call, kind, conv, operands, activation, accumulate);
}

}  // namespace tensord::server::cpu
