// Only the server finds errors of values: an index out of range, a probability above 1. The
// functions here make the messages of such errors name the function of PyTorch that was called.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "value.h"

namespace torch_tensord {

// ---- indices

// Names the function of PyTorch that sends an op with indices. All texts are constants.
struct Origin {
  const char* server_op;  // "index", "gather", "scatter" or "index_put". Null: any of them
  const char* function;   // "embedding"
  const char* operand;    // PyTorch's name for the indices. Null: the server's name is kept
  // If true, the server's indices have one axis more than PyTorch's target: an axis of size 1 for
  // the classes, after the first axis. Messages then leave out this axis. If a composition failed
  // in its inner op "index", the message already has the target's axes.
  bool has_class_axis = false;
  const Origin* next = nullptr;  // the origin of another op of the same program
};

// Remembers `origin`, or that of the OriginScope, as the origin of `made`. Returns `made`. The
// origin must exist until the process ends. Thread-safe.
Value Named(const Origin& origin, c10::DeviceIndex device, Value made);

// While the scope exists, its origin is the origin of all ops that this thread sends. A kernel that
// calls other functions of PyTorch makes a scope. If scopes are nested, the outer one counts.
class OriginScope {
 public:
  explicit OriginScope(const Origin& origin);
  ~OriginScope();
  OriginScope(const OriginScope&) = delete;

 private:
  const Origin* const before_;
};

// Returns a list of these origins for a program. The list exists until the process ends. If there
// are no origins, or too many lists exist, returns null.
const Origin* ListOrigins(std::vector<const Origin*> origins);
// Remembers the origins of a program's ops. `made` must be the first output of the program, which
// the server's errors name. If `origins` is null, does nothing.
void NameProgram(const Origin* origins, c10::DeviceIndex device, const Value& made);
// Forgets all origins. A new connection must call this, because its tensors get the same numbers.
void ForgetOrigins();

// ---- rules of values

enum class Rule : int {
  kBceInput,
  kBceTarget,
  kBernoulliProbability,
  kMultinomialNegative,
  kMultinomialSum,
  kNormalDeviation,
  kPoissonRate,
  kNegativeRepeats,
};
struct Requirement {
  Value ok;  // one bool
  Rule rule;
};
// Returns `x`. If `ok` of a requirement is false, this value has the error of the rule, as do the
// values that are computed from it. Copies `x` on the server, and doesn't wait.
Value Require(const Value& x, std::initializer_list<Requirement> requirements);
// Return whether all elements are at least `low`, or at most `high`. If an element is NaN, return
// false.
Value AllAtLeast(const Value& x, double low);
Value AllAtMost(const Value& x, double high);

// ---- messages

// Returns the message of a server's error in PyTorch's words. If the origin of the tensor is known,
// the message names the function of PyTorch. Doesn't change messages that name no failed tensor.
std::string ExplainValueError(std::string message);

}  // namespace torch_tensord
