// The list of the composite functions (client/composite). A row is
//
//   X(Function)
//
// where `Function` is the name in the namespace tensord. PyTorch's name differs only in case and
// underscores. The error of an unknown op that has such a name says which function to call.
#pragma once

#define TENSORD_COMPOSITE_FUNCTIONS(X) \
  X(Addcdiv)                           \
  X(Addcmul)                           \
  X(All)                               \
  X(Any)                               \
  X(Bernoulli)                         \
  X(BitwiseNot)                        \
  X(Clamp)                             \
  X(DropoutBackward)                   \
  X(Embedding)                         \
  X(EmbeddingBackward)                 \
  X(Exponential)                       \
  X(Flatten)                           \
  X(Flip)                              \
  X(IndexSelect)                       \
  X(IsFinite)                          \
  X(IsInf)                             \
  X(IsNan)                             \
  X(Lerp)                              \
  X(LogicalAnd)                        \
  X(LogicalNot)                        \
  X(LogicalOr)                         \
  X(LogicalXor)                        \
  X(MaskedFill)                        \
  X(MaskedSelect)                      \
  X(Multinomial)                       \
  X(NormalLike)                        \
  X(OneHot)                            \
  X(Pad)                               \
  X(RandIntLike)                       \
  X(RandPerm)                          \
  X(Reciprocal)                        \
  X(Roll)                              \
  X(Select)                            \
  X(SelectBackward)                    \
  X(SelectScatter)                     \
  X(SgdStep)                           \
  X(SignBit)                           \
  X(SliceBackward)                     \
  X(SliceScatter)                      \
  X(Square)                            \
  X(Squeeze)                           \
  X(Stack)                             \
  X(Std)                               \
  X(TakeAlongDim)                      \
  X(Tril)                              \
  X(Triu)                              \
  X(TruncNormal)                       \
  X(UniformLike)                       \
  X(Unique)                            \
  X(Unsqueeze)                         \
  X(Var)
