#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

namespace tensord::server {

// Returns a message in slices of this size, as gRPC receives it.
inline grpc::ByteBuffer BufferOf(const std::string& bytes, size_t slice_bytes = 4096) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += slice_bytes) {
    slices.emplace_back(bytes.substr(at, slice_bytes));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace tensord::server
