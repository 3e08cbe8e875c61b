// Sorting and searching. Names and meanings are PyTorch's.
//
// As in ops.h, no function waits, errors are in the results' statuses, and all functions are
// thread-safe. The order is ascending: NaN is greater than all numbers, and -0 equals 0. Elements
// may have any dtype except the complex ones, unless a comment says otherwise.
#pragma once

#include <cstdint>

#include "tensord/client/tensor.h"

namespace tensord {

// Two results of one op, of the same shape. They can be unpacked: auto [values, indices] = Sort(x).
struct ValuesAndIndices {
  Tensor values;   // the dtype of the input
  Tensor indices;  // int64, along the axis, from 0 on
};

struct SortOptions {
  int64_t axis = -1;        // a negative axis counts from the end
  bool descending = false;  // the greatest first, NaN before all numbers
};
// Sorts along an axis. Both results have the shape of x. Equal elements keep their order, also if
// `descending`. If the axis is out of range, both results have INVALID_ARGUMENT.
ValuesAndIndices Sort(const Tensor& x, const SortOptions& options = {});
// Returns the indices of Sort.
Tensor ArgSort(const Tensor& x, const SortOptions& options = {});

struct TopKOptions {
  int64_t axis = -1;    // a negative axis counts from the end
  bool largest = true;  // false: the smallest elements
};
// Returns the k largest (or smallest) elements along an axis, sorted: (…,n,…) -> (…,k,…). Of equal
// elements, those with the lowest indices are selected, and come first. If k isn't from 0 to n, or
// x is bool, or the axis is out of range, both results have INVALID_ARGUMENT.
ValuesAndIndices TopK(const Tensor& x, int64_t k, const TopKOptions& options = {});

struct SearchSortedOptions {
  bool right = false;  // the index after equal elements, not the one before them
};
// Returns, for each element of x, the index (int64) at which it can be inserted into `sorted` so
// that the order remains. The result has the shape of x. If `sorted` has one dimension, x may have
// any shape. Otherwise `sorted` is (…,n), x is (…,m) with the same leading dimensions, and each row
// of `sorted` is searched for the elements of the same row of x. The dtypes are promoted. If
// `sorted` isn't in the order of Sort, the indices are unspecified, from 0 to n. If the shapes
// don't fit, or a dtype is bool, the result has INVALID_ARGUMENT.
Tensor SearchSorted(const Tensor& sorted, const Tensor& x, const SearchSortedOptions& options = {});

// Returns the indices (int64) of the elements that aren't zero, in row-major order: (rank,size).
// Each column is an index. If there are more than `size` such elements, the others are left out. If
// there are fewer, columns of zeros follow. NaN isn't zero. If `size` is negative or too large, the
// result has INVALID_ARGUMENT.
Tensor NonZero(const Tensor& x, int64_t size);

}  // namespace tensord
