// Principals for tests that have no gate.
#pragma once

#include "absl/strings/string_view.h"
#include "tensord/server/session/principal.h"

namespace tensord::server {

// The same object for the same name, while anybody holds it. Thread-safe.
inline PrincipalRef TestPrincipal(absl::string_view name = "tester") {
  static auto* table = new PrincipalTable;
  return table->Get(Principal::Kind::kToken, name);
}

}  // namespace tensord::server
