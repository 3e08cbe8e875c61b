#include "tensord/server/engine/op_node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_macros.h"

namespace tensord::server {
namespace {

absl::Status Ended() { return absl::CancelledError("the session ended before the op ran"); }

// Says which op and tensor an error comes from, once: what depends on it passes it on as it is.
absl::Status Annotate(const absl::Status& error, absl::string_view op, Handle output) {
  return absl::Status(error.code(), absl::StrCat(op, " (tensor ", output, "): ", error.message()));
}

}  // namespace

OpNode::OpNode(SessionRef session, OpPlan plan, Inputs inputs, TensorRef output)
    : session_(std::move(session)),
      plan_(std::move(plan)),
      inputs_(std::move(inputs)),
      output_(std::move(output)) {}

void OpNode::Schedule() {
  const Executor::Lane* lane = session_->lane(*output_->slot()).get();
  for (const TensorRef& input : inputs_) {
    if (input->done() || input->PostedTo(lane)) continue;
    pending_.fetch_add(1, std::memory_order_relaxed);
    input->WhenDone([self = shared_from_this()] { self->InputReady(); });
  }
  InputReady();
}

void OpNode::InputReady() {
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  DeviceSlot& slot = *output_->slot();
  const std::shared_ptr<Executor::Lane> lane = session_->lane(slot);
  const TensorRef output = output_;  // the node may be gone once it is posted
  slot.executor->Post(lane, [self = shared_from_this()] { self->RunOnExecutor(); });
  output->SetPosted(lane.get());
}

void OpNode::RunOnExecutor() {
  absl::StatusOr<BufferRef> result = Execute();
  inputs_.clear();  // their memory may go before anyone hears of the result
  session_->EndOp();
  session_.reset();
  output_->Finish(std::move(result));
}

absl::StatusOr<BufferRef> OpNode::Execute() {
  for (const TensorRef& input : inputs_) {
    if (!input->status().ok()) return input->status();
  }
  if (session_->closed()) return Ended();
  if (plan_.alias) return inputs_[0]->buffer();
  absl::StatusOr<BufferRef> result =
      plan_.schema->name == "constant" ? MakeConstant() : RunKernel();
  if (!result.ok()) return Annotate(result.status(), plan_.schema->name, output_->handle());
  return result;
}

absl::StatusOr<BufferRef> OpNode::MakeConstant() {
  const std::string& data = plan_.attrs.Data("data");
  TENSORD_ASSIGN_OR_RETURN(BufferRef buffer, output_->device().Allocate(data.size()));
  TENSORD_RETURN_IF_ERROR(output_->device().Write(*buffer, 0, data.data(), data.size()));
  return buffer;
}

absl::StatusOr<BufferRef> OpNode::RunKernel() {
  Device& device = output_->device();
  TENSORD_ASSIGN_OR_RETURN(BufferRef buffer, device.Allocate(output_->spec().size_bytes()));
  if (output_->spec().num_elements() == 0) return buffer;

  absl::InlinedVector<TensorSpec, 3> cast_specs(inputs_.size());
  absl::InlinedVector<BufferRef, 3> cast_buffers;
  absl::InlinedVector<Operand, 3> operands;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Tensor& input = *inputs_[i];
    const Operand given{&input.spec(), input.buffer()->data()};
    if (plan_.input_dtypes[i] == input.spec().dtype) {
      operands.push_back(given);
      continue;
    }
    static const OpSchema* const kCast = FindOp("cast");
    cast_specs[i] = {plan_.input_dtypes[i], input.spec().shape};
    TENSORD_ASSIGN_OR_RETURN(BufferRef cast, device.Allocate(cast_specs[i].size_bytes()));
    operands.push_back({&cast_specs[i], cast->data()});
    cast_buffers.push_back(std::move(cast));
    if (cast_specs[i].num_elements() == 0) continue;
    const Attributes attrs{{"dtype", cast_specs[i].dtype}};
    TENSORD_RETURN_IF_ERROR(
        device.Launch({kCast, &attrs, absl::MakeConstSpan(&given, 1), operands.back()}));
  }
  TENSORD_RETURN_IF_ERROR(
      device.Launch({plan_.schema, &plan_.attrs, operands, {&output_->spec(), buffer->data()}}));
  return buffer;
}

void WhenComplete(const TensorRef& tensor, std::function<void(absl::Status)> callback) {
  tensor->WhenDone([tensor, callback = std::move(callback)]() mutable {
    if (!tensor->status().ok() || tensor->device().host_accessible()) {
      callback(tensor->status());  // the host's kernels are finished when they return
      return;
    }
    DeviceSlot& slot = *tensor->slot();
    slot.executor->Post(slot.executor->NewLane(),
                        [&slot, callback = std::move(callback)] { slot.device->Fence(callback); });
  });
}

namespace {

absl::StatusOr<BufferRef> CopyOnExecutor(const Tensor& input, const Tensor& output) {
  const int64_t bytes = output.spec().size_bytes();
  TENSORD_ASSIGN_OR_RETURN(BufferRef buffer, output.device().Allocate(bytes));
  if (bytes > 0) {
    TENSORD_RETURN_IF_ERROR(output.device().CopyFrom(*buffer, *input.buffer(), bytes));
  }
  return buffer;
}

}  // namespace

void ScheduleCopy(const SessionRef& session, const TensorRef& input, const TensorRef& output) {
  WhenComplete(input, [session, input, output](absl::Status status) {
    if (!status.ok()) {
      output->Finish(status);
      return;
    }
    DeviceSlot& slot = *output->slot();
    const auto& lane = session->lane(slot);
    slot.executor->Post(lane, [session, input, output] {
      if (session->closed()) {
        output->Finish(Ended());
        return;
      }
      absl::StatusOr<BufferRef> result = CopyOnExecutor(*input, *output);
      if (!result.ok()) result = Annotate(result.status(), "copy_to_device", output->handle());
      output->Finish(std::move(result));
    });
    output->SetPosted(lane.get());
  });
}

}  // namespace tensord::server
