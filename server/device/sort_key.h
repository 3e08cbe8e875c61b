// The order of the ops sort, topk and searchsorted, written once for all backends.
//
// The key of an element is an unsigned integer of the element's size. Keys have the order of the
// elements: -inf, negative numbers, zero, positive numbers, inf, NaN. Both zeros have one key, and
// so have all NaNs. The inverted key, ~key, has the descending order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tensord/common/float16.h"
#include "tensord/server/device/elementwise_math.h"

namespace tensord::server {

template <int kBytes>
struct SortBitsOf;
template <>
struct SortBitsOf<1> {
  using type = uint8_t;
};
template <>
struct SortBitsOf<2> {
  using type = uint16_t;
};
template <>
struct SortBitsOf<4> {
  using type = uint32_t;
};
template <>
struct SortBitsOf<8> {
  using type = uint64_t;
};
// The type of the key of a storage type (elementwise_math.h).
template <typename T>
using SortKey = typename SortBitsOf<sizeof(T)>::type;

// The bits of positive infinity; 0 for types that aren't floating.
template <typename T>
inline constexpr SortKey<T> kInfinityBits = 0;
template <>
inline constexpr uint16_t kInfinityBits<Half> = 0x7c00;
template <>
inline constexpr uint16_t kInfinityBits<BFloat16> = 0x7f80;
template <>
inline constexpr uint32_t kInfinityBits<float> = 0x7f800000;
template <>
inline constexpr uint64_t kInfinityBits<double> = 0x7ff0000000000000;

template <typename T>
TENSORD_HD inline SortKey<T> SortKeyOf(T value) {
  using Key = SortKey<T>;
  constexpr Key kSign = static_cast<Key>(Key{1} << (8 * sizeof(Key) - 1));
  if constexpr (std::is_same_v<T, Bool>) {
    return value.byte != 0;
  } else if constexpr (std::is_unsigned_v<T>) {
    return value;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<Key>(static_cast<Key>(value) ^ kSign);
  } else {
    const Key bits = __builtin_bit_cast(Key, value);
    const Key magnitude = static_cast<Key>(bits & ~kSign);
    const Key signed_key =
        static_cast<Key>((bits & kSign) != 0 ? kSign - magnitude : kSign + magnitude);
    return magnitude > kInfinityBits<T> ? static_cast<Key>(~Key{0}) : signed_key;
  }
}

// Returns whether all elements with this key have the same bits. Zeros and NaNs of a floating type
// don't. All bools that are true count as one element, although their bits may differ.
template <typename T>
TENSORD_HD inline bool KeyDeterminesElement(SortKey<T> key) {
  constexpr SortKey<T> kSign = static_cast<SortKey<T>>(SortKey<T>{1} << (8 * sizeof(T) - 1));
  return kInfinityBits<T> == 0 || (key != kSign && key != static_cast<SortKey<T>>(~SortKey<T>{0}));
}

// The inverse of SortKeyOf for keys that determine the element. A bool becomes 0 or 1.
template <typename T>
TENSORD_HD inline T ElementOfKey(SortKey<T> key) {
  using Key = SortKey<T>;
  constexpr Key kSign = static_cast<Key>(Key{1} << (8 * sizeof(Key) - 1));
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool{key};
  } else if constexpr (std::is_unsigned_v<T>) {
    return key;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(key ^ kSign);
  } else {
    // The magnitude of a negative element is kSign - key.
    const Key bits = static_cast<Key>((key & kSign) != 0 ? key - kSign : kSign | (kSign - key));
    return __builtin_bit_cast(T, bits);
  }
}

// An element of a row: its key in the high half, its index in the low half. The key has at most 32
// bits. The items of a row are distinct, and equal elements are ordered by their indices.
using PackedSortItem = uint64_t;

// An element of a row whose key has 64 bits.
struct alignas(16) WideSortItem {
  uint64_t key;
  uint64_t index;

  friend TENSORD_HD bool operator<(const WideSortItem& a, const WideSortItem& b) {
    return a.key != b.key ? a.key < b.key : a.index < b.index;
  }
};

template <typename T>
using SortItem = std::conditional_t<sizeof(T) <= 4, PackedSortItem, WideSortItem>;

template <typename Item>
TENSORD_HD inline Item MakeSortItem(uint64_t key, int64_t index) {
  if constexpr (std::is_same_v<Item, PackedSortItem>) {
    return key << 32 | static_cast<uint64_t>(index);
  } else {
    return {key, static_cast<uint64_t>(index)};
  }
}
TENSORD_HD inline uint64_t KeyOf(PackedSortItem item) { return item >> 32; }
TENSORD_HD inline uint64_t KeyOf(const WideSortItem& item) { return item.key; }
TENSORD_HD inline int64_t IndexOf(PackedSortItem item) {
  return static_cast<int64_t>(item & 0xffffffff);
}
TENSORD_HD inline int64_t IndexOf(const WideSortItem& item) {
  return static_cast<int64_t>(item.index);
}

// Returns the element's item for the ascending or the descending order.
template <typename T, typename Item = SortItem<T>>
TENSORD_HD inline Item SortItemOf(T value, int64_t index, bool descending) {
  const SortKey<T> key = SortKeyOf(value);
  return MakeSortItem<Item>(descending ? static_cast<SortKey<T>>(~key) : key, index);
}

}  // namespace tensord::server
