// All rows of the benchmark.
#pragma once

#include <vector>

#include "tensord/tests/gpu/measure.h"

namespace tensord::gpu {

struct Setup {
  Gpu* gpu;  // outlives the rows
  GpuInfo info;
  bool quick = false;  // sizes that an emulated GPU manages in seconds
};

// matmul and linear, against cuBLASLt.
void AppendProductRows(const Setup& setup, std::vector<Row>* rows);
// Ops that memory bounds, against cudaMemcpyAsync of as many bytes within the GPU: elementwise,
// broadcast, where, reductions, softmax, transposes.
void AppendMemoryRows(const Setup& setup, std::vector<Row>* rows);
// Uploads and downloads, against cudaMemcpyAsync from and to pinned memory.
void AppendTransferRows(const Setup& setup, std::vector<Row>* rows);
// What one op costs, and programs of many ops with and without graphs.
void AppendLaunchRows(const Setup& setup, std::vector<Row>* rows);

// A row whose contender is an op of the device layer.
Row OpRow(const Setup& setup, const std::string& op, std::vector<TensorSpec> inputs,
          const Attributes& attrs = {}, const std::string& torch_flags = "");

// "float16", "4096x4096".
std::string SizeText(const Shape& shape);

}  // namespace tensord::gpu
