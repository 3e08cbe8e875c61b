// Memory that a server shares with another process on its host, as that other sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tensord {

// What servers name their sockets, in the abstract namespace: this and 32 hex digits.
inline constexpr absl::string_view kSharedSocketPrefix = "tensord-";
// Of a secret, hex digits all.
inline constexpr size_t kSharedSecretBytes = 32;

// Whether TENSORD_SHARED_MEMORY=0 is set: this process then shares no memory with any other.
bool SharedMemorySwitchedOff();

// A ring of slots, mapped. What lies in it the other may change at any time: it is data, never
// anything to rely on. But it can't be taken away from under the reader.
class SharedMapping {
 public:
  // What a server says of a ring that it has made.
  struct Offer {
    std::string socket_name;
    std::string secret;
    int64_t slot_bytes = 0;
    uint32_t slots = 0;
  };
  enum class Access { kRead, kReadWrite };

  // Fetches the file from the server's socket, and maps it. Waits up to two seconds for the server
  // to answer. FAILED_PRECONDITION where the memory can't be reached from here, or isn't what was
  // offered; INTERNAL where the offer makes no sense, or is of more than `most_bytes`.
  static absl::StatusOr<std::unique_ptr<SharedMapping>> Map(const Offer& offer, Access access,
                                                            int64_t most_bytes);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  // Writable where it was mapped so.
  uint8_t* slot(uint32_t index) const { return data_ + index * slot_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  uint32_t slots() const { return slots_; }

 private:
  SharedMapping(uint8_t* data, int64_t slot_bytes, uint32_t slots)
      : data_(data), slot_bytes_(slot_bytes), slots_(slots) {}

  uint8_t* const data_;
  const int64_t slot_bytes_;
  const uint32_t slots_;
};

}  // namespace tensord
