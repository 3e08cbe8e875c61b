// The commands of tensorctl that demonstrate tensord.
#pragma once

#include "tensord/client/cli/args.h"

namespace tensord::tour {

// Shows devices, tensors, copies and a network to a new user, step by step.
cli::CommandSpec TourCommand();
// Runs a multilayer perceptron from a safetensors file on the rows of another file, and prints its
// accuracy.
cli::CommandSpec RunModelCommand();

}  // namespace tensord::tour
