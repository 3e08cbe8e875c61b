#include "tensord/server/rpc/run_collective.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/proto_convert.h"

namespace tensord::server {

absl::StatusOr<TensorRef> RunCollective(const ServiceContext& context, const SessionRef& session,
                                        const v1::Collective& collective) {
  TENSORD_RETURN_IF_ERROR(CheckCollectives(context));
  CollectiveRequest request{.input = collective.input(), .output = collective.output()};
  absl::StatusOr<CollectiveOp> op = FromProto(collective);
  request.refused = op.status();
  if (op.ok()) request.op = *std::move(op);
  return context.collectives->Run(session, collective.member(), request);
}

absl::Status CheckCollectives(const ServiceContext& context) {
  if (context.collectives != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this server takes no part in groups: ", context.no_collectives_reason));
}

}  // namespace tensord::server
