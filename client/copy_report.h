// What is known of a copy: which way its bytes went, and how fast. Times are absl::Durations, to be
// had in any unit (absl::ToDoubleSeconds).
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace tensord {

// Which way the bytes of a copy went.
enum class CopyPath {
  kSameDevice,    // nowhere: the tensor was there already, or was made there
  kPeer,          // between devices of one server
  kSharedMemory,  // between two servers on one host, through memory, for the most part
  kNetwork,       // from server to server, directly
  kClient,        // through this program, as the servers can't reach each other
};

// "same device", "peer", "shared memory", "network", "client".
inline std::string CopyPathWord(CopyPath path) {
  switch (path) {
    case CopyPath::kPeer:
      return "peer";
    case CopyPath::kSharedMemory:
      return "shared memory";
    case CopyPath::kNetwork:
      return "network";
    case CopyPath::kClient:
      return "client";
    case CopyPath::kSameDevice:
      break;
  }
  return "same device";
}

struct CopyReport {
  CopyPath path = CopyPath::kSameDevice;
  int64_t bytes = 0;
  // From the first byte to the last, without the time in which the tensor was computed. Of kPeer
  // the time from the call to when it was known to be done.
  absl::Duration transfer_time = absl::ZeroDuration();
  // From the call of Tensor::To to when this program knew that the copy was done: the wait for the
  // tensor to be computed and for a way to be found, and the transfer. Zero of kSameDevice.
  absl::Duration total_time = absl::ZeroDuration();
  // How many connections between the servers it was spread over, as they do where one is slow.
  int connections = 1;
  // How often the connection between the servers broke, and the copy went on where it was.
  int resumptions = 0;
  // Why the servers didn't do it between them, behind the name of the one that says so; empty but
  // for kClient.
  std::string detour_reason = {};
  // Whether that was known from an earlier copy, and the direct way wasn't tried.
  bool detour_known = false;

  // What of total_time wasn't transferring.
  absl::Duration wait_time() const { return total_time - transfer_time; }
  // 0 where nothing was moved.
  double bytes_per_second() const {
    return transfer_time > absl::ZeroDuration()
               ? static_cast<double>(bytes) / absl::ToDoubleSeconds(transfer_time)
               : 0;
  }
};

}  // namespace tensord
