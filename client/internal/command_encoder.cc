#include "tensord/client/internal/command_encoder.h"

#include <utility>

namespace tensord::internal {
namespace {

using wire::AppendVarint;

constexpr char DelimitedTag(int field) {
  return static_cast<char>(wire::Tag(field, wire::kDelimited));
}
constexpr char kCommandsTag = DelimitedTag(v1::SessionStreamRequest::kCommandsFieldNumber);
constexpr char kBatchTag = DelimitedTag(v1::Command::kBatchFieldNumber);
constexpr char kWordsTag = DelimitedTag(v1::Batch::kWordsFieldNumber);

constexpr char VarintTag(int field) { return static_cast<char>(wire::Tag(field, wire::kVarint)); }
constexpr char kFirstCommandTag = VarintTag(v1::SessionStreamRequest::kFirstCommandFieldNumber);
constexpr char kAnswersReceivedTag =
    VarintTag(v1::SessionStreamRequest::kAnswersReceivedFieldNumber);

// A length that is filled in later always takes four bytes.
constexpr size_t kLengthBytes = 4;
constexpr size_t kHeaderBytes = 3 * (1 + kLengthBytes);

void PatchLength(size_t length, char* at) {
  for (size_t i = 0; i + 1 < kLengthBytes; ++i) {
    at[i] = static_cast<char>((length >> (7 * i) & 0x7f) | 0x80);
  }
  at[kLengthBytes - 1] = static_cast<char>(length >> (7 * (kLengthBytes - 1)) & 0x7f);
}

}  // namespace

void CommandEncoder::Append(const v1::Command& command) {
  CloseBatch();
  bytes_.push_back(kCommandsTag);
  AppendVarint(command.ByteSizeLong(), &bytes_);
  command.AppendToString(&bytes_);
}

void CommandEncoder::OpenBatch() {
  if (batch_begin_ != 0) return;
  for (char tag : {kCommandsTag, kBatchTag, kWordsTag}) {
    bytes_.push_back(tag);
    bytes_.append(kLengthBytes, '\0');
  }
  batch_begin_ = bytes_.size();
  last_output_ = 0;
}

void CommandEncoder::CloseBatch() {
  if (batch_begin_ == 0) return;
  size_t length = bytes_.size() - batch_begin_;
  size_t at = batch_begin_;
  for (int i = 0; i < 3; ++i) {
    at -= kLengthBytes;
    PatchLength(length, &bytes_[at]);
    at -= 1;
    length += 1 + kLengthBytes;
  }
  batch_begin_ = 0;
}

void CommandEncoder::BeginStep(uint64_t definition, uint64_t output) {
  OpenBatch();
  AppendWord(definition);
  AppendWord(output - last_output_);
  step_output_ = output;
}

void CommandEncoder::AppendDrop(uint64_t handle) {
  OpenBatch();
  AppendWord(0);
  AppendWord(last_output_ - handle);
  FlushStep();
}

std::string CommandEncoder::Take(uint64_t first_command, uint64_t answers_received) {
  CloseBatch();
  std::string taken = std::move(bytes_);
  bytes_.clear();
  taken.push_back(kFirstCommandTag);
  AppendVarint(first_command, &taken);
  taken.push_back(kAnswersReceivedTag);
  AppendVarint(answers_received, &taken);
  return taken;
}

}  // namespace tensord::internal
