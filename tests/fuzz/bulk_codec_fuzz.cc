// Fuzzes the hand-written parsers of Write and Read messages, and the estimate of the memory that a
// SessionStream message takes when it is parsed. For all bytes, cut into any slices, the results
// must agree with protobuf's own parser.
#include <google/protobuf/stubs/logging.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tensord/client/internal/bulk_codec.h"
#include "tensord/server/rpc/chunk_codec.h"
#include "tensord/tests/fuzz/fuzz_input.h"

namespace {

using tensord::fuzz::FuzzInput;

grpc::ByteBuffer Sliced(const std::string& bytes, size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += slice_bytes) {
    slices.emplace_back(bytes.substr(at, slice_bytes));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void TakeWriteRequest(const std::string& bytes, size_t slice_bytes) {
  tensord::v1::WriteRequest expected;
  const bool good = expected.ParseFromString(bytes);
  grpc::ByteBuffer buffer = Sliced(bytes, slice_bytes);
  const auto chunk = tensord::server::DecodeWriteRequest(&buffer);
  if (chunk.ok() != good) std::abort();
  if (!good) return;
  if (chunk->has_spec != expected.has_spec() || chunk->offset != expected.offset()) std::abort();
  if (chunk->data_bytes != static_cast<int64_t>(expected.data().size())) std::abort();
  std::string data(expected.data().size(), '?');
  tensord::server::CopyOut(&buffer, chunk->data_position, chunk->data_bytes, data.data());
  if (data != expected.data()) std::abort();
}

void TakeReadResponse(const std::string& bytes, size_t slice_bytes, size_t room, int64_t before) {
  std::vector<uint8_t> out(room);
  int64_t filled = std::min<int64_t>(before, static_cast<int64_t>(room));
  const int64_t start = filled;
  grpc::ByteBuffer buffer = Sliced(bytes, slice_bytes);
  tensord::v1::TensorSpec spec;
  const absl::Status status =
      tensord::internal::DecodeChunk(&buffer, absl::MakeSpan(out), &filled, &spec);
  if (filled < start || filled > static_cast<int64_t>(room)) std::abort();
  tensord::v1::ReadResponse expected;
  if (!status.ok() || !expected.ParseFromString(bytes)) return;
  // If there are several fields `data`, protobuf keeps the last, and DecodeChunk() appends all.
  const std::string& data = expected.data();
  if (data.empty()) return;
  if (static_cast<int64_t>(data.size()) > filled - start) std::abort();
  if (std::memcmp(out.data() + filled - data.size(), data.data(), data.size()) != 0) std::abort();
}

void TakeStreamRequest(const std::string& bytes, size_t slice_bytes) {
  using tensord::v1::SessionStreamRequest;
  grpc::ByteBuffer buffer = Sliced(bytes, slice_bytes);
  const absl::StatusOr<int64_t> estimate = tensord::server::EstimateParsedBytes(
      &buffer, *SessionStreamRequest::descriptor(), std::numeric_limits<int64_t>::max());
  SessionStreamRequest parsed;
  const bool valid = parsed.ParseFromString(bytes);
  const auto used = static_cast<int64_t>(parsed.SpaceUsedLong() - sizeof(parsed));
  // The estimate counts the array of a list per element, but the first elements take more.
  constexpr int64_t kFirstElements = 256;
  if (valid && (!estimate.ok() || used > *estimate + kFirstElements)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  google::protobuf::SetLogHandler(nullptr);
  FuzzInput in(data, size);
  const size_t slice_bytes = 1 + in.Byte();
  const size_t room = in.Byte();
  const int64_t before = in.Byte();
  const std::string bytes = in.Bytes(in.remaining());
  TakeWriteRequest(bytes, slice_bytes);
  TakeReadResponse(bytes, slice_bytes, room, before);
  TakeStreamRequest(bytes, slice_bytes);
  return 0;
}
