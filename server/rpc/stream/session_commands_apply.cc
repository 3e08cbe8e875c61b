// Applies the commands of a session's stream, one function for each kind.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/utf8.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/run_collective.h"
#include "tensord/server/rpc/stream/session_commands.h"

namespace tensord::server {
namespace {

// The largest tensor that GetElements returns.
constexpr int64_t kMaxGetElementsBytes = 1 << 20;
// The longest message that FailPromise keeps.
constexpr size_t kMaxMessageBytes = 4096;

absl::Status CheckGetElementsSize(const Tensor& tensor) {
  if (tensor.spec().size_bytes() <= kMaxGetElementsBytes) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("tensor ", tensor.handle(), " (", tensor.spec().ToString(), ") has ",
                   tensor.spec().size_bytes(), " bytes; GetElements returns at most ",
                   kMaxGetElementsBytes, "; use Read"));
}

absl::StatusOr<AttrType> TypeOf(const v1::Definition::WordAttr& attr) {
  switch (attr.encoding()) {
    case v1::Definition::WordAttr::ENCODING_INT:
      return AttrType::kInt;
    case v1::Definition::WordAttr::ENCODING_FLOAT:
      return AttrType::kFloat;
    case v1::Definition::WordAttr::ENCODING_INTS:
      return AttrType::kInts;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("an attribute of a definition has the unknown encoding ",
                       static_cast<int>(attr.encoding())));
  }
}

}  // namespace

absl::Status SessionCommands::ApplyCommand(const v1::Command& command) {
  if (command.has_define()) {
    ++taken_;
    return ApplyDefinition(command.define());
  }
  if (command.has_program()) {
    ++taken_;
    return ApplyProgram(command.program());
  }
  ++posted_since_await_;
  ++taken_;
  if (command.has_barrier()) return ApplyBarrier(command.barrier());
  if (command.has_run()) {
    ApplyRun(command.run(), taken_);
  } else {
    ApplySingle(command, taken_);
  }
  return absl::OkStatus();
}

absl::Status SessionCommands::ApplyDefinition(const v1::Definition& definition) {
  OpDefinition op = {.op = definition.name(),
                     .device = definition.device(),
                     .num_inputs = definition.num_inputs(),
                     .num_outputs = std::max(1u, definition.num_outputs()),
                     .donate = {definition.donate().begin(), definition.donate().end()}};
  TENSORD_ASSIGN_OR_RETURN(op.attrs, FromProto(definition.attrs()));
  for (const v1::Definition::Scalar& scalar : definition.scalars()) {
    op.scalars.push_back({scalar.position(), static_cast<DType>(scalar.dtype())});
  }
  for (const v1::Definition::WordAttr& attr : definition.word_attrs()) {
    TENSORD_ASSIGN_OR_RETURN(const AttrType type, TypeOf(attr));
    op.word_attrs.push_back({attr.name(), type});
  }
  return packed_.Define(definition.number(), std::move(op));
}

absl::Status SessionCommands::ApplyProgram(const v1::Program& program) {
  if (static_cast<size_t>(program.inputs_size()) > PackedOps::kMaxProgramWords) {
    return absl::ResourceExhaustedError(absl::StrCat("program ", program.number(), " has ",
                                                     program.inputs_size(), " inputs, more than ",
                                                     PackedOps::kMaxProgramWords));
  }
  std::vector<TensorSpec> inputs;
  for (const v1::TensorSpec& input : program.inputs()) {
    TENSORD_ASSIGN_OR_RETURN(TensorSpec spec, FromProto(input));
    inputs.push_back(std::move(spec));
  }
  return packed_.AddProgram(program.number(), program.device(), std::move(inputs), program.ops(),
                            {program.outputs().begin(), program.outputs().end()});
}

void SessionCommands::ApplyRun(const v1::ProgramRun& run, uint64_t number) {
  const absl::StatusOr<TensorRefs> outputs =
      packed_.RunProgram(run.number(), run.inputs(), run.outputs(), run.donate());
  if (outputs.ok()) {
    for (const TensorRef& output : *outputs) Watch(output, number);
  } else {
    for (Handle output : run.outputs()) {
      Refuse(output, number, outputs.status());
      if (!CheckAnswers().ok()) return;  // the stream ends
    }
  }
}

absl::StatusOr<SessionCommands::Progress> SessionCommands::ApplyBatch(const v1::Batch& batch,
                                                                      Clock::time_point deadline) {
  if (message_.next_word == 0) packed_.BeginBatch();
  const auto words = absl::MakeConstSpan(batch.words().data(), batch.words_size());
  absl::Span<const uint64_t> left = words.subspan(message_.next_word);
  int64_t posted = 0;
  const absl::Status status = packed_.RunBatch(
      &left, &taken_,
      [this, &posted](uint64_t number, Handle output, uint32_t num_outputs,
                      const absl::StatusOr<TensorRefs>& tensors) {
        ++posted;
        if (tensors.ok()) {
          for (const TensorRef& tensor : *tensors) Watch(tensor, number);
          return absl::OkStatus();
        }
        RefuseOutputs(output, num_outputs, number, tensors.status());
        return CheckAnswers();
      },
      deadline);
  posted_since_await_ += posted;
  TENSORD_RETURN_IF_ERROR(status);
  message_.next_word = static_cast<int>(words.size() - left.size());
  return left.empty() ? Progress::kDone : Progress::kTimedOut;
}

void SessionCommands::ApplySingle(const v1::Command& command, uint64_t number) {
  Engine& engine = *context_->engine;
  switch (command.command_case()) {
    case v1::Command::kOp: {
      const v1::Op& op = command.op();
      const absl::Status taken = ApplyOp(op, number);
      if (!taken.ok()) RefuseOutputs(op.output(), std::max(1u, op.num_outputs()), number, taken);
      return;
    }
    case v1::Command::kCopy: {
      const v1::Copy& copy = command.copy();
      absl::StatusOr<TensorRef> tensor =
          engine.Copy(session_, copy.input(), copy.output(), copy.device(), /*share=*/true);
      tensor.ok() ? Watch(*tensor, number) : Refuse(copy.output(), number, tensor.status());
      return;
    }
    case v1::Command::kPromise: {
      absl::StatusOr<TensorRef> tensor = ApplyPromise(command.promise());
      tensor.ok() ? Watch(*tensor, number)
                  : Refuse(command.promise().handle(), number, tensor.status());
      return;
    }
    case v1::Command::kFail:
      ApplyFailPromise(command.fail(), number);
      return;
    case v1::Command::kCollective: {
      const v1::Collective& collective = command.collective();
      absl::StatusOr<TensorRef> tensor = RunCollective(*context_, session_, collective);
      tensor.ok() ? Watch(*tensor, number) : Refuse(collective.output(), number, tensor.status());
      return;
    }
    case v1::Command::kFinishMember:
      // NOT_FOUND means that the member has already left.
      if (context_->collectives != nullptr) {
        context_->collectives->LeaveWhenDone(session_, command.finish_member()).IgnoreError();
      }
      return;
    case v1::Command::kDrop:
      session_->Drop(command.drop().handles());
      for (uint32_t program : command.drop().programs()) packed_.DropProgram(program);
      return;
    case v1::Command::kGetElements:
      ApplyGetElements(command.get_elements());
      return;
    default:
      Refuse(0, number, absl::InvalidArgumentError("the command has no content"));
      return;
  }
}

absl::StatusOr<TensorRef> SessionCommands::ApplyPromise(const v1::Promise& promise) {
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(promise.spec()));
  return context_->engine->Promise(*session_, promise.handle(), spec, promise.device());
}

void SessionCommands::ApplyFailPromise(const v1::FailPromise& fail, uint64_t number) {
  if (fail.code() < static_cast<int>(absl::StatusCode::kCancelled) ||
      fail.code() > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return Refuse(0, number,
                  absl::InvalidArgumentError(absl::StrCat(fail.code(), " is not an error code")));
  }
  const absl::StatusOr<TensorRef> tensor = session_->Find(fail.handle());
  if (!tensor.ok()) return;
  const absl::Status error(static_cast<absl::StatusCode>(fail.code()),
                           ToUtf8(fail.message(), kMaxMessageBytes));
  UploadState* const upload = (*tensor)->upload();
  if (upload == nullptr || (*tensor)->done()) return;
  upload->Fail(session_->ChargeError(*tensor, error));
}

absl::Status SessionCommands::ApplyOp(const v1::Op& op, uint64_t number) {
  TENSORD_ASSIGN_OR_RETURN(const OpRequest request, ToRequest(op));
  TENSORD_ASSIGN_OR_RETURN(const TensorRefs tensors, context_->engine->RunOp(session_, request));
  for (const TensorRef& tensor : tensors) Watch(tensor, number);
  return absl::OkStatus();
}

void SessionCommands::ApplyGetElements(const v1::GetElements& command) {
  const uint64_t number = Expect();
  absl::StatusOr<TensorRef> found = session_->Find(command.handle());
  absl::Status status = found.status();
  if (status.ok() && (*found)->slot() != nullptr) status = CheckGetElementsSize(**found);
  if (status.ok()) status = session_->waits().Begin(InFlight::kWaitBytes);
  if (!status.ok()) {
    Deliver(number, ReadyElements{command.request_id(), nullptr, status});
    return;
  }
  context_->engine->WhenReadable(
      *found, [self = shared_from_this(), number, request_id = command.request_id(),
               tensor = *found](const absl::Status& readable) {
        self->session_->waits().End(InFlight::kWaitBytes);
        self->Deliver(number, ReadyElements{request_id, tensor, readable});
      });
}

absl::Status SessionCommands::ApplyBarrier(const v1::Barrier& barrier) {
  const uint64_t number = Expect();
  const absl::Status waits = context_->engine->WhenIdle(
      session_, [self = shared_from_this(), number, id = barrier.barrier_id()] {
        v1::BarrierDone done;
        done.set_barrier_id(id);
        self->Deliver(number, done);
      });
  if (waits.ok()) return absl::OkStatus();
  MutexLock lock(&mu_);
  if (number == stream_number_) --awaited_;
  return waits;
}

void SessionCommands::RefuseOutputs(Handle first, uint32_t count, uint64_t number,
                                    const absl::Status& error) {
  // An op has at most PackedOps::kMaxOutputs outputs. Handles beyond that can't be its outputs.
  for (uint32_t i = 0; i < std::min(count, PackedOps::kMaxOutputs); ++i) {
    Refuse(first + i, number, error);
  }
}

void SessionCommands::Refuse(Handle handle, uint64_t number, const absl::Status& error) {
  // If the handle is 0 or in use, it doesn't keep the error. Then only the stream reports the
  // error.
  const RefusalCountingPause pause;
  const absl::Status inserted = session_->Insert(Tensor::Failed(handle, error));
  if (absl::IsResourceExhausted(inserted)) session_->KeepRefusal(handle, inserted);
  AppendError(handle, number, error);
}

void SessionCommands::Watch(const TensorRef& tensor, uint64_t number) {
  // The references are weak, because the tensor keeps this callback.
  const auto report = [weak = weak_from_this(), number,
                       handle = tensor->handle()](const absl::Status& error) {
    const std::shared_ptr<SessionCommands> self = weak.lock();
    if (self == nullptr) return;
    self->AppendError(handle, number, error);
    self->Notify();
  };
  tensor->WhenDone([raw = tensor.get(), report] {
    // A deleted handle isn't an error. Ops that have used the promise report its error themselves.
    if (raw->upload() != nullptr && raw->upload()->abandoned()) return;
    if (!raw->status().ok()) return report(raw->status());
    if (raw->checks() == nullptr) return;
    // The status may still turn into an error.
    CheckList::WhenResolved(raw->checks(), [checks = raw->checks(), report] {
      if (!checks->status().ok()) report(checks->status());
    });
  });
}

}  // namespace tensord::server
