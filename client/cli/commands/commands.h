// The commands, one file each.
#pragma once

#include "tensord/client/cli/args.h"

namespace tensord::cli {

CommandSpec DevicesCommand();
CommandSpec TensorsCommand();
CommandSpec SessionsCommand();
CommandSpec CloseCommand();
CommandSpec InfoCommand();
CommandSpec HealthCommand();
CommandSpec ClusterCommand();
CommandSpec TokenCommand();

}  // namespace tensord::cli
