// A PyTorch device on the GPUs of other machines, for programs in C++:
//
//   torch_tensord::Connect("gpu-a:50051");
//   const torch::Tensor x = torch::randn({2, 3}, torch::Device("tensord:0"));
//
// A program that links this library, or loads it with dlopen, has the device. Without Connect(), the
// first use of a device connects as Connect() does without arguments. client/torch/README.md has
// complete programs. All functions are thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace torch_tensord {

// Options of a connection by name, as texts, such as {{"reconnect_timeout", "10"}, {"token_file",
// "/etc/tensord/token"}}. Times are in seconds. client/c/tensord_c.h (TensordOption) has the list.
using Options = std::vector<std::pair<std::string, std::string>>;

struct DeviceInfo {
  std::string name;    // "cuda:0"; with several servers "gpu-a/cuda:0"
  std::string server;  // the address, "gpu-a:50051"
  std::string kind;    // "cuda", "cpu"
};

// Connects to the servers at `addresses` ("gpu-a:50051,gpu-b:50051", "unix:/path"). Their devices
// become tensord:0, tensord:1, …, in the order of the servers. Without addresses, uses those of
// TENSORD_SERVERS or TENSORD_SERVER in the environment, or else 127.0.0.1:50051. Blocks. Returns
// the number of devices. If the program has a connection, closes it: its tensors then throw
// c10::AcceleratorError, and a device number that the new connection lacks throws c10::Error. If no
// server answers, throws c10::AcceleratorError; for every other error, c10::Error. The former
// connection is kept then.
__attribute__((visibility("default"))) int Connect(const std::string& addresses = "",
                                                   const Options& options = {});

// The same as Connect(), for the time after a server was lost. If an op then overwrites a whole
// tensor, the tensor belongs to the new connection: after the program has copied a checkpoint into
// the parameters and the optimizer's state, it can use the same objects.
inline int Resume(const std::string& addresses = "", const Options& options = {}) {
  return Connect(addresses, options);
}

// Returns the devices by number. If there is no connection, connects.
__attribute__((visibility("default"))) std::vector<DeviceInfo> Devices();

}  // namespace torch_tensord
