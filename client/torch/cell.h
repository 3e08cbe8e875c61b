// The storage of a tensor, and how kernels read and write it.
//
// A storage is a cell that holds the current immutable value of the server, in the order of the
// storage. A torch tensor is geometry on it: sizes, strides, offset. An op in place gives the cell
// a new value. All views of the storage see it. A storage that was never written has zeros.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "value.h"

namespace torch_tensord {

// A view that a kernel has read, kept until the cell gets another value.
struct CachedView {
  c10::DimVector sizes, strides;
  int64_t offset;
  Value value;
};

// A lock that is held for a few instructions. The holder calls no function of the table.
class SpinLock {
 public:
  void lock() {
    while (flag_.test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_;
};

class TakenValue;

class Cell final : public c10::StorageImpl {
 public:
  Cell(size_t size_bytes, c10::DataPtr data, bool resizable);
  ~Cell() override = default;

  // Null if the storage was never written. It may have another dtype or number of elements than the
  // storage, if the storage was resized or written as another dtype. If another thread has taken
  // the value (TakenValue), waits until that thread has replaced it or put it back. If a signal's
  // handler raises an exception meanwhile, throws it.
  Value value() const {
    {
      std::lock_guard<SpinLock> lock(lock_);
      if (C10_LIKELY(value_)) return value_;
    }
    return AwaitValue();
  }
  void Set(Value value) {
    if (C10_UNLIKELY(base_ != nullptr)) return SetPart(value);
    std::unique_ptr<std::vector<CachedView>> views;  // released after the lock
    std::lock_guard<SpinLock> lock(lock_);
    taker_ = nullptr;
    views.swap(views_);
    value_.swap(value);
  }
  // If the storage was never written, sets the value. Returns the value that it has now. Waits as
  // value() does.
  Value SetIfEmpty(const Value& value);

  Value FindView(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset,
                 at::ScalarType dtype) const;
  void AddView(const Value& of, CachedView view);

 private:
  friend class TakenValue;
  // Sets `value` to the value, and returns true. If another thread has taken it, returns false.
  bool Look(Value& value) const;
  Value AwaitValue() const;
  void Take(TakenValue& taker);
  Value Part() const;
  void SetPart(const Value& value);

  // A slice of another storage has that storage's bytes from `start_` on, and no value of its own.
  // The data pointer keeps the other storage.
  Cell* const base_ = nullptr;
  const int64_t start_ = 0;
  mutable SpinLock lock_;
  TakenValue* taker_ = nullptr;  // has the value
  Value value_;
  std::unique_ptr<std::vector<CachedView>> views_;
};

// The value of a cell, taken out of it, so that the op that computes the new value may overwrite
// it. Other threads that read the cell wait as long as this object has the value. If the op waits,
// and a signal's handler reads the cell on the same thread, the handler gets the old value.
class TakenValue {
 public:
  // If another thread has taken the value, waits as Cell::value() does. The cell must outlive this
  // object.
  explicit TakenValue(Cell* cell) : cell_(cell) { cell->Take(*this); }
  // Unless Set was called, puts the value back.
  ~TakenValue();
  TakenValue(const TakenValue&) = delete;
  TakenValue& operator=(const TakenValue&) = delete;

  // Null if the storage was never written.
  const Value& get() const { return value_; }
  // Returns 1 if nothing else has the value, otherwise 0: the bit for Push's `donated`.
  uint32_t donated() const { return value_.use_count() == 1 ? 1 : 0; }
  // Gives the cell its new value.
  void Set(Value value) { cell_->Set(std::move(value)); }

 private:
  friend class Cell;
  Cell* const cell_;
  const std::thread::id thread_ = std::this_thread::get_id();
  Value value_;
};

// The allocator that only cells have.
extern at::Allocator* const kCellAllocator;
// Throws the error of a function that takes a pointer to memory of a device.
[[noreturn]] void ThrowNoPointers();
// Throws the error of a kernel that read a tensor without a cell.
[[noreturn]] void ThrowNotACell(const at::Tensor& tensor);

inline Cell* CellOf(const at::Tensor& tensor) {
  c10::StorageImpl* const storage =
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  // PyTorch's from_blob makes storages of another class.
  if (C10_UNLIKELY(storage == nullptr || storage->allocator() != kCellAllocator))
    ThrowNotACell(tensor);
  return static_cast<Cell*>(storage);
}
inline bool IsOurs(const at::Tensor& tensor) { return tensor.is_privateuseone(); }

// Returns an address that no memory has, as the data pointer of a storage.
c10::DataPtr FakeAddress(size_t size_bytes, c10::DeviceIndex device);

// Makes a tensor with a storage of its own.
at::Tensor MakeContiguous(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceIndex device);
at::Tensor MakeStrided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                       c10::DeviceIndex device);
// Makes a contiguous tensor with this value.
at::Tensor MakeTensor(const Value& value, c10::DeviceIndex device);
// Makes a tensor with this value and the strides of a memory format.
at::Tensor MakeInFormat(const Value& value, c10::DeviceIndex device, at::MemoryFormat format);
// Makes a tensor of the sizes, dtype and device of `like`, with the order of its axes in memory.
at::Tensor MakeLike(const at::Tensor& like, at::ScalarType dtype);
inline at::Tensor MakeLike(const at::Tensor& like) { return MakeLike(like, like.scalar_type()); }
// Makes another tensor on the storage of `tensor`.
at::Tensor Alias(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                 int64_t offset);

// Returns whether the tensor is contiguous and has all elements of its storage.
inline bool IsWhole(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return impl->is_contiguous() && impl->storage_offset() == 0 &&
         static_cast<size_t>(impl->numel()) * tensor.element_size() == CellOf(tensor)->nbytes();
}
// Returns whether the strides are those of a new contiguous tensor, also for axes of size 1. If so,
// PyTorch's results have such strides, too.
inline bool IsRowMajor(const at::Tensor& tensor) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (!impl->is_contiguous()) return false;
  const at::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (strides[d] != expected) return false;
    expected *= std::max<int64_t>(sizes[d], 1);
  }
  return true;
}
// Returns an alias in which each axis with the stride 0 has the size 1.
at::Tensor WithoutRepeats(const at::Tensor& tensor);
// Returns whether the tensor has each element of its storage once, in any order of axes.
bool CoversStorage(const at::Tensor& tensor);
// Returns the axes from the greatest stride to the smallest.
c10::DimVector MemoryOrder(const at::Tensor& tensor);

// Changes the size of a storage, which must be resizable. At size 0, the server frees the memory.
void ResizeStorage(Cell* cell, size_t size_bytes);
// Returns all elements of the storage as a value of this dtype, of any shape.
Value ReadStorage(Cell* cell, at::ScalarType dtype);
// Returns the tensor's elements as a value with its sizes.
Value Read(const at::Tensor& tensor);
// Returns a value that broadcasts to the tensor: axes with the stride 0 have the size 1.
Value ReadForBroadcast(const at::Tensor& tensor);
// Sets the elements of `tensor`. The value is converted to its dtype, and broadcast to its sizes.
void Write(const at::Tensor& tensor, Value value);

}  // namespace torch_tensord
