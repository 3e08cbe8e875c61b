#include "tensord/server/rpc/parsed_size.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Messages up to this size aren't estimated. Parsed, they take at most 120 times their size.
constexpr size_t kMinCountedBytes = 128;

constexpr int64_t kMaxParsedRatio = 16;
// As in protobuf's parser.
constexpr int kMaxDepth = 100;

// The estimates, for protobuf 3.21 and a 64-bit allocator.
constexpr int64_t kAllocationBytes = 16;  // the header and the rounding of an allocation
// Of a text without its characters.
constexpr int64_t kTextBytes = sizeof(std::string) + kAllocationBytes;
constexpr int64_t kInlineTextBytes = 16;  // shorter texts are within the string's object
constexpr int64_t kMinTextBytes = 32;     // what a longer text allocates besides its characters
// An array doubles its memory when it grows.
constexpr int64_t kGrowth = 2;
constexpr int64_t kPointerBytes = 24;   // of an element of a repeated field, as the array grows
constexpr int64_t kNumbersBytes = 64;   // of an array of numbers, without most of its elements
constexpr int64_t kMapNodeBytes = 96;   // of a map's entry, with its place in the table
constexpr int64_t kUnknownBytes = 128;  // of an unknown field, with its set

// What the parser allocates for the fields of a message type.
struct Layout {
  enum class Kind : uint8_t { kUnknown, kNumber, kText, kMessage };
  struct Field {
    Kind kind = Kind::kUnknown;
    WireFormatLite::WireType wire_type = {};  // of a number
    bool repeated = false;
    int64_t number_bytes = 0;         // of one number in memory
    const Layout* message = nullptr;  // of a submessage
  };

  const Field& FieldOf(int number) const {
    static constexpr Field kNone;
    return static_cast<size_t>(number) < fields.size() ? fields[number] : kNone;
  }

  int64_t object_bytes = 0;   // of the message's object, as a submessage
  std::vector<Field> fields;  // by field number
};

int64_t NumberBytes(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return 1;
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_ENUM:
      return 4;
    default:
      return 8;
  }
}

// Returns the bytes of an object of `type` without content.
int64_t ObjectBytes(const Descriptor& type) {
#ifdef __SANITIZE_THREAD__
  // Under ThreadSanitizer, protobuf's headers lay out maps differently than its library, whose
  // SpaceUsedLong() then crashes. This is an upper bound.
  return 128 + 96 * static_cast<int64_t>(type.field_count());
#else
  const google::protobuf::Message* const object =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
  return static_cast<int64_t>(object->SpaceUsedLong());
#endif
}

// Makes the layout of each type once. Thread-safe.
class Layouts {
 public:
  static const Layout& Of(const Descriptor& type) {
    static auto* const layouts = new Layouts;
    MutexLock lock(&layouts->mu_);
    return layouts->FindLocked(type);
  }

 private:
  const Layout& FindLocked(const Descriptor& type) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto [found, is_new] = layouts_.try_emplace(&type);
    if (!is_new) return *found->second;
    Layout& layout = *(found->second = std::make_unique<Layout>());
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const auto number = static_cast<size_t>(field.number());
      if (layout.fields.size() <= number) layout.fields.resize(number + 1);
      layout.fields[number] = FieldLocked(field);
    }
    if (type.options().map_entry()) {
      const Descriptor* const value = type.map_value()->message_type();
      layout.object_bytes =
          kMapNodeBytes + (value != nullptr ? FindLocked(*value).object_bytes : 0);
    } else {
      layout.object_bytes = ObjectBytes(type) + kAllocationBytes;
    }
    return layout;
  }

  Layout::Field FieldLocked(const FieldDescriptor& field) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Layout::Field made;
    made.repeated = field.is_repeated();
    if (field.message_type() != nullptr) {
      made.kind = Layout::Kind::kMessage;
      made.message = &FindLocked(*field.message_type());
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      made.kind = Layout::Kind::kText;
    } else {
      made.kind = Layout::Kind::kNumber;
      made.number_bytes = NumberBytes(field);
      made.wire_type = WireFormatLite::WireTypeForFieldType(
          static_cast<WireFormatLite::FieldType>(field.type()));
    }
    return made;
  }

  Mutex mu_;
  absl::flat_hash_map<const Descriptor*, std::unique_ptr<Layout>> layouts_ ABSL_GUARDED_BY(mu_);
};

class Counter {
 public:
  Counter(CodedInputStream* in, int64_t max_bytes) : in_(*in), max_bytes_(max_bytes) {}

  // Counts the fields up to the current limit. Returns false if it stops early.
  bool Message(const Layout& layout, int depth) {
    if (depth > kMaxDepth) return false;
    while (const uint32_t tag = in_.ReadTag()) {
      if (!Field(layout.FieldOf(WireFormatLite::GetTagFieldNumber(tag)), tag, depth)) return false;
    }
    return in_.ConsumedEntireMessage();
  }

  int64_t bytes() const { return bytes_; }

 private:
  bool Add(int64_t bytes) {
    bytes_ += bytes;
    return bytes_ <= max_bytes_;
  }

  bool ReadLength(int* length) {
    return in_.ReadVarintSizeAsInt(length) && *length <= in_.BytesUntilLimit();
  }

  bool Field(const Layout::Field& field, uint32_t tag, int depth) {
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    const bool delimited = wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    switch (field.kind) {
      case Layout::Kind::kText:
        if (delimited) return Text(field.repeated ? kPointerBytes : 0);
        break;
      case Layout::Kind::kMessage:
        if (delimited) return Submessage(field, depth);
        break;
      case Layout::Kind::kNumber:
        if (field.repeated && delimited) return Packed(field);
        if (wire_type != field.wire_type) break;
        // Counts an array for each element. tensord's clients don't send lists in this form.
        if (field.repeated && !Add(kNumbersBytes)) return false;
        return WireFormatLite::SkipField(&in_, tag);
      case Layout::Kind::kUnknown:
        break;
    }
    return Unknown(tag, depth);
  }

  bool Text(int64_t bytes) {
    int length = 0;
    if (!ReadLength(&length)) return false;
    const int64_t text_bytes = length < kInlineTextBytes ? 0 : length + kMinTextBytes;
    return Add(bytes + kTextBytes + text_bytes) && in_.Skip(length);
  }

  bool Submessage(const Layout::Field& field, int depth) {
    int length = 0;
    if (!ReadLength(&length)) return false;
    if (!Add(field.message->object_bytes + (field.repeated ? kPointerBytes : 0))) return false;
    const CodedInputStream::Limit limit = in_.PushLimit(length);
    if (!Message(*field.message, depth + 1)) return false;
    in_.PopLimit(limit);
    return true;
  }

  bool Packed(const Layout::Field& field) {
    int length = 0;
    if (!ReadLength(&length)) return false;
    const bool varints = field.wire_type == WireFormatLite::WIRETYPE_VARINT;
    int64_t count = varints ? 0 : length / field.number_bytes;
    if (!varints && !in_.Skip(length)) return false;
    for (int left = varints ? length : 0; left > 0;) {
      const void* data = nullptr;
      int size = 0;
      if (!in_.GetDirectBufferPointer(&data, &size)) return false;
      size = std::min(size, left);
      // Each varint has one byte without the highest bit: its last.
      const auto* const bytes = static_cast<const int8_t*>(data);
      count += std::count_if(bytes, bytes + size, [](int8_t byte) { return byte >= 0; });
      left -= size;
      if (!in_.Skip(size)) return false;
    }
    return Add(kGrowth * count * field.number_bytes + kNumbersBytes);
  }

  bool Unknown(uint32_t tag, int depth) {
    if (!Add(kUnknownBytes)) return false;
    const auto type = WireFormatLite::GetTagWireType(tag);
    if (type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) return Text(0);
    if (type != WireFormatLite::WIRETYPE_START_GROUP) return WireFormatLite::SkipField(&in_, tag);
    if (depth == kMaxDepth) return false;
    const uint32_t end =
        tag - WireFormatLite::WIRETYPE_START_GROUP + WireFormatLite::WIRETYPE_END_GROUP;
    uint32_t next = in_.ReadTag();
    while (next != 0 && next != end && Unknown(next, depth + 1)) next = in_.ReadTag();
    return next == end;
  }

  CodedInputStream& in_;
  const int64_t max_bytes_;
  int64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<int64_t> EstimateParsedBytes(grpc::ByteBuffer* message, const Descriptor& type,
                                            int64_t max_bytes) {
  grpc::ProtoBufferReader reader(message);
  CodedInputStream in(&reader);
  in.PushLimit(static_cast<int>(message->Length()));
  Counter counter(&in, max_bytes);
  const bool complete = counter.Message(Layouts::Of(type), 0);
  if (complete || counter.bytes() > max_bytes) return counter.bytes();
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes are not a valid ", type.full_name(), " message"));
}

namespace {

// Returns the estimate in bytes. `rule` says where `max_bytes` comes from.
absl::StatusOr<int64_t> CheckedEstimate(grpc::ByteBuffer* message, const Descriptor& type,
                                        int64_t max_bytes, absl::string_view rule) {
  TENSORD_ASSIGN_OR_RETURN(const int64_t bytes, EstimateParsedBytes(message, type, max_bytes));
  if (bytes <= max_bytes) return bytes;
  return absl::ResourceExhaustedError(absl::StrCat(
      "a ", type.full_name(), " of ", message->Length(), " bytes takes more than ", max_bytes,
      " bytes of memory when it is parsed, ", rule, "; split it into several messages"));
}

}  // namespace

absl::Status ParsedCharge::Take(const PrincipalRef& caller, grpc::ByteBuffer* message,
                                const Descriptor& type) {
  bytes_ = 0;
  if (message->Length() <= kMinCountedBytes) return absl::OkStatus();
  if (caller == nullptr) return CheckParsedSize(message, type);
  const int64_t max_bytes =
      kMaxParsedRatio * static_cast<int64_t>(message->Length()) + kModerateBytes;
  TENSORD_ASSIGN_OR_RETURN(
      bytes_, CheckedEstimate(message, type, max_bytes, "16 times its size and 16 MiB"));
  if (bytes_ <= kUnchargedBytes) return absl::OkStatus();
  charge_ = Charge(BudgetOf(caller, PrincipalLimit::kHostBytes));
  const bool may_exceed = at_limit_ == AtLimit::kModerate && bytes_ <= kModerateBytes;
  return charge_.Add(bytes_, may_exceed ? kModerateBytes : 0);
}

absl::Status CheckParsedSize(grpc::ByteBuffer* message, const Descriptor& type) {
  if (message->Length() <= kMinCountedBytes) return absl::OkStatus();
  return CheckedEstimate(message, type, ParsedCharge::kUnchargedBytes, "the limit for this message")
      .status();
}

}  // namespace tensord::server
