// Bags of embeddings, and the loss of connectionist temporal classification (CTC).
#include <cmath>
#include <limits>

#include "kernels.h"
#include "value_errors.h"

namespace torch_tensord {
namespace {

using at::Tensor;

// ---- bags of embeddings

enum BagMode : int64_t { kBagSum = 0, kBagMean = 1, kBagMax = 2 };
using Bags = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Returns which entries count: those that aren't the padding. If all count, returns an undefined
// tensor.
Tensor Counted(const Tensor& indices, int64_t padding) {
  return padding >= 0 ? indices.ne(padding) : Tensor();
}
Tensor MaskRows(const Tensor& rows, const Tensor& counted) {
  if (!counted.defined()) return rows;
  return at::where(rows.dim() == 2 ? counted.unsqueeze(1) : counted, rows, at::zeros_like(rows));
}

constexpr Origin kEmbeddingBag{nullptr, "embedding_bag", "the indices"};

// Returns the bags, the bag of each entry, the sizes of the bags, and the rows of the weight that
// the maxima come from. The row of an empty bag is -1. In other modes, there are no rows.
Bags EmbeddingBag(const Tensor& weight, const Tensor& given_indices, const Tensor& given_offsets,
                  bool, int64_t mode, bool sparse, const std::optional<Tensor>& factors,
                  bool has_last_offset, int64_t padding) {
  const c10::DeviceIndex device =
      CommonDevice("embedding_bag", {&weight, &given_indices, &given_offsets});
  const at::ScalarType promoted =
      at::promoteTypes(given_indices.scalar_type(), given_offsets.scalar_type());
  TORCH_CHECK(promoted == at::kLong || promoted == at::kInt,
              "embedding_bag: expected indices and offsets to have one of the following scalar "
              "types: Long, Int; but got ",
              promoted);
  TORCH_CHECK_NOT_IMPLEMENTED(!sparse,
                              "embedding_bag with sparse gradients isn't implemented on tensord");
  TORCH_CHECK(!IsGiven(factors) || mode == kBagSum,
              "embedding_bag: per_sample_weights are supported only with mode='sum'");
  const Tensor indices = given_indices.to(at::kLong), offsets = given_offsets.to(at::kLong);
  const int64_t count = indices.numel(), width = weight.size(1);
  const int64_t bags = offsets.size(0) - (has_last_offset ? 1 : 0);
  TORCH_CHECK(bags >= 0, "include_last_offset: number of offsets should be at least 1");
  const Tensor sums = at::zeros({bags, width}, weight.options());
  const Tensor none = at::zeros({bags}, indices.options());
  const Tensor no_rows = at::zeros({mode == kBagMax ? bags : 0, width}, indices.options());
  if (count == 0 || bags == 0) return {sums, at::zeros({count}, indices.options()), none, no_rows};
  // Of equal offsets, all but the last begin empty bags.
  const Tensor starts = offsets.narrow(0, 0, bags);
  const Tensor bag =
      MakeTensor(Sub(Push("searchsorted", {Read(starts), Arange(device, count)}, {{"right", true}}),
                     at::Scalar(1)),
                 device);
  const Tensor counted = Counted(indices, padding);
  const Tensor one = counted.defined() ? counted.to(at::kLong) : at::ones_like(indices);
  const Tensor sizes = none.index_add(0, bag, one);
  const OriginScope scope(kEmbeddingBag);
  Tensor rows = weight.index_select(0, indices);
  if (mode != kBagMax) {
    if (IsGiven(factors)) rows = rows.mul(factors->unsqueeze(1));
    Tensor result = sums.index_add(0, bag, MaskRows(rows, counted));
    if (mode == kBagMean) {
      result = result.div(sizes.clamp_min(1).unsqueeze(1).to(weight.scalar_type()));
    }
    return {result, bag, sizes, no_rows};
  }
  const Tensor index = bag.unsqueeze(1).expand({count, width});
  const double lowest = -std::numeric_limits<double>::infinity();
  if (counted.defined()) rows = at::where(counted.unsqueeze(1), rows, at::full_like(rows, lowest));
  const Tensor best = at::full_like(sums, lowest).scatter_reduce(0, index, rows, "amax");
  // Finds the first entry of each bag that is the bag's maximum.
  const Tensor place = at::arange(count, indices.options()).unsqueeze(1);
  const Tensor candidates =
      at::where(rows.eq(best.index_select(0, bag)), place, at::full_like(place, count));
  const Tensor first = at::full({bags, width}, count, indices.options())
                           .scatter_reduce(0, index, candidates, "amin")
                           .clamp_max(count - 1);
  const Tensor empty = sizes.eq(0).unsqueeze(1);
  const Tensor source = indices.index_select(0, first.reshape({-1})).view({bags, width});
  return {at::where(empty, at::zeros_like(best), best), bag, sizes,
          at::where(empty, at::full_like(source, -1), source)};
}

Tensor EmbeddingBagBackward(const Tensor& gradient, const Tensor& given_indices, const Tensor& bag,
                            const Tensor& sizes, const Tensor& max_rows, int64_t num_weights,
                            bool scale_by_frequency, int64_t mode,
                            const std::optional<Tensor>& factors, int64_t padding) {
  const Tensor indices = given_indices.to(at::kLong);
  const Tensor zeros = at::zeros({num_weights, gradient.size(1)}, gradient.options());
  if (indices.numel() == 0 || gradient.numel() == 0) return zeros;
  if (mode == kBagMax) {
    const Tensor empty = max_rows.lt(0);
    const Tensor values = at::where(empty, at::zeros_like(gradient), gradient);
    return zeros.scatter_add(0, max_rows.clamp_min(0), values);
  }
  Tensor g = gradient;
  if (mode == kBagMean) g = g.div(sizes.clamp_min(1).unsqueeze(1).to(g.scalar_type()));
  Tensor rows = g.index_select(0, bag);
  if (IsGiven(factors)) rows = rows.mul(factors->unsqueeze(1));
  if (scale_by_frequency) {
    const Tensor counts =
        at::zeros({num_weights}, indices.options()).index_add(0, indices, at::ones_like(indices));
    rows = rows.div(counts.index_select(0, indices).unsqueeze(1).to(rows.scalar_type()));
  }
  return zeros.index_add(0, indices, MaskRows(rows, Counted(indices, padding)));
}
Tensor EmbeddingBagBackwardOf(const Tensor& gradient, const Tensor& indices, const Tensor&,
                              const Tensor& bag, const Tensor& sizes, const Tensor& max_rows,
                              int64_t num_weights, bool scale_by_frequency, int64_t mode, bool,
                              const std::optional<Tensor>& factors, int64_t padding) {
  return EmbeddingBagBackward(gradient, indices, bag, sizes, max_rows, num_weights,
                              scale_by_frequency, mode, factors, padding);
}
Tensor FactorsBackward(const Tensor& gradient, const Tensor& weight, const Tensor& indices,
                       const Tensor&, const Tensor& bag, int64_t, int64_t padding) {
  if (indices.numel() == 0) return at::zeros({0}, gradient.options());
  const Tensor rows = weight.index_select(0, indices.to(at::kLong));
  return MaskRows(gradient.index_select(0, bag).mul(rows).sum(1), Counted(indices, padding));
}

// ---- CTC

// The inputs of the forward and the backward pass. The positions of an extended target are blank,
// target, blank, …, blank.
struct Ctc {
  int64_t steps, batch, positions;
  Tensor labels;       // (N, S): the class of each position
  Tensor may_skip;     // (N, S): whether the position can follow that two before it
  Tensor log_probs;    // (T, N, S): of the labels
  Tensor input_sizes;  // (N, 1)
  Tensor target_sizes;
};
Tensor SizesOnDevice(at::IntArrayRef sizes, const Tensor& like) {
  const Tensor host = at::tensor(sizes, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
  return host.to(like.device(), at::kLong, true).unsqueeze(1);
}
// The position that the server reports is one in the extended target, with blanks between labels.
constexpr Origin kCtc{nullptr, "ctc_loss", "the extended targets"};
Ctc PrepareCtc(const Tensor& log_probs, const Tensor& given_targets, at::IntArrayRef input_lengths,
               at::IntArrayRef target_lengths, int64_t blank) {
  CommonDevice("ctc_loss", {&log_probs, &given_targets});
  Ctc ctc;
  ctc.steps = log_probs.size(0);
  ctc.batch = log_probs.size(1);
  TORCH_CHECK(blank >= 0 && blank < log_probs.size(2), "blank must be in label range");
  TORCH_CHECK(static_cast<int64_t>(input_lengths.size()) == ctc.batch,
              "input_lengths must be of size batch_size");
  TORCH_CHECK(static_cast<int64_t>(target_lengths.size()) == ctc.batch,
              "target_lengths must be of size batch_size");
  int64_t longest = 0;
  std::vector<int64_t> starts;
  int64_t start = 0;
  for (int64_t i = 0; i < ctc.batch; ++i) {
    TORCH_CHECK(target_lengths[i] >= 0 && input_lengths[i] >= 0 && input_lengths[i] <= ctc.steps,
                "Expected input_lengths to have value at most ", ctc.steps, ", but got value ",
                input_lengths[i]);
    starts.push_back(given_targets.dim() == 1 ? start : i * given_targets.size(1));
    start += target_lengths[i];
    longest = std::max(longest, target_lengths[i]);
  }
  const Tensor targets = given_targets.to(at::kLong);
  ctc.positions = 2 * longest + 1;
  ctc.input_sizes = SizesOnDevice(input_lengths, log_probs);
  ctc.target_sizes = SizesOnDevice(target_lengths, log_probs);
  const at::TensorOptions options = targets.options();
  const Tensor blanks = at::full({ctc.batch, longest + 1, 1}, blank, options);
  if (longest > 0 && targets.numel() > 0) {
    const Tensor place = SizesOnDevice(starts, log_probs).add(at::arange(longest, options));
    const Tensor line = targets.reshape({-1});
    const Tensor words = line.index_select(0, place.clamp_max(line.numel() - 1).reshape({-1}));
    const Tensor valid = at::arange(longest, options).unsqueeze(0).lt(ctc.target_sizes);
    const Tensor padded =
        at::where(valid, words.view({ctc.batch, longest}), at::full({}, blank, options));
    const Tensor pairs = at::stack({blanks.narrow(1, 0, longest).squeeze(2), padded}, 2);
    ctc.labels =
        at::cat({pairs.reshape({ctc.batch, 2 * longest}), blanks.narrow(1, 0, 1).squeeze(2)}, 1);
  } else {
    ctc.labels = blanks.narrow(1, 0, 1).expand({ctc.batch, ctc.positions, 1}).squeeze(2);
  }
  Tensor before = ctc.labels;
  if (ctc.positions > 2) {
    before = at::cat({ctc.labels.narrow(1, 0, 2), ctc.labels.narrow(1, 0, ctc.positions - 2)}, 1);
  }
  ctc.may_skip = ctc.labels.ne(blank).logical_and(ctc.labels.ne(before));
  if (ctc.positions > 1) ctc.may_skip.narrow(1, 1, 1).fill_(false);
  const Tensor index = ctc.labels.unsqueeze(0).expand({ctc.steps, ctc.batch, ctc.positions});
  const OriginScope scope(kCtc);
  ctc.log_probs = log_probs.gather(2, index);
  return ctc;
}
// Returns logarithms of the probability 0.
Tensor Impossible(const Tensor& like) {
  return at::full_like(like, -std::numeric_limits<double>::infinity());
}
// Returns x moved by `shift` positions to the right, or to the left if that is negative.
Tensor Moved(const Tensor& x, int64_t shift) {
  const int64_t size = x.size(1), count = std::min(std::abs(shift), size);
  const Tensor fill = Impossible(x.narrow(1, 0, count));
  return shift > 0 ? at::cat({fill, x.narrow(1, 0, size - count)}, 1)
                   : at::cat({x.narrow(1, count, size - count), fill}, 1);
}
Tensor LogSum(const Tensor& a, const Tensor& b, const Tensor& c) {
  return at::logaddexp(at::logaddexp(a, b), c);
}

std::tuple<Tensor, Tensor> CtcLoss(const Tensor& log_probs, const Tensor& targets,
                                   at::IntArrayRef input_lengths, at::IntArrayRef target_lengths,
                                   int64_t blank, bool) {
  const Ctc ctc = PrepareCtc(log_probs, targets, input_lengths, target_lengths, blank);
  const Tensor place = at::arange(ctc.positions, ctc.labels.options()).unsqueeze(0);
  std::vector<Tensor> alphas;
  for (int64_t t = 0; t < ctc.steps; ++t) {
    const Tensor p = ctc.log_probs[t];
    if (t == 0) {
      // A path begins with the blank or with the first target.
      alphas.push_back(
          at::where(place.lt(2).logical_and(place.le(ctc.target_sizes.mul(2))), p, Impossible(p)));
      continue;
    }
    const Tensor& last = alphas.back();
    const Tensor skipped = at::where(ctc.may_skip, Moved(last, 2), Impossible(last));
    alphas.push_back(LogSum(last, Moved(last, 1), skipped).add(p));
  }
  const Tensor alpha = at::stack(alphas, 1);  // (N, T, S)
  const Tensor step = ctc.input_sizes.sub(1).clamp_min(0).unsqueeze(2);
  const Tensor last = alpha.gather(1, step.expand({ctc.batch, 1, ctc.positions})).squeeze(1);
  const Tensor end = ctc.target_sizes.mul(2);
  const Tensor first = last.gather(1, end), second = last.gather(1, end.sub(1).clamp_min(0));
  const Tensor both = at::where(ctc.target_sizes.eq(0), first, at::logaddexp(first, second));
  // Without input, only the empty target is possible.
  const Tensor without = at::where(ctc.target_sizes.eq(0), at::zeros_like(both), Impossible(both));
  return {at::where(ctc.input_sizes.eq(0), without, both).squeeze(1).neg(), alpha};
}

Tensor CtcLossBackward(const Tensor& gradient, const Tensor& log_probs, const Tensor& targets,
                       at::IntArrayRef input_lengths, at::IntArrayRef target_lengths,
                       const Tensor& loss, const Tensor& alpha, int64_t blank, bool zero_infinity) {
  const Ctc ctc = PrepareCtc(log_probs, targets, input_lengths, target_lengths, blank);
  const Tensor place = at::arange(ctc.positions, ctc.labels.options()).unsqueeze(0);
  const Tensor end = ctc.target_sizes.mul(2);
  const Tensor is_end = place.eq(end).logical_or(place.eq(end.sub(1)));
  Tensor skips_from = Moved(ctc.may_skip.to(log_probs.scalar_type()), -2).gt(0);
  std::vector<Tensor> betas(ctc.steps);
  for (int64_t t = ctc.steps - 1; t >= 0; --t) {
    const Tensor p = ctc.log_probs[t];
    const Tensor begins = at::where(is_end, p, Impossible(p));
    if (t == ctc.steps - 1) {
      betas[t] = at::where(ctc.input_sizes.eq(t + 1), begins, Impossible(p));
      continue;
    }
    const Tensor& next = betas[t + 1];
    const Tensor skipped = at::where(skips_from, Moved(next, -2), Impossible(next));
    const Tensor value = LogSum(next, Moved(next, -1), skipped).add(p);
    betas[t] = at::where(ctc.input_sizes.eq(t + 1), begins, value);
  }
  // Computes the probability of each label at each step, given the target.
  const Tensor both = alpha.transpose(0, 1).add(at::stack(betas));
  const Tensor share = both.sub(ctc.log_probs).add(loss.view({1, ctc.batch, 1})).exp();
  const Tensor known =
      at::where(both.eq(-std::numeric_limits<double>::infinity()), at::zeros_like(share), share);
  const Tensor index = ctc.labels.unsqueeze(0).expand(known.sizes());
  const Tensor posterior =
      at::zeros_like(log_probs, at::MemoryFormat::Contiguous).scatter_add(2, index, known);
  Tensor result = log_probs.exp().sub(posterior).mul(gradient.view({1, ctc.batch, 1}));
  const Tensor steps = at::arange(ctc.steps, ctc.labels.options()).view({-1, 1, 1});
  result = at::where(steps.lt(ctc.input_sizes.unsqueeze(0)), result, at::zeros_like(result));
  const Tensor infinite = loss.eq(std::numeric_limits<double>::infinity()).view({1, ctc.batch, 1});
  const Tensor otherwise = zero_infinity ? at::zeros_like(result) : at::full_like(result, NAN);
  return at::where(infinite.logical_and(steps.lt(ctc.input_sizes.unsqueeze(0))), otherwise, result);
}

}  // namespace

TENSORD_KERNELS(m) {
  m.impl("_embedding_bag", EmbeddingBag);
  m.impl("_embedding_bag_forward_only", EmbeddingBag);
  m.impl("_embedding_bag_backward", EmbeddingBagBackwardOf);
  m.impl("_embedding_bag_dense_backward", EmbeddingBagBackward);
  m.impl("_embedding_bag_per_sample_weights_backward", FactorsBackward);
  m.impl("_ctc_loss", CtcLoss);
  m.impl("_ctc_loss_backward", CtcLossBackward);
}

}  // namespace torch_tensord
