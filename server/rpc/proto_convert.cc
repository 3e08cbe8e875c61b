#include "tensord/server/rpc/proto_convert.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/attribute_message.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

// No op has so many attributes. The limit exists because Attributes::Set() searches all attributes.
constexpr size_t kMaxAttributes = 32;

absl::StatusOr<DType> DTypeFromProto(int number) {
  const DType dtype = static_cast<DType>(number);
  if (number < 0 || number > 255 || !IsValid(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype ", number, " is not a DType; set one, such as DTYPE_FLOAT32"));
  }
  return dtype;
}

}  // namespace

absl::StatusOr<TensorSpec> FromProto(const v1::TensorSpec& proto) {
  TensorSpec spec;
  TENSORD_ASSIGN_OR_RETURN(spec.dtype, DTypeFromProto(proto.dtype()));
  if (proto.shape_size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shape has ", proto.shape_size(), " dimensions; at most ", kMaxRank));
  }
  spec.shape = Shape(absl::MakeConstSpan(proto.shape().data(), proto.shape_size()));
  TENSORD_RETURN_IF_ERROR(spec.Validate());
  return spec;
}

void ToProto(const TensorSpec& spec, v1::TensorSpec* proto) {
  proto->set_dtype(static_cast<v1::DType>(spec.dtype));
  proto->mutable_shape()->Add(spec.shape.dims().begin(), spec.shape.dims().end());
}

absl::StatusOr<OpRequest> ToRequest(const v1::Op& op) {
  OpRequest request = {.op = op.name(),
                       .inputs = op.inputs(),
                       .output = op.output(),
                       .device = op.device(),
                       .num_outputs = std::max(1u, op.num_outputs()),
                       .donate = op.donate()};
  TENSORD_ASSIGN_OR_RETURN(request.attrs, FromProto(op.attrs()));
  return request;
}

absl::StatusOr<CollectiveOp> FromProto(const v1::Collective& proto) {
  CollectiveOp op;
  if (proto.kind() < v1::COLLECTIVE_KIND_BROADCAST || proto.kind() > v1::COLLECTIVE_KIND_BARRIER) {
    return absl::InvalidArgumentError(absl::StrCat("unknown collective kind ", proto.kind()));
  }
  op.kind = static_cast<CollectiveKind>(proto.kind());
  if (op.kind == CollectiveKind::kBarrier) return op;
  if (op.reduces()) {
    if (proto.reduction() == v1::REDUCTION_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          "the collective operation needs a reduction: REDUCTION_SUM, _MEAN or _MAX");
    }
    if (proto.reduction() < v1::REDUCTION_SUM || proto.reduction() > v1::REDUCTION_MAX) {
      return absl::InvalidArgumentError(absl::StrCat("unknown reduction ", proto.reduction()));
    }
    op.reduction = static_cast<CollectiveReduction>(proto.reduction());
  }
  // Limits the root, so that a large root doesn't become a valid rank when it is converted to int.
  op.root = static_cast<int>(std::min(proto.root(), Collectives::kMaxGroupSize));
  TENSORD_ASSIGN_OR_RETURN(op.spec, FromProto(proto.spec()));
  return op;
}

absl::StatusOr<AttrValue> FromProto(const v1::AttrValue& proto, absl::string_view name) {
  switch (proto.value_case()) {
    case v1::AttrValue::kB:
      return AttrValue(proto.b());
    case v1::AttrValue::kI:
      return AttrValue(proto.i());
    case v1::AttrValue::kF:
      return AttrValue(proto.f());
    case v1::AttrValue::kS:
      return AttrValue(proto.s());
    case v1::AttrValue::kInts:
      return AttrValue(
          std::vector<int64_t>(proto.ints().values().begin(), proto.ints().values().end()));
    case v1::AttrValue::kDtype: {
      absl::StatusOr<DType> dtype = DTypeFromProto(proto.dtype());
      if (dtype.ok()) return AttrValue(*dtype);
      return absl::InvalidArgumentError(
          absl::StrCat("attribute \"", name, "\": ", dtype.status().message()));
    }
    case v1::AttrValue::kData:
      return AttrValue(Bytes{proto.data()});
    case v1::AttrValue::VALUE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("attribute \"", name, "\" has no value; set one, or leave the attribute out"));
}

absl::StatusOr<Attributes> FromProto(
    const google::protobuf::Map<std::string, v1::AttrValue>& attrs) {
  if (attrs.size() > kMaxAttributes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the op has ", attrs.size(), " attributes; at most ", kMaxAttributes));
  }
  // Sorts by name. Errors and the keys of prepared ops depend on the order of the attributes, and
  // the order of a protobuf map differs from run to run.
  using Entry = google::protobuf::Map<std::string, v1::AttrValue>::value_type;
  absl::InlinedVector<const Entry*, 4> entries;
  for (const Entry& entry : attrs) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->first < b->first; });
  Attributes out;
  for (const Entry* entry : entries) {
    TENSORD_ASSIGN_OR_RETURN(AttrValue value, FromProto(entry->second, entry->first));
    out.Set(entry->first, std::move(value));
  }
  return out;
}

void ToProto(const AttrValue& value, v1::AttrValue* proto) { SetAttrMessage(value, proto); }

void ToProto(const Device& device, v1::Device* proto) {
  const DeviceInfo& info = device.info();
  const MemoryStats memory = device.memory();
  proto->set_name(info.name.ToString());
  proto->set_kind(std::string(info.name.kind.name()));
  proto->set_model(info.model);
  proto->set_uuid(info.uuid);
  proto->set_compute_capability(info.compute_capability);
  proto->set_memory_total_bytes(memory.total_bytes);
  proto->set_memory_used_bytes(memory.used_bytes);
  proto->set_memory_peak_bytes(memory.peak_bytes);
  proto->set_memory_limit_bytes(memory.limit_bytes);
  proto->set_threads(info.threads);
  const DeviceHealth health = device.health();
  proto->set_state(static_cast<v1::DeviceState>(health.state));
  proto->set_state_reason(health.reason);
  proto->set_restarts(health.restarts);
}

void ToProto(const OpSchema& schema, v1::OpInfo* proto) {
  proto->set_name(schema.name);
  proto->set_signature(schema.signature);
  proto->set_description(schema.doc);
  proto->set_min_inputs(schema.min_inputs);
  proto->set_max_inputs(schema.max_inputs);
  for (const std::string& name : schema.input_names) proto->add_input_names(name);
  for (const AttrDef& attr : schema.attrs) {
    v1::OpAttr* out = proto->add_attrs();
    out->set_name(attr.name);
    out->set_type(std::string(AttrTypeName(attr.type)));
    out->set_description(attr.doc);
    if (attr.default_value) ToProto(*attr.default_value, out->mutable_default_value());
  }
}

void ToProto(const Tensor& tensor, v1::Tensor* proto) {
  proto->set_handle(tensor.handle());
  if (tensor.slot() == nullptr) return;  // a refused op has no spec and no device
  ToProto(tensor.spec(), proto->mutable_spec());
  proto->set_device(tensor.device().name().ToString());
  proto->set_size_bytes(tensor.spec().size_bytes());
}

}  // namespace tensord::server
