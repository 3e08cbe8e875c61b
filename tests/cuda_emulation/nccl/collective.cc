#include "tensord/tests/cuda_emulation/nccl/collective.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/tests/cuda_emulation/address_space.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/device.h"
#include "tensord/tests/cuda_emulation/failure.h"
#include "tensord/tests/cuda_emulation/kernel.h"
#include "tensord/tests/cuda_emulation/memory.h"
#include "tensord/tests/cuda_emulation/nccl/last_error.h"
#include "tensord/tests/cuda_emulation/stream.h"

namespace tensord::nccl_emulation {
namespace {

using cuda_emulation::Space;

// One rank's call.
struct Call {
  std::shared_ptr<Communicator> communicator;
  Operation op;
  const char* input;
  char* output;
  cuda_emulation::StreamRef stream;

  size_t input_bytes() const { return InputBytes(op, communicator->rank(), communicator->size()); }
  size_t output_bytes() const { return OutputBytes(op, communicator->size()); }
  int device() const { return communicator->device(); }
};

struct Problem {
  ncclResult_t result = ncclSuccess;
  std::string text;
  bool reported = false;
};

Problem CheckOperation(const Call& call) {
  const Operation& op = call.op;
  if (!HasEmulatedType(op)) {
    return {ncclInvalidArgument, absl::StrCat("data type ", op.type, " is not emulated")};
  }
  if (!HasEmulatedReduction(op)) {
    return {ncclInvalidArgument, absl::StrCat("reduction ", op.reduction, " is not emulated")};
  }
  const int size = call.communicator->size();
  if (op.root < 0 || op.root >= size) {
    return {ncclInvalidArgument,
            absl::StrCat("root ", op.root, " is out of range: there are ", size, " ranks")};
  }
  // Half of the limit leaves room for the frame's head.
  const uint64_t max_count =
      FrameSocket::kMaxPayloadBytes / 2 / ElementBytes(op) / static_cast<uint64_t>(size);
  if (op.count > max_count) {
    return {ncclInvalidArgument,
            absl::StrCat("count ", op.count, " exceeds the emulation's limit of ", max_count)};
  }
  return {};
}

// Checks the current device, too: NCCL accepts any, but the emulation is stricter.
Problem CheckStream(const Call& call) {
  const int current = cuda_emulation::CurrentDevice();
  if (current != call.device()) {
    return {ncclInvalidUsage,
            absl::StrCat("device ", current, " is current, but the communicator is on device ",
                         call.device())};
  }
  if (call.stream->device() != call.device()) {
    return {ncclUnhandledCudaError, absl::StrCat("the stream is on device ", call.stream->device(),
                                                 ", but the communicator is on device ", current)};
  }
  if (const cudaError_t sticky = cuda_emulation::StickyError(current); sticky != cudaSuccess) {
    return {ncclUnhandledCudaError, absl::StrCat("the device has CUDA error ", sticky)};
  }
  if (call.stream->InvalidateCapture()) {
    return {ncclInvalidUsage, "operations in a captured stream are not emulated"};
  }
  return {};
}

// Returns the address that the input has if the operation is in place.
const char* InPlaceInput(const Call& call) {
  const auto rank = static_cast<size_t>(call.communicator->rank());
  if (call.op.collective == Collective::kAllGather) return call.output + rank * call.input_bytes();
  if (call.op.collective == Collective::kReduceScatter) {
    return call.output - rank * call.output_bytes();
  }
  return call.output;
}

Problem CheckBuffers(const Call& call) {
  const char* name = FunctionName(call.op);
  const size_t input_bytes = call.input_bytes(), output_bytes = call.output_bytes();
  if (input_bytes > 0 && cuda_emulation::CheckMemory(call.input, input_bytes, Space::kDevice, name,
                                                     call.device()) != cudaSuccess) {
    return {ncclInvalidArgument, "sendbuff is not valid", /*reported=*/true};
  }
  if (cuda_emulation::CheckMemory(call.output, output_bytes, Space::kDevice, name, call.device()) !=
      cudaSuccess) {
    return {ncclInvalidArgument, "recvbuff is not valid", /*reported=*/true};
  }
  const bool overlap =
      call.input < call.output + output_bytes && call.output < call.input + input_bytes;
  if (input_bytes > 0 && overlap && call.input != InPlaceInput(call)) {
    return {ncclInvalidArgument, "sendbuff and recvbuff overlap and are not in-place buffers"};
  }
  return {};
}

ncclResult_t Refuse(const Call& call, const Problem& problem) {
  const std::string text = absl::StrCat(FunctionName(call.op), ": ", problem.text);
  if (!problem.reported) cuda_emulation::Report(text);
  call.communicator->Fail(problem.result, text);
  return problem.result;
}

void Run(const Call& call, uint64_t number) {
  const char* name = FunctionName(call.op);
  const int device = call.device();
  // The root of a broadcast in place writes nothing.
  const bool writes = call.op.collective != Collective::kBroadcast || call.input_bytes() == 0 ||
                      call.input != call.output;
  std::string input(call.input_bytes(), '\0');
  const void* from = cuda_emulation::ToBacking(call.input);
  void* to = cuda_emulation::ToBacking(call.output);
  cuda_emulation::RunCatchingFaults(device, name,
                                    [&] { std::memcpy(input.data(), from, input.size()); });
  if (cuda_emulation::StickyError(device) != cudaSuccess) return;
  const std::optional<std::string> output = call.communicator->Exchange(number, call.op, input);
  if (!output.has_value()) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(cuda_emulation::TheOptions().max_delay_us));
  }
  // The kernels of a lost device have ended, so the emulation must not write.
  const bool is_lost =
      cuda_emulation::StickyError(device) != cudaSuccess || call.stream->was_reset();
  if (!writes || is_lost) return;
  cuda_emulation::RunCatchingFaults(device, name, [&] {
    if (output.has_value()) {
      std::memcpy(to, output->data(), output->size());
    } else {
      cuda_emulation::FillWithPattern(to, call.output_bytes());
    }
  });
}

// Enqueues the task of `call`. Unlike Stream::EnqueueWork(), rejects a captured stream.
ncclResult_t Enqueue(const Call& call, uint64_t number) {
  const char* name = FunctionName(call.op);
  const cudaError_t error = call.stream->EnqueueControl(
      [call, number] {
        if (cuda_emulation::StickyError(call.device()) == cudaSuccess) Run(call, number);
      },
      name);
  if (error == cudaSuccess) return ncclSuccess;
  SetLastError(absl::StrCat(name, ": CUDA error ", error));
  return ncclUnhandledCudaError;
}

}  // namespace

ncclResult_t StartCollective(const std::shared_ptr<Communicator>& communicator, const Operation& op,
                             const void* input, void* output, cudaStream_t stream_handle) {
  if (const int injected = cuda_emulation::CountCall(FunctionName(op)); injected != 0) {
    const auto result = static_cast<ncclResult_t>(injected);
    communicator->Fail(result, absl::StrCat(FunctionName(op), ": injected"));
    return result;
  }
  cuda_emulation::StreamRef stream;
  if (cuda_emulation::FindStream(stream_handle, FunctionName(op), &stream) != cudaSuccess) {
    communicator->Fail(
        ncclInvalidUsage,
        absl::StrCat(FunctionName(op), ": the stream is the default stream, or doesn't exist"));
    return ncclInvalidUsage;
  }
  const Call call = {communicator, op, static_cast<const char*>(input), static_cast<char*>(output),
                     stream};
  const ncclResult_t state = communicator->state();
  if (state == ncclInProgress) {
    return Refuse(call, {ncclInvalidArgument, "the previous call is still in progress"});
  }
  if (state != ncclSuccess) return state;
  Problem problem = CheckOperation(call);
  if (problem.result == ncclSuccess) problem = CheckStream(call);
  if (problem.result != ncclSuccess) return Refuse(call, problem);
  if (op.count == 0) return ncclSuccess;
  problem = CheckBuffers(call);
  if (problem.result != ncclSuccess) return Refuse(call, problem);
  return communicator->Start([call](uint64_t number) { return Enqueue(call, number); });
}

}  // namespace tensord::nccl_emulation
