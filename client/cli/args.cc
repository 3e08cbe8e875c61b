#include "tensord/client/cli/args.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensord/common/util/nearest_word.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::cli {
namespace {

constexpr char kUsagePayload[] = "tensorctl/usage";

std::string DidYouMean(absl::string_view word, absl::Span<const std::string> candidates,
                       absl::string_view prefix) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? "" : absl::StrCat("; did you mean \"", prefix, nearest, "\"?");
}

// Parses the arguments in one pass.
class Parser {
 public:
  Parser(absl::Span<const std::string> args, absl::Span<const CommandSpec> commands,
         absl::Span<const FlagSpec> general_flags)
      : args_(args), commands_(commands), general_flags_(general_flags) {}

  absl::StatusOr<Invocation> Parse() {
    // If help is requested, errors in the other arguments are ignored.
    const bool wants_help = std::any_of(args_.begin(), args_.end(), [](const std::string& arg) {
      return arg == "--help" || arg == "-h";
    });
    while (next_ < args_.size()) {
      const absl::Status status = TakeArgument(args_[next_++]);
      if (!status.ok() && !wants_help) return status;
    }
    if (wants_help || help_word_) {
      result_.action = result_.command == nullptr ? Invocation::Action::kOverview
                                                  : Invocation::Action::kCommandHelp;
    } else if (result_.flags.Has("version")) {
      result_.action = Invocation::Action::kVersion;
    } else if (result_.command != nullptr) {
      const std::string& operand = result_.command->operand;
      if (!operand.empty() && !result_.flags.Has(operand)) {
        return UsageError(absl::StrCat(result_.command->name, " needs a ", operand));
      }
      result_.action = Invocation::Action::kRun;
    }
    return std::move(result_);
  }

 private:
  absl::Status TakeArgument(const std::string& arg) {
    if (arg == "--help" || arg == "-h") return absl::OkStatus();
    if (arg.size() > 1 && arg[0] == '-') return TakeFlag(arg);
    if (result_.command != nullptr) {
      if (!result_.command->operands.empty()) {
        result_.flags.AddOperand(arg);
        return absl::OkStatus();
      }
      const std::string& operand = result_.command->operand;
      if (!operand.empty() && !result_.flags.Has(operand)) {
        result_.flags.Set(operand, arg);
        return absl::OkStatus();
      }
      return UsageError(absl::StrCat("\"", arg, "\": ", result_.command->name, " takes ",
                                     operand.empty() ? "" : absl::StrCat("one ", operand, " and "),
                                     "flags only"));
    }
    if (arg == "help" && !help_word_) {
      help_word_ = true;
      return absl::OkStatus();
    }
    return ApplyCommand(arg);
  }

  absl::Status ApplyCommand(const std::string& arg) {
    std::vector<std::string> names;
    for (const CommandSpec& command : commands_) {
      if (command.name == arg) {
        result_.command = &command;
        return absl::OkStatus();
      }
      names.push_back(command.name);
    }
    return UsageError(
        absl::StrCat("there is no command \"", arg, "\"", DidYouMean(arg, names, "")));
  }

  const FlagSpec* FindFlag(absl::string_view name) const {
    const auto named = [&](const FlagSpec& flag) { return flag.name == name; };
    if (result_.command != nullptr) {
      const auto& own = result_.command->flags;
      const auto found = std::find_if(own.begin(), own.end(), named);
      if (found != own.end()) return &*found;
    }
    const auto found = std::find_if(general_flags_.begin(), general_flags_.end(), named);
    return found == general_flags_.end() ? nullptr : &*found;
  }

  absl::Status UnknownFlag(const std::string& arg, absl::string_view name) const {
    std::vector<std::string> names;
    for (const FlagSpec& flag : general_flags_) names.push_back(flag.name);
    if (result_.command != nullptr) {
      for (const FlagSpec& flag : result_.command->flags) names.push_back(flag.name);
    } else {
      for (const CommandSpec& command : commands_) {
        for (const FlagSpec& flag : command.flags) {
          if (flag.name != name) continue;
          return UsageError(absl::StrCat("\"", arg, "\" must come after the command"));
        }
      }
    }
    const std::string owner = result_.command == nullptr
                                  ? "tensorctl"
                                  : absl::StrCat("tensorctl ", result_.command->name);
    return UsageError(
        absl::StrCat(owner, " has no flag \"", arg, "\"", DidYouMean(name, names, "--")));
  }

  absl::Status TakeFlag(const std::string& arg) {
    absl::string_view name = absl::StripPrefix(absl::StripPrefix(arg, "-"), "-");
    const size_t equals = name.find('=');
    const bool has_value = equals != absl::string_view::npos;
    const absl::string_view value = has_value ? name.substr(equals + 1) : "";
    name = name.substr(0, equals);
    const FlagSpec* flag = FindFlag(name);
    if (flag == nullptr || !absl::StartsWith(arg, "--")) {
      return UnknownFlag(absl::StrCat("--", name), name);
    }
    if (flag->value.empty()) {
      if (has_value) return UsageError(absl::StrCat("--", name, " takes no value"));
      result_.flags.Set(flag->name, "");
      return absl::OkStatus();
    }
    if (has_value) {
      result_.flags.Set(flag->name, std::string(value));
      return absl::OkStatus();
    }
    if (next_ == args_.size()) {
      return UsageError(absl::StrCat("--", name, " needs a value: --", name, " ", flag->value));
    }
    result_.flags.Set(flag->name, args_[next_++]);
    return absl::OkStatus();
  }

  absl::Span<const std::string> args_;
  absl::Span<const CommandSpec> commands_;
  absl::Span<const FlagSpec> general_flags_;
  size_t next_ = 0;
  bool help_word_ = false;
  Invocation result_;
};

}  // namespace

absl::Status UsageError(absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) {
  return status.GetPayload(kUsagePayload).has_value();
}

std::string Flags::Get(absl::string_view name, absl::string_view otherwise) const {
  const auto it = values_.find(std::string(name));
  return it == values_.end() ? std::string(otherwise) : it->second;
}

absl::StatusOr<double> Flags::GetNumber(absl::string_view name, double otherwise, double min,
                                        double max) const {
  if (!Has(name)) return otherwise;
  const std::string text = Get(name, "");
  double value = 0;
  if (absl::SimpleAtod(text, &value) && value >= min && value <= max) return value;
  return UsageError(
      absl::StrCat("--", name, " takes a number from ", min, " to ", max, ", not \"", text, "\""));
}

absl::StatusOr<int64_t> Flags::GetInt(absl::string_view name, int64_t otherwise, int64_t min,
                                      int64_t max) const {
  if (!Has(name)) return otherwise;
  const std::string text = Get(name, "");
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= min && value <= max) return value;
  return UsageError(absl::StrCat("--", name, " takes a whole number from ", min, " to ", max,
                                 ", not \"", text, "\""));
}

absl::StatusOr<Invocation> ParseCommandLine(absl::Span<const std::string> args,
                                            absl::Span<const CommandSpec> commands,
                                            absl::Span<const FlagSpec> general_flags) {
  return Parser(args, commands, general_flags).Parse();
}

}  // namespace tensord::cli
