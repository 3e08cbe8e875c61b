// The tour's first steps: devices, tensors on them, and copies between devices.
#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/cli/listings.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/tour/steps.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {
namespace {

constexpr int64_t kMaxBigBytes = 64 << 20;
// Retries, because other sessions may allocate memory at the same time.
constexpr int kMemoryAttempts = 5;

void ExplainOneDevice(const Tour& tour) {
  tour.narrator.Print(
      "This server has one device, and the tour needs two. Any machine can offer two devices on "
      "the same hardware: stop the server, start it as follows, and run the tour again.");
  const absl::string_view kind = tour.a.kind().name();
  tour.narrator.Code(absl::StrCat("tensord --devices=", kind, ",", kind, "\ntensorctl tour"));
}

}  // namespace

absl::Status ShowDevices(Tour& tour) {
  Narrator& narrator = tour.narrator;
  narrator.Heading("The devices of a server");
  narrator.Print(
      "A server offers its devices, GPUs and CPUs, under names such as cuda:0 and cpu:0. A program "
      "connects and chooses devices. Here, value() ends the program with the message if there is "
      "an error; to handle errors, check ok() first.");
  const bool two = tour.b.valid();
  narrator.Code(absl::StrCat(
      "Client client = Client::Connect(\"", tour.client.address(),
      "\").value();\nDevice a = client.device(\"", tour.a.name(), "\").value();",
      two ? absl::StrCat("\nDevice b = client.device(\"", tour.b.name(), "\").value();") : ""));
  narrator.Show(cli::DeviceTable(tour.infos, narrator.result_terminal()));
  if (!two) {
    ExplainOneDevice(tour);
    return absl::FailedPreconditionError("the tour needs a server with two devices");
  }
  if (tour.infos[0].uuid == tour.infos[1].uuid) {
    narrator.Print(absl::StrCat(tour.a.name(), " and ", tour.b.name(),
                                " use the same hardware. A program sees two devices, each with its "
                                "own memory and its own work."));
  }
  return absl::OkStatus();
}

absl::Status CreateTensors(Tour& tour) {
  Narrator& narrator = tour.narrator;
  narrator.Heading("A tensor is on one device");
  narrator.Print(
      "X is made on the first device, Y on the second. The program holds handles; the numbers are "
      "on the server. The calls don't wait for it.");
  narrator.Code(
      "Tensor x = FromVector<float>(a, {2, 3}, {1, 2, 3, 4, 5, 6});\n"
      "Tensor y = Full(b, {2, 3}, 10.0);\n"
      "std::cout << x.Describe() << \"\\n\" << y.Describe() << \"\\n\";");
  tour.x = FromVector<float>(tour.a, {2, 3}, {1, 2, 3, 4, 5, 6});
  tour.y = Full(tour.b, {2, 3}, 10.0);
  TENSORD_RETURN_IF_ERROR(tour.x.Wait());
  TENSORD_RETURN_IF_ERROR(tour.y.Wait());
  narrator.Show(absl::StrCat(tour.x.Describe(), "\n", tour.y.Describe()));
  return Expect(tour.x.device() == tour.a && tour.y.device() == tour.b,
                "the tensors aren't on the devices where they were made");
}

absl::Status MixDevices(Tour& tour) {
  Narrator& narrator = tour.narrator;
  narrator.Heading("X + Y is refused");
  narrator.Print(
      "The library never copies between devices unless the program calls To. The client finds the "
      "mistake at the call, before it sends anything, and says how to correct it.");
  narrator.Code("Tensor z = x + y;\nstd::cout << z.status().message() << \"\\n\";");
  const absl::Status status = (tour.x + tour.y).status();
  narrator.ShowWrapped(status.message(), cli::Style::kRed);
  TENSORD_RETURN_IF_ERROR(
      Expect(absl::IsInvalidArgument(status), "X + Y over two devices should be INVALID_ARGUMENT"));
  return Expect(absl::StrContains(std::string(status.message()), tour.a.name()) &&
                    absl::StrContains(std::string(status.message()), tour.b.name()),
                "the message should name both devices");
}

absl::Status CopyAndAdd(Tour& tour) {
  Narrator& narrator = tour.narrator;
  narrator.Heading("Copy, then add");
  narrator.Print(absl::StrCat("A copy of Y on ", tour.a.name(),
                              " is a separate tensor, and can be added to X. Printing reads the "
                              "numbers back: only the read waits."));
  narrator.Code("Tensor z = x + y.To(a);\nstd::cout << z << \"\\n\";");
  const Tensor z = tour.x + tour.y.To(tour.a);
  TENSORD_ASSIGN_OR_RETURN(const std::vector<float> values, z.Read<float>());
  narrator.Show(z.ToString());
  TENSORD_RETURN_IF_ERROR(Expect(values == std::vector<float>({11, 12, 13, 14, 15, 16}),
                                 "the sum should be 11, 12, … 16"));
  return Expect(z.device() == tour.a, "the sum should be on the device of X");
}

absl::Status CopyInPlace(Tour& tour) {
  Narrator& narrator = tour.narrator;
  narrator.Heading("A copy to the same device costs nothing");
  narrator.Print(
      "Tensors never change, so two variables can share one tensor: To returns the same handle and "
      "uses no memory.");
  int64_t side = 4096;
  while (side > 64 &&
         4 * side * side > std::min(kMaxBigBytes, tour.infos[0].memory.limit_bytes / 4)) {
    side /= 2;
  }
  narrator.Code(absl::StrCat("Tensor big = Ones(a, {", side, ", ", side, "});\n",
                             "Tensor same = big.To(a);"));
  const Tensor big = Ones(tour.a, {side, side});
  TENSORD_RETURN_IF_ERROR(big.Wait());
  MemoryInfo before;
  MemoryInfo after;
  Tensor same;
  for (int i = 0; i < kMemoryAttempts; ++i) {
    TENSORD_ASSIGN_OR_RETURN(before, tour.client.memory(tour.a));
    same = big.To(tour.a);
    TENSORD_RETURN_IF_ERROR(same.Wait());
    TENSORD_ASSIGN_OR_RETURN(after, tour.client.memory(tour.a));
    if (before.used_bytes == after.used_bytes) break;
  }
  cli::Table table({{""},
                    {"handle", cli::Align::kRight},
                    {absl::StrCat("bytes used on ", tour.a.name()), cli::Align::kRight}},
                   cli::Frame::kNone);
  table.AddRow(
      {"big, before the copy", absl::StrCat(big.handle()), cli::FormatCount(before.used_bytes)});
  table.AddRow({"same, after it", absl::StrCat(same.handle()), cli::FormatCount(after.used_bytes)});
  narrator.Show(table);
  TENSORD_RETURN_IF_ERROR(Expect(big.handle() == same.handle(), "the handles should be equal"));
  return Expect(before.used_bytes == after.used_bytes && after.used_bytes >= big.size_bytes(),
                "the memory used should be the same before and after");
}

}  // namespace tensord::tour
