#include "tensord/server/engine/fusion.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "tensord/common/status_macros.h"

namespace tensord::server {
namespace {

using Inputs = absl::InlinedVector<const TensorRef*, 6>;

const absl::flat_hash_set<absl::string_view>& ElementwiseOps() {
  static const auto* const ops = new absl::flat_hash_set<absl::string_view>{
      "add", "sub", "mul",  "div",   "pow",  "maximum", "minimum", "neg",  "abs",
      "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "relu",    "gelu", "silu",
      "eq",  "ne",  "lt",   "le",    "gt",   "ge",      "where",   "cast"};
  return *ops;
}

// The operand of a step: the place of the tensor among the chain's inputs, which it is added to, or
// the step before.
int OperandOf(const TensorRef& tensor, absl::Span<const ChainLink> before, Inputs* inputs) {
  if (!before.empty() && tensor.get() == before.back().output) {
    return -static_cast<int>(before.size());
  }
  for (size_t i = 0; i < inputs->size(); ++i) {
    if (*(*inputs)[i] == tensor) return static_cast<int>(i);
  }
  inputs->push_back(&tensor);
  return static_cast<int>(inputs->size()) - 1;
}

std::string KeyOf(absl::Span<const ChainLink> chain) {
  std::string key;
  Inputs inputs;
  for (size_t i = 0; i < chain.size(); ++i) {
    const Recipe* recipe = chain[i].recipe->get();
    key.append(reinterpret_cast<const char*>(&recipe), sizeof(recipe));
    for (const TensorRef& input : chain[i].inputs) {
      const int operand = OperandOf(input, chain.first(i), &inputs);
      key.append(reinterpret_cast<const char*>(&operand), sizeof(operand));
    }
  }
  return key;
}

BufferRef ReusableInput(const PreparedKernel& kernel, const Inputs& inputs, int64_t bytes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorRef& input = *inputs[i];
    const bool fits = kernel.in_place(static_cast<int>(i)) && input.use_count() == 1 &&
                      input->buffer().use_count() == 1;
    if (fits && input->buffer()->size_bytes() == bytes) return input->buffer();
  }
  return nullptr;
}

// The word that "linear" has for the op; empty where it has none.
std::string ActivationOf(const Recipe& recipe) {
  const absl::string_view op = recipe.name();
  if (op == "gelu")
    return recipe.plan().attrs.String("approximate") == "tanh" ? "gelu_tanh" : "gelu";
  if (op == "relu" || op == "silu" || op == "sigmoid" || op == "tanh") return std::string(op);
  return "";
}

}  // namespace

bool ChainKernels::IsBareLinear(const Recipe& recipe) {
  return recipe.name() == "linear" && !recipe.has_casts() && recipe.output().num_elements() > 0 &&
         recipe.plan().attrs.String("activation") == "none";
}

bool ChainKernels::IsActivation(const Recipe& recipe) {
  return MayFuse(recipe) && !ActivationOf(recipe).empty();
}

absl::StatusOr<BufferRef> ChainKernels::RunLinear(const ChainLink& linear,
                                                  const Recipe& activation) {
  absl::InlinedVector<TensorSpec, 3> specs;
  for (const TensorRef& input : linear.inputs) specs.push_back(input->spec());
  const Recipe& bare = **linear.recipe;
  Attributes attrs = bare.plan().attrs;
  attrs.Set("activation", ActivationOf(activation));
  TENSORD_ASSIGN_OR_RETURN(const RecipeRef both,
                           recipes_->Find("linear", specs, attrs, bare.slot()));
  return both->Execute(linear.inputs);
}

bool ChainKernels::MayFuse(const Recipe& recipe) {
  return !recipe.is_alias() && !recipe.has_casts() && recipe.output().num_elements() > 0 &&
         ElementwiseOps().contains(recipe.name());
}

std::shared_ptr<ChainKernels::Kernel> ChainKernels::Find(
    absl::Span<const ChainLink> chain, absl::Span<const TensorRef* const> inputs) {
  std::string key = KeyOf(chain);
  {
    MutexLock lock(&mu_);
    const auto found = kernels_.find(key);
    if (found != kernels_.end()) return found->second;
  }
  std::vector<TensorSpec> specs;
  for (const TensorRef* input : inputs) specs.push_back((*input)->spec());
  std::vector<FusedSpec::Step> steps;
  Inputs seen;
  auto kernel = std::make_shared<Kernel>();
  for (size_t i = 0; i < chain.size(); ++i) {
    const OpPlan& plan = (*chain[i].recipe)->plan();
    FusedSpec::Step step{plan.schema, &plan.attrs, {}, plan.output.dtype};
    for (const TensorRef& input : chain[i].inputs) {
      step.operands.push_back(OperandOf(input, chain.first(i), &seen));
    }
    steps.push_back(std::move(step));
    kernel->recipes.push_back(*chain[i].recipe);
  }
  const Recipe& last = **chain.back().recipe;
  auto prepared = last.slot()->device->PrepareFused({specs, steps, &last.output()});
  if (prepared.ok()) kernel->kernel = *std::move(prepared);
  MutexLock lock(&mu_);
  if (kernels_.size() >= kMaxKernels) kernels_.clear();
  return kernels_.emplace(std::move(key), std::move(kernel)).first->second;
}

absl::StatusOr<BufferRef> ChainKernels::Run(absl::Span<const ChainLink> chain) {
  if (IsBareLinear(**chain[0].recipe)) return RunLinear(chain[0], **chain[1].recipe);
  Inputs inputs;
  for (size_t i = 0; i < chain.size(); ++i) {
    for (const TensorRef& input : chain[i].inputs) OperandOf(input, chain.first(i), &inputs);
  }
  const std::shared_ptr<Kernel> found = Find(chain, inputs);
  if (found->kernel == nullptr) return BufferRef();
  const Recipe& last = **chain.back().recipe;
  BufferRef output = ReusableInput(*found->kernel, inputs, last.output().size_bytes());
  if (output == nullptr) {
    TENSORD_ASSIGN_OR_RETURN(output, last.slot()->device->Allocate(last.output().size_bytes()));
  }
  absl::InlinedVector<const Buffer*, 6> operands;
  for (const TensorRef* input : inputs) operands.push_back((*input)->buffer().get());
  TENSORD_RETURN_IF_ERROR(found->kernel->Launch(operands, output.get()));
  return output;
}

}  // namespace tensord::server
