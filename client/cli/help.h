// Makes the texts of --help. Pure functions.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "tensord/client/cli/args.h"
#include "tensord/client/cli/terminal.h"

namespace tensord::cli {

// Returns the help of tensorctl: its purpose, its commands, its general flags, and first steps.
std::string OverviewHelp(absl::Span<const CommandSpec> commands,
                         absl::Span<const FlagSpec> general_flags, const Terminal& terminal);

// Returns the help of one command: its purpose, its flags, and examples.
std::string CommandHelp(const CommandSpec& command, absl::Span<const FlagSpec> general_flags,
                        const Terminal& terminal);

}  // namespace tensord::cli
