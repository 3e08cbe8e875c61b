// Encodes commands as they are given.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// Encodes SessionStreamRequests byte by byte (proto/tensord/v1/tensord.proto): a small op takes a
// few nanoseconds, where a protobuf message would take hundreds. Not thread-safe.
class CommandEncoder {
 public:
  void Append(const v1::Command& command);
  // Appends a step of a Batch: an op by the number of its definition, or the drop of a handle.
  void AppendStep(uint64_t definition, uint64_t output, absl::Span<const uint64_t> inputs);
  void AppendDrop(uint64_t handle);

  bool empty() const { return bytes_.empty(); }
  int64_t size_bytes() const { return static_cast<int64_t>(bytes_.size()); }

  // Returns a message with all commands so far and the numbers that a resumable stream needs, and
  // begins the next message.
  std::string Take(uint64_t first_command, uint64_t answers_received);

 private:
  void OpenBatch();
  void CloseBatch();
  void AppendWord(uint64_t word);

  std::string bytes_;
  size_t batch_begin_ = 0;  // of the open batch's lengths; 0: none is open
  uint64_t last_output_ = 0;
};

}  // namespace tensord::internal
