// How a copy was transferred, and how fast.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace tensord {

// The path of a copy's bytes.
enum class CopyPath {
  kSameDevice,    // nothing was transferred
  kPeer,          // between devices of one server
  kSharedMemory,  // between two servers on one host, mostly through shared memory
  kNetwork,       // from server to server
  kClient,        // through this program, because the servers couldn't transfer it
};

// "same device", "peer", "shared memory", "network", "client".
inline std::string CopyPathName(CopyPath path) {
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
  // The time from the first byte to the last. For kPeer, it is the time from Tensor::To until the
  // first call of Tensor::copy_report found that the copy was done.
  absl::Duration transfer_time = absl::ZeroDuration();
  // The time from Tensor::To until this program knew that the copy was done. It consists of the
  // wait for the tensor to be computed, the search for a route, and the transfer. Zero for
  // kSameDevice.
  absl::Duration total_time = absl::ZeroDuration();
  // The number of connections that the servers used. They use several if one is slow.
  int connections = 1;
  // How often the connection between the servers broke and the copy was resumed.
  int resumptions = 0;
  // For kClient: the name of the server that reported the problem, and why the servers couldn't
  // transfer the copy. Otherwise empty.
  std::string relay_reason = {};
  // True if `path` is kClient and this copy didn't try the direct route, because an earlier copy
  // had failed on it. relay_reason then says why the earlier copy failed.
  bool route_skipped = false;

  // The part of total_time that isn't transfer_time.
  absl::Duration wait_time() const { return total_time - transfer_time; }
  // Returns 0 if nothing was transferred.
  double bytes_per_second() const {
    return transfer_time > absl::ZeroDuration()
               ? static_cast<double>(bytes) / absl::ToDoubleSeconds(transfer_time)
               : 0;
  }
};

}  // namespace tensord
