// Code that the examples share.
#pragma once

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/tensord.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::examples {

// Prints the largest difference of two float32 tensors of one shape, on any devices. Returns an
// error if it exceeds `tolerance`.
inline absl::Status CheckClose(const Tensor& got, const Tensor& wanted, double tolerance) {
  const Tensor difference = Max(Abs(got.To(wanted.device()) - wanted));
  TENSORD_ASSIGN_OR_RETURN(const double most, difference.Item<double>());
  if (!(most <= tolerance)) {
    return absl::InternalError(
        absl::StrCat("the result differs from that of one device by ", most));
  }
  std::cout << "the same as on one device, to within " << most << "\n";
  return absl::OkStatus();
}

// An example. `servers` are addresses for Cluster::Connect. `data` is a folder.
using Example = absl::Status (*)(const std::string& servers, const std::string& data);

// The main function of an example. --help prints `usage` after the program's name, and `meaning`
// below.
inline int Main(int argc, char** argv, const std::string& usage, const std::string& meaning,
                Example example) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool wants_help = !args.empty() && (args[0] == "--help" || args[0] == "-h");
  if (wants_help || args.size() > 2) {
    (wants_help ? std::cout : std::cerr)
        << "usage: " << argv[0] << " " << usage << "\n\n"
        << meaning << "\n"
        << "SERVERS: addresses separated by commas, or one HOST:PORT that resolves to several;\n"
           "$TENSORD_SERVERS or $TENSORD_SERVER by default, or else 127.0.0.1:50051.\n";
    return wants_help ? 0 : 2;
  }
  const bool named =
      std::getenv("TENSORD_SERVERS") != nullptr || std::getenv("TENSORD_SERVER") != nullptr;
  const std::string otherwise = named ? "" : "127.0.0.1:50051";
  const absl::Status status =
      example(args.empty() ? otherwise : args[0], args.size() > 1 ? args[1] : "tests/data");
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace tensord::examples
