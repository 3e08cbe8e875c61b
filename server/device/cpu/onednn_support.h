// Functions for the files that call oneDNN.
#pragma once

#include <dnnl.hpp>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/common/ops/elementwise.h"

namespace tensord::server::cpu {

// Calls `body`. Converts the library's exceptions to a Status; no other code does so.
absl::Status GuardOneDnn(absl::FunctionRef<absl::Status()> body);

absl::Status OneDnnOutOfMemory();

// Makes a primitive apply the activation to its result. Returns false if the library has no such
// function.
bool SetActivation(std::optional<UnaryFunction> activation, dnnl::primitive_attr& attr);

// Returns whether the name of an implementation is that of slow reference code.
bool IsReference(absl::string_view implementation);

}  // namespace tensord::server::cpu
