// Divides the bytes of an upload among connections.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tensord/client/internal/bulk.h"
#include "tensord/common/util/mutex.h"

namespace tensord::internal {

// The main connection sends chunks in order, from the tensor's start. Further connections take
// parts from the tensor's end. The main connection skips parts that have been sent, and sends those
// that have failed.
//
//      main connection ──▶        ◀── TakePart()
//   |████████████|                 |  part  |  part  |  part  |
//   0                                                      size_bytes
//
// Thread-safe.
class UploadPlan {
 public:
  // Smaller uploads, and the last bytes of others, aren't divided.
  static constexpr int64_t kMinSpreadBytes = 32 << 20;

  explicit UploadPlan(int64_t size_bytes) : size_bytes_(size_bytes), next_part_end_(size_bytes) {}

  // Begins an attempt: the main connection continues at `offset`. No part may be under way.
  void Restart(int64_t offset);

  // Returns the next chunk of the main connection, or nullopt at the tensor's end. Blocks while the
  // next byte belongs to a part that is under way.
  std::optional<ByteRange> NextChunk();

  // Blocks until the main connection has sent a chunk of this attempt: the server has admitted it,
  // so further connections can't exhaust the caller's limit before it. After Stop(), returns false.
  bool AwaitStart();
  // Returns a part for one of `connections` connections, the main one included. The caller must
  // call EndPart() when it has been sent or has failed. If there is no part left, or after Stop(),
  // returns nullopt.
  std::optional<ByteRange> TakePart(int connections);
  void EndPart(ByteRange part, bool sent);
  // Ends the attempt: returns no more parts. stopped() then returns true, until Restart().
  void Stop();
  bool stopped() const;

  // Returns how many bytes the main connection has sent and has skipped, plus the bytes of parts
  // that were sent after them.
  int64_t sent_bytes() const;

 private:
  struct Part {
    ByteRange range;
    bool sent;
  };

  const int64_t size_bytes_;

  mutable Mutex mu_;
  CondVar changed_;                              // started_, stopped_, or a part has ended
  int64_t main_begin_ ABSL_GUARDED_BY(mu_) = 0;  // of the last chunk
  int64_t main_end_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t next_part_end_ ABSL_GUARDED_BY(mu_);
  bool started_ ABSL_GUARDED_BY(mu_) = false;  // the main connection has sent a chunk
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // The parts that are under way or were sent. Each was taken before the previous one in the
  // tensor.
  std::vector<Part> parts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::internal
