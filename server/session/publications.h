// Tensors that a principal lends to others under names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/mutex.h"
#include "tensord/server/session/principal.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// Thread-safe. Each principal has names of its own, so that nobody can take another's or find out
// which there are. A name lasts until it is taken back or its session ends.
class Publications {
 public:
  static constexpr size_t kMaxReaders = 64;
  static constexpr size_t kMaxNameBytes = 128;
  static constexpr size_t kMaxReaderBytes = 1024;

  explicit Publications(int64_t max_names_per_principal)
      : max_names_per_principal_(max_names_per_principal) {}

  // Lends `tensor`, which is there, to the principals of these names (Principal::name, ":anonymous"
  // for those whom nobody knows) and to the
  // session's own. Done again with the same tensor it replaces the readers. INVALID_ARGUMENT for a
  // name or readers that can't be, ALREADY_EXISTS where the principal lends another tensor under
  // the name, RESOURCE_EXHAUSTED past the limit, FAILED_PRECONDITION once the session is closed.
  absl::Status Publish(const SessionRef& session, absl::string_view name, TensorRef tensor,
                       std::vector<std::string> readers);

  // What the principal `owner` (empty: the caller) lends to `caller` under the name. NOT_FOUND in
  // the same words where there is nothing, and where it isn't for the caller.
  absl::StatusOr<TensorRef> Find(const PrincipalRef& caller, absl::string_view owner,
                                 absl::string_view name) const;

  // NOT_FOUND where the principal lends nothing under the name.
  absl::Status Unpublish(const PrincipalRef& principal, absl::string_view name);

  // Takes back what `session`, which is closed, has published.
  void EndOf(const Session& session);

 private:
  using Key = std::pair<std::string, std::string>;  // owner and name
  struct Publication {
    PrincipalRef owner;
    const Session* session;  // only its address
    TensorRef tensor;
    std::vector<std::string> readers;
  };

  const int64_t max_names_per_principal_;
  mutable Mutex mu_;
  absl::flat_hash_map<Key, Publication> publications_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
