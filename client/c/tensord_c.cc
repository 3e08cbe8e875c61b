// The functions of the C interface.
#include "tensord/client/c/tensord_c.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensord/client/c/embedding.h"
#include "tensord/client/creation.h"
#include "tensord/client/group.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/fork_guard.h"
#include "tensord/client/internal/interruption.h"
#include "tensord/client/internal/mark.h"
#include "tensord/client/internal/op_table.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/upload_staged.h"
#include "tensord/client/program.h"
#include "tensord/common/ops/op_schema.h"
#include "tensord/common/status_details.h"

namespace {

// An object whose last release() deletes it.
template <typename Object>
struct Counted {
  std::atomic<int> references{1};
};
template <typename Object>
void Retain(Object* object) {
  object->references.fetch_add(1, std::memory_order_relaxed);
}
template <typename Object>
void Release(Object* object) {
  if (object == nullptr) return;
  if (object->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete object;
}

}  // namespace

struct TensordTensor : Counted<TensordTensor> {
  explicit TensordTensor(tensord::Tensor tensor) : value(std::move(tensor)) {}
  const tensord::Tensor value;
};

struct TensordDevice : Counted<TensordDevice> {
  explicit TensordDevice(tensord::Device device)
      : value(std::move(device)),
        name(value.name()),
        server(value.valid() ? value.session()->address() : ""),
        kind(value.kind().name()) {}
  const tensord::Device value;
  const std::string name;
  const std::string server;
  const std::string kind;
};

struct TensordOp {
  tensord::internal::PreparedOp prepared;
};

struct TensordProgram {
  tensord::Program value;
};

// A mark in the command stream (mark.h). The first call that learns that it has passed keeps the
// outcome.
struct TensordEvent {
  TensordEvent(std::shared_ptr<tensord::internal::Session> owner, uint64_t number)
      : session(std::move(owner)), mark(number) {}
  ~TensordEvent() {
    if (outcome.has_value() || tensord::internal::InForkedChild()) return;
    tensord::internal::ForgetMark(*session, mark);
  }
  const std::shared_ptr<tensord::internal::Session> session;
  std::mutex mutex;  // held by the thread that awaits the mark
  uint64_t mark;
  std::optional<absl::StatusOr<std::chrono::steady_clock::time_point>> outcome;
};

struct TensordGroup {
  tensord::GroupMember member;
};

struct TensordError {
  explicit TensordError(const absl::Status& status)
      : code(static_cast<int>(status.code())),
        message(tensord::c::TheEmbedding().message(status)),
        reason(tensord::ErrorReason(status)) {}
  const int code;
  const std::string message;
  const std::string reason;
};

namespace tensord::c {
namespace {

constexpr size_t kMaxInputs = 32;  // bits of TensordApi::push's `donated`
constexpr size_t kMaxNumbers = 8;  // v1::Definition.scalars
constexpr size_t kMaxResults = TENSORD_MAX_PROGRAM_OUTPUTS;

// Returns the code of `status`, and hands its error out.
int Finish(const absl::Status& status, TensordError** error) {
  if (status.ok()) return 0;
  if (error != nullptr) *error = new TensordError(status);
  return static_cast<int>(status.code());
}

absl::Status WaitFor(absl::FunctionRef<absl::Status()> wait, WaitKind kind = WaitKind::kStream) {
  return TheEmbedding().wait(wait, kind);
}

// ---------------------------------------------------------------- errors

int ErrorCode(const TensordError* error) { return error == nullptr ? 0 : error->code; }
const char* ErrorMessage(const TensordError* error) {
  return error == nullptr ? "" : error->message.c_str();
}
const char* ErrorReasonOf(const TensordError* error) {
  return error == nullptr ? "" : error->reason.c_str();
}
void ReleaseError(TensordError* error) { delete error; }

// ---------------------------------------------------------------- devices

int Connect(const char* addresses, const TensordOption* options, size_t num_options,
            TensordError** error) {
  std::vector<std::pair<std::string, std::string>> given;
  for (size_t i = 0; i < num_options; ++i) {
    if (options[i].name == nullptr || options[i].value == nullptr) {
      return Finish(absl::InvalidArgumentError("connect: an option has no name or no value"),
                    error);
    }
    given.emplace_back(options[i].name, options[i].value);
  }
  return Finish(TheEmbedding().connect(addresses == nullptr ? "" : addresses, given), error);
}

int ListDevices(TensordDevice** devices, size_t capacity, size_t* num_devices,
                TensordError** error) {
  absl::StatusOr<std::vector<Device>> all = TheEmbedding().devices();
  if (!all.ok()) return Finish(all.status(), error);
  *num_devices = all->size();
  for (size_t i = 0; i < std::min(capacity, all->size()); ++i) {
    devices[i] = new TensordDevice(std::move((*all)[i]));
  }
  return 0;
}

void RetainDevice(TensordDevice* device) { Retain(device); }
void ReleaseDevice(TensordDevice* device) { Release(device); }
const char* DeviceName(const TensordDevice* device) { return device->name.c_str(); }
const char* DeviceServer(const TensordDevice* device) { return device->server.c_str(); }
const char* DeviceKindOf(const TensordDevice* device) { return device->kind.c_str(); }

int SameConnection(const TensordDevice* a, const TensordDevice* b) {
  return a->value.session() == b->value.session() ? 1 : 0;
}

int DeviceMemory(const TensordDevice* device, TensordMemory* memory, TensordError** error) {
  const auto read = [&]() -> absl::Status {
    const absl::StatusOr<std::vector<DeviceInfo>> infos = device->value.session()->ListDevices();
    if (!infos.ok()) return infos.status();
    for (const DeviceInfo& info : *infos) {
      if (info.name != device->value.id()) continue;
      *memory = {info.memory.total_bytes, info.memory.limit_bytes, info.memory.used_bytes,
                 info.memory.peak_bytes};
      return absl::OkStatus();
    }
    return absl::NotFoundError(absl::StrCat("the server no longer lists ", device->name));
  };
  return Finish(WaitFor(read, WaitKind::kCalls), error);
}

int Synchronize(const TensordDevice* device, TensordError** error) {
  return Finish(WaitFor([&] { return device->value.session()->Synchronize(); }), error);
}

// ---------------------------------------------------------------- tensors

TensorSpec ToSpec(const TensordSpec& spec) {
  // If the dtype or the rank isn't one, the dtype is kUnspecified, which every function refuses.
  const bool known = spec.dtype > 0 && spec.dtype < kDTypeTableSize && spec.rank >= 0;
  return {known ? static_cast<DType>(spec.dtype) : DType::kUnspecified,
          Shape(absl::MakeConstSpan(spec.dims, static_cast<size_t>(std::max(spec.rank, 0))))};
}

void SetSpec(const Tensor& tensor, TensordSpec* spec) {
  const TensorSpec& own = tensor.spec();
  *spec = {static_cast<int32_t>(own.dtype), own.shape.rank(), own.shape.dims().data()};
}

void RetainTensor(TensordTensor* tensor) { Retain(tensor); }
void ReleaseTensor(TensordTensor* tensor) { Release(tensor); }
void SpecOf(const TensordTensor* tensor, TensordSpec* spec) { SetSpec(tensor->value, spec); }
uint64_t HandleOf(const TensordTensor* tensor) { return tensor->value.handle(); }
void DeviceOf(const TensordTensor* tensor, TensordDevice** device) {
  *device = new TensordDevice(tensor->value.device());
}
int StatusOf(const TensordTensor* tensor, TensordError** error) {
  return Finish(tensor->value.status(), error);
}
int Wait(const TensordTensor* tensor, TensordError** error) {
  return Finish(WaitFor([&] { return tensor->value.Wait(); }), error);
}

WaitKind KindFor(size_t size_bytes, int64_t limit) {
  return static_cast<int64_t>(size_bytes) > limit ? WaitKind::kCalls : WaitKind::kStream;
}

int Download(const TensordTensor* tensor, void* data, size_t size_bytes, TensordError** error) {
  const auto read = [&] {
    return tensor->value.ReadBytesInto(absl::MakeSpan(static_cast<uint8_t*>(data), size_bytes));
  };
  return Finish(WaitFor(read, KindFor(size_bytes, internal::kMaxGetElementsBytes)), error);
}

absl::Status Observe(const Tensor& made) {
  const auto observe = TheEmbedding().observe;
  return observe == nullptr ? absl::OkStatus() : observe(made);
}

// Hands `tensor` out, or returns its error.
int FinishTensor(Tensor tensor, TensordTensor** out, TensordError** error) {
  absl::Status status = tensor.status();
  if (status.ok()) status = Observe(tensor);
  if (status.ok()) *out = new TensordTensor(std::move(tensor));
  return Finish(status, error);
}

absl::Span<const uint8_t> BytesOf(const void* data, size_t size_bytes) {
  return {static_cast<const uint8_t*>(data), size_bytes};
}

int Upload(const TensordDevice* device, const TensordSpec* spec, const void* data,
           size_t size_bytes, TensordTensor** tensor, TensordError** error) {
  Tensor made;
  const auto send = [&] {
    made = FromBytes(device->value, ToSpec(*spec), BytesOf(data, size_bytes));
    return made.status();
  };
  const absl::Status status = WaitFor(send, KindFor(size_bytes, kMaxInlineBytes));
  return status.ok() ? FinishTensor(std::move(made), tensor, error) : Finish(status, error);
}

int UploadAsync(const TensordDevice* device, const TensordSpec* spec, const void* data,
                size_t size_bytes, TensordTensor** tensor, TensordError** error) {
  Tensor made;
  const auto send = [&] {
    made = internal::UploadStaged(device->value, ToSpec(*spec), BytesOf(data, size_bytes));
    return made.status();
  };
  const absl::Status status = WaitFor(send, KindFor(size_bytes, kMaxInlineBytes));
  return status.ok() ? FinishTensor(std::move(made), tensor, error) : Finish(status, error);
}

int Copy(const TensordTensor* tensor, const TensordDevice* device, TensordTensor** copy,
         TensordError** error) {
  return FinishTensor(tensor->value.To(device->value), copy, error);
}

// ---------------------------------------------------------------- ops

Scalar ToScalar(const TensordNumber& number) {
  switch (number.kind) {
    case TENSORD_NUMBER_BOOL:
      return Scalar(number.value.i != 0);
    case TENSORD_NUMBER_UINT64:
      return Scalar(number.value.u);
    case TENSORD_NUMBER_FLOAT64:
      return Scalar(number.value.f);
    default:
      return Scalar(number.value.i);
  }
}

AttrValue ToAttr(const TensordAttr& attr) {
  switch (attr.type) {
    case TENSORD_ATTR_INTS:
      return std::vector<int64_t>(attr.ints, attr.ints + attr.num_ints);
    case TENSORD_ATTR_STRING:
      return std::string(attr.text);
    case TENSORD_ATTR_DTYPE:
      return ToSpec({attr.dtype, 0, nullptr}).dtype;
    default:
      return internal::ToAttr(ToScalar(attr.number));
  }
}

int Prepare(const char* name, const TensordAttr* attrs, size_t num_attrs, TensordOp** op,
            TensordError** error) {
  if (FindOp(name) == nullptr) {
    return Finish(PlanOp(name, {}, {}).status(), error);  // NOT_FOUND, with similar names
  }
  Attributes values;
  for (size_t i = 0; i < num_attrs; ++i) values.Set(attrs[i].name, ToAttr(attrs[i]));
  *op = new TensordOp{{name, std::move(values)}};
  return 0;
}

void ReleaseOp(TensordOp* op) { delete op; }

// The inputs of a push, as the library takes them.
struct Inputs {
  absl::InlinedVector<const Tensor*, 6> tensors;
  absl::InlinedVector<internal::ScalarInput, 2> numbers;
  absl::InlinedVector<int, 4> donate;  // positions in `tensors`

  absl::Status Read(const internal::PreparedOp& op, absl::Span<const TensordInput> inputs,
                    uint32_t donated);
};

absl::Status Inputs::Read(const internal::PreparedOp& op, absl::Span<const TensordInput> inputs,
                          uint32_t donated) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensordInput& input = inputs[i];
    if (input.tensor != nullptr) {
      if ((donated >> i & 1) != 0) donate.push_back(static_cast<int>(tensors.size()));
      tensors.push_back(&input.tensor->value);
      continue;
    }
    const DType dtype = ToSpec({input.dtype, 0, nullptr}).dtype;
    if (!IsValid(dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.name, ": input ", i, " has no tensor, and as a number no dtype"));
    }
    const auto number =
        IsValid(dtype) && !IsComplex(dtype)
            ? internal::ToScalarInput(ToScalar(input.number), dtype, static_cast<uint32_t>(i))
            : std::nullopt;
    if (!number.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(op.name, ": the number that is input ", i,
                                                     " doesn't fit the dtype ", DTypeName(dtype)));
    }
    numbers.push_back(*number);
  }
  if (tensors.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(op.name, ": no input is a tensor"));
  }
  if (numbers.size() > kMaxNumbers) {
    return absl::InvalidArgumentError(absl::StrCat(
        op.name, ": ", numbers.size(), " inputs are numbers; the limit is ", kMaxNumbers));
  }
  return absl::OkStatus();
}

// Runs an op of a program that is being recorded, which takes no numbers: they become tensors.
absl::Status Record(const internal::PreparedOp& op, absl::Span<const TensordInput> inputs,
                    const Device& device, internal::Tensors* outputs) {
  std::vector<Tensor> tensors;
  for (const TensordInput& input : inputs) {
    if (input.tensor != nullptr) {
      tensors.push_back(input.tensor->value);
    } else {
      const DType dtype = ToSpec({input.dtype, 0, nullptr}).dtype;
      tensors.push_back(FromScalar(device, ToScalar(input.number), {.dtype = dtype}));
    }
  }
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
  return internal::EnqueuePrepared(op, pointers, {}, {}, outputs);
}

// Hands the tensors out. Each must be OK.
int FinishOutputs(absl::Span<Tensor> made, TensordOutput* outputs, size_t* num_outputs,
                  TensordError** error) {
  if (made.size() > *num_outputs) {
    return Finish(absl::OutOfRangeError(absl::StrCat("the number of outputs is ", made.size(),
                                                     ", and there is room for ", *num_outputs)),
                  error);
  }
  for (const Tensor& tensor : made) {
    if (const absl::Status failed = Observe(tensor); !failed.ok()) return Finish(failed, error);
  }
  *num_outputs = made.size();
  for (size_t i = 0; i < made.size(); ++i) {
    SetSpec(made[i], &outputs[i].spec);  // of the state, which the output shares
    outputs[i].tensor = new TensordTensor(std::move(made[i]));
  }
  return 0;
}

int Push(const TensordOp* op, const TensordInput* inputs, size_t num_inputs, uint32_t donated,
         TensordOutput* outputs, size_t* num_outputs, TensordError** error) {
  if (num_inputs > kMaxInputs) {
    return Finish(absl::InvalidArgumentError(absl::StrCat(op->prepared.name, ": ", num_inputs,
                                                          " inputs; the limit is ", kMaxInputs)),
                  error);
  }
  const auto given = absl::MakeConstSpan(inputs, num_inputs);
  Inputs read;
  if (const absl::Status status = read.Read(op->prepared, given, donated); !status.ok())
    return Finish(status, error);
  const bool records = !read.numbers.empty() &&
                       std::any_of(read.tensors.begin(), read.tensors.end(),
                                   [](const Tensor* x) { return internal::IsRecorded(*x); });
  internal::Tensors made;
  const absl::Status status =
      records
          ? Record(op->prepared, given, read.tensors[0]->device(), &made)
          : internal::EnqueuePrepared(op->prepared, read.tensors, read.donate, read.numbers, &made);
  if (!status.ok()) return Finish(status, error);
  return FinishOutputs(absl::MakeSpan(made), outputs, num_outputs, error);
}

int PushCreation(const TensordOp* op, const TensordDevice* device, TensordOutput* output,
                 TensordError** error) {
  Tensor made = internal::EnqueueCreation(op->prepared.name, device->value, op->prepared.attrs);
  if (!made.ok()) return Finish(made.status(), error);
  size_t num_outputs = 1;
  return FinishOutputs(absl::MakeSpan(&made, 1), output, &num_outputs, error);
}

// ---------------------------------------------------------------- programs

using ProgramBody = int (*)(void* context, TensordTensor* const* inputs, size_t num_inputs,
                            TensordTensor** outputs, size_t* num_outputs);

// Calls `body` with references to the placeholders, and returns its outputs.
std::vector<Tensor> CallBody(ProgramBody body, void* context, absl::Span<const Tensor> inputs,
                             int* code) {
  std::vector<TensordTensor*> arguments;
  for (const Tensor& input : inputs) arguments.push_back(new TensordTensor(input));
  std::vector<TensordTensor*> results(kMaxResults, nullptr);
  size_t num_results = kMaxResults;
  *code = body(context, arguments.data(), arguments.size(), results.data(), &num_results);
  std::vector<Tensor> outputs;
  if (*code == 0 && num_results > kMaxResults) {
    *code = static_cast<int>(absl::StatusCode::kOutOfRange);
  }
  for (size_t i = 0; i < std::min(num_results, kMaxResults); ++i) {
    outputs.push_back(results[i] == nullptr ? Tensor() : results[i]->value);
    Release(results[i]);
  }
  for (TensordTensor* argument : arguments) Release(argument);
  return outputs;
}

int RecordProgram(const TensordDevice* device, const TensordSpec* inputs, size_t num_inputs,
                  ProgramBody body, void* context, TensordProgram** program, TensordError** error) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < num_inputs; ++i) specs.push_back(ToSpec(inputs[i]));
  int code = 0;
  absl::StatusOr<Program> recorded = Program::Record(
      device->value, std::move(specs),
      [&](absl::Span<const Tensor> span) { return CallBody(body, context, span, &code); });
  if (code != 0) {
    return Finish(absl::Status(static_cast<absl::StatusCode>(code),
                               "the function that record_program called has failed"),
                  error);
  }
  if (!recorded.ok()) return Finish(recorded.status(), error);
  *program = new TensordProgram{*std::move(recorded)};
  return 0;
}

void ReleaseProgram(TensordProgram* program) { delete program; }

int RunProgram(const TensordProgram* program, TensordTensor* const* inputs, size_t num_inputs,
               TensordOutput* outputs, size_t* num_outputs, TensordError** error) {
  std::vector<Tensor> values;
  for (size_t i = 0; i < num_inputs; ++i) values.push_back(inputs[i]->value);
  std::vector<Tensor> made = program->value.Run(values);
  if (!made[0].ok()) return Finish(made[0].status(), error);
  return FinishOutputs(absl::MakeSpan(made), outputs, num_outputs, error);
}

// ---------------------------------------------------------------- Python objects

void* ToPython(const TensordTensor* tensor) {
  const auto convert = TheEmbedding().to_object;
  return convert == nullptr ? nullptr : convert(tensor->value);
}

TensordTensor* FromPython(void* object) {
  const auto convert = TheEmbedding().from_object;
  Tensor value;
  const bool converted = convert != nullptr && convert(object, &value);
  return converted ? new TensordTensor(std::move(value)) : nullptr;
}

// ---------------------------------------------------------------- connections and waits

void Close(const TensordDevice* device) {
  const auto close = [&] {
    device->value.session()->Close();
    return absl::OkStatus();
  };
  WaitFor(close, WaitKind::kUninterrupted).IgnoreError();
}

void ReadStats(const TensordDevice* device, TensordStats* stats) {
  const ClientStats own = device->value.session()->stats();
  *stats = {own.commands_sent,
            own.waits,
            absl::ToDoubleSeconds(own.waited),
            own.reads.count,
            own.uploads.count,
            own.tensor_waits.count,
            own.synchronizes.count,
            own.info_calls.count,
            own.full_queue_waits.count};
}

int Raised() { return TheEmbedding().raised() ? 1 : 0; }

void SetWaitHooks(void* (*before)(), void (*after)(void* state)) {
  TheEmbedding().set_wait_hooks(before, after);
}

void WaitUntil(int (*ready)(void* state), void* state) {
  WaitFor([&] { return internal::PollUntil([&] { return ready(state) != 0; }); }).IgnoreError();
}

// ---------------------------------------------------------------- events

int RecordEvent(const TensordDevice* device, TensordEvent** event, TensordError** error) {
  const std::shared_ptr<internal::Session>& session = device->value.session();
  const absl::StatusOr<uint64_t> mark = internal::SendMark(*session);
  if (!mark.ok()) return Finish(mark.status(), error);
  *event = new TensordEvent(session, *mark);
  return 0;
}

void ReleaseEvent(TensordEvent* event) { delete event; }

int QueryEvent(TensordEvent* event, int* happened, TensordError** error) {
  if (internal::InForkedChild()) return Finish(internal::ForkedError(), error);
  const std::unique_lock<std::mutex> lock(event->mutex, std::try_to_lock);
  if (!lock.owns_lock()) {  // another thread is waiting for the event
    *happened = 0;
    return 0;
  }
  if (!event->outcome.has_value() && internal::MarkPassed(*event->session, event->mark)) {
    event->outcome = internal::AwaitMark(*event->session, event->mark);
  }
  const absl::Status status =
      event->outcome.has_value() ? event->outcome->status() : absl::OkStatus();
  if (status.ok()) *happened = event->outcome.has_value() ? 1 : 0;
  return Finish(status, error);
}

int WaitEvent(TensordEvent* event, int64_t* nanoseconds, TensordError** error) {
  if (internal::InForkedChild()) return Finish(internal::ForkedError(), error);
  const auto wait = [&] {
    std::unique_lock<std::mutex> lock(event->mutex, std::defer_lock);
    if (const absl::Status held = internal::PollUntil([&] { return lock.try_lock(); }); !held.ok())
      return held;
    if (!event->outcome.has_value())
      event->outcome = internal::AwaitMark(*event->session, event->mark);
    absl::Status status = event->outcome->status();
    if (absl::IsCancelled(status) && internal::Interruption::Interrupted()) {
      // The answer to the mark is lost. A new mark takes its place, for a later call.
      if (const auto next = internal::SendMark(*event->session); next.ok()) {
        event->mark = *next;
        event->outcome.reset();
      }
    }
    return status;
  };
  const absl::Status status = WaitFor(wait);
  if (status.ok() && nanoseconds != nullptr) {
    *nanoseconds = std::chrono::nanoseconds((*event->outcome)->time_since_epoch()).count();
  }
  return Finish(status, error);
}

// ---------------------------------------------------------------- groups

int JoinGroup(const TensordDevice* device, int rank, int size, TensordExchange exchange,
              void* context, double timeout_seconds, TensordGroup** group, TensordError** error) {
  // Each text of `all` has its own length, because it may have zero bytes.
  const auto run = [&](const std::string& own) -> absl::StatusOr<std::vector<std::string>> {
    std::vector<TensordBytes> all(static_cast<size_t>(size));
    if (const int code = exchange(context, {own.data(), own.size()}, all.data()); code != 0) {
      return absl::Status(static_cast<absl::StatusCode>(code), "group: the exchange has failed");
    }
    std::vector<std::string> texts;
    for (const TensordBytes& each : all) texts.emplace_back(each.data, each.size);
    return texts;
  };
  absl::StatusOr<GroupMember> member;
  const absl::Status status = WaitFor([&] {
    member = GroupMember::Join(device->value, rank, size, run,
                               {.timeout = absl::Seconds(timeout_seconds)});
    return member.status();
  });
  if (!status.ok()) return Finish(status, error);
  *group = new TensordGroup{*std::move(member)};
  return 0;
}

void ReleaseGroup(TensordGroup* group) { delete group; }

int Collective(const TensordGroup* group, int operation, int argument, const TensordTensor* input,
               TensordTensor** output, TensordError** error) {
  const Tensor& x = input->value;
  const GroupMember& member = group->member;
  const bool reduces = operation == TENSORD_ALL_REDUCE || operation == TENSORD_REDUCE_SCATTER;
  if (reduces && (argument < TENSORD_SUM || argument > TENSORD_MAX)) {
    return Finish(
        absl::InvalidArgumentError(absl::StrCat("group: there is no reduction ", argument)), error);
  }
  const auto reduction = static_cast<Reduction>(argument);
  switch (operation) {
    case TENSORD_ALL_REDUCE:
      return FinishTensor(member.AllReduce(x, reduction), output, error);
    case TENSORD_ALL_GATHER:
      return FinishTensor(member.AllGather(x), output, error);
    case TENSORD_REDUCE_SCATTER:
      return FinishTensor(member.ReduceScatter(x, reduction), output, error);
    case TENSORD_BROADCAST:
      return FinishTensor(member.Broadcast(x, argument), output, error);
    default:
      return Finish(
          absl::InvalidArgumentError(absl::StrCat("group: there is no operation ", operation)),
          error);
  }
}

int Barrier(const TensordGroup* group, TensordError** error) {
  return Finish(WaitFor([&] { return group->member.Barrier(); }), error);
}

constexpr TensordApi kApi = {
    .version = TENSORD_C_API_VERSION,
    .size_bytes = sizeof(TensordApi),
    .error_code = ErrorCode,
    .error_message = ErrorMessage,
    .error_reason = ErrorReasonOf,
    .release_error = ReleaseError,
    .list_devices = ListDevices,
    .retain_device = RetainDevice,
    .release_device = ReleaseDevice,
    .device_name = DeviceName,
    .device_server = DeviceServer,
    .device_kind = DeviceKindOf,
    .device_memory = DeviceMemory,
    .synchronize = Synchronize,
    .retain = RetainTensor,
    .release = ReleaseTensor,
    .spec = SpecOf,
    .device = DeviceOf,
    .status = StatusOf,
    .wait = Wait,
    .download = Download,
    .upload = Upload,
    .upload_async = UploadAsync,
    .copy = Copy,
    .prepare = Prepare,
    .release_op = ReleaseOp,
    .push = Push,
    .push_creation = PushCreation,
    .record_program = RecordProgram,
    .release_program = ReleaseProgram,
    .run_program = RunProgram,
    .set_wait_hooks = SetWaitHooks,
    .to_python = ToPython,
    .from_python = FromPython,
    .close = Close,
    .stats = ReadStats,
    .raised = Raised,
    .wait_until = WaitUntil,
    .record_event = RecordEvent,
    .release_event = ReleaseEvent,
    .query_event = QueryEvent,
    .wait_event = WaitEvent,
    .handle = HandleOf,
    .connect = Connect,
    .same_connection = SameConnection,
    .join_group = JoinGroup,
    .release_group = ReleaseGroup,
    .collective = Collective,
    .barrier = Barrier,
};

}  // namespace
}  // namespace tensord::c

const TensordApi* tensord_api(void) { return &tensord::c::kApi; }
