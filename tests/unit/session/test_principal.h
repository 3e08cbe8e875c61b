// Principals for tests that have no gate.
#pragma once

#include "absl/strings/string_view.h"
#include "tensord/server/session/principal.h"

namespace tensord::server {

// Returns the principal of this name. The same name gives the same object while a reference to it
// exists. Thread-safe.
inline PrincipalRef TestPrincipal(absl::string_view name = "tester") {
  static auto* table = new PrincipalTable;
  return table->Get(Principal::Kind::kToken, name);
}

}  // namespace tensord::server
