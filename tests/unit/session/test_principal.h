// Principals and accounts for tests that have no authenticator.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "tensord/server/session/host_budget.h"
#include "tensord/server/session/principal.h"

namespace tensord::server {

// Returns the principal of this name. The same name gives the same object while a reference to it
// exists. Thread-safe.
inline PrincipalRef TestPrincipal(absl::string_view name = "tester") {
  static auto* table = new PrincipalTable;
  return table->Get(Principal::Kind::kToken, name);
}

// Returns an account of TestPrincipal(name). A limit of 0 means no limit.
inline HostAccountRef TestHostAccount(int64_t limit_bytes = 0, absl::string_view name = "tester") {
  return std::make_shared<HostAccount>(std::make_shared<HostBudget>(0, limit_bytes),
                                       TestPrincipal(name));
}

// The lease of a test's session, in seconds: longer than a test takes on a busy machine, also with a
// sanitizer.
inline constexpr int64_t kTestLeaseSeconds = 3600;

}  // namespace tensord::server
