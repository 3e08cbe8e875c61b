// Principals and budgets for tests that have no authenticator.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "tensord/server/budget.h"
#include "tensord/server/session/principal.h"

namespace tensord::server {

// Returns the principal of this name. The same name gives the same object while a reference to it
// exists. Thread-safe.
inline PrincipalRef TestPrincipal(absl::string_view name = "tester") {
  static auto* table = new PrincipalTable;
  return table->Get(Principal::Kind::kToken, name);
}

// Returns a principal of a server with these limits. Two calls return two principals, which share no
// limit.
inline PrincipalRef TestPrincipalWith(const Limits& limits, absl::string_view name = "tester") {
  return PrincipalTable(limits).Get(Principal::Kind::kToken, name);
}

// The lease of a test's session, in seconds: longer than a test takes on a busy machine, also with a
// sanitizer.
inline constexpr int64_t kTestLeaseSeconds = 3600;

}  // namespace tensord::server
