// Tensors that a principal shares with other principals under names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/util/mutex.h"
#include "tensord/server/session/principal.h"
#include "tensord/server/session/session.h"
#include "tensord/server/session/tensor.h"

namespace tensord::server {

// Thread-safe. Each principal has its own names. No principal can use another's name, or learn
// which names exist. A name lasts until Unpublish() or the end of its session.
class Publications {
 public:
  static constexpr size_t kMaxReaders = 64;
  static constexpr size_t kMaxNameBytes = 128;
  static constexpr size_t kMaxReaderBytes = 1024;

  // Shares `tensor`, which must be done, with the principals in `readers` and with the session's
  // own principal. A reader is a Principal::name(), or ":anonymous" for callers without
  // authentication. If the principal already shares the same tensor under `name`, replaces the
  // readers. If it shares another tensor under `name`, returns ALREADY_EXISTS. For an invalid name
  // or reader, returns INVALID_ARGUMENT; past a limit of names or of host memory,
  // RESOURCE_EXHAUSTED; if the session is closed, FAILED_PRECONDITION.
  absl::Status Publish(const SessionRef& session, absl::string_view name, TensorRef tensor,
                       std::vector<std::string> readers);

  // Returns the tensor that the principal `owner` (empty: the caller) shares with `caller` under
  // `name`. If there is none, or it is not shared with the caller, returns NOT_FOUND, with the same
  // message in both cases.
  absl::StatusOr<TensorRef> Find(const PrincipalRef& caller, absl::string_view owner,
                                 absl::string_view name) const;

  // Stops sharing. If the principal shares nothing under `name`, returns NOT_FOUND.
  absl::Status Unpublish(const PrincipalRef& principal, absl::string_view name);

  // Unpublishes all tensors that `session` has published. The session must be closed.
  void EndOf(const Session& session);

 private:
  using Key = std::pair<std::string, std::string>;  // owner and name
  struct Publication {
    PrincipalRef owner;
    const Session* session;  // never dereferenced
    TensorRef tensor;
    std::vector<std::string> readers;
    Charge charge;
    Charge counted;
  };

  // Charges the host memory of a publication: its entry, the names, and a tensor that may have no
  // handle.
  static absl::StatusOr<Charge> ChargeFor(const Session& session, const Key& key,
                                          const std::vector<std::string>& readers);

  mutable Mutex mu_;
  absl::flat_hash_map<Key, Publication> publications_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tensord::server
