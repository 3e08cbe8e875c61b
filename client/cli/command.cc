#include "tensord/client/cli/command.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tensord::cli {

absl::StatusOr<Client> Connect(const CommandContext& context, absl::string_view client_name) {
  ConnectOptions options = context.connect;
  options.client_name = absl::StrCat("tensorctl ", client_name);
  absl::StatusOr<Client> client = Client::Connect(context.server, options);
  if (absl::IsInvalidArgument(client.status())) return UsageError(client.status().message());
  if (!absl::IsUnavailable(client.status())) return client;
  if (absl::StrContains(client.status().message(), "not in peer certificate")) {
    return absl::UnavailableError(
        absl::StrCat(client.status().message(),
                     "\nThe server's certificate is for other names than the address. ",
                     "Say which with --tls-server-name, or connect to one of them."));
  }
  // What speaking plainly to a server that expects TLS looks like, or the other way round, or a
  // certificate that isn't trusted.
  if (absl::StrContains(client.status().message(), "andshake") ||
      absl::StrContains(client.status().message(), "Socket closed")) {
    return absl::UnavailableError(absl::StrCat(
        client.status().message(), "\nDoes the server speak TLS, and does an authority that we ",
        "trust vouch for its name? See --tls-ca, --tls-server-name in \"tensorctl help\". Or does "
        "it ",
        "want a client's certificate? See --tls-cert and --tls-key."));
  }
  return absl::UnavailableError(absl::StrCat(
      client.status().message(), "\nIs a server running there? To start one on this machine: ",
      "tensord\nTo use another: tensorctl --server HOST:PORT …, or set TENSORD_SERVER."));
}

absl::StatusOr<Device> ChosenDevice(const CommandContext& context, const Client& client) {
  if (context.flags.Has("device")) {
    const std::string name = context.flags.Get("device", "");
    absl::StatusOr<Device> device = client.device(name);
    if (absl::IsInvalidArgument(device.status())) return UsageError(device.status().message());
    return device;
  }
  Device device = client.TryDevice();
  if (device.valid()) return device;
  return absl::NotFoundError(absl::StrCat("the server at ", client.address(),
                                          " has neither cuda:0 nor cpu:0; name a device of its "
                                          "with --device (tensorctl devices lists them)"));
}

}  // namespace tensord::cli
