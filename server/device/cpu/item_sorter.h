// Sorts the items of one row (../sort_key.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tensord/server/device/cpu/team.h"
#include "tensord/server/device/sort_key.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {

// Sorts n > 0 items by their keys, which are below 2^key_bits, and then by their indices. Item is
// PackedSortItem or WideSortItem. Short rows are sorted by std::sort, longer ones by a radix sort
// that begins with the lowest digit. A team of several threads counts and moves the parts of a long
// row in parallel. The result doesn't depend on the team, because all items are different.
template <typename Item>
class ItemSorter {
 public:
  // Returns the size of the memory that a sorter uses.
  static int64_t ScratchBytes(const Team& team, int64_t n, int key_bits) {
    const Plan plan(team, n, key_bits);
    return 2 * ItemBytes(n) + plan.counts() * static_cast<int64_t>(sizeof(Count));
  }

  // `scratch` is aligned to 64 bytes. It and the team must outlive the sorter.
  ItemSorter(const Team& team, int64_t n, int key_bits, void* scratch)
      : team_(team), n_(n), plan_(team, n, key_bits) {
    auto* memory = static_cast<char*>(scratch);
    items_ = reinterpret_cast<Item*>(memory);
    other_ = reinterpret_cast<Item*>(memory + ItemBytes(n));
    counts_ = reinterpret_cast<Count*>(memory + 2 * ItemBytes(n));
  }

  // Calls source(i), which returns item i, and then sink(position, item), once for each item, on
  // any thread of the team. If the op must stop, returns early.
  template <typename Source, typename Sink>
  void Sort(Source source, Sink sink) {
    if (plan_.parts > 1) return SortInParts(source, sink);
    if (plan_.passes > 0) {
      return plan_.digit_bits == kLongDigitBits ? SortByRadix<kLongDigitBits>(source, sink)
                                                : SortByRadix<kDigitBits>(source, sink);
    }
    for (int64_t i = 0; i < n_; ++i) items_[i] = source(i);
    std::sort(items_, items_ + n_);
    for (int64_t i = 0; i < n_; ++i) sink(i, items_[i]);
  }

 private:
  using Count = std::conditional_t<sizeof(Item) == 8, uint32_t, uint64_t>;

  // Below this number of items, std::sort is faster than the radix sort.
  static constexpr int64_t kMinRadixItems = 64;
  // From this number of items on, fewer passes with longer digits are faster.
  static constexpr int64_t kMinLongDigitItems = 128 * 1024;
  static constexpr int kDigitBits = 8, kLongDigitBits = 11;
  static constexpr int64_t kPartItems = 64 * 1024;
  static constexpr int64_t kMaxParts = 4096;  // bounds the memory of the counts
  // The time for an item, relative to a cheap elementwise op.
  static constexpr double kCost = 8;

  struct Plan {
    Plan(const Team& team, int64_t n, int key_bits) {
      if (n < kMinRadixItems) return;
      const bool has_long_digits = key_bits > 16 && n >= kMinLongDigitItems;
      digit_bits = has_long_digits ? kLongDigitBits : kDigitBits;
      digits = int64_t{1} << digit_bits;
      passes = (key_bits + digit_bits - 1) / digit_bits;
      if (team.threads() == 1 || n < 2 * kPartItems) return;
      part = std::max(kPartItems, (n + kMaxParts - 1) / kMaxParts);
      parts = (n + part - 1) / part;
    }

    // One part needs the counts of all passes. Several parts count before each pass.
    int64_t counts() const { return digits * (parts > 1 ? parts : passes); }

    int digit_bits = 0;
    int64_t digits = 0;  // the number of different digits
    int passes = 0;      // 0: std::sort
    int64_t part = 0;    // the number of items of each part except the last
    int64_t parts = 1;
  };

  static int64_t ItemBytes(int64_t n) {
    return (n * static_cast<int64_t>(sizeof(Item)) + 63) / 64 * 64;
  }

  uint64_t DigitOf(const Item& item, int pass) const {
    return KeyOf(item) >> (pass * plan_.digit_bits) & static_cast<uint64_t>(plan_.digits - 1);
  }

  // Replaces the counts of each digit by the position of the first item with this digit. Returns
  // false if all items have the same digit.
  bool ToPositions(Count* counts) const {
    Count position = 0;
    for (int64_t digit = 0; digit < plan_.digits; ++digit) {
      if (counts[digit] == static_cast<Count>(n_)) return false;
      position += std::exchange(counts[digit], position);
    }
    return true;
  }

  // Does the same for the counts of all parts, counts_[parts][digits].
  bool PartsToPositions() const {
    Count position = 0;
    for (int64_t digit = 0; digit < plan_.digits; ++digit) {
      const Count first = position;
      for (int64_t part = 0; part < plan_.parts; ++part) {
        position += std::exchange(counts_[part * plan_.digits + digit], position);
      }
      if (position - first == static_cast<Count>(n_)) return false;
    }
    return true;
  }

  // Calls fn(i) for all items in order, on the calling thread. If the op must stop, returns false.
  // Some calls are then missing, so the caller must not use items and counts as positions.
  template <typename Fn>
  bool ForItems(Fn fn) const {
    Team::InPieces(0, n_, kGrainElements / kCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) fn(i);
    });
    return !MustStop();
  }

  // Calls sink(position, item) for all items, ordered by the digit that begins at bit `shift`.
  template <int kBits, typename Source, typename Sink>
  bool MoveByDigit(Source source, int shift, Count* positions, Sink sink) const {
    return ForItems([=](int64_t i) {
      const Item item = source(i);
      sink(positions[KeyOf(item) >> shift & ((1 << kBits) - 1)]++, item);
    });
  }

  template <int kBits, typename Source, typename Sink>
  void SortByRadix(Source source, Sink sink) {
    constexpr int kDigits = 1 << kBits;
    const int passes = plan_.passes;
    Count* const counts = counts_;  // a local copy: the stores below can't change it
    std::fill(counts, counts + passes * kDigits, Count{0});
    const bool counted = ForItems([=](int64_t i) {
      uint64_t key = KeyOf(source(i));
      for (int pass = 0; pass < passes; ++pass, key >>= kBits) {
        ++counts[pass * kDigits + static_cast<int>(key & (kDigits - 1))];
      }
    });
    if (!counted) return;
    int last = passes - 1;
    while (last > 0 && !ToPositions(counts + last * kDigits)) --last;
    if (last == 0 && !ToPositions(counts)) {
      ForItems([=](int64_t i) { sink(i, source(i)); });
      return;
    }
    Item* from = nullptr;  // where the items are; null: not stored yet
    Item* to = items_;
    const auto move = [&](int pass, auto result) {
      Count* const positions = counts + pass * kDigits;
      if (from == nullptr) return MoveByDigit<kBits>(source, pass * kBits, positions, result);
      const auto stored = [from](int64_t i) { return from[i]; };
      return MoveByDigit<kBits>(stored, pass * kBits, positions, result);
    };
    for (int pass = 0; pass < last; ++pass) {
      if (!ToPositions(counts + pass * kDigits)) continue;
      if (!move(pass, [to](int64_t position, const Item& item) { to[position] = item; })) return;
      from = std::exchange(to, to == items_ ? other_ : items_);
    }
    move(last, sink);
  }

  // Calls fn(part, begin, end) for the items of each part, on the team. If the op must stop,
  // returns false, as ForItems() does.
  template <typename Fn>
  bool ForParts(Fn fn) const {
    const double grain = kGrainElements / kCost / static_cast<double>(plan_.part);
    team_.For(plan_.parts, grain, [&](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        fn(part, part * plan_.part, std::min(n_, (part + 1) * plan_.part));
      }
    });
    return !MustStop();
  }

  template <typename Source, typename Sink>
  void SortInParts(Source source, Sink sink) {
    const bool made = ForParts([&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) items_[i] = source(i);
    });
    if (!made) return;
    for (int pass = 0; pass < plan_.passes; ++pass) {
      if (!CountDigits(pass)) return;
      if (!PartsToPositions()) continue;
      const bool moved = ForParts([&](int64_t part, int64_t begin, int64_t end) {
        Count* const positions = counts_ + part * plan_.digits;
        for (int64_t i = begin; i < end; ++i) {
          other_[positions[DigitOf(items_[i], pass)]++] = items_[i];
        }
      });
      if (!moved) return;
      std::swap(items_, other_);
    }
    ForParts([&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sink(i, items_[i]);
    });
  }

  bool CountDigits(int pass) {
    return ForParts([&](int64_t part, int64_t begin, int64_t end) {
      Count* const counts = counts_ + part * plan_.digits;
      std::fill(counts, counts + plan_.digits, Count{0});
      for (int64_t i = begin; i < end; ++i) ++counts[DigitOf(items_[i], pass)];
    });
  }

  const Team& team_;
  const int64_t n_;
  const Plan plan_;
  Item* items_;
  Item* other_;
  Count* counts_;
};

}  // namespace tensord::server::cpu
