#include "cell.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <numeric>
#include <thread>

namespace torch_tensord {
namespace {

constexpr size_t kMaxViews = 4;
constexpr size_t kMaxKeptPartBytes = 64 << 10;
constexpr size_t kAddressAlignment = 64;

std::atomic<uint64_t> next_address{uint64_t{1} << 62};

// Storages made through PyTorch's allocator get their address here, and their cell from MakeCell.
// The statistics are those of the device's memory, for all clients of its server. There is no cache
// in this process.
struct AddressAllocator final : c10::DeviceAllocator {
  at::DataPtr allocate(size_t size_bytes) override {
    return FakeAddress(size_bytes, CurrentDevice());
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "tensord: a storage has no address in this process");
  }

  bool initialized() override { return IsInitialized(); }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const at::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const TensordMemory memory = MemoryOf(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* each : {&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes}) {
      (*each)[kAll].current = memory.used_bytes;
      (*each)[kAll].peak = memory.peak_bytes;
    }
    return stats;  // the server doesn't count the other numbers, so they are 0
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const TensordMemory memory = MemoryOf(device);
    return {static_cast<size_t>(std::max<int64_t>(memory.limit_bytes - memory.used_bytes, 0)),
            static_cast<size_t>(memory.limit_bytes)};
  }
};
AddressAllocator address_allocator;
REGISTER_ALLOCATOR(at::kPrivateUse1, &address_allocator);

c10::intrusive_ptr<c10::StorageImpl> MakeCell(c10::StorageImpl::use_byte_size_t, c10::SymInt size,
                                              at::DataPtr data, at::Allocator*, bool resizable) {
  const auto bytes = static_cast<size_t>(size.guard_int(__FILE__, __LINE__));
  if (!data) {
    const at::Device device = data.device();
    data = FakeAddress(bytes, device.is_privateuseone() ? device.index() : CurrentDevice());
  }
  return c10::make_intrusive<Cell>(bytes, std::move(data), resizable);
}
const bool registered = [] {
  c10::SetStorageImplCreate(at::kPrivateUse1, &MakeCell);
  return true;
}();

at::Tensor MakeOn(c10::intrusive_ptr<c10::StorageImpl> storage, at::ScalarType dtype) {
  return at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
}

// Cuts or fills the value to a number of elements.
Value Resize(const Value& flat, int64_t numel, c10::DeviceIndex device) {
  const int64_t has = flat->numel();
  if (has == numel) return flat;
  const Value line = Reshape(flat, {has});
  if (has > numel) return Narrow(line, 0, 0, numel);
  return Concat({line, Zeros(device, {numel - has}, flat->dtype())}, 0);
}

// Returns all elements of a cell that has `value`, which may be null, as a value of this dtype.
Value StorageOf(Value value, const Cell* cell, at::ScalarType dtype) {
  const c10::DeviceIndex device = cell->device().index();
  const auto numel = static_cast<int64_t>(cell->nbytes() / c10::elementSize(dtype));
  if (!value) return Zeros(device, {numel}, dtype);
  if (value->dtype() != dtype) {
    const auto ratio =
        static_cast<int64_t>(c10::elementSize(dtype) / c10::elementSize(value->dtype()));
    value = Reshape(value, {value->numel()});
    if (ratio > 1 && value->numel() % ratio != 0)
      value = Resize(value, value->numel() / ratio * ratio, device);
    value = Bitcast(value, dtype);
  }
  return Resize(value, numel, device);
}

}  // namespace

at::Allocator* const kCellAllocator = &address_allocator;

void ThrowNotACell(const at::Tensor& tensor) {
  if (tensor.defined() && !IsOurs(tensor)) {
    ThrowOtherDevice("", {at::kPrivateUse1, CurrentDevice()}, tensor.device());
  }
  ThrowNoPointers();
}

void ThrowNoPointers() {
  C10_THROW_ERROR(NotImplementedError,
                  "tensord: a tensor can't be made from a pointer, because devices have no "
                  "memory in this process; copy it with x.cpu() or x.to('tensord')");
}

// A data pointer of FakeAddress has no context. PyTorch gives a slice of a storage a data pointer
// into this storage, with the storage as its context.
Cell::Cell(size_t size_bytes, c10::DataPtr data, bool resizable)
    : StorageImpl(use_byte_size_t(), static_cast<int64_t>(size_bytes), std::move(data),
                  &address_allocator, resizable),
      base_(static_cast<Cell*>(static_cast<c10::StorageImpl*>(data_ptr().get_context()))),
      start_(base_ == nullptr ? 0
                              : static_cast<const char*>(data_ptr().get()) -
                                    static_cast<const char*>(base_->data())) {}

Value Cell::Part() const {
  const Value all = Reshape(ReadStorage(base_, at::kByte), {static_cast<int64_t>(base_->nbytes())});
  return Narrow(all, 0, start_, start_ + static_cast<int64_t>(nbytes()));
}

void Cell::SetPart(const Value& value) {
  const Value bytes = Bitcast(Reshape(value, {value->numel()}), at::kByte);
  const Value part = Reshape(bytes, {bytes->numel()});
  TakenValue taken(base_);
  const Value all =
      Reshape(StorageOf(taken.get(), base_, at::kByte), {static_cast<int64_t>(base_->nbytes())});
  taken.Set(
      Push("as_strided_scatter", {all, part},
           {{"shape", part->sizes()}, {"strides", at::IntArrayRef({1})}, {"offset", start_}}));
}

bool Cell::Look(Value& value) const {
  std::lock_guard<SpinLock> lock(lock_);
  if (taker_ != nullptr && taker_->thread_ != std::this_thread::get_id()) return false;
  value = taker_ == nullptr ? value_ : taker_->value_;
  return true;
}

// The thread that has taken the value sends one op, and then sets the new value. So this rarely
// waits longer than a few microseconds. If the queue of commands is full, it may take longer, and
// the other thread may need the interpreter's lock, which wait_until releases.
Value Cell::AwaitValue() const {
  if (base_ != nullptr) return Part();
  constexpr int kYields = 256;
  struct State {
    const Cell* cell;
    Value found;
    bool done = false;
    bool Look() { return done = cell->Look(found); }
  } state{this, {}};
  for (int i = 0; i < kYields; ++i) {
    if (state.Look()) return state.found;
    std::this_thread::yield();
  }
  Api().wait_until([](void* each) -> int { return static_cast<State*>(each)->Look() ? 1 : 0; },
                   &state);
  if (!state.done) ThrowInterrupted();
  return state.found;
}

Value Cell::SetIfEmpty(const Value& value) {
  if (base_ != nullptr) return Part();
  while (true) {
    {
      std::lock_guard<SpinLock> lock(lock_);
      if (taker_ == nullptr) {
        if (!value_) value_ = value;
        return value_;
      }
      if (taker_->thread_ == std::this_thread::get_id()) {
        return taker_->value_ ? taker_->value_ : value;
      }
    }
    AwaitValue();
  }
}

void Cell::Take(TakenValue& taker) {
  if (base_ != nullptr) {
    taker.value_ = Part();
    return;
  }
  std::unique_ptr<std::vector<CachedView>> views;  // released after the lock
  while (true) {
    {
      std::lock_guard<SpinLock> lock(lock_);
      if (C10_LIKELY(taker_ == nullptr)) {
        taker_ = &taker;
        views.swap(views_);
        taker.value_.swap(value_);
        return;
      }
      TORCH_CHECK(taker_->thread_ != taker.thread_,
                  "tensord: a signal's handler can't change a tensor in place while the op that it "
                  "has interrupted changes the same tensor: set a flag in the handler, and change "
                  "the tensor after the op");
    }
    AwaitValue();
  }
}

TakenValue::~TakenValue() {
  std::lock_guard<SpinLock> lock(cell_->lock_);
  if (cell_->taker_ != this) return;
  cell_->taker_ = nullptr;
  cell_->value_.swap(value_);
}

Value Cell::FindView(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset,
                     at::ScalarType dtype) const {
  std::lock_guard<SpinLock> lock(lock_);
  if (views_ == nullptr) return {};
  for (const CachedView& view : *views_) {
    if (view.offset == offset && sizes.equals(view.sizes) && strides.equals(view.strides) &&
        view.value->dtype() == dtype) {
      return view.value;
    }
  }
  return {};
}

void Cell::AddView(const Value& of, CachedView view) {
  std::vector<CachedView> removed;
  std::lock_guard<SpinLock> lock(lock_);
  if (value_ != of) return;  // another thread has written
  if (views_ == nullptr) views_ = std::make_unique<std::vector<CachedView>>();
  if (views_->size() >= kMaxViews) {
    removed.push_back(std::move(views_->front()));
    views_->erase(views_->begin());
  }
  views_->push_back(std::move(view));
}

c10::DataPtr FakeAddress(size_t size_bytes, c10::DeviceIndex device) {
  const at::Device where(at::kPrivateUse1, device);
  if (size_bytes == 0) return {nullptr, where};
  const size_t step = (size_bytes + kAddressAlignment - 1) / kAddressAlignment * kAddressAlignment;
  return {reinterpret_cast<void*>(next_address.fetch_add(step, std::memory_order_relaxed)), where};
}

at::Tensor MakeContiguous(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceIndex device) {
  const size_t bytes = c10::multiply_integers(sizes) * c10::elementSize(dtype);
  at::Tensor tensor =
      MakeOn(c10::make_intrusive<Cell>(bytes, FakeAddress(bytes, device), true), dtype);
  if (sizes.size() != 1 || sizes[0] != 0) tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor MakeStrided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                       c10::DeviceIndex device) {
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  at::Tensor tensor =
      MakeOn(c10::make_intrusive<Cell>(bytes, FakeAddress(bytes, device), true), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor MakeTensor(const Value& value, c10::DeviceIndex device) {
  at::Tensor tensor = MakeContiguous(value->sizes(), value->dtype(), device);
  CellOf(tensor)->Set(value);
  return tensor;
}

at::Tensor MakeLike(const at::Tensor& like, at::ScalarType dtype) {
  const c10::DeviceIndex device = like.device().index();
  if (IsRowMajor(like)) return MakeContiguous(like.sizes(), dtype, device);
  if (like.is_non_overlapping_and_dense())
    return MakeStrided(like.sizes(), like.strides(), dtype, device);
  return MakeStrided(like.sizes(), at::infer_dense_strides(like.sizes(), like.strides()), dtype,
                     device);
}

at::Tensor MakeInFormat(const Value& value, c10::DeviceIndex device, at::MemoryFormat format) {
  if (C10_LIKELY(format == at::MemoryFormat::Contiguous)) return MakeTensor(value, device);
  at::Tensor made = MakeContiguous(value->sizes(), value->dtype(), device);
  made.unsafeGetTensorImpl()->empty_tensor_restride(format);
  Write(made, value);
  return made;
}

at::Tensor Alias(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                 int64_t offset) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      tensor.dtype());
  made.unsafeGetTensorImpl()->set_storage_offset(offset);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return made;
}

bool CoversStorage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         static_cast<size_t>(tensor.numel()) * tensor.element_size() == CellOf(tensor)->nbytes();
}

c10::DimVector MemoryOrder(const at::Tensor& tensor) {
  c10::DimVector axes(tensor.dim());
  std::iota(axes.begin(), axes.end(), 0);
  const at::IntArrayRef strides = tensor.strides(), sizes = tensor.sizes();
  std::stable_sort(axes.begin(), axes.end(), [&](int64_t a, int64_t b) {
    return strides[a] != strides[b] ? strides[a] > strides[b] : sizes[a] > sizes[b];
  });
  return axes;
}

void ResizeStorage(Cell* cell, size_t size_bytes) {
  TORCH_CHECK(cell->resizable(), "Trying to resize storage that is not resizable");
  cell->set_nbytes(size_bytes);
  cell->set_data_ptr_noswap(FakeAddress(size_bytes, cell->device().index()));
  if (size_bytes == 0) cell->Set({});
}

Value ReadStorage(Cell* cell, at::ScalarType dtype) {
  Value value = cell->value();
  if (!value) value = cell->SetIfEmpty(StorageOf(value, cell, dtype));
  return StorageOf(value, cell, dtype);
}

Value Read(const at::Tensor& tensor) {
  Cell* const cell = CellOf(tensor);
  const at::ScalarType dtype = tensor.scalar_type();
  const at::IntArrayRef sizes = tensor.sizes();
  if (C10_LIKELY(IsWhole(tensor))) {
    Value value = cell->value();
    if (C10_UNLIKELY(!value)) {
      value = cell->SetIfEmpty(Zeros(cell->device().index(), sizes, dtype));
    }
    if (C10_LIKELY(value->dtype() == dtype && value->sizes().equals(sizes))) return value;
  }
  if (tensor.numel() == 0) return Zeros(cell->device().index(), sizes, dtype);
  const at::IntArrayRef strides = tensor.strides();
  const int64_t offset = tensor.storage_offset();
  if (Value known = cell->FindView(sizes, strides, offset, dtype)) return known;
  Value value = cell->value();
  if (!value) value = cell->SetIfEmpty(StorageOf(value, cell, dtype));
  const Value flat = StorageOf(value, cell, dtype);
  Value view = IsWhole(tensor) ? Reshape(flat, sizes) : AsStrided(flat, sizes, strides, offset);
  cell->AddView(value, {c10::DimVector(sizes), c10::DimVector(strides), offset, view});
  return view;
}

at::Tensor WithoutRepeats(const at::Tensor& tensor) {
  if (C10_LIKELY(tensor.is_contiguous())) return tensor;
  c10::DimVector sizes(tensor.sizes());
  bool repeats = false;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) != 0 || sizes[d] <= 1) continue;
    sizes[d] = 1;
    repeats = true;
  }
  return repeats ? Alias(tensor, sizes, tensor.strides(), tensor.storage_offset()) : tensor;
}

Value ReadForBroadcast(const at::Tensor& tensor) { return Read(WithoutRepeats(tensor)); }

namespace {

// Returns whether each stride exceeds the distance between the first and the last element of the
// axes with smaller strides. Then no two elements have the same place, and the server writes all
// of them at once.
bool HasDistinctPlaces(const at::Tensor& tensor) {
  const c10::DimVector order = MemoryOrder(tensor);
  int64_t span = 0;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    if (tensor.size(*axis) == 1) continue;
    if (tensor.stride(*axis) <= span) return false;
    span += tensor.stride(*axis) * (tensor.size(*axis) - 1);
  }
  return true;
}

// Returns `base`, which has one axis, with the elements of `part` in the places of `tensor`. If
// several elements have one place, one of them remains.
Value ScatterWithRepeats(const Value& base, const Value& part, const at::Tensor& tensor) {
  const Value all = Arange(CellOf(tensor)->device().index(), base->numel());
  const Value places = AsStrided(all, tensor.sizes(), tensor.strides(), tensor.storage_offset());
  const int64_t count[] = {tensor.numel()};
  return Push("index_put", {base, Reshape(places, count), Reshape(part, count)},
              {{"axis", 0}, {"reduce", "none"}});
}

}  // namespace

void Write(const at::Tensor& tensor, Value value) {
  Cell* const cell = CellOf(tensor);
  const at::ScalarType dtype = tensor.scalar_type();
  if (tensor.numel() == 0) return;
  value = BroadcastTo(Cast(value, dtype), tensor.sizes());
  if (C10_LIKELY(IsWhole(tensor))) return cell->Set(std::move(value));
  if (CoversStorage(tensor)) return cell->Set(Permute(value, MemoryOrder(tensor)));
  at::assert_no_internal_overlap(tensor);
  const Value part = std::move(value);
  {
    TakenValue taken(cell);
    const Value base = StorageOf(taken.get(), cell, dtype);
    const bool only_here = base.use_count() == (base == taken.get() ? 2 : 1);
    if (C10_UNLIKELY(!HasDistinctPlaces(tensor))) {
      value = ScatterWithRepeats(base, part, tensor);
    } else {
      value = Push("as_strided_scatter", {base, part},
                   {{"shape", tensor.sizes()},
                    {"strides", tensor.strides()},
                    {"offset", tensor.storage_offset()}},
                   only_here ? 1 : 0);
    }
    taken.Set(value);
  }
  // A read of the part finds what was written, unless that would keep much memory.
  if (tensor.nbytes() > kMaxKeptPartBytes || !part->sizes().equals(tensor.sizes())) return;
  cell->AddView(value, {c10::DimVector(tensor.sizes()), c10::DimVector(tensor.strides()),
                        tensor.storage_offset(), part});
}

}  // namespace torch_tensord
