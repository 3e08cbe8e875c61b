// A collective operation as one rank calls it.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tensord::nccl_emulation {

enum class Collective : int32_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast };

// All ranks must call an operation with equal members. It is sent in its memory layout.
struct Operation {
  Collective collective = Collective::kAllReduce;
  int32_t type = ncclFloat32;   // an ncclDataType_t
  int32_t reduction = ncclSum;  // an ncclRedOp_t; ncclSum if the operation doesn't reduce
  int32_t root = 0;             // of a broadcast, otherwise 0
  uint64_t count = 0;           // number of elements: the argument `count` of NCCL's function

  bool operator==(const Operation&) const = default;
};

// Returns the name of NCCL's function, such as "ncclAllReduce".
const char* FunctionName(const Operation& op);
// Returns a description such as "ncclAllReduce of 4 float32 (sum)".
std::string ToString(const Operation& op);

// Return whether the data type or reduction is emulated. 8-bit floating types and reductions that a
// program creates aren't.
bool HasEmulatedType(const Operation& op);
bool HasEmulatedReduction(const Operation& op);

// Returns the size of an element of an emulated type.
size_t ElementBytes(const Operation& op);
// Return how many bytes an operation reads and writes at a rank of a communicator of `size`.
size_t InputBytes(const Operation& op, int rank, int size);
size_t OutputBytes(const Operation& op, int size);

}  // namespace tensord::nccl_emulation
