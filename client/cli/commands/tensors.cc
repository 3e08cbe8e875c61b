// tensorctl tensors: lists the tensors of servers.
#include <algorithm>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/client/cli/listings.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::cli {
namespace {

// Keeps only the tensors on `device`, unless it is empty, and only those of --session, if it is
// given.
absl::Status Filter(const CommandContext& context, const std::string& device,
                    std::vector<TensorInfo>& tensors) {
  if (!device.empty()) {
    std::erase_if(tensors, [&](const TensorInfo& tensor) { return tensor.device != device; });
  }
  TENSORD_ASSIGN_OR_RETURN(
      const int64_t session,
      context.flags.GetInt("session", -1, 0, std::numeric_limits<int64_t>::max()));
  if (session >= 0) {
    std::erase_if(tensors, [&](const TensorInfo& tensor) {
      return tensor.session_number != static_cast<uint64_t>(session);
    });
  }
  return absl::OkStatus();
}

// Returns the full name of the device of the cluster that --device names.
absl::StatusOr<std::string> NameInCluster(const CommandContext& context, const Cluster& cluster) {
  const absl::StatusOr<Device> device = cluster.device(context.flags.Get("device", ""));
  if (absl::IsInvalidArgument(device.status())) return UsageError(device.status().message());
  if (!device.ok()) return device.status();
  return device->name();
}

std::string Text(const std::vector<TensorInfo>& tensors, size_t held, const Terminal& terminal) {
  if (!tensors.empty()) return TensorTable(tensors, terminal);
  return absl::StrCat("no tensors",
                      held > 0 ? absl::StrCat(" match; there are ", held, " others") : "", "\n");
}

absl::StatusOr<std::vector<TensorInfo>> Fetch(const CommandContext& context, const Client& client) {
  absl::StatusOr<std::vector<TensorInfo>> tensors =
      context.flags.Has("all") ? client.ListTensorsOfAllPrincipals() : client.ListAllTensors();
  if (!tensors.ok()) return WithAdvice(tensors.status());
  return tensors;
}

// Gets the tensors of one server. Prefixes their devices with the server's name.
absl::Status TensorsOf(const CommandContext& context, const ClusterServer& server,
                       std::vector<TensorInfo>* tensors) {
  TENSORD_ASSIGN_OR_RETURN(*tensors, Fetch(context, server.client));
  for (TensorInfo& tensor : *tensors) {
    tensor.device = absl::StrCat(server.name, tensor.device.empty() ? "" : "/", tensor.device);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunTensorsOfAll(CommandContext& context) {
  TENSORD_ASSIGN_OR_RETURN(const Cluster cluster, ConnectAll(context, "tensors"));
  std::vector<ClusterServer> servers = cluster.servers();
  std::vector<std::vector<TensorInfo>> of_each(servers.size());
  QueryAll(servers, [&](size_t i, const ClusterServer& server) {
    return TensorsOf(context, server, &of_each[i]);
  });
  std::vector<ServerListing> listings;
  for (const ClusterServer& server : servers) {
    listings.push_back({server.name, server.address, server.status, {}, {}});
  }
  std::string device;
  if (context.flags.Has("device")) {
    TENSORD_ASSIGN_OR_RETURN(device, NameInCluster(context, cluster));
  }
  size_t held = 0;
  std::vector<TensorInfo> all;
  for (std::vector<TensorInfo>& tensors : of_each) {
    held += tensors.size();
    TENSORD_RETURN_IF_ERROR(Filter(context, device, tensors));
    all.insert(all.end(), tensors.begin(), tensors.end());
  }
  if (context.flags.Has("json")) {
    context.out << TensorsJson(listings, of_each);
  } else {
    context.out << Text(all, held, context.out_terminal)
                << LostServers(listings, context.out_terminal);
  }
  return AnyLost(listings) ? 1 : 0;
}

absl::StatusOr<int> RunTensors(CommandContext& context) {
  if (!context.servers.several.empty()) return RunTensorsOfAll(context);
  TENSORD_ASSIGN_OR_RETURN(const Client client, Connect(context, "tensors"));
  TENSORD_ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors, Fetch(context, client));
  const size_t held = tensors.size();
  std::string name;
  if (context.flags.Has("device")) {
    TENSORD_ASSIGN_OR_RETURN(const Device device, ChosenDevice(context, client));
    name = device.name();
  }
  TENSORD_RETURN_IF_ERROR(Filter(context, name, tensors));
  context.out << (context.flags.Has("json")
                      ? TensorsJson({{.address = client.address()}}, {tensors})
                      : Text(tensors, held, context.out_terminal));
  return 0;
}

}  // namespace

CommandSpec TensorsCommand() {
  return {
      .name = "tensors",
      .summary = "the tensors of this client's identity, or of all identities for an administrator",
      .description =
          "Shows each tensor with its session's number, its handle in that session, its dtype, "
          "shape, device and size, and if it has failed, its error; then the totals of each "
          "device. A failed tensor has no memory. Tensors that share memory, such "
          "as a reshape and its input, each count in full, so a total may exceed the used memory "
          "that \"tensorctl devices\" shows. With --all and the token of an administrator "
          "(tensorctl "
          "help token), shows the tensors of all principals, with a column that names them. With "
          "--servers, shows the tensors of all servers; "
          "each server numbers its own sessions and handles.\n"
          "JSON has the same keys for one server as for several: \"servers\", a list, and "
          "\"tensors\", the list of all tensors, each with the address of its \"server\".",
      .flags = {{"device", "NAME", "only tensors on this device"},
                {"session", "NUMBER", "only tensors of this session"},
                {"all", "", "the tensors of all principals (only for administrators)"},
                {"json", "", "print JSON, with sizes in bytes, for programs"}},
      .examples = {{"tensorctl tensors", "Lists all tensors of this client's identity."},
                   {"tensorctl tensors --token-file root.token --all",
                    "As an administrator, lists the tensors of all principals."},
                   {"tensorctl tensors --device cuda:1", "Lists the tensors on one device."}},
      .run = RunTensors,
  };
}

}  // namespace tensord::cli
