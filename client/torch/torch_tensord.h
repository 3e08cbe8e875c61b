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

// Options of a connection by name: the parameters of tensord.connect() in Python, as texts. For
// example {{"lease", "30"}, {"token_file", "/etc/tensord/token"}}; times are in seconds.
using Options = std::vector<std::pair<std::string, std::string>>;

struct DeviceInfo {
  std::string name;    // "cuda:0"; with several servers "gpu-a/cuda:0"
  std::string server;  // the address, "gpu-a:50051"
  std::string kind;    // "cuda", "cpu"
};

// Connects to the servers at `addresses` ("gpu-a:50051,gpu-b:50051", "unix:/path"). Their devices
// become tensord:0, tensord:1, …, in the order of the servers. Without addresses, uses those of
// TENSORD_SERVERS or TENSORD_SERVER in the environment, or else 127.0.0.1:50051. Blocks. Returns
// the number of devices. If the servers can't be reached, throws c10::AcceleratorError; for a wrong
// option, c10::Error.
__attribute__((visibility("default"))) int Connect(const std::string& addresses = "",
                                                   const Options& options = {});

// Does the same after the program has used the devices, for example because a server was lost. The
// former connection is closed, so its tensors throw c10::AcceleratorError with the reason. Tensors
// that an op overwrites as a whole live on: after a checkpoint was copied into the parameters and
// the optimizer's state, the same objects can be used.
__attribute__((visibility("default"))) int Resume(const std::string& addresses = "",
                                                  const Options& options = {});

// Returns the devices by number. If there is no connection, connects.
__attribute__((visibility("default"))) std::vector<DeviceInfo> Devices();

}  // namespace torch_tensord
