#include "tensord/server/device/cpu/updates_16bit.h"

#include <algorithm>
#include <utility>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// An update of a row. The updates of one row follow each other in their order.
struct RowUpdate {
  // If all groups have the same destinations: the row of a group. Otherwise: that of the whole
  // target.
  int64_t row;
  int64_t update;  // in the same cases: the number of the update in a group, or over all groups
};

constexpr int kDigitBits = 11;
constexpr int64_t kDigits = 1 << kDigitBits;
constexpr int64_t kUpdatesPerPiece = 1 << 18;

// Sorts by one digit of the row, and keeps the order of equal ones (Knuth, "The Art of Computer
// Programming", volume 3, 5.2.5). If the op must stop, returns early.
void SortByDigit(const RowUpdate* from, RowUpdate* to, int64_t n, int shift) {
  int64_t first[kDigits + 1] = {};
  const auto digit = [shift](const RowUpdate& update) {
    return (update.row >> shift) & (kDigits - 1);
  };
  Team::InPieces(0, n, kUpdatesPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++first[digit(from[i]) + 1];
  });
  for (int64_t d = 0; d < kDigits; ++d) first[d + 1] += first[d];
  // If the loop above was stopped, this one doesn't run.
  Team::InPieces(0, n, kUpdatesPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[first[digit(from[i])]++] = from[i];
  });
}

// Sorts updates[0, n) by their rows in [0, rows). `spare` has room for n updates. Returns `updates`
// or `spare`: the one that has the result.
RowUpdate* SortByRow(RowUpdate* updates, RowUpdate* spare, int64_t n, int64_t rows) {
  for (int shift = 0; shift < 63 && (rows - 1) >> shift > 0; shift += kDigitBits) {
    SortByDigit(updates, spare, n, shift);
    std::swap(updates, spare);
  }
  return updates;
}

// The sorted updates [begin, end) of one row.
struct Segment {
  const RowUpdate* updates;
  int64_t begin, end;
};

class Combiner {
 public:
  Combiner(const Context& ctx, const KernelCall& call, BinaryLoop combine, const Updates& updates)
      : updates_(updates),
        combine_(combine),
        dtype_(call.output().spec->dtype),
        target_(call.output().data),
        widen_(ctx.loops.cast[Index(dtype_)][Index(ComputeDType(dtype_))]),
        narrow_(ctx.loops.cast[Index(ComputeDType(dtype_))][Index(dtype_)]) {}

  // Combines the row of a segment with its values. `group` is the group of all updates, or 0 if
  // they are counted over the groups.
  void Run(int64_t group, const Segment& segment) const {
    const int64_t n = updates_.row_elements;
    const int64_t row = group * updates_.rows + segment.updates[segment.begin].row;
    uint32_t sum[kBlockElements], value[kBlockElements];  // floats, or integers
    for (int64_t column = 0; column < n; column += kBlockElements) {
      const int64_t length = std::min<int64_t>(kBlockElements, n - column);
      void* const to = Advance(target_, (row * n + column) * kBytes);
      widen_(to, sum, length);
      const double grain = kGrainElements / 4 / static_cast<double>(length);
      Team::InPieces(segment.begin, segment.end, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t source = updates_.SourceOf(group, segment.updates[i].update);
          widen_(Advance(updates_.values, (source * n + column) * kBytes), value, length);
          combine_(sum, 1, value, 1, sum, length);
        }
      });
      narrow_(sum, to, length);
    }
  }

 private:
  static constexpr int64_t kBytes = 2;

  const Updates& updates_;
  const BinaryLoop combine_;
  const DType dtype_;
  void* const target_;
  const CastLoop widen_, narrow_;
};

// Calls fn for the segments of sorted[0, n) whose first update is in [begin, end).
template <typename Fn>
void ForEachSegment(const RowUpdate* sorted, int64_t n, int64_t begin, int64_t end, Fn fn) {
  while (begin < end && begin > 0 && sorted[begin].row == sorted[begin - 1].row) ++begin;
  while (begin < end) {
    int64_t next = begin + 1;
    while (next < n && sorted[next].row == sorted[begin].row) ++next;
    fn(Segment{sorted, begin, next});
    begin = next;
  }
}

}  // namespace

absl::Status Combine16BitRows(const Context& ctx, const KernelCall& call, BinaryLoop combine,
                              const Updates& updates) {
  // If the groups have different destinations, sorts the updates of all groups at once.
  const bool shared = updates.group_stride == 0;
  const int64_t n = shared ? updates.count : updates.groups * updates.count;
  const int64_t rows = shared ? updates.rows : updates.groups * updates.rows;
  const auto bytes = 2 * n * static_cast<int64_t>(sizeof(RowUpdate));
  TENSORD_ASSIGN_OR_RETURN(Scratch scratch, MakeScratch(call, bytes));
  auto* const unsorted = static_cast<RowUpdate*>(scratch.data());
  ctx.team.For(n, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      unsorted[i] = {i / updates.count * updates.rows + updates.destinations[i], i};
    }
  });
  TENSORD_RETURN_IF_ERROR(CheckStop());
  const RowUpdate* const sorted = SortByRow(unsorted, unsorted + n, n, rows);
  TENSORD_RETURN_IF_ERROR(CheckStop());
  const Combiner combiner(ctx, call, combine, updates);
  const double grain = kGrainElements / 4 / static_cast<double>(updates.row_elements);
  for (int64_t group = 0; group < (shared ? updates.groups : 1); ++group) {
    ctx.team.For(n, grain, [&](int64_t begin, int64_t end) {
      ForEachSegment(sorted, n, begin, end,
                     [&](const Segment& segment) { combiner.Run(group, segment); });
    });
  }
  return absl::OkStatus();
}

}  // namespace tensord::server::cpu
