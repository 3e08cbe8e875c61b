#include "tensord/tests/simulation/script.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "tensord/client/internal/wire.h"

namespace tensord::simulation {
namespace {

using Elements = std::vector<int64_t>;
using internal::QueuedInput;

bool IsSmall(const Elements& elements) {
  return std::all_of(elements.begin(), elements.end(),
                     [](int64_t element) { return std::abs(element) <= kMaxElement; });
}

int64_t ApplyUnary(absl::string_view op, int64_t x) {
  if (op == "neg") return -x;
  if (op == "abs") return std::abs(x);
  return std::max<int64_t>(x, 0);  // relu
}

int64_t ApplyBinary(absl::string_view op, int64_t a, int64_t b) {
  if (op == "add") return a + b;
  if (op == "sub") return a - b;
  if (op == "mul") return a * b;
  return std::max(a, b);  // maximum
}

Elements Unary(absl::string_view op, const Elements& x) {
  Elements result;
  for (int64_t element : x) result.push_back(ApplyUnary(op, element));
  return result;
}

// If one operand has one element, broadcasts it.
Elements Binary(absl::string_view op, const Elements& a, const Elements& b) {
  Elements result(a.size() == 1 ? b.size() : a.size());
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = ApplyBinary(op, a[a.size() == 1 ? 0 : i], b[b.size() == 1 ? 0 : i]);
  }
  return result;
}

QueuedInput InputOf(const Value& value) { return {value.handle, &value.spec}; }

}  // namespace

TensorSpec Script::RandomSpec() {
  static const auto* dtypes =
      new std::vector<DType>{DType::kFloat32, DType::kFloat32, DType::kInt64, DType::kInt32};
  static const auto* lengths = new std::vector<int64_t>{1, 4, 4, 16, 16, 16, 300, 0};
  return {random_->Pick(*dtypes), Shape{random_->Pick(*lengths)}};
}

Elements Script::RandomElements(const TensorSpec& spec) {
  Elements elements(spec.num_elements());
  const int64_t begin = random_->Below(100) - 50;
  const int64_t step = random_->Below(7) - 3;
  for (size_t i = 0; i < elements.size(); ++i) {
    elements[i] = begin + step * static_cast<int64_t>(i % 64);
  }
  return elements;
}

ValueRef Script::AddResult(std::string by, uint64_t handle, const TensorSpec& spec, int device,
                           Elements elements, std::vector<ValueRef> inputs) {
  auto value = std::make_shared<Value>();
  value->handle = handle;
  value->command = client_->queue().pushed();
  value->spec = spec;
  value->device = device;
  value->elements = std::move(elements);
  value->inputs = std::move(inputs);
  value->made_by = std::move(by);
  client_->model().Add(value);
  live_.push_back(value);
  trace_->Note("  ", client_->name(), " command ", value->command, ": tensor ", handle, " = ",
               value->made_by, " ", spec.ToString());
  return value;
}

void Script::Act() {
  const int64_t what = random_->Below(100);
  if (live_.size() < 2 || what < 12) return Create();
  if (what < 52) return Compute();
  if (what < 60) return Copy();
  if (what < 78) return DropOne();
  if (what < 88) return Read(Any());
  if (what < 91) return Barrier();
  if (what < 94) return Record();
  if (what < 98) return Run();
  client_->replies().TakeError().IgnoreError();  // as Synchronize() does
}

ValueRef Script::CreateConstant(const TensorSpec& spec, int device, Elements elements) {
  v1::Command command;
  v1::Op& op = *command.mutable_op();
  op.set_name("constant");
  op.set_output(client_->queue().NextHandle());
  op.set_device(DeviceName(device));
  auto& attrs = *op.mutable_attrs();
  internal::AttrToProto(std::vector<int64_t>{spec.shape.dim(0)}, &attrs["shape"]);
  internal::AttrToProto(spec.dtype, &attrs["dtype"]);
  internal::AttrToProto(Bytes{Encode(spec, elements)}, &attrs["data"]);
  if (!client_->queue().Push(command).ok()) return nullptr;
  return AddResult(op.name(), op.output(), spec, device, std::move(elements), {});
}

void Script::Create() {
  const TensorSpec spec = RandomSpec();
  const int device = static_cast<int>(random_->Below(devices_));
  if (random_->OneIn(2)) {
    CreateConstant(spec, device, RandomElements(spec));
    return;
  }
  v1::Command command;
  v1::Op& op = *command.mutable_op();
  op.set_name("full");
  op.set_output(client_->queue().NextHandle());
  op.set_device(DeviceName(device));
  auto& attrs = *op.mutable_attrs();
  internal::AttrToProto(std::vector<int64_t>{spec.shape.dim(0)}, &attrs["shape"]);
  internal::AttrToProto(spec.dtype, &attrs["dtype"]);
  const int64_t fill = random_->Below(200) - 100;
  internal::AttrToProto(
      spec.dtype == DType::kFloat32 ? AttrValue(static_cast<double>(fill)) : AttrValue(fill),
      &attrs["value"]);
  if (!client_->queue().Push(command).ok()) return;
  AddResult(op.name(), op.output(), spec, device, Elements(spec.num_elements(), fill), {});
}

ValueRef Script::Partner(const ValueRef& value) {
  std::vector<ValueRef> fitting;
  for (const ValueRef& other : live_) {
    if (other->device != value->device || other->spec.dtype != value->spec.dtype) continue;
    const size_t a = value->elements.size();
    const size_t b = other->elements.size();
    if (a == b || a == 1 || b == 1) fitting.push_back(other);
  }
  return random_->Pick(fitting);  // itself, if nothing else
}

void Script::Compute() {
  static const auto* unary = new std::vector<std::string>{"neg", "abs", "relu"};
  static const auto* binary = new std::vector<std::string>{"add", "sub", "mul", "maximum"};
  const ValueRef x = Any();
  std::vector<ValueRef> inputs = {x};
  std::string op = random_->Pick(*unary);
  Elements elements;
  Attributes attrs;
  const int64_t kind = random_->Below(11);
  if (kind == 10) return Index(x);
  if (kind < 6) {
    const ValueRef y = Partner(x);
    const std::string& name = random_->Pick(*binary);
    elements = Binary(name, x->elements, y->elements);
    if (IsSmall(elements)) {
      op = name;
      inputs.push_back(y);
    }
  } else if (kind == 6) {
    int64_t bound = 0;  // of all partial sums, in any order
    for (int64_t element : x->elements) bound += std::abs(element);
    if (bound <= kMaxElement) op = "sum";
  } else if (kind == 7) {
    op = "cast";
    attrs.Set("dtype", RandomSpec().dtype);
  }
  if (inputs.size() == 1) {
    elements = op == "cast" ? x->elements : Unary(op, x->elements);
    if (op == "sum") {
      elements = {std::accumulate(x->elements.begin(), x->elements.end(), int64_t{0})};
    }
  }
  Send(op, std::move(inputs), attrs, std::move(elements));
}

void Script::Index(const ValueRef& x) {
  const auto size = static_cast<int64_t>(x->elements.size());
  if (size == 0 || x->spec.shape.rank() == 0) return;
  Elements indices(1 + random_->Below(4));
  for (int64_t& index : indices) index = random_->Below(2 * size) - size;
  const size_t bad = random_->OneIn(3) ? random_->Below(indices.size()) : indices.size();
  std::string value_error;
  if (bad < indices.size()) {
    indices[bad] += indices[bad] < 0 ? -size : size;
    value_error = absl::StrCat("index ", indices[bad], " at [", bad,
                               "] of input 1 is out of range for axis 0 of size ", size);
  }
  Elements elements;
  for (int64_t index : indices) {
    const bool in_range = index >= -size && index < size;
    elements.push_back(in_range ? x->elements[index < 0 ? index + size : index] : 0);
  }
  const DType dtype = random_->OneIn(2) ? DType::kInt64 : DType::kInt32;
  const TensorSpec spec{dtype, {static_cast<int64_t>(indices.size())}};
  const ValueRef made = CreateConstant(spec, x->device, std::move(indices));
  if (made != nullptr) Send("index", {x, made}, {}, std::move(elements), std::move(value_error));
}

bool Script::MayDonate(const ValueRef& value) {
  return !value->upload && value->reads == 0 && Holds(value) && random_->OneIn(4);
}

void Script::DropDonated(const ValueRef& value) {
  client_->queue().PushDrop(value->handle);
  RemoveLive(value);
}

void Script::Send(const std::string& op, std::vector<ValueRef> inputs, const Attributes& attrs,
                  Elements elements, std::string value_error) {
  absl::InlinedVector<QueuedInput, 2> queued;
  for (const ValueRef& input : inputs) queued.push_back(InputOf(*input));
  const ValueRef first = inputs[0];
  const bool donates = MayDonate(first);
  internal::QueuedOp sent;
  const absl::Status status = client_->queue().PushOp(
      {.op = op, .inputs = queued, .attrs = &attrs, .donate = donates ? 1u : 0u}, &sent);
  if (!status.ok()) {
    if (client_->status().ok()) trace_->Fail(op, ": ", status.ToString());
    return;
  }
  const int device = inputs[0]->device;
  AddResult(op, sent.output, sent.specs[0], device, std::move(elements), std::move(inputs))
      ->value_error = std::move(value_error);
  if (donates) DropDonated(first);
}

void Script::Copy() {
  const ValueRef value = Any();
  const int device = static_cast<int>(random_->Below(devices_));
  v1::Command command;
  v1::Copy& copy = *command.mutable_copy();
  copy.set_input(value->handle);
  copy.set_output(client_->queue().NextHandle());
  copy.set_device(DeviceName(device));
  if (!client_->queue().Push(command).ok()) return;
  AddResult(absl::StrCat("copy of ", value->handle), copy.output(), value->spec, device,
            value->elements, {value});
}

void Script::Read(const ValueRef& value) {
  const uint64_t id = client_->replies().Expect();
  v1::Command command;
  command.mutable_get_elements()->set_handle(value->handle);
  command.mutable_get_elements()->set_request_id(id);
  uint64_t number = 0;
  if (!client_->queue().Push(command, &number).ok()) return client_->replies().Remove(id);
  client_->AddPending(id, {value, number});
  trace_->Note("  ", client_->name(), " command ", number, ": read ", id, " of ", value->handle);
}

void Script::ReadAll() {
  const std::vector<ValueRef> all = live_;
  for (const ValueRef& value : all) Read(value);
}

void Script::Barrier() {
  const uint64_t id = client_->replies().Expect();
  v1::Command command;
  command.mutable_barrier()->set_barrier_id(id);
  uint64_t number = 0;
  if (!client_->queue().Push(command, &number).ok()) return client_->replies().Remove(id);
  client_->AddPending(id, {nullptr, number});
  trace_->Note("  ", client_->name(), " command ", number, ": barrier ", id);
}

void Script::Drop(const ValueRef& value) {
  if (!Holds(value)) return;
  client_->queue().PushDrop(value->handle);
  RemoveLive(value);
}

void Script::RemoveLive(const ValueRef& value) {
  live_.erase(std::find(live_.begin(), live_.end(), value));
  trace_->Note("  ", client_->name(), " drops ", value->handle);
}

bool Script::Holds(const ValueRef& value) const {
  return std::find(live_.begin(), live_.end(), value) != live_.end();
}

void Script::DropOne() {
  for (int i = 0; i < 3; ++i) {
    const ValueRef value = Any();
    if (value->upload || value->reads > 0) continue;  // the world drops it after its upload
    if (!random_->OneIn(4)) return Drop(value);
    // Sends a separate command, which other clients may send, too.
    v1::Command command;
    command.mutable_drop()->add_handles(value->handle);
    if (client_->queue().Push(command).ok()) RemoveLive(value);
    return;
  }
}

ValueRef Script::Promise() {
  const TensorSpec spec = RandomSpec();
  const int device = static_cast<int>(random_->Below(devices_));
  v1::Command command;
  v1::Promise& promise = *command.mutable_promise();
  promise.set_handle(client_->queue().NextHandle());
  internal::SpecToProto(spec, promise.mutable_spec());
  promise.set_device(DeviceName(device));
  if (!client_->queue().Push(command).ok()) return nullptr;
  const ValueRef value =
      AddResult("upload", promise.handle(), spec, device, RandomElements(spec), {});
  value->upload = true;
  return value;
}

// Records a program with one input x, and outputs 2x and 2x * x; or with two inputs x and y, and
// outputs x - y and relu(x - y). Sometimes drops a program instead.
void Script::Record() {
  if (!programs_.empty() && random_->OneIn(4)) {
    client_->queue().PushDropProgram(programs_.back().number);
    programs_.pop_back();
    return;
  }
  const ValueRef like = Any();
  const bool two_inputs = random_->OneIn(2);
  v1::Program program;
  program.set_device(DeviceName(like->device));
  internal::SpecToProto(like->spec, program.add_inputs());
  if (two_inputs) internal::SpecToProto(like->spec, program.add_inputs());
  const std::vector<internal::ProgramOp> ops =
      two_inputs ? std::vector<internal::ProgramOp>{{"sub", {}, {0, 1}}, {"relu", {}, {2}}}
                 : std::vector<internal::ProgramOp>{{"add", {}, {0, 0}}, {"mul", {}, {1, 0}}};
  program.add_outputs(two_inputs ? 2 : 1);
  program.add_outputs(two_inputs ? 3 : 2);
  const auto number = client_->queue().PushProgram(std::move(program), ops);
  if (!number.ok()) return;
  programs_.push_back({*number, like->device, like->spec, two_inputs});
  trace_->Note("  ", client_->name(), " records program ", *number);
}

void Script::Run() {
  if (programs_.empty()) return;
  const Recorded program = random_->Pick(programs_);
  std::vector<ValueRef> fitting;
  for (const ValueRef& value : live_) {
    if (value->device == program.device && value->spec == program.spec) fitting.push_back(value);
  }
  if (fitting.empty()) return;
  const ValueRef x = random_->Pick(fitting);
  const ValueRef y = random_->Pick(fitting);
  const Elements first = program.two_inputs ? Binary("sub", x->elements, y->elements)
                                            : Binary("add", x->elements, x->elements);
  const Elements second =
      program.two_inputs ? Unary("relu", first) : Binary("mul", first, x->elements);
  if (!IsSmall(first) || !IsSmall(second)) return;
  v1::Command command;
  v1::ProgramRun& run = *command.mutable_run();
  run.set_number(program.number);
  run.add_inputs(x->handle);
  if (program.two_inputs) run.add_inputs(y->handle);
  for (int i = 0; i < 2; ++i) run.add_outputs(client_->queue().NextHandle());
  const bool donates = MayDonate(x);
  if (donates) run.add_donate(0);
  if (!client_->queue().Push(command).ok()) return;
  const std::vector<ValueRef> inputs =
      program.two_inputs ? std::vector<ValueRef>{x, y} : std::vector<ValueRef>{x};
  for (int i = 0; i < 2; ++i) {
    AddResult(absl::StrCat("program ", program.number), run.outputs(i), program.spec,
              program.device, i == 0 ? first : second, inputs)
        ->siblings = {run.outputs().begin(), run.outputs().end()};
  }
  if (donates) DropDonated(x);
}

}  // namespace tensord::simulation
