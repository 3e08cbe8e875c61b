#include "value_errors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "graph.h"
#include "guarded.h"

namespace torch_tensord {
namespace {

// ---- the origins of tensors

// The number of tensors of a device whose origins are kept. A later tensor replaces an earlier one.
constexpr size_t kRemembered = 1 << 14;
constexpr size_t kMaxDevices = 127;
constexpr size_t kMaxLists = 1024;  // of origins of programs

// The writer sets `handle` to 0, writes `origin`, and then writes `handle`. So a reader that finds
// the same `handle` before and after it has read `origin` has the origin of this tensor.
struct Slot {
  std::atomic<uint64_t> handle{0};
  std::atomic<const Origin*> origin{nullptr};
};
using Slots = std::array<Slot, kRemembered>;

std::array<std::atomic<Slots*>, kMaxDevices>& slots_of_devices() {
  static auto* const all = new std::array<std::atomic<Slots*>, kMaxDevices>{};
  return *all;
}

Slots& SlotsOf(c10::DeviceIndex device) {
  std::atomic<Slots*>& known = slots_of_devices()[static_cast<size_t>(device)];
  Slots* found = known.load(std::memory_order_acquire);
  if (C10_LIKELY(found != nullptr)) return *found;
  auto made = std::make_unique<Slots>();
  if (known.compare_exchange_strong(found, made.get())) return *made.release();
  return *found;
}

void Remember(const Origin& origin, c10::DeviceIndex device, uint64_t handle) {
  Slot& slot = SlotsOf(device)[handle % kRemembered];
  slot.handle.store(0, std::memory_order_relaxed);
  slot.origin.store(&origin, std::memory_order_release);
  slot.handle.store(handle, std::memory_order_release);
}

// Returns the origin of a tensor. If it isn't known, returns null. An error names the tensor's
// number, but not its device. If tensors of several servers have this number, and their origins
// differ, returns null.
const Origin* FindOrigin(uint64_t handle) {
  const Origin* found = nullptr;
  for (const std::atomic<Slots*>& each : slots_of_devices()) {
    const Slots* const slots = each.load(std::memory_order_acquire);
    if (slots == nullptr) continue;
    const Slot& slot = (*slots)[handle % kRemembered];
    if (slot.handle.load(std::memory_order_acquire) != handle) continue;
    const Origin* const origin = slot.origin.load(std::memory_order_acquire);
    if (slot.handle.load(std::memory_order_acquire) != handle) continue;
    if (found != nullptr && found != origin) return nullptr;
    found = origin;
  }
  return found;
}

thread_local const Origin* scope = nullptr;

// ---- rules

struct RuleText {
  const char* function;
  const char* text;
};
// The index is the number of the rule.
constexpr RuleText kRules[] = {
    {"binary_cross_entropy", "all elements of input should be between 0 and 1"},
    {"binary_cross_entropy", "all elements of target should be between 0 and 1"},
    {"bernoulli", "all probabilities should be between 0 and 1"},
    {"multinomial", "the probability tensor contains NaN or an element below 0"},
    {"multinomial", "invalid distribution: a sum of the probabilities is 0 or infinite"},
    {"normal", "all elements of std should be at least 0"},
    {"poisson", "all rates should be at least 0"},
    {"repeat_interleave", "repeats can not be negative"},
};
// If a rule is broken, the server gets an index out of range: kFirstRule plus the rule's number.
constexpr int64_t kFirstRule = int64_t{1} << 62;

const RuleText* FindRule(int64_t index) {
  const int64_t number = index - kFirstRule;
  if (number < 0 || number >= static_cast<int64_t>(std::size(kRules))) return nullptr;
  return &kRules[number];
}

// ---- messages

// The parts of a message such as
// "tensord: program (tensor 12): index: index 9 at [1] of input 1 is …\nnotes".
struct Message {
  std::string before, op, text, notes;
  // The names of the ops within a program or composition, from the outermost to the one that
  // failed: "nll_loss: gather". Empty if there are none.
  std::string inner;
  uint64_t handle = 0;
};

std::optional<Message> Parse(const std::string& message) {
  constexpr std::string_view kTensor = " (tensor ";
  const size_t at = message.find(kTensor);
  if (at == std::string::npos) return std::nullopt;
  const size_t end = message.find("): ", at);
  if (end == std::string::npos) return std::nullopt;
  Message parts;
  const size_t space = message.rfind(' ', at - 1);
  const size_t begin = at == 0 || space == std::string::npos ? 0 : space + 1;
  parts.before = message.substr(0, begin);
  parts.op = message.substr(begin, at - begin);
  parts.handle = std::strtoull(message.c_str() + at + kTensor.size(), nullptr, 10);
  parts.text = message.substr(end + 3);
  if (const size_t line = parts.text.find('\n'); line != std::string::npos) {
    parts.notes = parts.text.substr(line);
    parts.text.resize(line);
  }
  for (;;) {
    const size_t colon = parts.text.find(": ");
    if (colon == std::string::npos || parts.text.find(' ') != colon + 1) return parts;
    parts.inner += (parts.inner.empty() ? "" : ": ") + parts.text.substr(0, colon);
    parts.text.erase(0, colon + 2);
  }
}

// Returns the number after "index ", or -1.
int64_t IndexOf(const std::string& text) {
  constexpr std::string_view kIndex = "index ";
  if (text.compare(0, kIndex.size(), kIndex) != 0) return -1;
  return std::strtoll(text.c_str() + kIndex.size(), nullptr, 10);
}

// Removes the second number of a position such as "[2, 0, 5]". If there is only one number, removes
// this number.
void DropClassAxis(std::string* text) {
  const size_t open = text->find('['), close = text->find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return;
  const size_t first = text->find(", ", open);
  if (first == std::string::npos || first > close) {
    text->erase(open + 1, close - open - 1);
    return;
  }
  const size_t second = std::min(text->find(", ", first + 2), close);
  text->erase(first, second - first);
}

// Replaces "input 1" by the name of the operand. If the name has a "#", the number replaces it.
void RenameOperand(const Origin& origin, std::string* text) {
  constexpr std::string_view kInput = " of input ";
  const size_t at = text->find(kInput);
  if (origin.operand == nullptr || at == std::string::npos) return;
  size_t end = at + kInput.size();
  while (end < text->size() && (*text)[end] >= '0' && (*text)[end] <= '9') ++end;
  std::string operand = origin.operand;
  if (const size_t number = operand.find('#'); number != std::string::npos) {
    operand.replace(number, 1, *text, at + kInput.size(), end - at - kInput.size());
  }
  text->replace(at, end - at, " of " + operand);
}

// Returns the functions of an op's origins, with " or " between them. If there is only one
// function, rewrites `text` with the name of its operand. `inner` is the innermost op that failed.
std::string ExplainOrigins(const Origin* origins, const std::string& op, const std::string& inner,
                           std::string* text) {
  std::vector<std::string_view> functions;
  const Origin* only = nullptr;
  for (const Origin* each = origins; each != nullptr; each = each->next) {
    if (each->server_op != nullptr && op != each->server_op) continue;
    if (std::find(functions.begin(), functions.end(), each->function) == functions.end()) {
      functions.emplace_back(each->function);
    }
    only = each;
  }
  if (functions.size() == 1) {
    if (only->has_class_axis && inner != "index") DropClassAxis(text);
    RenameOperand(*only, text);
  }
  std::string joined;
  for (const std::string_view each : functions) {
    joined += joined.empty() ? "" : " or ";
    joined += each;
  }
  return joined;
}

// Returns whether TENSORD_DEBUG already shows which line called the op.
bool NamesLines() {
  const char* const modes = std::getenv("TENSORD_DEBUG");
  if (modes == nullptr) return false;
  return std::strstr(modes, "sync") != nullptr ||
         (InPython() && std::strstr(modes, "tracebacks") != nullptr);
}

}  // namespace

Value Named(const Origin& origin, c10::DeviceIndex device, Value made) {
  const Origin& own = scope == nullptr ? origin : *scope;
  const uint64_t handle = Api().handle(made->tensor);
  if (C10_LIKELY(handle != 0 && device >= 0)) {
    Remember(own, device, handle);
  } else if (IsRecording()) {
    AddOriginToRecording(own);
  }
  return made;
}

OriginScope::OriginScope(const Origin& origin) : before_(scope) {
  if (scope == nullptr) scope = &origin;
}
OriginScope::~OriginScope() { scope = before_; }

const Origin* ListOrigins(std::vector<const Origin*> origins) {
  using Lists = std::map<std::vector<const Origin*>, std::unique_ptr<std::vector<Origin>>>;
  static auto* const all = new Guarded<Lists>;
  std::sort(origins.begin(), origins.end());
  origins.erase(std::unique(origins.begin(), origins.end()), origins.end());
  if (origins.empty()) return nullptr;
  const auto lists = all->Lock();
  const auto known = lists->find(origins);
  if (known != lists->end()) return known->second->data();
  if (lists->size() >= kMaxLists) return nullptr;
  auto list = std::make_unique<std::vector<Origin>>();
  for (const Origin* each : origins) list->push_back(*each);
  for (size_t i = 0; i + 1 < list->size(); ++i) (*list)[i].next = &(*list)[i + 1];
  const Origin* const first = list->data();
  lists->emplace(std::move(origins), std::move(list));
  return first;
}

void NameProgram(const Origin* origins, c10::DeviceIndex device, const Value& made) {
  if (origins == nullptr) return;
  if (const uint64_t handle = Api().handle(made->tensor); handle != 0) {
    Remember(*origins, device, handle);
  }
}

void ForgetOrigins() {
  for (const std::atomic<Slots*>& each : slots_of_devices()) {
    Slots* const slots = each.load(std::memory_order_acquire);
    if (slots == nullptr) continue;
    for (Slot& slot : *slots) slot.handle.store(0, std::memory_order_release);
  }
}

Value Require(const Value& x, std::initializer_list<Requirement> requirements) {
  constexpr int64_t kMaxAxes = 4;
  // One index for each requirement: 0, or a number out of range.
  c10::DimVector sizes(requirements.size(), 1);
  const bool flat = x->dim() > kMaxAxes;
  if (flat) {
    sizes.push_back(x->numel());
  } else {
    sizes.append(x->sizes().begin(), x->sizes().end());
  }
  const Value spread = Reshape(x, sizes);
  c10::SmallVector<Value, 4> codes;
  c10::SmallVector<In, 5> inputs = {spread};
  for (const Requirement& each : requirements) {
    const int64_t code = kFirstRule + static_cast<int64_t>(each.rule);
    codes.push_back(Where(each.ok, In(0, at::kLong), In(code, at::kLong)));
    inputs.emplace_back(codes.back());
  }
  const Value checked = PushAll("index", inputs, {{"axis", 0}})[0];
  return flat ? Reshape(checked, x->sizes()) : checked;
}
Value AllAtLeast(const Value& x, double low) {
  const Value least = x->numel() == 1 ? Reshape(x, {}) : Reduce("min", x, {}, false);
  return Push(server_op<"ge">, {least, Number(low, least)});
}
Value AllAtMost(const Value& x, double high) {
  const Value greatest = x->numel() == 1 ? Reshape(x, {}) : Reduce("max", x, {}, false);
  return Push(server_op<"le">, {greatest, Number(high, greatest)});
}

std::string ExplainValueError(std::string message) {
  std::optional<Message> parts = Parse(message);
  if (!parts.has_value()) return message;
  const bool of_program = parts->op == "program" && !parts->inner.empty();
  const std::string op = of_program ? parts->inner.substr(0, parts->inner.find(':')) : parts->op;
  std::string function;
  if (const RuleText* rule = FindRule(IndexOf(parts->text)); rule != nullptr) {
    function = rule->function;
    parts->text = rule->text;
  } else if (const Origin* origin = FindOrigin(parts->handle); origin != nullptr) {
    const size_t last = parts->inner.rfind(' ') + 1;  // 0 if there is no space
    function = ExplainOrigins(origin, op, parts->inner.substr(last), &parts->text);
  }
  const std::string name = c10::str(parts->op, " (tensor ", parts->handle, ")");
  const std::string inner = parts->inner.empty() ? "" : c10::str(": ", parts->inner);
  message = function.empty()
                ? c10::str(parts->before, name, inner, ": ", parts->text)
                : c10::str(function, ": ", parts->text, " [tensord: ", name, inner, "]");
  message += parts->notes;
  if (parts->notes.empty() && !NamesLines()) {
    message += InPython()
                   ? "\nWith TENSORD_DEBUG=tracebacks in the environment, this message names "
                     "the line that called the op."
                   : "\nWith TENSORD_DEBUG=sync in the environment, each op waits, and its "
                     "own call throws its error.";
  }
  return message;
}

}  // namespace torch_tensord
