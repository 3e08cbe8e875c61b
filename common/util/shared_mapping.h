// Maps memory that a server shares with this process, which runs on the server's host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/owned_fd.h"

namespace tensord {

// The prefix of the servers' socket names in the abstract namespace. 32 hex digits follow.
inline constexpr absl::string_view kSharedSocketPrefix = "tensord-";
// The length of a secret, which consists of hex digits.
inline constexpr size_t kSharedSecretBytes = 32;

// Returns whether the environment switches shared memory off: TENSORD_SHARED_MEMORY is "0", "off",
// "false" or "no".
bool SharedMemorySwitchedOff();

// The permission bits of a memory file that the server has withdrawn.
inline constexpr unsigned int kWithdrawnMode = 0;

// A mapped ring of slots. The other process may change the content at any time, so a read value
// must not be trusted. The other process can't shrink or unmap the memory.
//
// When the server ends the use of the ring, it withdraws the file: it sets the mode to
// kWithdrawnMode, and then frees the memory, whose bytes become 0. So after copying bytes out of a
// slot, check withdrawn(). If it returns false, the bytes are those that the server has written.
class SharedMapping {
 public:
  // A server's description of a ring that it offers.
  struct Offer {
    std::string socket_name;
    std::string secret;
    int64_t slot_bytes = 0;
    uint32_t slots = 0;
  };
  enum class Access { kRead, kReadWrite };

  // Gets the memory file from the server's socket and maps it. Blocks: waits up to two seconds to
  // send the request, and up to two seconds for the answer. If this process can't get the file, or
  // the file doesn't match the offer, returns FAILED_PRECONDITION. If the sizes of the offer are
  // invalid or exceed `max_bytes`, returns INTERNAL.
  static absl::StatusOr<std::unique_ptr<SharedMapping>> Map(const Offer& offer, Access access,
                                                            int64_t max_bytes);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  // Returns the first byte of a slot. The slot is writable if the ring was mapped with kReadWrite.
  uint8_t* slot(uint32_t index) const { return data_ + index * slot_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  uint32_t slots() const { return slots_; }
  // Returns whether the server has withdrawn the memory.
  bool withdrawn() const;

 private:
  SharedMapping(OwnedFd file, uint8_t* data, int64_t slot_bytes, uint32_t slots)
      : file_(std::move(file)), data_(data), slot_bytes_(slot_bytes), slots_(slots) {}

  const OwnedFd file_;
  uint8_t* const data_;
  const int64_t slot_bytes_;
  const uint32_t slots_;
};

}  // namespace tensord
