// Sorts the items of one row (../sort_key.h).
#pragma once

#include <cstdint>

#include "tensord/server/device/cpu/team.h"
#include "tensord/server/device/sort_key.h"

namespace tensord::server::cpu {

// Short rows are sorted by std::sort, longer ones by a radix sort that begins with the lowest
// digit. The parts of a long row are counted and moved in parallel. The result doesn't depend on
// the number of threads, because the items of a row are distinct. For Item = PackedSortItem and
// WideSortItem.
template <typename Item>
class ItemSorter {
 public:
  // Returns the size of the memory that a sorter of `n` items uses.
  static int64_t ScratchBytes(int64_t n, int key_bits);

  // Sorts n > 0 items by their keys, which are below 2^key_bits, and then by their indices.
  // `scratch` is aligned to 64 bytes. It and the team must outlive the sorter.
  ItemSorter(const Team& team, int64_t n, int key_bits, void* scratch);

  // Returns the n items. The caller writes them in the order of their indices.
  Item* items() { return items_; }

  // Returns the sorted items. If the op must stop, returns null.
  const Item* Sort();

 private:
  using Count = std::conditional_t<sizeof(Item) == 8, uint32_t, uint64_t>;

  // Moves the items to other_, ordered by the digit that begins at bit `shift` of the key, and
  // swaps items_ and other_. If all items have the same digit, does nothing. If the op must stop,
  // returns false.
  bool SortByDigit(int shift);
  void CountDigits(int shift);
  // Replaces the counts by the positions of the first item of each part with each digit. Returns
  // false if all items have the same digit.
  bool CountsToPositions();

  uint64_t DigitOf(const Item& item, int shift) const {
    return KeyOf(item) >> shift & (static_cast<uint64_t>(digits_) - 1);
  }
  // Calls fn(part, begin, end) for the items of each part.
  template <typename Fn>
  void ForParts(Fn fn) const;

  const Team& team_;
  const int64_t n_;
  const int key_bits_;
  const int digit_bits_;
  const int64_t digits_;  // the number of different digits
  const int64_t part_;    // the number of items of a part, except the last
  const int64_t parts_;
  Item* items_;
  Item* other_;
  Count* counts_;  // [parts_][digits_]
};

extern template class ItemSorter<PackedSortItem>;
extern template class ItemSorter<WideSortItem>;

}  // namespace tensord::server::cpu
