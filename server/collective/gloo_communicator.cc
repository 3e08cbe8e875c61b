#include "tensord/server/collective/gloo_communicator.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/collective/gloo_transport.h"
#include "tensord/server/collective/reduce_elements.h"
#include "tensord/server/communicator/mesh_communicator.h"

namespace tensord::server {
namespace {

// The bytes that reduce_scatter transfers at a time.
constexpr int64_t kSegmentBytes = 1 << 20;

// Calls a function of Gloo. Converts what it throws to a status.
absl::Status Guard(const std::function<void()>& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const GlooError& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("Gloo has no memory to work with");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("Gloo: ", error.what()));
  }
}

class GlooCommunicator final : public MeshCommunicator {
 public:
  GlooCommunicator(const GroupPlace& place, std::unique_ptr<GroupListener> listener)
      : MeshCommunicator(place, std::move(listener)) {}

  absl::string_view backend() const override { return "gloo"; }
  absl::Status Run(const CollectiveOp& op, const Buffer* input, Buffer* output) override;

 private:
  absl::Status Begin(const std::vector<std::string>&) override {
    return Guard([this] { context_ = MakeGlooContext(&mesh()); });
  }
  void AllReduce(const CollectiveOp& op, const Buffer& input, Buffer& output);
  void ReduceScatter(const CollectiveOp& op, const Buffer& input, Buffer& output);
  void AllGather(const Buffer& input, Buffer& output);
  void Broadcast(int root, const Buffer& data);

  std::shared_ptr<gloo::Context> context_;
};

absl::Status GlooCommunicator::Run(const CollectiveOp& op, const Buffer* input, Buffer* output) {
  // Gloo's algorithms need at least one element.
  if (op.spec.size_bytes() == 0) return absl::OkStatus();
  return Guard([&] {
    switch (op.kind) {
      case CollectiveKind::kAllReduce:
        return AllReduce(op, *input, *output);
      case CollectiveKind::kReduceScatter:
        return ReduceScatter(op, *input, *output);
      case CollectiveKind::kAllGather:
        return AllGather(*input, *output);
      case CollectiveKind::kBroadcast:
        return Broadcast(op.root, input != nullptr ? *input : *output);
      case CollectiveKind::kBarrier:
        return;
    }
  });
}

// `Element` has the size of the dtype: Gloo divides the data between elements.
template <typename Element>
void AllReduceElements(gloo::AllreduceOptions* options, const Buffer& input, Buffer& output) {
  const size_t elements = input.size_bytes() / sizeof(Element);
  options->setInput(static_cast<Element*>(input.data()), elements);
  options->setOutput(static_cast<Element*>(output.data()), elements);
  gloo::allreduce(*options);
}

void GlooCommunicator::AllReduce(const CollectiveOp& op, const Buffer& input, Buffer& output) {
  const DType dtype = op.spec.dtype;
  gloo::AllreduceOptions options(context_);
  options.setReduceFunction([&op, dtype](void* out, const void* a, const void* b, size_t elements) {
    ReduceElements(op.reduction, dtype, out, a, b, static_cast<int64_t>(elements));
  });
  switch (SizeOf(dtype)) {
    case 1:
      AllReduceElements<uint8_t>(&options, input, output);
      break;
    case 2:
      AllReduceElements<uint16_t>(&options, input, output);
      break;
    case 4:
      AllReduceElements<uint32_t>(&options, input, output);
      break;
    default:
      AllReduceElements<uint64_t>(&options, input, output);
      break;
  }
  if (op.reduction == CollectiveReduction::kMean) {
    DivideElements(dtype, output.data(), op.spec.num_elements(), mesh().size());
  }
}

void GlooCommunicator::AllGather(const Buffer& input, Buffer& output) {
  gloo::AllgatherOptions options(context_);
  options.setInput(static_cast<uint8_t*>(input.data()), input.size_bytes());
  options.setOutput(static_cast<uint8_t*>(output.data()), output.size_bytes());
  gloo::allgather(options);
}

void GlooCommunicator::Broadcast(int root, const Buffer& data) {
  gloo::BroadcastOptions options(context_);
  options.setOutput(static_cast<uint8_t*>(data.data()), data.size_bytes());
  options.setRoot(root);
  gloo::broadcast(options);
}

// Gloo's own reduce_scatter needs bound buffers and dtypes that it knows, and may divide the data
// within a row of the first dimension. So this is a ring: a member receives partial sums from the
// next rank, adds its own elements, and sends the sums to the previous rank. The sum of a rank's
// part begins at the previous rank and ends at that rank.
void GlooCommunicator::ReduceScatter(const CollectiveOp& op, const Buffer& input, Buffer& output) {
  const int size = mesh().size();
  const int rank = mesh().rank();
  const DType dtype = op.spec.dtype;
  const int64_t part_bytes = output.size_bytes();
  const int to = (rank + size - 1) % size;
  const int from = (rank + 1) % size;
  auto* in = static_cast<char*>(input.data());
  auto* out = static_cast<char*>(output.data());
  if (size == 1) {
    std::memcpy(out, in, part_bytes);
    return;
  }
  const int64_t segment_bytes = std::min(part_bytes, kSegmentBytes);
  std::vector<char> scratch(2 * segment_bytes);
  const auto source = context_->createUnboundBuffer(in, input.size_bytes());
  const auto sums = context_->createUnboundBuffer(scratch.data(), scratch.size());
  for (int64_t begin = 0; begin < part_bytes; begin += segment_bytes) {
    const int64_t bytes = std::min(segment_bytes, part_bytes - begin);
    for (int step = 1; step < size; ++step) {
      // Sends the partial sum of part `rank + step`, and receives that of part `rank + step + 1`.
      const int64_t sent = (rank + step) % size * part_bytes + begin;
      const int64_t kept = (rank + step + 1) % size * part_bytes + begin;
      char* sum = scratch.data() + step % 2 * segment_bytes;
      sums->recv(from, 0, step % 2 * segment_bytes, bytes);
      if (step == 1) {
        source->send(to, 0, sent, bytes);
      } else {
        sums->send(to, 0, (step + 1) % 2 * segment_bytes, bytes);
      }
      sums->waitRecv();
      char* into = step == size - 1 ? out + begin : sum;
      ReduceElements(op.reduction, dtype, into, sum, in + kept, bytes / SizeOf(dtype));
      step == 1 ? source->waitSend() : sums->waitSend();
    }
  }
  if (op.reduction == CollectiveReduction::kMean) {
    DivideElements(dtype, out, part_bytes / SizeOf(dtype), size);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const CollectiveNetwork& network,
                                                                   const GroupPlace& place) {
  TENSORD_ASSIGN_OR_RETURN(auto listener, GroupListener::Listen(network, place.rank, place.size,
                                                                place.group_id, /*note=*/""));
  return std::make_unique<GlooCommunicator>(place, std::move(listener));
}

}  // namespace tensord::server
