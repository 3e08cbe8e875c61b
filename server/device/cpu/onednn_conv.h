// Convolutions, and their gradients, by oneDNN.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensord/common/dtype.h"
#include "tensord/common/ops/elementwise.h"
#include "tensord/server/device/conv_attributes.h"
#include "tensord/server/device/cpu/packed_layout.h"

namespace tensord::server::cpu {

struct OneDnnConvSpec {
  ConvKind kind = ConvKind::kForward;
  ConvGeometry conv;                  // with one or more images
  DType dtype = DType::kUnspecified;  // float32 or bfloat16 (accumulated in float32)
  // If true, the library chooses the layouts of all operands. Each run then copies the operands to
  // and from these layouts. If false, it reads and writes the dense, row-major operands.
  bool chooses_layouts = true;
  // Of the forward convolution. OneDnnHas() must be true for the activation.
  bool has_bias = false;
  std::optional<UnaryFunction> activation;
  int threads = 1;  // the number of threads that share the work
};

// A primitive with its memory objects. One thread at a time may use it.
class OneDnnConv {
 public:
  // An estimate of the host memory of an object, most of which is generated code.
  static constexpr int64_t kHostBytes = 256 << 10;

  // If the library has no fast code for this convolution on this processor, or sizes may exceed
  // those that it supports, or it needs too much scratch memory, returns UNIMPLEMENTED. If the
  // library fails, returns RESOURCE_EXHAUSTED or INTERNAL. Thread-safe.
  static absl::StatusOr<std::unique_ptr<OneDnnConv>> Make(const OneDnnConvSpec& spec);
  ~OneDnnConv();

  // Returns the layout in which the op reads the weight. If it is the plain one, returns null.
  const std::shared_ptr<const PackedLayout>& weight_layout() const { return weight_layout_; }

  // Returns the bytes of memory that Run() needs, which must be aligned to 64 bytes.
  int64_t scratch_bytes() const { return scratch_bytes_; }

  // The operands of the op, dense and row-major. `bias` is null if there is none. `packed_weight`
  // is the weight in the layout above, or null. If the object has several threads, the calling
  // thread must be the leader of the device's team.
  struct Operands {
    const void* a;
    const void* b;
    const void* bias;
    const void* packed_weight;
    void* output;
    void* scratch;
  };
  absl::Status Run(const Operands& operands);

 private:
  class Library;

  OneDnnConv();

  const std::unique_ptr<Library> library_;
  std::shared_ptr<const PackedLayout> weight_layout_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace tensord::server::cpu
