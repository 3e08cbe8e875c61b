#include <algorithm>
#include <cmath>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/isa/network_loops.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// The time for an element in one pass, relative to a cheap elementwise op.
constexpr double kBatchNormCost = 3;

// The kernels compute a channel in blocks of at most this number of elements.
constexpr int64_t kChannelBlock = 16 * 1024;
// Shorter runs are copied, so that a block has several of them.
constexpr int64_t kMinRunInPlace = 64;

// Elements [begin, begin + length) of each of the images [first, first + images) of one channel.
struct ChannelBlock {
  int64_t first, images;
  int64_t begin, length;
  int64_t elements() const { return images * length; }
};

// A tensor (N,C,S) as channels. Elements of a block are computed in place, or in a dense copy in
// the dtype in which they are computed.
class Channels {
 public:
  Channels(const Context& ctx, const TensorSpec& x)
      : ctx_(ctx), dtype_(x.dtype), computed_(ComputeDType(x.dtype)) {
    images_ = x.shape.dim(0);
    channels_ = x.shape.dim(1);
    for (int d = 2; d < x.shape.rank(); ++d) run_ *= x.shape.dim(d);
    in_place_ = !Is16Bit(dtype_) && run_ >= kMinRunInPlace;
  }

  int64_t count() const { return channels_; }
  int64_t elements() const { return images_ * run_; }  // of a channel
  DType computed() const { return computed_; }
  // The size of a dense copy of a block and, for 16-bit dtypes, of its elements before conversion.
  int64_t copy_bytes() const { return in_place_ ? 0 : kChannelBlock * (8 + 2); }

  // Calls fn(const ChannelBlock&) for the blocks of a channel. If the op must stop, returns early.
  template <typename Fn>
  void ForBlocks(Fn fn) const {
    if (elements() == 0) return;
    const int64_t length = std::min(run_, kChannelBlock);
    const int64_t images = in_place_ ? 1 : kChannelBlock / length;
    for (int64_t n = 0; n < images_; n += images) {
      for (int64_t s = 0; s < run_; s += length) {
        if (MustStop()) return;
        fn(ChannelBlock{n, std::min(images, images_ - n), s, std::min(length, run_ - s)});
      }
    }
  }

  // Returns the address of a block's elements: in `tensor`, or in `copy`, to which it copies them.
  const void* Read(const Operand& tensor, int64_t channel, const ChannelBlock& block,
                   void* copy) const {
    if (in_place_) return Advance(tensor.data, Offset(channel, block, 0));
    if (block.length == 1 && !Is16Bit(dtype_)) {
      GatherElements(tensor, channel, block, copy);
    } else if (block.length == 1) {
      void* const narrow = Advance(copy, kChannelBlock * 8);
      GatherElements(tensor, channel, block, narrow);
      Convert(ctx_.loops, dtype_, narrow, computed_, copy, block.images);
    } else {
      for (int64_t n = 0; n < block.images; ++n) {
        Convert(ctx_.loops, dtype_, Advance(tensor.data, Offset(channel, block, n)), computed_,
                Advance(copy, n * block.length * SizeOf(computed_)), block.length);
      }
    }
    return copy;
  }
  // Returns the address at which the caller computes the elements of a block.
  void* Target(const Operand& tensor, int64_t channel, const ChannelBlock& block,
               void* copy) const {
    return in_place_ ? Advance(tensor.data, Offset(channel, block, 0)) : copy;
  }
  // Stores the elements that were computed at Target().
  void Write(const Operand& tensor, int64_t channel, const ChannelBlock& block,
             const void* copy) const {
    if (in_place_) return;
    const int64_t bytes = block.length * SizeOf(computed_);
    for (int64_t n = 0; n < block.images; ++n) {
      Convert(ctx_.loops, computed_, Advance(copy, n * bytes), dtype_,
              Advance(tensor.data, Offset(channel, block, n)), block.length);
    }
  }

 private:
  int64_t Offset(int64_t channel, const ChannelBlock& block, int64_t image) const {
    return (((block.first + image) * channels_ + channel) * run_ + block.begin) * SizeOf(dtype_);
  }
  void GatherElements(const Operand& tensor, int64_t channel, const ChannelBlock& block,
                      void* to) const {
    ctx_.loops.gather[SizeIndex(SizeOf(dtype_))](Advance(tensor.data, Offset(channel, block, 0)),
                                                 channels_, to, block.images);
  }

  const Context& ctx_;
  const DType dtype_, computed_;
  int64_t images_ = 0, channels_ = 0, run_ = 1;
  bool in_place_ = false;
};

// Calls fn(channel, copies) for all channels, on the whole team. `copies` is memory of the thread
// for `count` copies of blocks. `cost` is the time for an element, relative to a cheap elementwise
// op.
template <typename Fn>
absl::Status ForChannels(const Context& ctx, const KernelCall& call, const Channels& channels,
                         int count, double cost, Fn fn) {
  const int64_t bytes = count * channels.copy_bytes();
  TENSORD_ASSIGN_OR_RETURN(const Scratch copies, MakeScratch(call, bytes * ctx.team.threads()));
  const double elements = static_cast<double>(std::max<int64_t>(channels.elements(), 1));
  ctx.team.For(channels.count(), kGrainElements / cost / elements, [&](int64_t begin, int64_t end) {
    void* const own = Advance(copies.data(), Team::Current() * bytes);
    for (int64_t c = begin; c < end; ++c) fn(c, own);
  });
  return absl::OkStatus();
}

// Parameters and statistics are float32 or float64.
double ElementAt(const Operand& operand, int64_t i) {
  return operand.spec->dtype == DType::kFloat64 ? operand.As<double>()[i]
                                                : static_cast<double>(operand.As<float>()[i]);
}
void SetElement(const Context& ctx, const Operand& operand, int64_t i, double value) {
  Convert(ctx.loops, DType::kFloat64, &value, operand.spec->dtype,
          Advance(operand.data, i * SizeOf(operand.spec->dtype)), 1);
}

Moments MomentsOf(const Context& ctx, const Channels& channels, const Operand& x, int64_t channel,
                  void* copy) {
  const ReductionLoops* loops = ctx.loops.reduction[static_cast<int>(Reduction::kMoments)];
  Moments all = {0, 0, 0};
  channels.ForBlocks([&](const ChannelBlock& block) {
    Moments moments = {0, 0, 0};
    loops[Index(channels.computed())].rows(channels.Read(x, channel, block, copy), 1,
                                           block.elements(), 0.0, &moments);
    loops[Index(DType::kUnspecified)].combine(&all, &moments, 1);
  });
  return all;
}

absl::Status BatchNormKernel(const Context& ctx, const KernelCall& call) {
  const Operand &x = call.inputs[0], &y = call.outputs[0];
  const Channels channels(ctx, *x.spec);
  const BatchNormLoops& loops = BestNetworkLoops().batch_norm[Index(channels.computed())];
  if (loops.normalize == nullptr) return NoKernel(call);
  const bool training = call.attrs->Bool("training");
  const double eps = call.attrs->Float("eps"), momentum = call.attrs->Float("momentum");
  const auto run_channel = [&](int64_t c, void* copy) {
    double mean = ElementAt(call.inputs[1], c), var = ElementAt(call.inputs[2], c);
    if (training) {
      const double running_mean = mean, running_var = var;
      const Moments moments = MomentsOf(ctx, channels, x, c, copy);
      mean = moments.mean;
      var = moments.squares / moments.count;
      SetElement(ctx, call.outputs[1], c, mean);
      SetElement(ctx, call.outputs[2], c, 1 / std::sqrt(var + eps));
      SetElement(ctx, call.outputs[3], c, running_mean + momentum * (mean - running_mean));
      const double corrected = moments.squares / (moments.count - 1);
      SetElement(ctx, call.outputs[4], c, running_var + momentum * (corrected - running_var));
    }
    const double invstd = 1 / std::sqrt(var + eps);
    const double scale = call.inputs.size() > 3 ? invstd * ElementAt(call.inputs[3], c) : invstd;
    const double shift = call.inputs.size() > 4 ? ElementAt(call.inputs[4], c) : 0;
    channels.ForBlocks([&](const ChannelBlock& block) {
      const void* const from = channels.Read(x, c, block, copy);
      loops.normalize(from, block.elements(), mean, scale, shift,
                      channels.Target(y, c, block, copy));
      channels.Write(y, c, block, copy);
    });
  };
  return ForChannels(ctx, call, channels, 1, training ? 2 * kBatchNormCost : kBatchNormCost,
                     run_channel);
}

absl::Status BatchNormBackwardKernel(const Context& ctx, const KernelCall& call) {
  const Operand &g = call.inputs[0], &x = call.inputs[1];
  const Channels channels(ctx, *x.spec);
  const BatchNormLoops& loops = BestNetworkLoops().batch_norm[Index(channels.computed())];
  if (loops.gradient == nullptr) return NoKernel(call);
  const Operand* outputs[3] = {};
  const std::vector<int64_t>& gradients = call.attrs->Ints("gradients");
  for (size_t i = 0; i < gradients.size(); ++i) outputs[gradients[i]] = &call.outputs[i];
  const bool training = call.attrs->Bool("training");
  const bool has_sums = training || outputs[1] != nullptr || outputs[2] != nullptr;
  const auto run_channel = [&](int64_t c, void* copies) {
    void* const copy = Advance(copies, channels.copy_bytes());
    const double mean = ElementAt(call.inputs[2], c), invstd = ElementAt(call.inputs[3], c);
    const double weight = call.inputs.size() > 4 ? ElementAt(call.inputs[4], c) : 1;
    double sums[2] = {0, 0};  // Σ g, and Σ g (x - mean)
    if (has_sums) {
      channels.ForBlocks([&](const ChannelBlock& block) {
        const void* const from = channels.Read(g, c, block, copies);
        loops.add_products(from, channels.Read(x, c, block, copy), block.elements(), mean, sums);
      });
    }
    if (outputs[1] != nullptr) SetElement(ctx, *outputs[1], c, sums[1] * invstd);
    if (outputs[2] != nullptr) SetElement(ctx, *outputs[2], c, sums[0]);
    if (outputs[0] == nullptr) return;
    const auto n = static_cast<double>(channels.elements());
    const double shift = training ? sums[0] / n : 0;
    const double slope = training ? sums[1] * invstd * invstd / n : 0;
    channels.ForBlocks([&](const ChannelBlock& block) {
      const void* const from = channels.Read(g, c, block, copies);
      loops.gradient(from, channels.Read(x, c, block, copy), block.elements(), mean, shift, slope,
                     weight * invstd, channels.Target(*outputs[0], c, block, copies));
      channels.Write(*outputs[0], c, block, copies);
    });
  };
  return ForChannels(ctx, call, channels, 2, 2 * kBatchNormCost, run_channel);
}

}  // namespace

void AppendBatchNormKernels(KernelTable& table) {
  table["batch_norm"] = BatchNormKernel;
  table["batch_norm_backward"] = BatchNormBackwardKernel;
}

}  // namespace tensord::server::cpu
