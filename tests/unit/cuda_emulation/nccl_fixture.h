// Communicators of the emulated NCCL whose ranks are threads of this process, one on each of four
// emulated devices.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tensord/server/device/cuda/nccl_library.h"
#include "tensord/tests/cuda_emulation/control.h"
#include "tensord/tests/cuda_emulation/failure.h"

namespace tensord::cuda_emulation {

struct Rank {
  int number = 0;  // the rank, and the index of its device
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
};

// Memory on a rank's device.
class DeviceMemory {
 public:
  DeviceMemory(const Rank& rank, size_t bytes);
  // Waits for the device, as cudaFree() does.
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  char* data() const { return static_cast<char*>(data_); }

  // Both copy in the order of the rank's stream, and block.
  void Write(const void* values, size_t bytes);
  std::string Read() const;

 private:
  void Copy(void* dst, const void* src, cudaMemcpyKind kind) const;

  Rank rank_;
  size_t bytes_ = 0;
  void* data_ = nullptr;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
template <typename T>
std::vector<T> ValuesOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class NcclEmulationTest : public testing::Test {
 protected:
  static constexpr int kDevices = 4;

  void SetUp() override;
  // Aborts the communicators and resets the devices. Expects that HasNewReports() is false.
  void TearDown() override;

  // Fills ranks_ with ranks 0 to size - 1 and connects them. AbortAll() undoes this.
  void Connect(int size);
  void AbortAll();

  // Calls ncclCommInitRankConfig() for a nonblocking communicator. The rank's device is current
  // afterwards.
  ncclResult_t Init(const ncclUniqueId& id, int rank, int size, ncclComm_t* comm);
  // Polls the communicator's state until it isn't ncclInProgress.
  ncclResult_t Await(ncclComm_t comm);
  // Polls the state until it is an error.
  ncclResult_t AwaitError(ncclComm_t comm);

  // Calls `call` on a thread for each rank, with the rank's device current, and expects that it
  // starts an operation. Returns when all operations have been started.
  void StartAll(const std::function<ncclResult_t(const Rank&)>& call);
  // Calls StartAll() and blocks until the operations have ended.
  void RunAll(const std::function<ncclResult_t(const Rank&)>& call);

  // Returns memory on the rank's device that holds `values`.
  template <typename T>
  DeviceMemory Upload(int rank, const std::vector<T>& values) {
    DeviceMemory memory(ranks_[rank], values.size() * sizeof(T));
    memory.Write(values.data(), values.size() * sizeof(T));
    return memory;
  }

  // Returns whether there have been reports since SetUp() or the last call.
  bool HasNewReports();

  const server::NcclLibrary* nccl_ = nullptr;
  std::vector<Rank> ranks_;

 private:
  // Polls the state until it is neither `first` nor `second`, or a minute has passed.
  ncclResult_t Poll(ncclComm_t comm, ncclResult_t first, ncclResult_t second);

  Options options_;
};

}  // namespace tensord::cuda_emulation
