// Graphs of torch.compile: a graph is recorded as a program of the server, and each later call
// sends one message.
#pragma once

#include <functional>

#include "value_errors.h"

namespace torch_tensord {

// Returns whether this thread records a graph.
bool IsRecording();
// Returns make(). While this thread records a graph, returns an input of the graph's program
// instead: each run calls make() for it, and so has random numbers of its own.
Value MakeForEachRun(std::function<Value()> make);
// Adds the origin of an op of the graph that this thread records.
void AddOriginToRecording(const Origin& origin);

}  // namespace torch_tensord
