// tensorctl tensors: what a server holds.
#include <algorithm>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/client/cli/listings.h"
#include "tensord/common/status_macros.h"

namespace tensord::cli {
namespace {

// Leaves what --device and --session ask for.
absl::Status Filter(const CommandContext& context, const Client& client,
                    std::vector<TensorInfo>& tensors) {
  if (context.flags.Has("device")) {
    TENSORD_ASSIGN_OR_RETURN(const Device device, ChosenDevice(context, client));
    const std::string name = device.name();
    std::erase_if(tensors, [&](const TensorInfo& tensor) { return tensor.device != name; });
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

absl::StatusOr<int> Run(CommandContext& context) {
  TENSORD_ASSIGN_OR_RETURN(const Client client, Connect(context, "tensors"));
  TENSORD_ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors, client.ListAllTensors());
  const size_t held = tensors.size();
  TENSORD_RETURN_IF_ERROR(Filter(context, client, tensors));
  if (context.flags.Has("json")) {
    context.out << TensorsJson(tensors);
  } else if (tensors.empty()) {
    context.out << "no tensors"
                << (held > 0 ? absl::StrCat(" like that; there are ", held, " others") : "")
                << "\n";
  } else {
    context.out << TensorTable(tensors, context.out_terminal);
  }
  return 0;
}

}  // namespace

CommandSpec TensorsCommand() {
  return {
      .name = "tensors",
      .summary = "the tensors that a server holds for us, over all sessions",
      .description =
          "Shows each tensor with its session's number, its handle in that session, what it is, "
          "where it lies and what it takes there; then the totals of each device. Tensors that "
          "share memory, such as a reshape and what it was made from, each count in full, so that "
          "a total may be more than the memory used that \"tensorctl devices\" shows.",
      .flags = {{"device", "NAME", "only those on this device"},
                {"session", "NUMBER", "only those of this session"},
                {"json", "", "print JSON, with sizes in bytes, for programs"}},
      .examples = {{"tensorctl tensors", "Everything that the server holds."},
                   {"tensorctl tensors --device cuda:1", "What is on one device."}},
      .run = Run,
  };
}

}  // namespace tensord::cli
