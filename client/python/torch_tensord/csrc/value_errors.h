// Errors of values, which only the server finds: an index out of range, a probability above 1. The
// functions here make such errors name the function of PyTorch that the program has called.
#ifndef TENSORD_CLIENT_PYTHON_TORCH_TENSORD_CSRC_VALUE_ERRORS_H_
#define TENSORD_CLIENT_PYTHON_TORCH_TENSORD_CSRC_VALUE_ERRORS_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "value.h"

namespace torch_tensord {

// ---- indices

// Names the function of PyTorch that sends an op with indices. All texts are constants.
struct Origin {
  const char* server_op;  // "index", "gather", "scatter", "index_put"; null: any of them
  const char* function;   // "embedding"
  const char* operand;    // what PyTorch calls the indices. Null: as the server calls them
  // The indices are a target that has got an axis of size 1 for the classes, after its first axis.
  bool has_class_axis = false;
  const Origin* next = nullptr;  // of another op of the same program
};

// Remembers the origin of `made`, which must exist until the process ends. Doesn't allocate.
// Returns `made`.
Value Named(const Origin& origin, c10::DeviceIndex device, Value made);

// While it exists, its origin is that of all ops that this thread sends. Functions that call other
// functions of PyTorch make one. If scopes are nested, the outer one counts.
class OriginScope {
 public:
  explicit OriginScope(const Origin& origin);
  ~OriginScope();
  OriginScope(const OriginScope&) = delete;

 private:
  const Origin* const before_;
};

// Returns a list of these origins for a program. The list exists until the process ends.
const Origin* ListOrigins(std::vector<const Origin*> origins);
// Remembers the origins of a program's ops. `made` is an output of the program.
void NameProgram(const Origin* origins, c10::DeviceIndex device, const Value& made);
// Forgets all origins, because the numbers of the tensors of another connection begin anew.
void ForgetOrigins();

// ---- rules of values

enum class Rule : int {
  kBceInput,
  kBceTarget,
  kBernoulliProbability,
  kMultinomialNegative,
  kMultinomialSum,
  kNormalDeviation,
  kNegativeRepeats,
};
struct Requirement {
  Value ok;  // one bool
  Rule rule;
};
// Returns `x`. If `ok` of a requirement is false, this value has the error of the rule, as do the
// values that are computed from it. Copies `x` on the server, and doesn't wait.
Value Require(const Value& x, std::initializer_list<Requirement> requirements);
// Returns whether all elements are at least `low`, or at most `high`. NaN is neither.
Value AllAtLeast(const Value& x, double low);
Value AllAtMost(const Value& x, double high);

// ---- messages

// Makes a message of the server name the function of PyTorch, if it is known.
std::string ExplainValueError(std::string message);

}  // namespace torch_tensord

#endif  // TENSORD_CLIENT_PYTHON_TORCH_TENSORD_CSRC_VALUE_ERRORS_H_
