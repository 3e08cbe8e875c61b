// The list of the functions of client/composite: functions of the C++ library that are compositions
// of ops, and not ops themselves. A row is
//
//   X(Function)
//
// where `Function` is the name in the namespace tensord. PyTorch's name differs only in case and
// underscores. The error of an unknown op that has such a name says which function to call.
#pragma once

#define TENSORD_COMPOSITE_FUNCTIONS(X) \
  X(Addcdiv)                           \
  X(Addcmul)                           \
  X(BitwiseNot)                        \
  X(Clamp)                             \
  X(Embedding)                         \
  X(IndexSelect)                       \
  X(IsFinite)                          \
  X(IsInf)                             \
  X(IsNan)                             \
  X(Lerp)                              \
  X(LogicalAnd)                        \
  X(LogicalNot)                        \
  X(LogicalOr)                         \
  X(LogicalXor)                        \
  X(OneHot)                            \
  X(Pad)                               \
  X(Reciprocal)                        \
  X(SelectScatter)                     \
  X(SignBit)                           \
  X(SliceScatter)                      \
  X(Softplus)                          \
  X(Square)                            \
  X(TakeAlongDim)
