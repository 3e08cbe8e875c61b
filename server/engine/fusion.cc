#include "tensord/server/engine/fusion.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "tensord/common/util/key.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {
namespace {

using Inputs = absl::InlinedVector<const TensorRef*, 6>;

using ChainOps = absl::InlinedVector<ChainOp, 8>;

// Returns the ops of a chain with their operands. Adds the tensors from outside the chain to
// `inputs`.
ChainOps ToOps(absl::Span<const ChainLink> chain, Inputs* inputs) {
  ChainOps ops;
  for (const ChainLink& link : chain) {
    ChainOp& added = ops.emplace_back(ChainOp{link.op, {}});
    const auto before = static_cast<int>(ops.size()) - 1;
    for (const TensorRef& tensor : link.inputs) {
      if (before > 0 && tensor.get() == chain[before - 1].output) {
        added.operands.push_back(-before);
        continue;
      }
      const auto known = std::find_if(inputs->begin(), inputs->end(),
                                      [&](const TensorRef* input) { return *input == tensor; });
      added.operands.push_back(static_cast<int>(known - inputs->begin()));
      if (known == inputs->end()) inputs->push_back(&tensor);
    }
  }
  return ops;
}

std::string KeyOf(absl::Span<const ChainOp> chain) {
  std::string key;
  for (const ChainOp& link : chain) {
    AppendKey(static_cast<const void*>(link.op->get()), &key);
    for (const int operand : link.operands) AppendKey(operand, &key);
  }
  return key;
}

// Appends the steps of an op of a chain. Returns its result as an operand of later steps.
int AppendSteps(const PreparedOp& op, absl::Span<const int> operands, FusedSteps* steps) {
  if (op.fused_steps() == nullptr) return AppendSteps(op.plan(), op.inputs(), operands, steps);
  const auto offset = static_cast<int>(steps->size());
  for (const FusedSpec::Step& step : *op.fused_steps()) {
    FusedSpec::Step& added = steps->emplace_back(step);
    for (int& operand : added.operands) {
      operand = operand >= 0 ? operands[operand] : operand - offset;
    }
  }
  return -static_cast<int>(steps->size());
}

// Returns the specs of the chain's inputs.
std::vector<TensorSpec> InputSpecs(absl::Span<const ChainOp> chain) {
  std::vector<TensorSpec> specs;
  for (const ChainOp& link : chain) {
    for (size_t i = 0; i < link.operands.size(); ++i) {
      const int operand = link.operands[i];
      if (operand < 0) continue;
      if (specs.size() <= static_cast<size_t>(operand)) specs.resize(operand + 1);
      specs[operand] = (*link.op)->inputs()[i];
    }
  }
  return specs;
}

// Returns the kernel of a chain. It keeps the ops alive, whose addresses are its key.
FusedKernelRef MakeKernel(absl::Span<const ChainOp> chain) {
  auto ops = std::make_shared<std::vector<PreparedOpRef>>();
  FusedSteps steps;
  absl::InlinedVector<int, 8> results;  // of the ops, as operands of the steps
  for (const ChainOp& link : chain) {
    absl::InlinedVector<int, 3> operands;
    for (const int operand : link.operands) {
      operands.push_back(operand >= 0 ? operand : results[-operand - 1]);
    }
    results.push_back(AppendSteps(**link.op, operands, &steps));
    ops->push_back(*link.op);
  }
  const PreparedOp& last = *ops->back();
  return std::make_shared<FusedKernel>(last.slot(), InputSpecs(chain), std::move(steps),
                                       last.output(), std::move(ops));
}

// Returns the attributes of a cast to `dtype`.
const Attributes& CastAttrs(DType dtype) {
  static const auto& kAttrs = *new absl::flat_hash_map<DType, Attributes>([] {
    absl::flat_hash_map<DType, Attributes> attrs;
    for (const DType each : kAllDTypes) attrs.emplace(each, Attributes{{"dtype", each}});
    return attrs;
  }());
  return kAttrs.at(dtype);
}

BufferRef ReusableInput(const MemoryAccount& account, const PreparedKernel& kernel,
                        const Inputs& inputs, int64_t bytes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorRef& input = *inputs[i];
    const bool fits = kernel.in_place(static_cast<int>(i)) == 0 && input.use_count() == 1 &&
                      input->buffer().use_count() == 1;
    if (!fits || input->buffer()->size_bytes() != bytes) continue;
    if (input->buffer()->account() == &account) return input->buffer();
  }
  return nullptr;
}

// Returns the op's function if a linear can apply it as its activation, and nullopt otherwise.
std::optional<UnaryFunction> ActivationOf(const PreparedOp& op) {
  const auto function = FunctionOf(*op.plan().schema, op.plan().attrs);
  if (!function.has_value() || function->kind != ElementwiseFunction::Kind::kUnary ||
      !IsActivation(function->unary())) {
    return std::nullopt;
  }
  return function->unary();
}

bool IsElementwise(const PreparedOp& op) {
  return !op.is_alias() && op.output().num_elements() > 0 &&
         (op.plan().schema->elementwise.has_value() || op.fused_steps() != nullptr);
}

}  // namespace

int AppendSteps(const OpPlan& plan, absl::Span<const TensorSpec> inputs,
                absl::Span<const int> operands, FusedSteps* steps) {
  static const OpSchema* const kCast = FindOp("cast");
  FusedSpec::Step op = {plan.schema, &plan.attrs, {}, plan.output().dtype};
  for (size_t i = 0; i < operands.size(); ++i) {
    const DType read_as = plan.input_dtypes[i];
    if (read_as == inputs[i].dtype) {
      op.operands.push_back(operands[i]);
      continue;
    }
    steps->push_back({kCast, &CastAttrs(read_as), {operands[i]}, read_as});
    op.operands.push_back(-static_cast<int>(steps->size()));
  }
  steps->push_back(std::move(op));
  return -static_cast<int>(steps->size());
}

bool ChainKernels::IsBareLinear(const PreparedOp& op) {
  return op.name() == "linear" && op.output().num_elements() > 0 &&
         op.plan().attrs.String("activation") == "none";
}

size_t ChainKernels::MaxSteps(const PreparedOp& first) {
  if (IsBareLinear(first)) return 2;
  return IsElementwise(first) ? kMaxSteps : 0;
}

size_t ChainKernels::NumSteps(const PreparedOp& op) {
  if (op.fused_steps() != nullptr) return op.fused_steps()->size();
  size_t steps = 1;
  for (size_t i = 0; i < op.inputs().size() && !IsBareLinear(op); ++i) {
    if (op.plan().input_dtypes[i] != op.inputs()[i].dtype) ++steps;
  }
  return steps;
}

bool ChainKernels::MayFollow(const PreparedOp& op, const PreparedOp& next) {
  if (!IsElementwise(next) || next.output().shape != op.output().shape) return false;
  return IsElementwise(op) || (IsBareLinear(op) && ActivationOf(next).has_value());
}

absl::StatusOr<PreparedOpRef> ChainKernels::FindLinear(const PreparedOp& linear,
                                                       const PreparedOp& activation) {
  Attributes attrs = linear.plan().attrs;
  attrs.Set("activation", std::string(FunctionName(*ActivationOf(activation))));
  return prepared_ops_->Find("linear", linear.inputs(), attrs, linear.slot(), /*caller=*/nullptr);
}

void FusedKernel::Prepare() {
  MutexLock lock(&mu_);
  if (prepared_) return;
  auto kernel = slot_->device->PrepareFused({inputs_, steps_, &output_});
  if (kernel.ok()) kernel_ = *std::move(kernel);
  prepared_ = true;
}

ChainKernels::~ChainKernels() {
  std::thread compiler;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    compiler = std::move(compiler_);
    changed_.SignalAll();
  }
  if (compiler.joinable()) compiler.join();
}

std::shared_ptr<PreparedKernel> ChainKernels::Find(absl::Span<const ChainOp> chain) {
  FusedKernelRef found = FindKernel(chain);
  found->Prepare();
  PreparedKernel* const kernel = found->kernel();
  if (kernel == nullptr) return nullptr;
  return std::shared_ptr<PreparedKernel>(std::move(found), kernel);
}

FusedKernelRef ChainKernels::FindKernel(absl::Span<const ChainOp> chain) {
  std::string key = KeyOf(chain);
  MutexLock lock(&mu_);
  const auto found = kernels_.find(key);
  if (found != kernels_.end()) return found->second;
  if (kernels_.size() >= kMaxKernels) kernels_.clear();
  return kernels_.emplace(std::move(key), MakeKernel(chain)).first->second;
}

FusedKernelRef ChainKernels::FindCompiled(absl::Span<const ChainOp> chain) {
  FusedKernelRef found = FindKernel(chain);
  return PrepareOrQueue(found) && found->kernel() != nullptr ? found : nullptr;
}

bool ChainKernels::PrepareOrQueue(const FusedKernelRef& kernel) {
  if (kernel->prepared()) return true;
  if (kernel->prepares_fast()) {
    kernel->Prepare();
    return true;
  }
  if (kernel->MarkQueued()) Queue(kernel);
  return false;
}

void ChainKernels::Queue(FusedKernelRef kernel) {
  MutexLock lock(&mu_);
  if (stopping_ || queue_.size() >= kMaxQueued) {
    kernel->ClearQueued();
    return;
  }
  if (!compiler_.joinable()) {
    try {
      compiler_ = std::thread([this] { Compile(); });
    } catch (const std::system_error&) {
      kernel->ClearQueued();  // the process has too many threads now; a later run tries again
      return;
    }
  }
  queue_.push_back(std::move(kernel));
  changed_.SignalAll();
}

void ChainKernels::Compile() {
  while (true) {
    FusedKernelRef kernel;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      kernel = queue_.front();
    }
    kernel->Prepare();
    MutexLock lock(&mu_);
    queue_.pop_front();
  }
}

int64_t ChainKernels::kernels_to_compile() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(queue_.size());
}

absl::StatusOr<BufferRef> ChainKernels::Run(MemoryAccount& account,
                                            absl::Span<const ChainLink> chain) {
  const PreparedOp& first = **chain.front().op;
  const PreparedOp& last = **chain.back().op;
  if (IsBareLinear(first)) {
    const absl::StatusOr<PreparedOpRef> both = FindLinear(first, last);
    if (!both.ok()) return BufferRef();
    return (*both)->RunSingle(account, chain.front().inputs, /*checks=*/nullptr);
  }
  Inputs inputs;
  const FusedKernelRef compiled = FindCompiled(ToOps(chain, &inputs));
  if (compiled == nullptr) return BufferRef();
  PreparedKernel* const kernel = compiled->kernel();
  BufferRef output = ReusableInput(account, *kernel, inputs, last.output().size_bytes());
  if (output == nullptr) {
    TENSORD_ASSIGN_OR_RETURN(
        output, AllocateFor(account, *last.slot()->device, last.output().size_bytes()));
  }
  absl::InlinedVector<const Buffer*, 6> operands;
  for (const TensorRef* input : inputs) operands.push_back((*input)->buffer().get());
  TENSORD_RETURN_IF_ERROR(kernel->Launch({account, *last.slot()->device}, operands, output.get()));
  return output;
}

}  // namespace tensord::server
