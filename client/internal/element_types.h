// The C++ types of elements, for explicit instantiation of templates over them.
#pragma once

#include <complex>
#include <cstdint>

#include "tensord/client/element.h"

// Expands APPLY(T) for each type T that is an Element.
#define TENSORD_ELEMENT_TYPES(APPLY) \
  APPLY(bool)                        \
  APPLY(uint8_t)                     \
  APPLY(int8_t)                      \
  APPLY(int16_t)                     \
  APPLY(uint16_t)                    \
  APPLY(int32_t)                     \
  APPLY(uint32_t)                    \
  APPLY(int64_t)                     \
  APPLY(uint64_t)                    \
  APPLY(::tensord::Half)             \
  APPLY(::tensord::BFloat16)         \
  APPLY(float)                       \
  APPLY(double)                      \
  APPLY(std::complex<float>)         \
  APPLY(std::complex<double>)
