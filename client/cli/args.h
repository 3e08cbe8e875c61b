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

// A flag, for help and for the parser: "--name VALUE" or "--name=VALUE", or only "--name" if
// `value` is empty.
struct FlagSpec {
  std::string name;   // without dashes
  std::string value;  // a word for its value, such as "SECONDS"; empty for a switch
  std::string help;   // one sentence without a full stop
};

// The given flags, by name, and the other arguments. The parser has checked that the flags exist.
class Flags {
 public:
  void AddOperand(std::string operand) { operands_.push_back(std::move(operand)); }
  // Returns the arguments of a command with CommandSpec::operands.
  const std::vector<std::string>& operands() const { return operands_; }

  void Set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
  bool Has(absl::string_view name) const { return values_.contains(std::string(name)); }
  std::string Get(absl::string_view name, absl::string_view otherwise) const;
  // Return the flag's number, or `otherwise` if the flag isn't given. If the value isn't a number
  // from `min` to `max`, return a usage error with the flag.
  absl::StatusOr<double> GetNumber(absl::string_view name, double otherwise, double min,
                                   double max) const;
  absl::StatusOr<int64_t> GetInt(absl::string_view name, int64_t otherwise, int64_t min,
                                 int64_t max) const;

 private:
  std::map<std::string, std::string> values_;
  std::vector<std::string> operands_;
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
  // The name of the required argument, such as "NAME". If it is empty, the command requires no
  // argument. Flags has the argument under this name.
  std::string operand = {};
  // A word for any number of arguments besides the flags, such as "NUMBER…". If it is empty, the
  // command takes none. A command has at most one of `operand` and `operands`.
  std::string operands = {};
  std::vector<Example> examples;
  // Returns the exit code. If it returns an error, main.cc prints the error. The program then exits
  // with 2 if UsageError() made the error, otherwise with 1.
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
  Flags flags;                           // general flags and the command's flags
};

// Parses `args`, which don't include the program's name. The general flags are accepted before and
// after the command. "help COMMAND" and "COMMAND --help" mean the same. With --help, all other
// arguments are ignored. A usage error names the unknown word and the nearest known one. The result
// points into `commands`.
absl::StatusOr<Invocation> ParseCommandLine(absl::Span<const std::string> args,
                                            absl::Span<const CommandSpec> commands,
                                            absl::Span<const FlagSpec> general_flags);

}  // namespace tensord::cli
