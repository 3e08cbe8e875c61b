#include "tensord/server/session/host_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server {

int64_t HostBytesOf(const absl::Status& error) {
  // A status with its allocations, and for each payload a URL and a Cord.
  constexpr int64_t kStatusBytes = 96, kPayloadBytes = 192;
  int64_t bytes = kStatusBytes + static_cast<int64_t>(error.message().size());
  error.ForEachPayload([&bytes](absl::string_view, const absl::Cord& payload) {
    bytes += kPayloadBytes + static_cast<int64_t>(payload.size());
  });
  return bytes;
}

absl::Status HostAccount::Charge(int64_t bytes, int64_t past_limit) {
  const auto plus = [past_limit](int64_t limit) { return limit == 0 ? 0 : limit + past_limit; };
  Usage& own = principal_->host_bytes();
  if (!own.Charge(bytes, plus(principal_limit_bytes()))) return Refuse(true, bytes);
  if (budget_->used_.Charge(bytes, plus(budget_->limit_bytes_))) return absl::OkStatus();
  own.Return(bytes);
  return Refuse(false, bytes);
}

void HostAccount::ChargePastLimit(int64_t bytes) {
  principal_->host_bytes().Charge(bytes, /*limit=*/0);
  budget_->used_.Charge(bytes, /*limit=*/0);
}

void HostAccount::Return(int64_t bytes) {
  budget_->used_.Return(bytes);
  principal_->host_bytes().Return(bytes);
}

absl::Status HostAccount::Refuse(bool principal, int64_t bytes) const {
  const int64_t own = principal_->host_bytes().used();
  const int64_t others = std::max<int64_t>(0, budget_->used_.used() - own);
  return principal_->Refuse(
      {.reason = principal ? "PRINCIPAL_HOST_BYTES_EXCEEDED" : "SERVER_HOST_BYTES_EXCEEDED",
       .subject = principal ? "principal" : "server",
       .limit = principal ? "max-host-bytes-per-principal" : "max-host-bytes",
       .value = principal ? principal_limit_bytes() : budget_->limit_bytes_,
       .message = absl::StrCat(
           principal ? "the caller's" : "the server's",
           " limit of host memory for handles, programs, open calls and so on is reached: the "
           "request needs ",
           bytes, " bytes; the caller holds ", own, " bytes, and all other callers ", others,
           " bytes; ",
           principal || own > others ? "delete tensors, drop programs, end calls, or close sessions"
                                     : "try again later, or delete tensors")});
}

int64_t BatchedHostCharge::MissingBytes(int64_t bytes) const {
  const int64_t missing = used_bytes_ + bytes - charged_bytes_;
  return std::max<int64_t>(0, (missing + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
}

absl::Status BatchedHostCharge::ChargeBlocks(int64_t bytes) {
  const int64_t missing = MissingBytes(bytes);
  TENSORD_RETURN_IF_ERROR(account_->Charge(missing));
  charged_bytes_ += missing;
  used_bytes_ += bytes;
  return absl::OkStatus();
}

void BatchedHostCharge::ChargePastLimit(int64_t bytes) {
  const int64_t missing = MissingBytes(bytes);
  if (missing > 0) account_->ChargePastLimit(missing);
  charged_bytes_ += missing;
  used_bytes_ += bytes;
}

void BatchedHostCharge::ReturnBlocks() {
  const int64_t spare = (charged_bytes_ - used_bytes_) / kBlockBytes * kBlockBytes - kBlockBytes;
  account_->Return(spare);
  charged_bytes_ -= spare;
}

}  // namespace tensord::server
