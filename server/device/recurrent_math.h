// One element of a step of LSTM and GRU, and its gradients. nvcc and host compilers include this
// file. TENSORD_ISA_NAMESPACE is explained in math_functions.h.
//
// A functor computes the element (n,k) of its results from the elements (n,k) of the parts of its
// operands: an operand (N,4H) has four parts (N,H). T is float or double.
#pragma once

#include "tensord/server/device/elementwise_math.h"

namespace tensord::server {

inline constexpr int kMaxCellInputs = 17;  // parts of operands
inline constexpr int kMaxCellOutputs = 7;

inline namespace TENSORD_ISA_NAMESPACE {

// The gates of the input, of the state, the old c, and with kBiased both biases, all in the order
// of PyTorch: input, forget, cell, output. Results: h, c, the gates.
template <bool kBiased>
struct LstmCell {
  static constexpr int kInputs = kBiased ? 17 : 9, kOutputs = 6;

  template <typename T>
  TENSORD_HD static void Run(const T* in, T* out) {
    T sums[4];
    for (int j = 0; j < 4; ++j) {
      sums[j] = in[j] + in[4 + j];
      if constexpr (kBiased) sums[j] = sums[j] + in[9 + j] + in[13 + j];
    }
    const T i = Sigmoid()(sums[0]), f = Sigmoid()(sums[1]), g = math::Tanh(sums[2]),
            o = Sigmoid()(sums[3]);
    const T c = f * in[8] + i * g;
    out[0] = o * math::Tanh(c);
    out[1] = c;
    out[2] = i;
    out[3] = f;
    out[4] = g;
    out[5] = o;
  }
};

// The gradients of h and c, the old c, the new c, the gates, and with kSum another gradient of h.
// Results: the gradients of the sums of gates, and of the old c.
template <bool kSum>
struct LstmGatesBackward {
  static constexpr int kInputs = kSum ? 9 : 8, kOutputs = 5;

  template <typename T>
  TENSORD_HD static void Run(const T* in, T* out) {
    T gh = in[0];
    if constexpr (kSum) gh = gh + in[8];
    const T i = in[4], f = in[5], g = in[6], o = in[7], tanh = math::Tanh(in[3]);
    const T gc = in[1] + gh * o * (T{1} - tanh * tanh);
    out[0] = gc * g * i * (T{1} - i);
    out[1] = gc * in[2] * f * (T{1} - f);
    out[2] = gc * i * (T{1} - g * g);
    out[3] = gh * tanh * o * (T{1} - o);
    out[4] = gc * f;
  }
};

// The gates of the input and of the state, the old h, and with kBiased both biases, all in the
// order of PyTorch: reset, update, new. Results: h, and what the gradient needs: the gates, the old
// h, and the new gate of the state.
template <bool kBiased>
struct GruCell {
  static constexpr int kInputs = kBiased ? 13 : 7, kOutputs = 6;

  template <typename T>
  TENSORD_HD static void Run(const T* in, T* out) {
    T x[3], own[3];
    for (int j = 0; j < 3; ++j) {
      x[j] = in[j];
      own[j] = in[3 + j];
      if constexpr (kBiased) {
        x[j] = x[j] + in[7 + j];
        own[j] = own[j] + in[10 + j];
      }
    }
    const T h = in[6], r = Sigmoid()(x[0] + own[0]), z = Sigmoid()(x[1] + own[1]);
    const T n = math::Tanh(x[2] + r * own[2]);
    out[0] = n + z * (h - n);
    out[1] = r;
    out[2] = z;
    out[3] = n;
    out[4] = h;
    out[5] = own[2];
  }
};

// The gradient of h, the five results of GruCell, and with kSum another gradient of h. Results: the
// gradients of the gates of the input, of those of the state, and of the old h.
template <bool kSum>
struct GruGatesBackward {
  static constexpr int kInputs = kSum ? 7 : 6, kOutputs = 7;

  template <typename T>
  TENSORD_HD static void Run(const T* in, T* out) {
    T g = in[0];
    if constexpr (kSum) g = g + in[6];
    const T r = in[1], z = in[2], n = in[3], h = in[4], own = in[5];
    const T gn = g * (T{1} - z) * (T{1} - n * n);
    out[0] = out[3] = gn * own * r * (T{1} - r);
    out[1] = out[4] = g * (h - n) * z * (T{1} - z);
    out[2] = gn;
    out[5] = gn * r;
    out[6] = g * z;
  }
};

}  // namespace TENSORD_ISA_NAMESPACE
}  // namespace tensord::server
