// Kernels that find elements: searchsorted, nonzero.
#include <algorithm>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/kernel_table.h"
#include "tensord/server/device/cpu/storage_types.h"
#include "tensord/server/device/cpu/strided_copy.h"
#include "tensord/server/device/sort_key.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

// ---------------------------------------------------------------- searchsorted

// Sorted rows, and the elements that are searched for.
struct SortedSearch {
  const void* sorted;  // [rows][n]
  int64_t rows;
  int64_t n;
  const void* x;  // [rows][m]
  int64_t m;
  bool right;
  int64_t* out;  // [rows][m]
};

// Returns the number of elements of sorted[0, n) with a key below `key`, or at most `key` if
// `right`. If the elements aren't in order, returns any number from 0 to n.
template <typename T>
int64_t CountBefore(const T* sorted, int64_t n, SortKey<T> key, bool right) {
  int64_t first = 0;
  while (n > 0) {
    const int64_t half = n / 2;
    const SortKey<T> middle = SortKeyOf(sorted[first + half]);
    const bool before = middle < key || (right && middle == key);
    first += before ? half + 1 : 0;
    n = before ? n - half - 1 : half;
  }
  return first;
}

template <typename T>
struct SearchFamily {
  static void Run(const Context& ctx, const SortedSearch& search) {
    // A search takes about as long as 16 cheap elements, and longer in a long row.
    ctx.team.For(search.rows * search.m, kGrainElements / 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = search.rows == 1 ? 0 : i / search.m;
        search.out[i] = CountBefore(static_cast<const T*>(search.sorted) + row * search.n, search.n,
                                    SortKeyOf(static_cast<const T*>(search.x)[i]), search.right);
      }
    });
  }
};

using SearchFunction = void (*)(const Context& ctx, const SortedSearch& search);
constexpr FunctionByDType<SearchFunction> kSearch =
    RunByDType<SearchFunction, SearchFamily>(NumericStorageTypes());

absl::Status SearchSortedKernel(const Context& ctx, const KernelCall& call) {
  const TensorSpec& sorted = *call.inputs[0].spec;
  const SearchFunction run = kSearch[Index(sorted.dtype)];
  if (run == nullptr) return NoKernel(call);
  const int64_t elements = call.output().spec->num_elements();
  if (elements == 0) return absl::OkStatus();
  const int rank = sorted.shape.rank();
  int64_t rows = 1;
  for (int i = 0; i + 1 < rank; ++i) rows *= sorted.shape.dim(i);
  run(ctx, {call.inputs[0].data, rows, sorted.shape.dim(rank - 1), call.inputs[1].data,
            elements / rows, call.attrs->Bool("right"), call.output().AsMutable<int64_t>()});
  return absl::OkStatus();
}

// ---------------------------------------------------------------- nonzero

// The elements to search, in parts.
struct Elements {
  const void* x;
  uint64_t mask;  // NonzeroMask()
  int64_t n;
  int64_t part;  // the number of elements of a part, except the last
  int64_t parts;

  int64_t End(int64_t p) const { return std::min(n, (p + 1) * part); }
};

// Returns a mask: an element isn't zero if it has at least one of these bits.
uint64_t NonzeroMask(DType dtype) {
  if (!IsFloating(dtype)) return ~uint64_t{0};
  return (uint64_t{1} << (8 * SizeOf(dtype) - 1)) - 1;  // without the sign
}

constexpr int64_t kNonzeroPart = 64 * 1024;
constexpr int64_t kMaxNonzeroParts = 64 * 1024;

template <typename Unit>
int64_t CountInPart(const Elements& elements, int64_t p) {
  const Unit* const x = static_cast<const Unit*>(elements.x);
  const auto mask = static_cast<Unit>(elements.mask);
  int64_t count = 0;
  for (int64_t i = p * elements.part; i < elements.End(p); ++i) count += (x[i] & mask) != 0 ? 1 : 0;
  return count;
}

// Writes the positions of the first `count` elements of a part that aren't zero.
template <typename Unit>
void FindInPart(const Elements& elements, int64_t p, int64_t count, int64_t* positions) {
  const Unit* const x = static_cast<const Unit*>(elements.x);
  const auto mask = static_cast<Unit>(elements.mask);
  int64_t found = 0;
  for (int64_t i = p * elements.part; found < count && i < elements.End(p); ++i) {
    positions[found] = i;
    found += (x[i] & mask) != 0 ? 1 : 0;
  }
}

struct NonzeroFunctions {
  int64_t (*count)(const Elements& elements, int64_t p);
  void (*find)(const Elements& elements, int64_t p, int64_t count, int64_t* positions);
};
// Indexed by element size (SizeIndex).
constexpr NonzeroFunctions kNonzero[kSizeCount] = {{CountInPart<uint8_t>, FindInPart<uint8_t>},
                                                   {CountInPart<uint16_t>, FindInPart<uint16_t>},
                                                   {CountInPart<uint32_t>, FindInPart<uint32_t>},
                                                   {CountInPart<uint64_t>, FindInPart<uint64_t>}};

// Replaces the positions in columns [first, last) of out's last row by the indices on each axis.
void Unravel(const Shape& shape, int64_t size, int64_t first, int64_t last, int64_t* out) {
  const int rank = shape.rank();
  int64_t* const positions = out + (rank - 1) * size;
  for (int64_t column = first; column < last; ++column) {
    int64_t rest = positions[column];
    for (int axis = rank - 1; axis > 0; --axis) {
      const int64_t quotient = rest / shape.dim(axis);
      out[axis * size + column] = rest - quotient * shape.dim(axis);
      rest = quotient;
    }
    out[column] = rest;
  }
}

// Sets firsts[p] to the number of elements before part p that aren't zero, p in [0, parts].
void FindFirstColumns(const Context& ctx, const NonzeroFunctions& functions,
                      const Elements& elements, int64_t* firsts) {
  const double grain = kGrainElements / static_cast<double>(elements.part);
  ctx.team.For(elements.parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) firsts[p] = functions.count(elements, p);
  });
  if (MustStop()) return;
  int64_t total = 0;
  for (int64_t p = 0; p < elements.parts; ++p) total += std::exchange(firsts[p], total);
  firsts[elements.parts] = total;
}

void PadWithZeros(const Context& ctx, int64_t rank, int64_t size, int64_t first, int64_t* out) {
  const int64_t zero = 0;
  for (int64_t axis = 0; axis < rank; ++axis) {
    Fill(ctx, &zero, 8, out + axis * size + first, size - first);
  }
}

absl::Status NonzeroKernel(const Context& ctx, const KernelCall& call) {
  const TensorSpec& x = *call.inputs[0].spec;
  const NonzeroFunctions& functions = kNonzero[SizeIndex(SizeOf(x.dtype))];
  if (call.output().spec->num_elements() == 0) return absl::OkStatus();
  const int64_t size = call.output().spec->shape.dim(1);
  auto* const out = call.output().AsMutable<int64_t>();
  const int rank = x.shape.rank();
  Elements elements = {call.inputs[0].data, NonzeroMask(x.dtype), x.num_elements(), 0, 0};
  elements.part = std::max(kNonzeroPart, (elements.n + kMaxNonzeroParts - 1) / kMaxNonzeroParts);
  elements.parts = (elements.n + elements.part - 1) / elements.part;
  TENSORD_ASSIGN_OR_RETURN(const Scratch scratch, MakeScratch(call, (elements.parts + 1) * 8));
  auto* const firsts = scratch.As<int64_t>();
  FindFirstColumns(ctx, functions, elements, firsts);
  if (MustStop()) return absl::OkStatus();  // the counts may be incomplete
  const double grain = kGrainElements / 8 / static_cast<double>(elements.part);
  ctx.team.For(elements.parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = std::min(size, firsts[p]), last = std::min(size, firsts[p + 1]);
      functions.find(elements, p, last - first, out + (rank - 1) * size + first);
      Unravel(x.shape, size, first, last, out);
    }
  });
  PadWithZeros(ctx, rank, size, std::min(size, firsts[elements.parts]), out);
  return absl::OkStatus();
}

}  // namespace

void AppendSearchKernels(KernelTable& table) {
  table["searchsorted"] = SearchSortedKernel;
  table["nonzero"] = NonzeroKernel;
}

}  // namespace tensord::server::cpu
