// Encodes commands for the stream.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// Encodes SessionStreamRequests (proto/tensord/v1/tensord.proto) without protobuf messages: a small
// op takes a few nanoseconds instead of hundreds. Not thread-safe.
class CommandEncoder {
 public:
  void Append(const v1::Command& command);
  // Appends a step of a Batch: an op, given by the number of its definition.
  void AppendStep(uint64_t definition, uint64_t output, absl::Span<const uint64_t> inputs);
  // Appends a step of a Batch: the drop of a handle.
  void AppendDrop(uint64_t handle);

  bool empty() const { return bytes_.empty(); }
  int64_t size_bytes() const { return static_cast<int64_t>(bytes_.size()); }

  // Returns a message with all commands so far and the two numbers, which a resumable stream needs.
  // Begins the next message.
  std::string Take(uint64_t first_command, uint64_t answers_received);

 private:
  void OpenBatch();
  void CloseBatch();
  void AppendWord(uint64_t word);

  std::string bytes_;
  size_t batch_begin_ = 0;  // where the open batch's words begin; 0: no batch is open
  uint64_t last_output_ = 0;
};

}  // namespace tensord::internal
