#include "tensord/server/device/memory_account.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

Buffer::~Buffer() {
  if (account_ != nullptr) account_->ReturnBytes(size_bytes_);
}

int64_t MemoryAccounts::used_bytes() const {
  MutexLock lock(&mu_);
  int64_t bytes = 0;
  for (const MemoryAccount* account : accounts_) bytes += account->used_bytes();
  return bytes;
}

void MemoryAccounts::Add(const MemoryAccount* account) {
  MutexLock lock(&mu_);
  accounts_.insert(account);
}

void MemoryAccounts::Remove(const MemoryAccount* account) {
  MutexLock lock(&mu_);
  accounts_.erase(account);
}

MemoryAccount::MemoryAccount(Options options)
    : options_(std::move(options)),
      budget_(options_.session_limit_bytes == 0 ? Budget::kUnlimited
                                                : kOpen + options_.session_limit_bytes,
              options_.principal, /*used=*/kOpen) {
  if (options_.accounts != nullptr) options_.accounts->Add(this);
}

MemoryAccount::~MemoryAccount() {
  if (options_.accounts != nullptr) options_.accounts->Remove(this);
}

absl::Status MemoryAccount::Refuse(const Budget& full, int64_t bytes) const {
  const bool session = &full == &budget_;
  const int64_t limit = session ? options_.session_limit_bytes : full.limit();
  const int64_t used = session ? used_bytes() : full.used();
  const bool never = bytes > limit;
  LimitReached reached;
  reached.reason = session ? "SESSION_BYTES_EXCEEDED" : "PRINCIPAL_BYTES_EXCEEDED";
  reached.subject = session ? "session" : "principal";
  reached.limit = session ? "max-bytes-per-session" : "max-bytes-per-principal";
  reached.value = limit;
  if (!session && options_.principal_limit_source) {
    reached.source = options_.principal_limit_source();
  }
  reached.message =
      absl::StrCat("out of memory on ", options_.device, ": asked for ", bytes, " bytes, ",
                   std::max<int64_t>(0, limit - used), " bytes are left of what ",
                   session ? "a session" : "a caller", " may hold there, ", limit, " bytes; ",
                   never ? "use smaller tensors" : "delete tensors");
  if (never) reached.retry_seconds = 0;
  return ToStatus(reached);
}

absl::Status MemoryAccount::WithMemoryHolders(const absl::Status& refused, int64_t bytes,
                                              const Device& device) const {
  const int64_t charged = options_.principal != nullptr  ? options_.principal->used()
                          : options_.accounts != nullptr ? options_.accounts->used_bytes()
                                                         : used_bytes();
  const int64_t own = charged - bytes;
  std::string held = absl::StrCat("; the caller holds ", own, " bytes there, other callers ",
                                  std::max<int64_t>(0, device.memory().used_bytes - own));
  if (const int64_t scratch = device.scratch_bytes(); scratch > 0) {
    absl::StrAppend(&held, "; ", scratch,
                    " bytes of these are intermediate values of an op that runs, until it ends");
  }
  return WithSuffix(refused, held);
}

absl::StatusOr<BufferRef> MemoryAccount::BindCharge(absl::StatusOr<BufferRef> buffer,
                                                    int64_t bytes) {
  if (buffer.ok()) {
    if (bytes > 0) (*buffer)->account_ = this;
  } else {
    ReturnBytes(bytes);
  }
  return buffer;
}

absl::StatusOr<BufferRef> AllocateFor(MemoryAccount& account, Device& device, int64_t size_bytes,
                                      FirstUse first_use) {
  const auto allocate = [&] {
    return first_use == FirstUse::kTransfer ? device.AllocateForTransfer(size_bytes)
                                            : device.Allocate(size_bytes);
  };
  absl::Status charged = account.Charge(size_bytes);
  if (!charged.ok() && device.spares().FreeUnused(&account)) charged = account.Charge(size_bytes);
  if (!charged.ok()) {
    account.ReportRefused(charged);
    return charged;
  }
  absl::StatusOr<BufferRef> buffer = allocate();
  if (absl::IsResourceExhausted(buffer.status()) && device.spares().FreeUnused(nullptr)) {
    buffer = allocate();
  }
  if (absl::IsResourceExhausted(buffer.status())) {
    buffer = account.WithMemoryHolders(buffer.status(), size_bytes, device);
    account.ReportRefused(buffer.status());
  }
  return account.BindCharge(std::move(buffer), size_bytes);
}

absl::StatusOr<BufferRef> AllocateSpareFor(MemoryAccount& account, Device& device,
                                           int64_t size_bytes) {
  TENSORD_RETURN_IF_ERROR(account.Charge(size_bytes));
  return account.BindCharge(device.Allocate(size_bytes), size_bytes);
}

}  // namespace tensord::server
