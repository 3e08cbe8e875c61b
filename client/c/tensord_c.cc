// The table of C functions for other extension modules (c_api.h), and its capsule.
#include "tensord/client/python/tensord/c_api.h"

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
#include "tensord/client/creation.h"
#include "tensord/client/internal/enqueue.h"
#include "tensord/client/internal/mark.h"
#include "tensord/client/internal/op_table.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/internal/upload_staged.h"
#include "tensord/client/program.h"
#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/client/python/tensord/_core/debug.h"
#include "tensord/client/python/tensord/_core/host_array.h"
#include "tensord/client/python/tensord/_core/waits.h"
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
    if (!outcome.has_value()) tensord::internal::ForgetMark(*session, mark);
  }
  const std::shared_ptr<tensord::internal::Session> session;
  std::mutex mutex;  // held by the thread that awaits the mark
  uint64_t mark;
  std::optional<absl::StatusOr<std::chrono::steady_clock::time_point>> outcome;
};

struct TensordError {
  TensordError(const absl::Status& status, const std::string& note)
      : code(static_cast<int>(status.code())),
        message(tensord::python::ForPython(status.message()) + note),
        reason(tensord::ErrorReason(status)) {}
  const int code;
  const std::string message;
  const std::string reason;
};

namespace tensord::python {
namespace {

constexpr size_t kMaxInputs = 32;    // bits of TensordApi::push's `donated`
constexpr size_t kMaxNumbers = 8;    // v1::Definition.scalars
constexpr size_t kMaxResults = 256;  // outputs of a recorded program

// Returns the line of Python that called the op that failed, as the end of a message, or "".
std::string LineNote(const absl::Status& status) {
  if (!Debug().tracebacks || Py_IsInitialized() == 0) return "";
  const nb::gil_scoped_acquire gil;
  const std::string line = LineOf(status.message());
  return line.empty() ? line : absl::StrCat("\nThe failed op was called at ", line);
}

// Returns the code of `status`, and hands its error out.
int Finish(const absl::Status& status, TensordError** error) {
  if (status.ok()) return 0;
  if (error != nullptr) *error = new TensordError(status, LineNote(status));
  return static_cast<int>(status.code());
}

// Runs `wait` without the interpreter's lock, if this thread has it. If a signal's handler raises
// an exception meanwhile, ends the wait, and returns its error. The exception is set then.
// `makes_calls` says that `wait` does more than to wait for the command stream, or in Tensor::Wait.
template <typename Wait>
absl::Status WaitInterruptibly(Wait wait, bool makes_calls = false) {
  if (!OnMainThread()) return PyGILState_Check() != 0 ? WithoutGil(wait) : wait();
  if (PyGILState_Check() == 0) {
    if (Py_IsInitialized() == 0) return wait();
    return InterruptibleWithoutGil(wait, makes_calls);
  }
  try {
    return makes_calls ? InterruptibleCall(wait) : Interruptible(wait);
  } catch (nb::python_error& e) {
    e.restore();
    return internal::InterruptedError();
  }
}

// ---------------------------------------------------------------- errors

int ErrorCode(const TensordError* error) { return error->code; }
const char* ErrorMessage(const TensordError* error) { return error->message.c_str(); }
const char* ErrorReasonOf(const TensordError* error) { return error->reason.c_str(); }
void ReleaseError(TensordError* error) { delete error; }

// Returns the status of a Python exception. The caller has the interpreter's lock.
absl::Status ToStatus(nb::python_error& raised) {
  auto code = absl::StatusCode::kUnknown;
  std::string message = "a Python exception without a text";
  try {
    message = nb::cast<std::string>(nb::str(raised.value()));
    const nb::object name = nb::getattr(raised.value(), "code", nb::none());
    for (int i = 1; i <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++i) {
      const auto candidate = static_cast<absl::StatusCode>(i);
      if (nb::str(absl::StatusCodeToString(candidate).c_str()).equal(name)) code = candidate;
    }
  } catch (nb::python_error&) {
  }
  return absl::Status(code, message);
}

// ---------------------------------------------------------------- devices

int ListDevices(TensordDevice** devices, size_t capacity, size_t* num_devices,
                TensordError** error) {
  nb::gil_scoped_acquire gil;
  std::vector<Device> all;
  try {
    all = AllDevices();
  } catch (nb::python_error& e) {
    if (e.matches(nb::module_::import_("tensord._errors").attr("Error"))) {
      return Finish(ToStatus(e), error);
    }
    e.restore();
    return Finish(internal::InterruptedError(), error);
  }
  *num_devices = all.size();
  for (size_t i = 0; i < std::min(capacity, all.size()); ++i) {
    devices[i] = new TensordDevice(std::move(all[i]));
  }
  return 0;
}

void RetainDevice(TensordDevice* device) { Retain(device); }
void ReleaseDevice(TensordDevice* device) { Release(device); }
const char* DeviceName(const TensordDevice* device) { return device->name.c_str(); }
const char* DeviceServer(const TensordDevice* device) { return device->server.c_str(); }
const char* DeviceKindOf(const TensordDevice* device) { return device->kind.c_str(); }

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
  const absl::Status status = WaitInterruptibly(read, /*makes_calls=*/true);
  return Finish(status, error);
}

int Synchronize(const TensordDevice* device, TensordError** error) {
  return Finish(WaitInterruptibly([&] { return device->value.session()->Synchronize(); }), error);
}

// ---------------------------------------------------------------- tensors

TensorSpec ToSpec(const TensordSpec& spec) {
  // A number that isn't a dtype becomes kUnspecified, which every function refuses.
  const bool known = spec.dtype > 0 && spec.dtype < kDTypeTableSize;
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
  return Finish(WaitInterruptibly([&] { return tensor->value.Wait(); }), error);
}

int Download(const TensordTensor* tensor, void* data, size_t size_bytes, TensordError** error) {
  const Tensor& x = tensor->value;
  absl::Status status = x.status();
  if (status.ok() && static_cast<int64_t>(size_bytes) != x.size_bytes()) {
    status = absl::InvalidArgumentError(absl::StrCat("download: the buffer has ", size_bytes,
                                                     " bytes, and ", x.Describe(), " has ",
                                                     x.size_bytes()));
  }
  if (status.ok()) {
    const auto read = [&] {
      return WithElementType(x.dtype(), [&](auto element) {
        using T = decltype(element);
        const auto count = static_cast<size_t>(x.num_elements());
        return x.ReadInto<T>(absl::MakeSpan(static_cast<T*>(data), count));
      });
    };
    status = WaitInterruptibly(read, x.size_bytes() > internal::kMaxGetElementsBytes);
  }
  return Finish(status, error);
}

// Does what TENSORD_DEBUG asks for with a tensor that an op has made.
absl::Status ObserveInDebugModes(const Tensor& made) {
  if (Debug().tracebacks && Py_IsInitialized() != 0) {
    const nb::gil_scoped_acquire gil;
    RememberLine(made);
  }
  if (!Debug().sync || internal::IsRecorded(made)) return absl::OkStatus();
  return WaitInterruptibly([&] { return made.Wait(); });
}

// Hands `tensor` out, or returns its error.
int FinishTensor(Tensor tensor, TensordTensor** out, TensordError** error) {
  absl::Status status = tensor.status();
  if (status.ok() && Debug().any()) status = ObserveInDebugModes(tensor);
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
  const absl::Status status =
      WaitInterruptibly(send, static_cast<int64_t>(size_bytes) > kMaxInlineBytes);
  return status.ok() ? FinishTensor(std::move(made), tensor, error) : Finish(status, error);
}

int UploadAsync(const TensordDevice* device, const TensordSpec* spec, const void* data,
                size_t size_bytes, TensordTensor** tensor, TensordError** error) {
  Tensor made;
  const auto send = [&] {
    made = internal::UploadStaged(device->value, ToSpec(*spec), BytesOf(data, size_bytes));
    return made.status();
  };
  const absl::Status status =
      WaitInterruptibly(send, static_cast<int64_t>(size_bytes) > kMaxInlineBytes);
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
    return Finish(absl::OutOfRangeError(absl::StrCat("there are ", made.size(),
                                                     " outputs, and room for ", *num_outputs)),
                  error);
  }
  if (Debug().any()) {
    for (const Tensor& tensor : made) {
      if (const absl::Status failed = ObserveInDebugModes(tensor); !failed.ok()) {
        return Finish(failed, error);
      }
    }
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
  for (size_t i = 0; *code == 0 && i < std::min(num_results, kMaxResults); ++i) {
    outputs.push_back(results[i]->value);
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

void* ToPythonObject(const TensordTensor* tensor) {
  const nb::gil_scoped_acquire gil;
  return Guarded<PyObject*>(nullptr, [&] { return Wrap(tensor->value).release().ptr(); });
}

TensordTensor* FromPythonObject(void* object) {
  const nb::gil_scoped_acquire gil;
  const Tensor* const value = TensorOrNull(static_cast<PyObject*>(object));
  return value == nullptr ? nullptr : new TensordTensor(*value);
}

// ---------------------------------------------------------------- connections and waits

void Close(const TensordDevice* device) {
  const auto close = [&] {
    device->value.session()->Close();
    return absl::OkStatus();
  };
  (void)(PyGILState_Check() != 0 ? WithoutGil(close) : close());
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

int Raised() {
  if (Py_IsInitialized() == 0) return 0;
  const nb::gil_scoped_acquire gil;
  return PyErr_Occurred() != nullptr ? 1 : 0;
}

void WaitUntil(int (*ready)(void* state), void* state) {
  WaitInterruptibly([&] {
    return internal::PollUntil([&] { return ready(state) != 0; });
  }).IgnoreError();
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
  *happened = 0;
  const std::unique_lock<std::mutex> lock(event->mutex, std::try_to_lock);
  if (!lock.owns_lock()) return 0;  // another thread is waiting for the event
  if (!event->outcome.has_value() && internal::MarkPassed(*event->session, event->mark)) {
    event->outcome = internal::AwaitMark(*event->session, event->mark);
  }
  if (!event->outcome.has_value()) return 0;
  *happened = 1;
  return Finish(event->outcome->status(), error);
}

int WaitEvent(TensordEvent* event, int64_t* nanoseconds, TensordError** error) {
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
  const absl::Status status = WaitInterruptibly(wait);
  if (status.ok() && nanoseconds != nullptr) {
    *nanoseconds = std::chrono::nanoseconds((*event->outcome)->time_since_epoch()).count();
  }
  return Finish(status, error);
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
    .to_python = ToPythonObject,
    .from_python = FromPythonObject,
    .close = Close,
    .stats = ReadStats,
    .raised = Raised,
    .wait_until = WaitUntil,
    .record_event = RecordEvent,
    .release_event = ReleaseEvent,
    .query_event = QueryEvent,
    .wait_event = WaitEvent,
    .handle = HandleOf,
};

}  // namespace

void BindCApi(nb::module_& m) {
  // PyCapsule_New takes a pointer to mutable memory, which no function writes.
  m.attr("_C_API") = nb::capsule(const_cast<TensordApi*>(&kApi), TENSORD_C_API_NAME);  // NOLINT
}

}  // namespace tensord::python
