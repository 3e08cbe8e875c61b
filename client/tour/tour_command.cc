// tensorctl tour: an introduction for new users.
#include <filesystem>
#include <ostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/listings.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/tour/commands.h"
#include "tensord/client/tour/steps.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {
namespace {

namespace fs = std::filesystem;

// Finds the folder with the digits: the current folder's tests/data, that of the tree where this
// program was built, or the installed one.
absl::StatusOr<std::string> FindDataDir(const cli::Flags& flags) {
  std::error_code ignored;
  const fs::path bin = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const std::vector<fs::path> places =
      flags.Has("data") ? std::vector<fs::path>{flags.Get("data", "")}
                        : std::vector<fs::path>{"tests/data", bin / "../../../tests/data",
                                                bin / "../share/tensord/data"};
  for (const fs::path& place : places) {
    if (fs::exists(place / "digits.safetensors", ignored) &&
        fs::exists(place / "digits_mlp.safetensors", ignored)) {
      return place.lexically_normal().string();
    }
  }
  const std::string where =
      flags.Has("data") ? absl::StrCat(" in ", flags.Get("data", "")) : std::string(" here");
  return absl::NotFoundError(
      absl::StrCat("there are no digits.safetensors and digits_mlp.safetensors", where,
                   "; give their folder with --data DIR (tests/data in the source tree)"));
}

absl::Status TakeSteps(Tour& tour) {
  constexpr absl::Status (*kSteps[])(Tour&) = {ShowDevices, CreateTensors, MixDevices,
                                               CopyAndAdd,  CopyInPlace,   MultiplyAndTransfer,
                                               ReadOnce,    OverlapWork,   ReadDigits};
  for (const auto step : kSteps) TENSORD_RETURN_IF_ERROR(step(tour));
  return absl::OkStatus();
}

absl::StatusOr<int> RunTour(cli::CommandContext& context) {
  TENSORD_ASSIGN_OR_RETURN(std::string data_dir, FindDataDir(context.flags));
  TENSORD_ASSIGN_OR_RETURN(const Client client, cli::Connect(context, "tour"));
  TENSORD_ASSIGN_OR_RETURN(std::vector<DeviceInfo> infos, client.ListDevices());
  const std::vector<Device> devices = client.devices();
  if (devices.empty() || infos.size() != devices.size()) {
    return absl::FailedPreconditionError("the server has no devices");
  }
  const absl::Time start = absl::Now();
  Narrator narrator(context.out, context.out_terminal);
  narrator.Title("A tour of tensord");
  narrator.Print(
      absl::StrCat("tensord lets a program use the devices of another machine as if they were its "
                   "own. This tour computes on the server at ",
                   client.address(), " (", cli::ServerLine(client.info()),
                   "). Each step shows its C++ code and the result."));
  Tour tour = {.client = client,
               .infos = std::move(infos),
               .a = devices[0],
               .b = devices.size() > 1 ? devices[1] : Device(),
               .data_dir = std::move(data_dir),
               .narrator = narrator,
               .err = context.err,
               .err_terminal = context.err_terminal,
               .x = {},
               .y = {}};
  const absl::Status status = TakeSteps(tour);
  if (!status.ok()) {
    narrator.Conclude(
        absl::StrCat("✗ Step ", narrator.step(),
                     " did not give the expected result: ", cli::Printable(status.message())),
        /*good=*/false);
    return 1;
  }
  narrator.Conclude(absl::StrCat("✓ All ", narrator.step(), " steps gave the expected results, in ",
                                 cli::FormatElapsed(absl::Now() - start), "."),
                    /*good=*/true);
  narrator.Print(
      "Next: README.md shows how to build a first program with the client library; "
      "\"tensorctl help\" lists the other commands of this tool.");
  return 0;
}

}  // namespace

cli::CommandSpec TourCommand() {
  return {
      .name = "tour",
      .summary = "shows what tensord does, step by step, on two devices of a server",
      .description =
          "Introduces tensord in nine steps, each with its C++ code and the result: devices and "
          "tensors, copies, the costs of transfers and waits, two devices in parallel, and a "
          "network that reads handwritten digits. It uses the first two devices of the server and "
          "takes some seconds. Exit status: 0 if every step gave the expected result, otherwise 1.",
      .flags =
          {{"data", "DIR",
            "folder with digits.safetensors and digits_mlp.safetensors; by default tests/data "
            "in the current folder or in this program's source tree, or the installed folder"}},
      .examples = {{"tensord --devices=cpu,cpu &  tensorctl tour",
                    "On this machine, with or without a GPU."},
                   {"tensorctl --server gpu-box:50051 tour | less",
                    "On another machine, page by page."}},
      .run = RunTour,
  };
}

}  // namespace tensord::tour
