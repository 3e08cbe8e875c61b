#include <string.h>

#include "tensord/server/device/cpu/isa/fill.h"
#include "tensord/server/device/cpu/isa/vector_libm.h"

namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE {
namespace {

template <typename Op, typename T>
void Unary(const void* x_data, void* y_data, int64_t n) {
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Op()(x[i]);
}

// For ops that call libm: whole blocks only, the last one padded.
template <typename Op, typename T>
void UnaryLibm(const void* x_data, void* y_data, int64_t n) {
  constexpr int kBlock = kVectorLibmBlock;
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  T padded[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t rest = n - i;
    const T* in = x + i;
    T* out = y + i;
    if (rest < kBlock) {
      for (T& element : padded) element = T{1};
      memcpy(padded, in, rest * sizeof(T));
      in = out = padded;
    }
#pragma GCC ivdep
    for (int j = 0; j < kBlock; ++j) out[j] = Op()(in[j]);
    if (rest < kBlock) memcpy(y + i, padded, rest * sizeof(T));
  }
}

template <typename Op, typename... Ts>
void Fill(Loops& loops, UnaryOp op) {
  ((loops.unary[static_cast<int>(op)][kIndexOf<Ts>] = Unary<Op, Ts>), ...);
}

template <typename Op>
void FillLibm(Loops& loops, UnaryOp op) {
  loops.unary[static_cast<int>(op)][kIndexOf<float>] = UnaryLibm<Op, float>;
  loops.unary[static_cast<int>(op)][kIndexOf<double>] = UnaryLibm<Op, double>;
}

}  // namespace

void FillUnaryLoops(Loops& loops) {
  Fill<Neg, uint8_t, int8_t, int32_t, int64_t, float, double>(loops, UnaryOp::kNeg);
  Fill<Abs, uint8_t, int8_t, int32_t, int64_t, float, double>(loops, UnaryOp::kAbs);
  Fill<Relu, uint8_t, int8_t, int32_t, int64_t, float, double>(loops, UnaryOp::kRelu);
  Fill<Sqrt, float, double>(loops, UnaryOp::kSqrt);
  Fill<Rsqrt, float, double>(loops, UnaryOp::kRsqrt);
  FillLibm<Exp>(loops, UnaryOp::kExp);
  FillLibm<Log>(loops, UnaryOp::kLog);
  FillLibm<Tanh>(loops, UnaryOp::kTanh);
  FillLibm<Sigmoid>(loops, UnaryOp::kSigmoid);
  FillLibm<Silu>(loops, UnaryOp::kSilu);
  FillLibm<GeluErf>(loops, UnaryOp::kGeluErf);
  FillLibm<GeluTanh>(loops, UnaryOp::kGeluTanh);
}

}  // namespace tensord::server::cpu::TENSORD_ISA_NAMESPACE
