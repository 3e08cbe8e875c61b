// A nonblocking TCP connection that carries frames, and the contents of the frames.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/string_view.h"
#include "tensord/tests/cuda_emulation/nccl/operation.h"
#include "tensord/tests/cuda_emulation/nccl/unique_id.h"

namespace tensord::nccl_emulation {

enum class FrameKind : uint64_t {
  kJoin = 0x6e63636c00,  // to the hub: a Join
  kReady,                // to the rank: all ranks have joined
  kRequest,              // to the hub: an Operation and the rank's input
  kReply,                // to the rank: its output
  kError,                // to the rank: an ErrorHead and a text; the last frame
};

// The heads of frames. They are sent in their memory layout: both ends must run on the same kind of
// machine.
struct Join {
  Secret secret = {};
  Secret process = {};  // random, one for each process
  int32_t device = 0;
  int32_t rank = 0;
  int32_t size = 0;
};
struct ErrorHead {
  int32_t result = 0;  // an ncclResult_t
};

template <typename Head>
std::string Pack(const Head& head, absl::string_view rest = {}) {
  static_assert(std::is_trivially_copyable_v<Head>);
  std::string packed(sizeof(head) + rest.size(), '\0');
  std::memcpy(packed.data(), &head, sizeof(head));
  if (!rest.empty()) std::memcpy(packed.data() + sizeof(head), rest.data(), rest.size());
  return packed;
}
// Returns false if `packed` is too short.
template <typename Head>
bool Unpack(absl::string_view packed, Head* head, absl::string_view* rest) {
  if (packed.size() < sizeof(*head)) return false;
  std::memcpy(head, packed.data(), sizeof(*head));
  *rest = packed.substr(sizeof(*head));
  return true;
}

struct Frame {
  FrameKind kind;
  std::string payload;
};

// Not thread-safe.
class FrameSocket {
 public:
  static constexpr uint64_t kMaxPayloadBytes = uint64_t{1} << 32;

  // Takes ownership of a connected socket.
  explicit FrameSocket(int fd);
  ~FrameSocket();
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  int fd() const { return fd_; }
  // Returns the events for poll(2).
  short events() const;

  // Queues a frame for Write().
  void Queue(FrameKind kind, absl::string_view payload);
  // Sends as much as possible without blocking. Returns false if the connection is lost.
  bool Write();
  // Appends the frames that have arrived. Returns false if the connection is lost; frames that
  // arrived before that are appended.
  bool Read(std::vector<Frame>* frames);

 private:
  struct Head {
    FrameKind kind;
    uint64_t payload_bytes;
  };

  // Moves complete frames out of input_. Returns false if the received bytes aren't valid frames.
  bool TakeFrames(std::vector<Frame>* frames);

  const int fd_;
  std::string input_, output_;
};

}  // namespace tensord::nccl_emulation
