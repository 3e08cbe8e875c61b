// The command line: tensorctl [FLAG…] COMMAND [FLAG…].
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tensord::cli {

struct CommandContext;

// A flag as help shows it and as the parser takes it: "--name VALUE" or "--name=VALUE", or "--name"
// alone where `value` is empty.
struct FlagSpec {
  std::string name;   // without dashes
  std::string value;  // a word for its value, such as "SECONDS"; empty for a switch
  std::string help;   // one sentence without a full stop
};

// The flags given, by name; the parser has checked that they exist.
class Flags {
 public:
  void Set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
  bool Has(absl::string_view name) const { return values_.contains(std::string(name)); }
  std::string Get(absl::string_view name, absl::string_view otherwise) const;
  // Return the flag's number, or `otherwise` if the flag isn't given. If it isn't a number from
  // `least` to `most`, return a usage error with the flag.
  absl::StatusOr<double> GetNumber(absl::string_view name, double otherwise, double least,
                                   double most) const;
  absl::StatusOr<int64_t> GetInt(absl::string_view name, int64_t otherwise, int64_t least,
                                 int64_t most) const;

 private:
  std::map<std::string, std::string> values_;
};

struct Example {
  std::string command;
  std::string meaning;
};

// A command: its help, its flags and its code.
struct CommandSpec {
  std::string name;
  std::string summary;      // one line, lower case, without a full stop
  std::string description;  // paragraphs, a line each
  std::vector<FlagSpec> flags;
  // The argument that must stand beside the flags, such as "NAME", which Flags has under that word.
  // Empty: none.
  std::string operand = {};
  std::vector<Example> examples;
  // Returns the exit code. An error is printed by the caller: INVALID_ARGUMENT that is marked by
  // UsageError exits with 2, all others with 1.
  absl::StatusOr<int> (*run)(CommandContext&) = nullptr;
};

// Makes an error of the command line.
absl::Status UsageError(absl::string_view message);
bool IsUsageError(const absl::Status& status);

// A parsed command line.
struct Invocation {
  enum class Action { kRun, kOverview, kCommandHelp, kVersion };
  Action action = Action::kOverview;
  const CommandSpec* command = nullptr;  // with kRun and kCommandHelp
  Flags flags;                           // the general ones and the command's
};

// Parses `args`, which are without the program's name. The general flags may stand before the
// command and after it. "help COMMAND" and "COMMAND --help" mean the same, and take precedence over
// all other arguments. A usage error names the unknown word and the nearest known one. The result
// points into `commands`.
absl::StatusOr<Invocation> ParseCommandLine(absl::Span<const std::string> args,
                                            absl::Span<const CommandSpec> commands,
                                            absl::Span<const FlagSpec> general_flags);

}  // namespace tensord::cli
