// Messages of the client library, which name C++ functions, for users of Python.
#include "absl/strings/str_replace.h"
#include "tensord/client/python/tensord/_core/core.h"

namespace tensord::python {

std::string ForPython(absl::string_view message) {
  // At one place, the longest text that fits is replaced.
  return absl::StrReplaceAll(
      message, {{" (Tensor::To in the client library, the call CopyToDevice)", " (Tensor.to)"},
                {"make a new Client with Client::Connect", "call tensord.connect() again"},
                {"connect again (Client::Connect)", "connect again (tensord.connect)"},
                {"Client::Close has closed", "close() has closed"},
                {"the client isn't connected: use Client::Connect",
                 "there is no connection: call tensord.connect()"},
                {"the first Connect", "the first tensord.connect()"},
                {"Client::Connect", "tensord.connect()"},
                {"Cluster::Connect", "tensord.connect()"},
                {"ConnectOptions::reconnect_timeout", "reconnect_timeout of tensord.connect()"},
                {"such as client.TryDevice()", "such as client.default_device"},
                {"use To(*cluster.device(", "use x.to(cluster.device("},
                {"convert it with ReadAs or To", "convert it with Tensor.to"},
                {"and RunOp returns one: call RunOpWithOutputs", "and one is expected"},
                {"return it from the body and read the output of Program::Run",
                 "return it from the function, and read the result of the program"},
                {"call Program::Run", "call the program"},
                {"before Program::Record", "before the function is recorded"},
                {"use Program::Record", "use tensord.Program"},
                {"use Group::Create", "use tensord.Group"},
                {"the C++ function tensord::", "the function tensord."},
                {"call To(device) or LoadStateDict", "call to(device) or load_state_dict"},
                {"LoadStateDict", "load_state_dict"},
                {"nn::", "nn."},
                {"tensord::", "tensord."},
                {"Tensor::To", "Tensor.to"},
                {"Tensor::", "Tensor."},
                {"Client::", "Client."},
                {"CopyReport::", "CopyReport."}});
}

}  // namespace tensord::python
