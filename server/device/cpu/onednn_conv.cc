#include "tensord/server/device/cpu/onednn_conv.h"

#include <algorithm>
#include <dnnl.hpp>
#include <utility>
#include <vector>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/cpu/onednn_api.h"
#include "tensord/server/device/cpu/onednn_support.h"
#include "tensord/server/device/cpu/team.h"
#include "tensord/server/device/stop_token.h"

namespace tensord::server::cpu {
namespace {

using dnnl::memory;

// The library computes with 32-bit integers in many places. Larger convolutions are divided into
// parts, or computed by other code.
constexpr int64_t kMaxSize = 1 << 20;      // of sizes along an axis, strides, dilations
constexpr int64_t kMaxElements = 1 << 28;  // of a tensor
// The library makes a primitive in a time that grows with the padding and, for bfloat16, with the
// sizes. A caller can declare sizes without any tensor. At these limits, a primitive takes 30 ms to
// 70 ms and up to 40 MB meanwhile.
constexpr int64_t kMaxPadding = 1 << 14;
constexpr int64_t kMaxBFloat16Size = 1 << 14;
// The library generates code for each tap of a row of the kernel. For more taps, this may take
// seconds.
constexpr int64_t kMaxKernelSize = 1024;
// Some layouts have 16 channels where the tensor has one.
constexpr int64_t kMaxScratchBytes = int64_t{256} << 20;
constexpr int64_t kMaxScratchBytesPerThread = 16 << 20;
constexpr int64_t kPlaceAlignment = 64;

bool Fits(const ConvGeometry& conv, DType dtype) {
  const int64_t max_size = dtype == DType::kBFloat16 ? kMaxBFloat16Size : kMaxSize;
  for (int a = 0; a < ConvGeometry::kAxes; ++a) {
    if (std::max(conv.in[a], conv.out[a]) > max_size) return false;
    if (std::max(conv.stride[a], conv.dilation[a]) > kMaxSize) return false;
    if (std::max(conv.low[a], conv.high[a]) > kMaxPadding) return false;
    if (conv.kernel[a] > kMaxKernelSize) return false;
  }
  return std::max({conv.x_elements(), conv.y_elements(), conv.weight_elements()}) <= kMaxElements;
}

// Returns the numbers of the op's spatial axes.
memory::dims Spatial(const ConvGeometry& conv, const int64_t (&numbers)[ConvGeometry::kAxes]) {
  return memory::dims(numbers + ConvGeometry::kAxes - conv.axes, numbers + ConvGeometry::kAxes);
}

memory::dims WithSpatial(memory::dims dims, const ConvGeometry& conv,
                         const int64_t (&numbers)[ConvGeometry::kAxes]) {
  const memory::dims spatial = Spatial(conv, numbers);
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  return dims;
}

memory::desc Dense(const memory::dims& dims, memory::data_type type) {
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * dims[d];
  return memory::desc(dims, type, strides);
}

memory::desc Chosen(const memory::dims& dims, memory::data_type type) {
  return memory::desc(dims, type, memory::format_tag::any);
}

ConvDescs DescsOf(const OneDnnConvSpec& spec, bool chooses_layouts) {
  const ConvGeometry& conv = spec.conv;
  const auto type =
      spec.dtype == DType::kBFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
  memory::dims weight = {conv.group_out(), conv.group_in()};
  if (conv.groups > 1) weight.insert(weight.begin(), conv.groups);
  const auto describe = chooses_layouts ? Chosen : Dense;
  ConvDescs descs;
  descs.x = describe(WithSpatial({conv.batch, conv.in_channels}, conv, conv.in), type);
  descs.weight = describe(WithSpatial(weight, conv, conv.kernel), type);
  descs.y = describe(WithSpatial({conv.batch, conv.out_channels}, conv, conv.out), type);
  if (spec.has_bias) descs.bias = Dense({conv.out_channels}, type);
  descs.stride = Spatial(conv, conv.stride);
  descs.dilation = Spatial(conv, conv.dilation);
  for (int64_t& number : descs.dilation) --number;  // the library counts the elements in between
  descs.low = Spatial(conv, conv.low);
  descs.high = Spatial(conv, conv.high);
  return descs;
}

int64_t BytesOf(const memory::desc& desc) { return static_cast<int64_t>(desc.get_size()); }

int64_t Aligned(int64_t bytes) {
  return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
}

void Execute(const dnnl::primitive& primitive, const dnnl::stream& stream,
             const std::vector<dnnl_exec_arg_t>& args) {
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive.get(), stream.get(),
                                                 static_cast<int>(args.size()), args.data()),
                          "could not execute a convolution");
}

class WeightLayout final : public PackedLayout {
 public:
  WeightLayout(const dnnl::engine& engine, memory::desc plain, memory::desc packed, int threads)
      : engine_(engine), plain_(std::move(plain)), packed_(std::move(packed)), threads_(threads) {}

  int64_t bytes() const override { return BytesOf(packed_); }
  bool IsSame(const PackedLayout& other) const override {
    const auto* layout = dynamic_cast<const WeightLayout*>(&other);
    return layout != nullptr && layout->packed_ == packed_ && layout->plain_ == plain_;
  }
  absl::Status Pack(const void* weight, void* packed) const override {
    return GuardOneDnn([&] {
      TENSORD_RETURN_IF_ERROR(CheckStop());
      const ScopedThreads threads(threads_);
      memory from(plain_, engine_, const_cast<void*>(weight));
      memory to(packed_, engine_, packed);
      dnnl::stream stream(engine_);
      dnnl::reorder(from, to).execute(stream, from, to);
      return absl::OkStatus();
    });
  }

 private:
  const dnnl::engine engine_;
  const memory::desc plain_, packed_;
  const int threads_;
};

}  // namespace

class OneDnnConv::Library {
 public:
  Library() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  // Returns false if the library has only reference code.
  bool Make(const OneDnnConvSpec& spec);
  int64_t PlaceInScratch();
  absl::Status Run(const Operands& operands);
  std::shared_ptr<const PackedLayout> WeightLayoutOrNull() const;

 private:
  // Copies memory from one layout to another.
  struct Reorder {
    dnnl::reorder primitive;
    memory scratch;
    std::vector<dnnl_exec_arg_t> args;

    Reorder() = default;
    Reorder(const dnnl::engine& engine, const memory& from, const memory& to) {
      dnnl::primitive_attr attr;
      attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::reorder::primitive_desc desc(engine, from.get_desc(), engine, to.get_desc(),
                                               attr);
      primitive = dnnl::reorder(desc);
      scratch = memory(desc.scratchpad_desc(), engine, nullptr);
      args = {{DNNL_ARG_FROM, from.get()},
              {DNNL_ARG_TO, to.get()},
              {DNNL_ARG_SCRATCHPAD, scratch.get()}};
    }
    explicit operator bool() const { return static_cast<bool>(primitive); }
    int64_t scratch_bytes() const { return *this ? BytesOf(scratch.get_desc()) : 0; }
  };

  // An operand of a primitive. Each run sets the addresses of its memory objects.
  struct Slot {
    memory plain;
    memory chosen;       // in the layout that the primitive reads or writes
    Reorder reorder;     // if the layouts differ
    int64_t offset = 0;  // of `chosen` in the scratch memory

    bool is_copied() const { return static_cast<bool>(reorder); }
  };

  void SetScratch(char* scratch);
  void Copy(const Slot& slot) { Execute(slot.reorder.primitive, stream_, slot.reorder.args); }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  Slot slots_[3];  // the inputs a and b, and the output
  int weight_ = 1;
  memory bias_, scratch_;
  std::vector<dnnl_exec_arg_t> args_;
  int64_t scratch_offset_ = 0;
  int threads_ = 1;
};

bool OneDnnConv::Library::Make(const OneDnnConvSpec& spec) {
  threads_ = spec.threads;
  const ScopedThreads threads(threads_);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (!SetActivation(spec.activation, attr)) return false;
  const ConvDescs wanted = DescsOf(spec, spec.chooses_layouts), plain = DescsOf(spec, false);
  const ConvPrimitive made = MakeConvPrimitive(engine_, spec.kind, wanted, attr);
  if (IsReference(made.implementation)) return false;
  primitive_ = made.primitive;
  struct Position {
    int x, weight, y;  // the positions of the operands in slots_
    int x_arg, weight_arg, y_arg;
  };
  constexpr Position kPositions[] = {
      {0, 1, 2, DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
      {2, 1, 0, DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
      {1, 2, 0, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
  };
  const Position& at = kPositions[static_cast<int>(spec.kind)];
  weight_ = at.weight;
  const auto set = [this](int i, int arg, const memory::desc& plain_desc,
                          const memory::desc& chosen_desc) {
    Slot& slot = slots_[i];
    slot.plain = memory(plain_desc, engine_, nullptr);
    slot.chosen = memory(chosen_desc, engine_, nullptr);
    args_.push_back({arg, slot.chosen.get()});
    if (chosen_desc == plain_desc) return;
    slot.reorder = i == 2 ? Reorder(engine_, slot.chosen, slot.plain)
                          : Reorder(engine_, slot.plain, slot.chosen);
  };
  set(at.x, at.x_arg, plain.x, made.x);
  set(at.weight, at.weight_arg, plain.weight, made.weight);
  set(at.y, at.y_arg, plain.y, made.y);
  if (spec.has_bias) {
    bias_ = memory(*plain.bias, engine_, nullptr);
    args_.push_back({DNNL_ARG_BIAS, bias_.get()});
  }
  scratch_ = memory(made.scratchpad, engine_, nullptr);
  args_.push_back({DNNL_ARG_SCRATCHPAD, scratch_.get()});
  return true;
}

// Divides the scratch memory among the copies and the primitives. Returns its size.
int64_t OneDnnConv::Library::PlaceInScratch() {
  int64_t bytes = 0, library_bytes = BytesOf(scratch_.get_desc());
  for (Slot& slot : slots_) {
    if (!slot.is_copied()) continue;
    slot.offset = bytes;
    bytes += Aligned(BytesOf(slot.chosen.get_desc()));
    library_bytes = std::max(library_bytes, slot.reorder.scratch_bytes());
  }
  scratch_offset_ = bytes;
  return bytes + library_bytes;
}

std::shared_ptr<const PackedLayout> OneDnnConv::Library::WeightLayoutOrNull() const {
  const Slot& slot = slots_[weight_];
  if (weight_ == 2 || !slot.is_copied()) return nullptr;
  return std::make_shared<WeightLayout>(engine_, slot.plain.get_desc(), slot.chosen.get_desc(),
                                        threads_);
}

void OneDnnConv::Library::SetScratch(char* scratch) {
  for (Slot& slot : slots_) {
    if (!slot.is_copied()) continue;
    slot.chosen.set_data_handle(scratch + slot.offset);
    slot.reorder.scratch.set_data_handle(scratch + scratch_offset_);
  }
  scratch_.set_data_handle(scratch + scratch_offset_);
}

absl::Status OneDnnConv::Library::Run(const Operands& operands) {
  return GuardOneDnn([&] {
    const ScopedThreads threads(threads_);
    if (operands.scratch != nullptr) SetScratch(static_cast<char*>(operands.scratch));
    // The library doesn't write to the inputs, but its interface has no const.
    void* const addresses[] = {const_cast<void*>(operands.a), const_cast<void*>(operands.b),
                               operands.output};
    for (int i = 0; i < 3; ++i) {
      Slot& slot = slots_[i];
      (slot.is_copied() ? slot.plain : slot.chosen).set_data_handle(addresses[i]);
    }
    if (operands.bias != nullptr) bias_.set_data_handle(const_cast<void*>(operands.bias));
    for (int i = 0; i < 2; ++i) {
      Slot& slot = slots_[i];
      if (!slot.is_copied()) continue;
      if (i == weight_ && operands.packed_weight != nullptr) {
        slot.chosen.set_data_handle(const_cast<void*>(operands.packed_weight));
      } else {
        Copy(slot);
      }
    }
    Execute(primitive_, stream_, args_);
    if (slots_[2].is_copied()) Copy(slots_[2]);
    return absl::OkStatus();
  });
}

OneDnnConv::OneDnnConv() : library_(std::make_unique<Library>()) {}
OneDnnConv::~OneDnnConv() = default;

absl::StatusOr<std::unique_ptr<OneDnnConv>> OneDnnConv::Make(const OneDnnConvSpec& spec) {
  const auto unimplemented = [] {
    return absl::UnimplementedError("oneDNN: no fast code for this convolution");
  };
  if (!Fits(spec.conv, spec.dtype)) return unimplemented();
  std::unique_ptr<OneDnnConv> made;
  bool fast = false;
  TENSORD_RETURN_IF_ERROR(GuardOneDnn([&] {
    made.reset(new OneDnnConv);
    fast = made->library_->Make(spec);
    if (!fast) return absl::OkStatus();
    made->scratch_bytes_ = made->library_->PlaceInScratch();
    made->weight_layout_ = made->library_->WeightLayoutOrNull();
    return absl::OkStatus();
  }));
  if (!fast || made->scratch_bytes_ > kMaxScratchBytes + kMaxScratchBytesPerThread * spec.threads) {
    return unimplemented();
  }
  return made;
}

absl::Status OneDnnConv::Run(const Operands& operands) { return library_->Run(operands); }

}  // namespace tensord::server::cpu
