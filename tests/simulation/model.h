// The expected elements of a client's tensors, and the errors that the server has reported.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/client/internal/command_queue.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::simulation {

// A tensor and its expected elements. The elements are integers that are exact in all dtypes.
struct Value {
  uint64_t handle = 0;
  uint64_t command = 0;  // number of the command that makes it
  TensorSpec spec;
  int device = 0;
  std::vector<int64_t> elements;
  std::vector<std::shared_ptr<Value>> inputs;
  std::vector<uint64_t> siblings;  // all outputs of the same command
  std::string made_by;
  // The error that the elements of its inputs give, without the op and the tensor: "index 7 …". If
  // there is none, it is "".
  std::string value_error;

  bool good = false;    // it, or a tensor computed from it, has been read without an error
  bool upload = false;  // it needs an upload, which may never finish
  int reads = 0;        // unary reads in progress
  absl::Status error;   // the error that the server has reported
};
using ValueRef = std::shared_ptr<Value>;

// The largest magnitude of an element.
inline constexpr int64_t kMaxElement = int64_t{1} << 22;

// Returns the bytes of a tensor with these elements.
std::string Encode(const TensorSpec& spec, const std::vector<int64_t>& elements);
// Returns whether the bytes are a tensor with these elements.
bool Matches(const TensorSpec& spec, absl::string_view bytes, const std::vector<int64_t>& elements);

// The errors that can occur in a world, except errors of connections.
struct ExpectedErrors {
  bool allocations_fail = false;
  bool small_devices = false;
  bool session_bytes = false;
  bool principal_bytes = false;
  bool session_handles = false;
  bool principal_handles = false;
  bool ops_in_flight = false;
  bool upload_bytes = false;
};

// All tensors that a client has made, including those that it has dropped. A check returns a
// description of the failure, or an empty string.
class Model {
 public:
  explicit Model(const ExpectedErrors& expected_errors) : expected_errors_(expected_errors) {}

  void Add(const ValueRef& value) { values_[value->handle] = value; }

  // Checks and records an error of a handle that the server reports on the stream.
  std::string OnHandleError(const v1::HandleError& reported);
  // Checks the result of a unary read.
  std::string OnUnaryRead(const Value& value, const absl::StatusOr<std::string>& bytes);
  // Checks the result of a read on the stream.
  std::string Read(const Value& value, const absl::StatusOr<v1::Elements>& answer);

 private:
  std::string RecordSuccess(Value& value);
  std::string RecordFailure(Value& value, const absl::Status& error);
  // Checks that something in this world explains the error.
  std::string CheckPossible(const Value& value, const absl::Status& error) const;
  // Returns whether the value's handle may have exceeded a limit on handles.
  bool MayBeMissing(const Value& value) const;
  bool IsLimitOf(const absl::Status& error) const;
  // Returns whether the error is the value error of one of `ancestors`.
  static bool IsValueError(const std::set<const Value*>& ancestors, const absl::Status& error);

  const ExpectedErrors expected_errors_;
  std::map<uint64_t, ValueRef> values_;
};

}  // namespace tensord::simulation
