#include "tensord/server/device/cpu/item_sorter.h"

#include <algorithm>
#include <utility>

#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// Below this number of items, std::sort is faster than the radix sort.
constexpr int64_t kMinRadixItems = 1024;
// From this number of packed items on, fewer passes with longer digits are faster.
constexpr int64_t kMinLongDigitItems = 16 * 1024;

constexpr int64_t kSortPartItems = 64 * 1024;
constexpr int64_t kMaxSortParts = 4096;  // bounds the memory of the counts

int DigitBits(int64_t n, int key_bits, size_t item_bytes) {
  return n >= kMinLongDigitItems && key_bits > 16 && item_bytes == 8 ? 11 : 8;
}

int64_t PartItems(int64_t n) {
  return std::max(kSortPartItems, (n + kMaxSortParts - 1) / kMaxSortParts);
}

int64_t RoundUpToLine(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

template <typename Item>
int64_t ItemSorter<Item>::ScratchBytes(int64_t n, int key_bits) {
  const int64_t items = RoundUpToLine(n * static_cast<int64_t>(sizeof(Item)));
  if (n < kMinRadixItems) return items;
  const int64_t parts = (n + PartItems(n) - 1) / PartItems(n);
  const int64_t counts = parts << DigitBits(n, key_bits, sizeof(Item));
  return 2 * items + RoundUpToLine(counts * static_cast<int64_t>(sizeof(Count)));
}

template <typename Item>
ItemSorter<Item>::ItemSorter(const Team& team, int64_t n, int key_bits, void* scratch)
    : team_(team),
      n_(n),
      key_bits_(key_bits),
      digit_bits_(DigitBits(n, key_bits, sizeof(Item))),
      digits_(int64_t{1} << digit_bits_),
      part_(PartItems(n)),
      parts_((n + part_ - 1) / part_) {
  auto* memory = static_cast<char*>(scratch);
  const int64_t bytes = RoundUpToLine(n * static_cast<int64_t>(sizeof(Item)));
  items_ = reinterpret_cast<Item*>(memory);
  other_ = reinterpret_cast<Item*>(memory + bytes);
  counts_ = reinterpret_cast<Count*>(memory + 2 * bytes);
}

template <typename Item>
const Item* ItemSorter<Item>::Sort() {
  if (n_ < kMinRadixItems) {
    std::sort(items_, items_ + n_);
    return MustStop() ? nullptr : items_;
  }
  for (int shift = 0; shift < key_bits_; shift += digit_bits_) {
    if (!SortByDigit(shift)) return nullptr;
  }
  return MustStop() ? nullptr : items_;
}

template <typename Item>
bool ItemSorter<Item>::SortByDigit(int shift) {
  CountDigits(shift);
  if (MustStop()) return false;  // the counts may be incomplete
  if (!CountsToPositions()) return true;
  ForParts([&](int64_t part, int64_t begin, int64_t end) {
    Count* const position = counts_ + part * digits_;
    for (int64_t i = begin; i < end; ++i) {
      other_[position[DigitOf(items_[i], shift)]++] = items_[i];
    }
  });
  std::swap(items_, other_);
  return true;
}

template <typename Item>
void ItemSorter<Item>::CountDigits(int shift) {
  ForParts([&](int64_t part, int64_t begin, int64_t end) {
    Count* const count = counts_ + part * digits_;
    std::fill(count, count + digits_, Count{0});
    for (int64_t i = begin; i < end; ++i) ++count[DigitOf(items_[i], shift)];
  });
}

template <typename Item>
bool ItemSorter<Item>::CountsToPositions() {
  Count position = 0;
  for (int64_t digit = 0; digit < digits_; ++digit) {
    const Count first = position;
    for (int64_t part = 0; part < parts_; ++part) {
      position += std::exchange(counts_[part * digits_ + digit], position);
    }
    if (position - first == static_cast<Count>(n_)) return false;
  }
  return true;
}

template <typename Item>
template <typename Fn>
void ItemSorter<Item>::ForParts(Fn fn) const {
  // An item takes about as long as eight cheap elements.
  const double grain = kGrainElements / 8 / static_cast<double>(part_);
  team_.For(parts_, grain, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      fn(part, part * part_, std::min(n_, (part + 1) * part_));
    }
  });
}

template class ItemSorter<PackedSortItem>;
template class ItemSorter<WideSortItem>;

}  // namespace tensord::server::cpu
