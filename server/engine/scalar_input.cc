#include "tensord/server/engine/scalar_input.h"

#include <cstring>
#include <utility>
#include <vector>

#include "tensord/common/float16.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/util/op_words.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

template <typename T>
void StoreAs(T value, void* out) {
  std::memcpy(out, &value, sizeof(value));
}

AttrValue ToAttr(const ScalarInput& scalar) {
  if (IsFloating(scalar.dtype)) return FloatFromWord(scalar.word);
  // If the value is a uint64 above the range of int64, the kernel of `full` gives the same bits.
  const int64_t value = IntFromWord(scalar.word);
  if (IsBool(scalar.dtype)) return value != 0;
  return value;
}

// Executor thread. Fills the buffer by the kernel of `full`, in order with other kernels.
absl::StatusOr<BufferRef> Fill(Session& session, const ScalarInput& scalar, const Tensor& tensor) {
  static const OpSchema* const kFull = FindOp("full");
  MemoryAccount& account = session.account(*tensor.slot());
  TENSORD_ASSIGN_OR_RETURN(BufferRef buffer,
                           AllocateFor(account, tensor.device(), tensor.spec().size_bytes()));
  const Attributes attrs = {
      {"shape", std::vector<int64_t>()}, {"value", ToAttr(scalar)}, {"dtype", scalar.dtype}};
  const Operand output = {&tensor.spec(), buffer->data()};
  TENSORD_RETURN_IF_ERROR(tensor.device().Launch(
      {{account, tensor.device()}, kFull, &attrs, {}, absl::MakeConstSpan(&output, 1)}));
  return buffer;
}

}  // namespace

TensorSpec SpecOf(const ScalarInput& scalar) { return {scalar.dtype, {}}; }

void StoreScalar(const ScalarInput& scalar, void* out) {
  if (IsFloating(scalar.dtype)) {
    const double value = FloatFromWord(scalar.word);
    if (scalar.dtype == DType::kFloat64) return StoreAs(value, out);
    const auto single = static_cast<float>(value);
    if (scalar.dtype == DType::kFloat32) return StoreAs(single, out);
    if (scalar.dtype == DType::kFloat16) return StoreAs(Half(single), out);
    return StoreAs(BFloat16(single), out);
  }
  const int64_t value = IntFromWord(scalar.word);
  if (IsBool(scalar.dtype)) return StoreAs(static_cast<uint8_t>(value != 0), out);
  // The host is little-endian, so the first bytes are the value modulo 2^(8 * size).
  std::memcpy(out, &value, static_cast<size_t>(SizeOf(scalar.dtype)));
}

void MakeScalarTensor(const SessionRef& session, const ScalarInput& scalar,
                      const TensorRef& tensor) {
  DeviceSlot& slot = *tensor->slot();
  if (slot.device->host_accessible()) {
    absl::StatusOr<BufferRef> buffer =
        AllocateFor(session->account(slot), *slot.device, tensor->spec().size_bytes());
    if (buffer.ok()) StoreScalar(scalar, (*buffer)->data());
    tensor->Finish(std::move(buffer));
    return;
  }
  const auto& lane = session->lane(slot);
  slot.executor->Post(
      lane, [session, scalar, tensor] { tensor->Finish(Fill(*session, scalar, *tensor)); });
  tensor->SetPosted(lane.get());
}

}  // namespace tensord::server
