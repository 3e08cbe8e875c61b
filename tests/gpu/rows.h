// All rows of the benchmark.
#pragma once

#include <vector>

#include "tensord/tests/gpu/measure.h"

namespace tensord::gpu {

struct Setup {
  Gpu* gpu;  // outlives the rows
  GpuInfo info;
  bool quick = false;  // uses sizes that an emulated GPU computes in seconds
};

// Appends matmul and linear. The reference is cuBLASLt.
void AppendProductRows(const Setup& setup, std::vector<Row>* rows);
// Appends conv and its gradients. They have no reference but PyTorch.
void AppendConvRows(const Setup& setup, std::vector<Row>* rows);
// Appends memory-bound ops: elementwise, broadcast, where, reductions, softmax, transposes. The
// reference is cudaMemcpyAsync within the GPU, which reads and writes as many bytes.
void AppendMemoryRows(const Setup& setup, std::vector<Row>* rows);
// Appends uploads and downloads. The reference is cudaMemcpyAsync from and to pinned memory.
void AppendTransferRows(const Setup& setup, std::vector<Row>* rows);
// Appends the cost of one small op, and programs of many ops. The reference of a program is the
// same program without graphs.
void AppendLaunchRows(const Setup& setup, std::vector<Row>* rows);

// Makes a row in which ours is an op of the device layer. The row has no reference but PyTorch.
Row OpRow(const Setup& setup, const std::string& op, std::vector<TensorSpec> inputs,
          const Attributes& attrs = {}, const std::string& torch_flags = "");

// Formats a shape: "4096x4096", or "scalar".
std::string SizeText(const Shape& shape);

}  // namespace tensord::gpu
