// The functions with which the files of one instruction set level add their loops to the level's
// table. Only files that are compiled once for each level may include this header.
#pragma once

#include "tensord/common/dtype_of.h"
#include "tensord/server/device/cpu/isa/loops.h"
#include "tensord/server/device/elementwise_math.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {

void FillUnaryLoops(Loops& loops);
void FillMathLoops(Loops& loops);
void FillBinaryLoops(Loops& loops);
void FillPairLoops(Loops& loops);
void FillIntegerLoops(Loops& loops);
void FillCastLoops(Loops& loops);
void FillSumLoops(Loops& loops);
void FillExtremeLoops(Loops& loops);
void FillNormLoops(Loops& loops);
void FillMomentLoops(Loops& loops);
void FillProdLoops(Loops& loops);
void FillCountLoops(Loops& loops);
void FillScanLoops(Loops& loops);
void FillArgLoops(Loops& loops);
void FillSoftmaxLoops(Loops& loops);
void FillRandomLoops(Loops& loops);
void FillLayoutLoops(Loops& loops);
void FillIntegerMatmulLoops(Loops& loops);

template <typename Storage>
inline constexpr DType kStorageDType = kDTypeOf<Storage>;
template <>
inline constexpr DType kStorageDType<Bool> = DType::kBool;

template <typename Storage>
inline constexpr int kIndexOf = Index(kStorageDType<Storage>);

// The storage types for which a function of the list of elementwise ops has a loop. 16-bit types
// have none, because blocks of them are converted to float32 or int32. The exception is Nextafter,
// whose result depends on the storage type.
template <typename... Ts>
struct MathTypes {};
using FloatingTypes = MathTypes<float, double>;
using IntegerTypes = MathTypes<uint8_t, int8_t, int32_t, uint32_t, int64_t, uint64_t>;
using AllMathTypes =
    MathTypes<Bool, uint8_t, int8_t, int32_t, uint32_t, int64_t, uint64_t, float, double>;

template <ElementwiseTyping typing>
constexpr auto MathTypesOf() {
  if constexpr (typing == ElementwiseTyping::kAny) {
    return AllMathTypes();
  } else if constexpr (typing == ElementwiseTyping::kNumber) {
    return MathTypes<uint8_t, int8_t, int32_t, uint32_t, int64_t, uint64_t, float, double>();
  } else if constexpr (typing == ElementwiseTyping::kBits) {
    return MathTypes<Bool, uint8_t, int8_t, int32_t, uint32_t, int64_t, uint64_t>();
  } else if constexpr (typing == ElementwiseTyping::kInteger) {
    return IntegerTypes();
  } else {
    return FloatingTypes();
  }
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
