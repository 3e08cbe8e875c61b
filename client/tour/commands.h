// The commands of tensorctl that show tensord at work.
#pragma once

#include "tensord/client/cli/args.h"

namespace tensord::tour {

// Takes a newcomer through devices, tensors, copies and a network, step by step.
cli::CommandSpec TourCommand();
// Runs a multilayer perceptron from a safetensors file over the rows of another, and scores it.
cli::CommandSpec RunModelCommand();

}  // namespace tensord::tour
