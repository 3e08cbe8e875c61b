// Encodes commands for the stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tensord/common/util/protobuf_wire.h"
#include "tensord/v1/tensord.pb.h"

namespace tensord::internal {

// Encodes SessionStreamRequests (proto/tensord/v1/tensord.proto) without protobuf messages: a small
// op takes a few nanoseconds instead of hundreds. Not thread-safe.
class CommandEncoder {
 public:
  void Append(const v1::Command& command);
  // Begins a step of a Batch: an op, given by the number of its definition, and its first output.
  // Append its other words, then end the step.
  void BeginStep(uint64_t definition, uint64_t output);
  void AppendInput(uint64_t handle) { AppendWord(step_output_ - handle); }
  void AppendWord(uint64_t word) {
    if (step_size_ > step_.size() - wire::kMaxVarintBytes) FlushStep();
    step_size_ += wire::WriteVarint(word, &step_[step_size_]);
  }
  // Appends words that have been encoded as varints (PreparedOp::words).
  void AppendEncoded(const std::string& words) {
    if (words.size() > step_.size() - step_size_) FlushStep();
    if (words.size() > step_.size()) {
      bytes_.append(words);
      return;
    }
    words.copy(&step_[step_size_], words.size());
    step_size_ += words.size();
  }
  void EndStep(size_t num_outputs) {
    FlushStep();
    last_output_ = step_output_ + num_outputs - 1;
  }
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
  void FlushStep() {
    bytes_.append(step_.data(), step_size_);
    step_size_ = 0;
  }

  std::string bytes_;
  size_t batch_begin_ = 0;    // where the open batch's words begin; 0: no batch is open
  uint64_t last_output_ = 0;  // of the batch
  uint64_t step_output_ = 0;  // the first output of the step that has begun
  // Words of the step that has begun. They go to `bytes_` together, because appending to a string
  // takes longer than encoding a word.
  std::array<char, 64> step_;
  size_t step_size_ = 0;
};

}  // namespace tensord::internal
