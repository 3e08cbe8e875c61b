// Scans. A row is scanned in blocks of eight elements. A block takes three steps (Hillis and
// Steele, "Data parallel algorithms", 1986), and is then combined with the result so far. The order
// of operations depends only on the positions, so all levels give the same bits.
#include <string.h>

#include "tensord/server/device/cpu/isa/fill.h"

// The warning is about calls between files that are compiled for different levels. The functions
// with vectors as parameters are local to this file.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

constexpr int kScanWidth = 8;

template <typename T>
struct BlockOf {
  typedef T type __attribute__((vector_size(kScanWidth * sizeof(T))));
};
template <typename T>
using Block = typename BlockOf<T>::type;

// Integers are computed as unsigned, so that overflow is defined.
template <typename In>
using CarryOf = std::conditional_t<std::is_floating_point_v<In>, double, uint64_t>;

template <Scan scan, typename T>
T Identity() {
  return scan == Scan::kSum ? T{0} : T{1};
}
template <Scan scan, typename T>
T Combine(T a, T b) {
  return scan == Scan::kSum ? a + b : a * b;
}

// Returns a block of eight elements `value`. A difference with zero keeps the sign of a zero.
template <typename T>
Block<T> Broadcast(T value) {
  return value - Block<T>{};
}

// Returns (first, x[0], …, x[6]).
template <typename T>
Block<T> ShiftIn(Block<T> x, T first) {
  Block<T> shifted = __builtin_shufflevector(x, x, 0, 0, 1, 2, 3, 4, 5, 6);
  shifted[0] = first;
  return shifted;
}

// Scans the eight elements of a block.
template <Scan scan, typename T>
Block<T> ScanBlock(Block<T> x) {
  const Block<T> none = Broadcast(Identity<scan, T>());
  x = Combine<scan>(x, __builtin_shufflevector(none, x, 0, 8, 9, 10, 11, 12, 13, 14));
  x = Combine<scan>(x, __builtin_shufflevector(none, x, 0, 0, 8, 9, 10, 11, 12, 13));
  return Combine<scan>(x, __builtin_shufflevector(none, x, 0, 0, 0, 0, 8, 9, 10, 11));
}

template <typename T>
Block<T> Reversed(Block<T> x) {
  return __builtin_shufflevector(x, x, 7, 6, 5, 4, 3, 2, 1, 0);
}

template <Scan scan, typename In>
void ScanRow(const void* x_data, void* y_data, int64_t n, ScanMode mode, void* carry_data) {
  using Acc = CarryOf<In>;
  const auto* x = static_cast<const In*>(x_data);
  auto* y = static_cast<In*>(y_data);
  Acc* carry = static_cast<Acc*>(carry_data);
  Acc sum = Identity<scan, Acc>();  // of the elements before the block
  const auto do_block = [&](const In* from, In* to) {
    Block<In> in;
    memcpy(&in, from, sizeof(in));
    if (mode.reverse) in = Reversed<In>(in);
    const Block<Acc> scanned = ScanBlock<scan, Acc>(__builtin_convertvector(in, Block<Acc>));
    if (to != nullptr) {
      const Block<Acc> parts =
          mode.exclusive ? ShiftIn<Acc>(scanned, Identity<scan, Acc>()) : scanned;
      Block<In> out = __builtin_convertvector(
          Combine<scan>(Broadcast(*carry), Combine<scan>(Broadcast(sum), parts)), Block<In>);
      if (mode.reverse) out = Reversed<In>(out);
      memcpy(to, &out, sizeof(out));
    }
    sum = Combine<scan>(sum, Acc{scanned[kScanWidth - 1]});
  };
  const auto rest = static_cast<int>(n % kScanWidth);
  const int64_t whole = n - rest, first = mode.reverse ? rest : 0;
  for (int64_t i = 0; i < whole; i += kScanWidth) {
    const int64_t at = first + (mode.reverse ? whole - kScanWidth - i : i);
    do_block(x + at, y == nullptr ? nullptr : y + at);
  }
  if (rest > 0) {  // in a padded block
    const int64_t at = mode.reverse ? 0 : whole;
    const int begin = mode.reverse ? kScanWidth - rest : 0;
    In in[kScanWidth], out[kScanWidth];
    for (In& element : in) element = Identity<scan, In>();
    memcpy(in + begin, x + at, rest * sizeof(In));
    do_block(in, y == nullptr ? nullptr : out);
    if (y != nullptr) memcpy(y + at, out + begin, rest * sizeof(In));
  }
  *carry = Combine<scan>(*carry, sum);
}

template <Scan scan, typename In>
void ScanColumns(const void* x_data, void* y_data, int64_t rows, int64_t row_stride, int64_t cols,
                 ScanMode mode, void* carry_data) {
  using Acc = CarryOf<In>;
  Acc* __restrict carry = static_cast<Acc*>(carry_data);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = (mode.reverse ? rows - 1 - i : i) * row_stride;
    const In* __restrict x = static_cast<const In*>(x_data) + at;
    if (y_data == nullptr) {
      for (int64_t c = 0; c < cols; ++c) {
        carry[c] = Combine<scan>(carry[c], static_cast<Acc>(x[c]));
      }
      continue;
    }
    In* __restrict y = static_cast<In*>(y_data) + at;
    if (mode.exclusive) {
      for (int64_t c = 0; c < cols; ++c) {
        y[c] = static_cast<In>(carry[c]);
        carry[c] = Combine<scan>(carry[c], static_cast<Acc>(x[c]));
      }
    } else {
      for (int64_t c = 0; c < cols; ++c) {
        carry[c] = Combine<scan>(carry[c], static_cast<Acc>(x[c]));
        y[c] = static_cast<In>(carry[c]);
      }
    }
  }
}

template <Scan scan, typename Acc>
void Begin(void* carry, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<Acc*>(carry)[i] = Identity<scan, Acc>();
}

template <Scan scan, typename Acc>
void CombineCarries(void* carry_data, const void* next_data, int64_t n) {
  Acc* carry = static_cast<Acc*>(carry_data);
  const Acc* next = static_cast<const Acc*>(next_data);
  for (int64_t i = 0; i < n; ++i) carry[i] = Combine<scan>(carry[i], next[i]);
}

template <Scan scan, typename... Ins>
void FillScan(Loops& loops) {
  ((loops.scan[static_cast<int>(scan)][kIndexOf<Ins>] = {ScanRow<scan, Ins>, ScanColumns<scan, Ins>,
                                                         Begin<scan, CarryOf<Ins>>,
                                                         CombineCarries<scan, CarryOf<Ins>>}),
   ...);
}

}  // namespace

void FillScanLoops(Loops& loops) {
  FillScan<Scan::kSum, uint8_t, int8_t, int32_t, uint32_t, int64_t, uint64_t, float, double>(loops);
  FillScan<Scan::kProd, uint8_t, int8_t, int32_t, uint32_t, int64_t, uint64_t, float, double>(
      loops);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
