// What a client's tensors are, computed a second time, and what is known of those that failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/client/internal/command_queue.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::simulation {

// A tensor as the client has made it. Elements are whole numbers so small that each dtype has them
// exactly.
struct Value {
  uint64_t handle = 0;
  uint64_t command = 0;  // number of the one that makes it
  TensorSpec spec;
  int device = 0;
  std::vector<int64_t> elements;
  std::vector<std::shared_ptr<Value>> inputs;
  std::vector<uint64_t> siblings;  // what the same command makes
  std::string made_by;
  mutable std::atomic<const internal::NumberedSpec*> numbered_spec{nullptr};

  bool good = false;    // has been read, or something that was computed from it
  bool upload = false;  // needs bytes that may never come
  int reads = 0;        // under way beside the stream
  absl::Status error;   // as the server has told it
};
using ValueRef = std::shared_ptr<Value>;

// The largest magnitude of an element.
inline constexpr int64_t kMaxElement = int64_t{1} << 22;

// The elements as a tensor's bytes, and whether bytes are these elements.
std::string Encode(const TensorSpec& spec, const std::vector<int64_t>& elements);
bool Matches(const TensorSpec& spec, absl::string_view bytes, const std::vector<int64_t>& elements);

// What may go wrong in a world, beside the connections.
struct Troubles {
  bool allocations_fail = false;
  bool small_devices = false;
  bool session_bytes = false;
  bool principal_bytes = false;
  bool session_handles = false;
  bool principal_handles = false;
  bool ops_in_flight = false;
  bool upload_bytes = false;
};

// All that a client has made, also what it has let go of. Checks return what is wrong, or nothing.
class Model {
 public:
  explicit Model(const Troubles& troubles) : troubles_(troubles) {}

  void Add(const ValueRef& value) { values_[value->handle] = value; }

  // The server says that a handle has failed.
  std::string Told(const v1::HandleError& told);
  // A read beside the stream has brought these bytes.
  std::string ReadBeside(const Value& value, const absl::StatusOr<std::string>& bytes);
  // A read has brought this.
  std::string Read(const Value& value, const absl::StatusOr<v1::Elements>& answer);

 private:
  std::string Good(Value& value);
  std::string Failed(Value& value, const absl::Status& error);
  // Whether an error could come about at all in this world.
  std::string Possible(const Value& value, const absl::Status& error) const;
  // Whether there may have been no room for its handle.
  bool MayBeMissing(const Value& value) const;
  bool IsLimitOf(const absl::Status& error) const;

  const Troubles troubles_;
  std::map<uint64_t, ValueRef> values_;
};

}  // namespace tensord::simulation
