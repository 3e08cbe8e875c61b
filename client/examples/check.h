// What the examples have in common.
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

// The largest difference of two float32 tensors of one shape, wherever they are; an error where it
// is more than `tolerance`.
inline absl::Status CheckClose(const Tensor& got, const Tensor& wanted, double tolerance) {
  const Tensor difference = Max(Abs(got.To(wanted.device()) - wanted));
  TENSORD_ASSIGN_OR_RETURN(const double most, difference.Item<double>());
  if (!(most <= tolerance)) {
    return absl::InternalError(absl::StrCat("differs from one device by ", most));
  }
  std::cout << "as on one device, to within " << most << "\n";
  return absl::OkStatus();
}

// What an example does with the servers, as Cluster::Connect takes them, and a folder of data.
using Example = absl::Status (*)(const std::string& servers, const std::string& data);

// An example's main. `usage` stands behind the program's name, `meaning` below it.
inline int Main(int argc, char** argv, const std::string& usage, const std::string& meaning,
                Example example) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool wants_help = !args.empty() && (args[0] == "--help" || args[0] == "-h");
  if (wants_help || args.size() > 2) {
    (wants_help ? std::cout : std::cerr)
        << "usage: " << argv[0] << " " << usage << "\n\n"
        << meaning << "\n"
        << "SERVERS: addresses by commas, or a name that stands for several (HOST:PORT);\n"
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
