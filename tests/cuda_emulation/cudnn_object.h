// The descriptors of the emulated cuDNN: their attributes, and the checks at their setting and
// finalization.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensord/server/device/cuda/cudnn_library.h"
#include "tensord/tests/cuda_emulation/convolution.h"

namespace tensord::cuda_emulation {

namespace cudnn = ::tensord::server::cuda::cudnn;

struct CudnnObject;
using CudnnObjectRef = std::shared_ptr<CudnnObject>;

// A way to compute a graph.
struct CudnnEngine {
  std::vector<cudnn::NumericalNote> notes;
  int64_t workspace_bytes = 0;
  bool has_plan = true;  // otherwise a plan can't be finalized
  ConvolutionPrecision precision = ConvolutionPrecision::kExact;
  bool repeats = true;             // otherwise each execution gives other values
  int64_t index = 0;               // its number
  CudnnObjectRef graph = nullptr;  // of an engine that heuristics have recommended
};

struct CudnnValue {
  cudnn::AttributeType type = cudnn::AttributeType::kInt64;
  int64_t count = 0;
  std::string bytes;
  std::vector<CudnnObjectRef> objects;  // if the values are descriptors
};

// A descriptor. Not thread-safe.
struct CudnnObject {
  explicit CudnnObject(cudnn::DescriptorType type_arg) : type(type_arg) {}

  const cudnn::DescriptorType type;
  bool finalized = false;
  std::map<cudnn::Attribute, CudnnValue> values;
  CudnnEngine engine;  // of an engine, its configuration, and a plan

  bool Has(cudnn::Attribute attribute) const { return values.contains(attribute); }
  // The attribute must be set.
  template <typename T>
  T Get(cudnn::Attribute attribute) const {
    T value;
    std::memcpy(&value, values.at(attribute).bytes.data(), sizeof(value));
    return value;
  }
  std::vector<int64_t> Ints(cudnn::Attribute attribute) const;
  const std::vector<CudnnObjectRef>& Objects(cudnn::Attribute attribute) const {
    return values.at(attribute).objects;
  }
  const CudnnObject& Object(cudnn::Attribute attribute) const { return *Objects(attribute)[0]; }
};

// A finalized operation graph as a convolution, and the numbers of its tensors.
struct CudnnGraph {
  Convolution convolution;
  int64_t x = 0, w = 0, y = 0, bias = 0;
  int64_t alignment = 1;  // of all addresses
};

// Returns the size of a value of the type.
size_t SizeOf(cudnn::AttributeType type);

// Checks that the descriptor has the attribute, with this type and at most this number of values.
// If not, prints a report.
cudnn::Status CheckAttribute(const CudnnObject& object, cudnn::Attribute attribute,
                             cudnn::AttributeType type, int64_t count);

// Checks the attributes, and marks the descriptor as finalized. If a required attribute is missing
// or a value is wrong, prints a report. If the library has no code for the request, returns a
// status of the category NOT_SUPPORTED without a report.
cudnn::Status Finalize(CudnnObject& object);

// `graph` must be a finalized operation graph.
CudnnGraph DescribeGraph(const CudnnObject& graph);

// Returns the engines for a finalized operation graph, in the order in which heuristics recommend
// them.
std::vector<CudnnEngine> RecommendEngines(const CudnnObject& graph, cudnn::HeurMode mode);

}  // namespace tensord::cuda_emulation
