#include "tensord/tests/cuda_emulation/nccl/outputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tensord/common/float16.h"

namespace tensord::nccl_emulation {
namespace {

// The type in which elements of type T are accumulated.
template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <typename T>
T Load(const std::string& elements, size_t i) {
  T element;
  std::memcpy(&element, elements.data() + i * sizeof(T), sizeof(T));
  return element;
}

// Combines two elements. Integers wrap around: they are added and multiplied as uint64_t, because
// signed overflow is undefined behaviour.
template <typename A>
A Combine(int32_t reduction, A a, A b) {
  using Arithmetic = std::conditional_t<std::is_integral_v<A>, uint64_t, A>;
  switch (reduction) {
    case ncclProd:
      return static_cast<A>(static_cast<Arithmetic>(a) * static_cast<Arithmetic>(b));
    case ncclMax:
      if constexpr (std::is_floating_point_v<A>) return std::fmax(a, b);
      return std::max(a, b);
    case ncclMin:
      if constexpr (std::is_floating_point_v<A>) return std::fmin(a, b);
      return std::min(a, b);
    default:
      return static_cast<A>(static_cast<Arithmetic>(a) + static_cast<Arithmetic>(b));
  }
}

template <typename T>
std::string ReduceAs(int32_t reduction, absl::Span<const std::string* const> inputs) {
  using A = Accumulator<T>;
  std::string output(inputs[0]->size(), '\0');
  for (size_t i = 0; i < output.size() / sizeof(T); ++i) {
    A result = static_cast<A>(Load<T>(*inputs[0], i));
    for (const std::string* input : inputs.subspan(1)) {
      result = Combine<A>(reduction, result, static_cast<A>(Load<T>(*input, i)));
    }
    if (reduction == ncclAvg) result = static_cast<A>(result / static_cast<A>(inputs.size()));
    const T element = static_cast<T>(result);
    std::memcpy(output.data() + i * sizeof(T), &element, sizeof(T));
  }
  return output;
}

std::string Reduce(const Operation& op, absl::Span<const std::string* const> inputs) {
  switch (op.type) {
    case ncclInt8:
      return ReduceAs<int8_t>(op.reduction, inputs);
    case ncclUint8:
      return ReduceAs<uint8_t>(op.reduction, inputs);
    case ncclInt32:
      return ReduceAs<int32_t>(op.reduction, inputs);
    case ncclUint32:
      return ReduceAs<uint32_t>(op.reduction, inputs);
    case ncclInt64:
      return ReduceAs<int64_t>(op.reduction, inputs);
    case ncclUint64:
      return ReduceAs<uint64_t>(op.reduction, inputs);
    case ncclFloat16:
      return ReduceAs<Half>(op.reduction, inputs);
    case ncclFloat32:
      return ReduceAs<float>(op.reduction, inputs);
    case ncclFloat64:
      return ReduceAs<double>(op.reduction, inputs);
    default:
      return ReduceAs<BFloat16>(op.reduction, inputs);
  }
}

}  // namespace

std::vector<std::string> ComputeOutputs(const Operation& op,
                                        absl::Span<const std::string* const> inputs) {
  const size_t size = inputs.size();
  switch (op.collective) {
    case Collective::kAllReduce:
      return std::vector<std::string>(size, Reduce(op, inputs));
    case Collective::kReduceScatter: {
      const std::string reduced = Reduce(op, inputs);
      const size_t bytes = reduced.size() / size;
      std::vector<std::string> outputs;
      for (size_t rank = 0; rank < size; ++rank) {
        outputs.push_back(reduced.substr(rank * bytes, bytes));
      }
      return outputs;
    }
    case Collective::kAllGather: {
      std::string gathered;
      for (const std::string* input : inputs) gathered += *input;
      return std::vector<std::string>(size, gathered);
    }
    case Collective::kBroadcast:
      break;
  }
  return std::vector<std::string>(size, *inputs[static_cast<size_t>(op.root)]);
}

}  // namespace tensord::nccl_emulation
