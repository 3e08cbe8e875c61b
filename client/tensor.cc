#include "tensord/client/tensor.h"

#include <algorithm>
#include <memory>
#include <new>
#include <ostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tensord/client/internal/convert.h"
#include "tensord/client/internal/copy_record.h"
#include "tensord/client/internal/element_types.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/format.h"
#include "tensord/client/internal/peer_copy.h"
#include "tensord/client/internal/tensor_state.h"
#include "tensord/client/ops.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

// Before a read allocates more than this, it waits for the tensor: if the tensor was too large for
// its device and failed, this program must not run out of memory for it.
constexpr int64_t kMaxReadWithoutWaitBytes = 64 * 1024 * 1024;

const TensorSpec& NoSpec() {
  static const TensorSpec kNone;
  return kNone;
}

// Returns an uninitialised array. If the host doesn't have enough memory, returns
// RESOURCE_EXHAUSTED.
template <typename T>
absl::StatusOr<std::unique_ptr<T[]>> Allocate(int64_t num_elements) {
  std::unique_ptr<T[]> array(new (std::nothrow) T[num_elements]);
  if (array == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this program can't allocate ", num_elements * sizeof(T), " bytes"));
  }
  return array;
}

// Returns a vector of zeros. If the host doesn't have enough memory, returns RESOURCE_EXHAUSTED.
template <typename T>
absl::StatusOr<std::vector<T>> MakeVector(int64_t num_elements) {
  try {
    return std::vector<T>(num_elements);
  } catch (const std::exception&) {  // bad_alloc or length_error
    return absl::ResourceExhaustedError(
        absl::StrCat("this program can't allocate ", num_elements * sizeof(T), " bytes"));
  }
}

// Packs the elements into bits.
absl::StatusOr<std::vector<bool>> PackBits(absl::Span<const bool> elements) {
  TENSORD_ASSIGN_OR_RETURN(std::vector<bool> bits,
                           MakeVector<bool>(static_cast<int64_t>(elements.size())));
  std::copy(elements.begin(), elements.end(), bits.begin());
  return bits;
}

absl::Status RequireValue(const Tensor& tensor, absl::string_view what) {
  if (tensor.state()->recorder == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      what, ": ", tensor.Describe(),
      " is a value of a program that is being recorded; return it from the body and read the "
      "output of Program::Run"));
}

absl::Status WaitIfLarge(const Tensor& tensor, int64_t size_bytes) {
  if (internal::InForkedChild()) return internal::ForkedError();
  TENSORD_RETURN_IF_ERROR(tensor.status());
  return size_bytes > kMaxReadWithoutWaitBytes ? tensor.Wait() : absl::OkStatus();
}

}  // namespace

Tensor Tensor::Failed(absl::Status error) {
  if (error.ok()) error = absl::InternalError("Tensor::Failed was given no error");
  return Tensor(std::make_shared<internal::TensorState>(std::move(error)));
}

absl::Status Tensor::status() const {
  if (state_ == nullptr)
    return absl::FailedPreconditionError("an empty Tensor: no value was assigned to it");
  return internal::StatusOf(*state_);
}

const TensorSpec& Tensor::spec() const { return state_ == nullptr ? NoSpec() : state_->spec; }

Device Tensor::device() const {
  return state_ == nullptr ? Device() : Device(state_->session, state_->device);
}

uint64_t Tensor::handle() const { return state_ == nullptr ? 0 : state_->handle; }

Tensor Tensor::To(const Device& device) const {
  if (!ok()) return *this;
  if (!device.valid()) {
    return Failed(absl::FailedPreconditionError(
        absl::StrCat("copy: no device to copy ", Describe(), " to: get one from the client")));
  }
  const std::shared_ptr<internal::Session>& session = state_->session;
  if (device == this->device()) return *this;
  if (internal::InForkedChild()) return Failed(internal::ForkedError());
  if (absl::Status here = RequireValue(*this, "copy"); !here.ok()) return Failed(here);
  if (device.session() != session) return internal::CopyToPeer(*this, device);
  const uint64_t output = session->NextHandle();
  const absl::Status sent = session->SendCopy(internal::InputHandle(state_), output, device.id());
  if (!sent.ok()) return Failed(sent);
  auto copy = std::make_shared<internal::TensorState>(session, output, state_->spec, device.id());
  copy->copy = std::make_shared<internal::CopyRecord>(/*within_server=*/true);
  return Tensor(std::move(copy));
}

absl::StatusOr<CopyReport> Tensor::copy_report() const {
  TENSORD_RETURN_IF_ERROR(status());
  if (state_->copy == nullptr) return CopyReport();
  if (internal::InForkedChild()) return internal::ForkedError();
  if (state_->copy->within_server()) {
    TENSORD_RETURN_IF_ERROR(Wait());
    state_->copy->Finish(
        CopyReport{CopyPath::kPeer, size_bytes(), absl::Now() - state_->copy->started()});
  }
  return state_->copy->Await();
}

Tensor Tensor::To(absl::string_view device) const {
  if (!ok()) return *this;
  if (absl::StrContains(device, '/')) {
    return Failed(absl::InvalidArgumentError(
        absl::StrCat("copy: \"", device,
                     "\" is a device of a cluster, and a tensor finds only the devices of "
                     "its own server by name; use To(*cluster.device(\"",
                     device, "\"))")));
  }
  const absl::StatusOr<DeviceName> id = state_->session->ParseDevice(device);
  return id.ok() ? To(Device(state_->session, *id)) : Failed(WithPrefix(id.status(), "copy: "));
}

Tensor Tensor::To(DType dtype) const {
  return !ok() || dtype == this->dtype() ? *this : Cast(*this, dtype);
}

Tensor Tensor::operator[](int64_t index) const {
  if (!ok()) return *this;
  if (rank() == 0) {
    return Failed(absl::OutOfRangeError(absl::StrCat("index: ", Describe(), " has no axes")));
  }
  const int64_t size = shape().dim(0);
  if (index < -size || index >= size) {
    return Failed(absl::OutOfRangeError(
        absl::StrCat("index: ", index, " is outside the first axis of ", Describe(),
                     size == 0 ? ", which is empty"
                               : absl::StrCat("; it must be from ", -size, " to ", size - 1))));
  }
  const int64_t start = index < 0 ? index + size : index;
  return Reshape(Slice(*this, {start}, {start + 1}, {.axes = {0}}),
                 Shape(shape().dims().subspan(1)));
}

absl::Status Tensor::Wait() const {
  TENSORD_RETURN_IF_ERROR(status());
  TENSORD_RETURN_IF_ERROR(RequireValue(*this, "wait"));
  return state_->session->Await(state_->handle);
}

absl::Status Tensor::ReadElementsInto(DType dtype, void* out, int64_t num_elements,
                                      const TransferOptions& options) const {
  TENSORD_RETURN_IF_ERROR(status());
  TENSORD_RETURN_IF_ERROR(RequireValue(*this, "read"));
  const TensorSpec& spec = state_->spec;
  if (dtype != spec.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "read: ", Describe(), " holds ", DTypeName(spec.dtype), " and not ", DTypeName(dtype),
        "; read it with its own dtype, or convert it with ReadAs or To"));
  }
  if (num_elements != spec.num_elements()) {
    return absl::InvalidArgumentError(absl::StrCat("read: ", Describe(), " has ",
                                                   spec.num_elements(), " elements; the given ",
                                                   "memory has room for ", num_elements));
  }
  const absl::Span<uint8_t> bytes(static_cast<uint8_t*>(out), spec.size_bytes());
  const internal::TransferScope transfer(state_);
  return state_->session->Download(state_->handle, spec, bytes, options);
}

absl::Status Tensor::ReadBytesInto(absl::Span<uint8_t> out, const TransferOptions& options) const {
  TENSORD_RETURN_IF_ERROR(status());
  if (static_cast<int64_t>(out.size()) != size_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("read: ", Describe(), " has ", size_bytes(),
                                                   " bytes; the given memory has ", out.size()));
  }
  return ReadElementsInto(dtype(), out.data(), num_elements(), options);
}

template <Element T>
StatusOrVector<T> Tensor::Read(const TransferOptions& options) const {
  TENSORD_RETURN_IF_ERROR(WaitIfLarge(*this, size_bytes()));
  if constexpr (std::is_same_v<T, bool>) {  // vector<bool> packs bits
    TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<bool[]> values, Allocate<bool>(num_elements()));
    TENSORD_RETURN_IF_ERROR(ReadElementsInto(DType::kBool, values.get(), num_elements(), options));
    return PackBits(absl::MakeConstSpan(values.get(), num_elements()));
  } else {
    TENSORD_ASSIGN_OR_RETURN(std::vector<T> values, MakeVector<T>(num_elements()));
    TENSORD_RETURN_IF_ERROR(ReadInto(absl::MakeSpan(values), options));
    return values;
  }
}

template <Element T>
StatusOrVector<T> Tensor::ReadAs(const TransferOptions& options) const {
  TENSORD_RETURN_IF_ERROR(status());
  if (dtype() == kDTypeOf<T>) return Read<T>(options);
  if (IsComplex(dtype()) || IsComplex(kDTypeOf<T>)) {
    return absl::InvalidArgumentError(
        absl::StrCat("read: ", Describe(), " can't be converted to ", DTypeName(kDTypeOf<T>),
                     ": there is no complex arithmetic; read it with its own dtype"));
  }
  TENSORD_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadBytes(options));
  if constexpr (std::is_same_v<T, bool>) {
    TENSORD_ASSIGN_OR_RETURN(std::unique_ptr<bool[]> values, Allocate<bool>(num_elements()));
    internal::ConvertElements(dtype(), bytes.data(), num_elements(), values.get());
    return PackBits(absl::MakeConstSpan(values.get(), num_elements()));
  } else {
    TENSORD_ASSIGN_OR_RETURN(std::vector<T> values, MakeVector<T>(num_elements()));
    internal::ConvertElements(dtype(), bytes.data(), num_elements(), values.data());
    return values;
  }
}

template <Element T>
absl::StatusOr<T> Tensor::Item() const {
  TENSORD_RETURN_IF_ERROR(status());
  if (num_elements() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("item: ", Describe(), " has ", num_elements(),
                                                   " elements, not one; use Read"));
  }
  TENSORD_ASSIGN_OR_RETURN(const std::vector<T> values, ReadAs<T>());
  return static_cast<T>(values[0]);
}

StatusOrVector<uint8_t> Tensor::ReadBytes(const TransferOptions& options) const {
  TENSORD_RETURN_IF_ERROR(WaitIfLarge(*this, size_bytes()));
  TENSORD_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, MakeVector<uint8_t>(size_bytes()));
  TENSORD_RETURN_IF_ERROR(ReadElementsInto(dtype(), bytes.data(), num_elements(), options));
  return bytes;
}

std::string Tensor::Describe() const {
  const absl::Status failure = status();
  if (!failure.ok()) return absl::StrCat("Tensor(<error: ", ErrorText(failure), ">)");
  const std::string which = state_ != nullptr && state_->recorder != nullptr
                                ? "a value of a program"
                                : absl::StrCat("handle=", handle());
  return absl::StrCat("Tensor(", which, ", ", spec().ToString(), ", ", device().name(), ", ",
                      size_bytes(), " bytes)");
}

namespace {

// Returns the part of a tensor that is printed. The server slices it.
Tensor SliceShown(const Tensor& tensor, const Shape& shown) {
  Tensor part = tensor;
  for (int axis = 0; axis < shown.rank(); ++axis) {
    const int64_t edge = shown.dim(axis) / 2;
    if (shown.dim(axis) == tensor.shape().dim(axis)) continue;
    const Tensor ends[] = {Slice(part, {0}, {edge}, {.axes = {axis}}),
                           Slice(part, {-edge}, {kToEnd}, {.axes = {axis}})};
    part = Concat(ends, axis);
  }
  return part;
}

}  // namespace

std::string Tensor::ToString(const PrintOptions& options) const {
  if (absl::Status value = status(); value.ok() && !(value = RequireValue(*this, "print")).ok()) {
    return absl::StrCat("tensor(<error: ", ErrorText(value), ">)");
  }
  const absl::StatusOr<std::vector<uint8_t>> bytes =
      SliceShown(*this, internal::ShownShape(shape(), options)).ReadBytes();
  if (!bytes.ok()) return absl::StrCat("tensor(<error: ", ErrorText(bytes.status()), ">)");
  return internal::FormatShown(spec(), *bytes, device().name(), options);
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << tensor.ToString();
}

#define TENSORD_INSTANTIATE(T)                                                \
  template StatusOrVector<T> Tensor::Read<T>(const TransferOptions&) const;   \
  template StatusOrVector<T> Tensor::ReadAs<T>(const TransferOptions&) const; \
  template absl::StatusOr<T> Tensor::Item<T>() const;
TENSORD_ELEMENT_TYPES(TENSORD_INSTANTIATE)
#undef TENSORD_INSTANTIATE

}  // namespace tensord
