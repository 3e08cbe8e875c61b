// Convolutions and their gradients: by oneDNN, or by matrix products.
#pragma once

#include <memory>
#include <optional>

#include "tensord/server/device/conv_attributes.h"
#include "tensord/server/device/cpu/conv_products.h"
#include "tensord/server/device/cpu/kernel.h"
#include "tensord/server/device/cpu/onednn_conv.h"

namespace tensord::server::cpu {

// Returns the kind of an op, or nullopt if it is neither conv nor a gradient of it.
std::optional<ConvKind> FindConvKind(absl::string_view op);

// The way in which an op with given shapes, dtypes and attributes is computed, and its primitives.
// One thread at a time may use it.
class ConvPlan {
 public:
  // `ctx` must outlive the object. The dtypes of all operands must be the same floating dtype.
  ConvPlan(const Context& ctx, ConvKind kind, const OpSchema* schema, const Attributes& attrs,
           absl::Span<const TensorSpec> inputs, const TensorSpec& output);

  // Returns the layout in which oneDNN reads the weight, if a packed weight makes the op
  // considerably faster. Otherwise returns null.
  std::shared_ptr<const PackedLayout> PackableWeight() const;

  // `packed_weight` is the weight in that layout, or null. Allocates scratch memory by `context`.
  absl::Status Run(const LaunchContext& context, const ConvOperands& operands,
                   const void* packed_weight);

  // Returns the estimated host memory of the primitives.
  int64_t host_bytes() const;

 private:
  enum OperandIndex { kA, kB, kOutput, kBias, kOperands };

  // A group of images, and the primitive for as many images. If matrix products compute the op, the
  // primitive is null.
  struct Part {
    int64_t images = 0;
    std::unique_ptr<OneDnnConv> primitive;
  };
  // The memory that a run needs.
  struct Buffers {
    Scratch wide[kOperands];  // operands in compute_dtype_
    Scratch weight;           // in the layout of parts_[0]
    Scratch sum;              // a part's gradient of the weight
    Scratch primitive;
  };

  int64_t ImagesPerPart() const;
  bool PrefersOneDnn() const;
  bool PrefersPlainLayouts() const;
  bool MakePrimitives();
  absl::StatusOr<std::unique_ptr<OneDnnConv>> MakePrimitive(int64_t images) const;
  ConvGeometry Images(int64_t images) const;
  bool IsPerImage(OperandIndex operand) const;
  int64_t Elements(OperandIndex operand) const;  // of an image, if the operand has one for each
  bool is_widened() const { return compute_dtype_ != dtype_; }

  absl::StatusOr<Buffers> MakeBuffers(const KernelCall& call, const ConvOperands& operands) const;
  absl::Status RunPart(const KernelCall& call, Part& part, int64_t first_image,
                       const ConvOperands& operands, const void* packed_weight,
                       const Buffers& buffers);
  absl::Status Compute(const KernelCall& call, Part& part, const ConvOperands& operands,
                       const void* packed_weight, const Buffers& buffers, bool accumulate);

  const Context& ctx_;
  const ConvKind kind_;
  const OpSchema* const schema_;
  const TensorSpec output_;
  const ConvGeometry conv_;
  const DType dtype_;
  DType compute_dtype_;  // float32, float64, or bfloat16 if oneDNN computes it
  bool has_bias_ = false;
  std::optional<UnaryFunction> activation_;
  // All parts but the last one have the images of parts_[0]. If the last one has fewer, it is
  // parts_[1].
  Part parts_[2];
};

}  // namespace tensord::server::cpu
