// The methods that create and compute tensors.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/rpc/proto_convert.h"
#include "tensord/server/rpc/unary/finish.h"
#include "tensord/server/rpc/unary/unary_methods.h"

namespace tensord::server {
namespace {

absl::StatusOr<TensorRef> CreateFromData(Engine& engine, Session& session,
                                         const v1::CreateTensorRequest& request,
                                         const TensorSpec& spec) {
  const std::string& data = request.data();
  if (static_cast<int64_t>(data.size()) != spec.size_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a ", spec.ToString(), " takes ", spec.size_bytes(), " bytes, but data has ", data.size()));
  }
  TENSORD_ASSIGN_OR_RETURN(Engine::Upload upload,
                           engine.BeginUpload(session, request.handle(), spec, request.device()));
  TensorRef tensor = upload.tensor;
  absl::Status written;
  if (!data.empty()) {
    written = tensor->device().Write(*upload.buffer, 0, data.data(), data.size());
  }
  TENSORD_RETURN_IF_ERROR(engine.FinishUpload(session, std::move(upload), written));
  return tensor;
}

absl::Status RequireVector(const TensorSpec& spec) {
  if (spec.shape.rank() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("arange makes a one-dimensional tensor, not ", spec.ToString()));
}

absl::Status FillArange(const v1::Arange& arange, const TensorSpec& spec, Attributes* attrs) {
  TENSORD_RETURN_IF_ERROR(RequireVector(spec));
  const double step = arange.has_step() ? arange.step() : 1.0;
  const int64_t length = spec.shape.dim(0);
  attrs->Set("start", arange.start());
  attrs->Set("step", step);
  // The end is half a step past the last value, so that rounding can't change the number of
  // elements.
  attrs->Set("stop", length == 0 ? arange.start()
                                 : arange.start() + (static_cast<double>(length) - 0.5) * step);
  return absl::OkStatus();
}

std::vector<int64_t> Sizes(const TensorSpec& spec) {
  const absl::Span<const int64_t> dims = spec.shape.dims();
  return {dims.begin(), dims.end()};
}

// Returns the op that creates a tensor of this pattern. Adds its attributes.
absl::StatusOr<std::string> PatternOp(v1::Pattern pattern, const TensorSpec& spec,
                                      Attributes* attrs) {
  switch (pattern) {
    case v1::PATTERN_UNSPECIFIED:
    case v1::PATTERN_ZEROS:
      attrs->Set("shape", Sizes(spec));
      return "zeros";
    case v1::PATTERN_ONES:
      attrs->Set("shape", Sizes(spec));
      return "ones";
    case v1::PATTERN_EYE:
      if (spec.shape.rank() != 2) {
        return absl::InvalidArgumentError(
            absl::StrCat("eye makes a two-dimensional tensor, not ", spec.ToString()));
      }
      attrs->Set("rows", spec.shape.dim(0));
      attrs->Set("cols", spec.shape.dim(1));
      return "eye";
    default:
      return absl::InvalidArgumentError(absl::StrCat("unknown pattern ", pattern));
  }
}

// Returns the op that creates the tensor from the request's source, which is not data. Adds its
// attributes.
absl::StatusOr<std::string> CreationOp(const v1::CreateTensorRequest& request,
                                       const TensorSpec& spec, Attributes* attrs) {
  attrs->Set("dtype", spec.dtype);
  const std::vector<int64_t> shape = Sizes(spec);
  switch (request.source_case()) {
    case v1::CreateTensorRequest::kArange:
      TENSORD_RETURN_IF_ERROR(FillArange(request.arange(), spec, attrs));
      return "arange";
    case v1::CreateTensorRequest::kPattern:
      return PatternOp(request.pattern(), spec, attrs);
    case v1::CreateTensorRequest::kFull: {
      TENSORD_ASSIGN_OR_RETURN(AttrValue value, FromProto(request.full().value(), "value"));
      attrs->Set("shape", shape);
      attrs->Set("value", std::move(value));
      return "full";
    }
    case v1::CreateTensorRequest::kUniform:
      attrs->Set("shape", shape);
      attrs->Set("seed", static_cast<int64_t>(request.uniform().seed()));
      attrs->Set("low", request.uniform().low());
      attrs->Set("high", request.uniform().has_high() ? request.uniform().high() : 1.0);
      return "uniform";
    case v1::CreateTensorRequest::kNormal:
      attrs->Set("shape", shape);
      attrs->Set("seed", static_cast<int64_t>(request.normal().seed()));
      attrs->Set("mean", request.normal().mean());
      attrs->Set("stddev", request.normal().has_stddev() ? request.normal().stddev() : 1.0);
      return "normal";
    default:
      return PatternOp(v1::PATTERN_ZEROS, spec, attrs);
  }
}

absl::StatusOr<TensorRef> Create(Engine& engine, const SessionRef& session,
                                 const v1::CreateTensorRequest& request) {
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, FromProto(request.spec()));
  if (request.has_data()) return CreateFromData(engine, *session, request, spec);
  Attributes attrs;
  TENSORD_ASSIGN_OR_RETURN(const std::string op, CreationOp(request, spec, &attrs));
  return engine.Run(session, {op, {}, request.handle(), std::move(attrs), request.device()});
}

absl::StatusOr<std::vector<TensorRef>> RunInOrder(Engine& engine, const SessionRef& session,
                                                  const v1::RunOpsRequest& request) {
  constexpr int kMaxOps = 16;
  if (request.ops_size() > kMaxOps) {
    return absl::InvalidArgumentError(absl::StrCat("RunOps takes at most ", kMaxOps, " ops, not ",
                                                   request.ops_size(),
                                                   "; divide the call, or use SessionStream"));
  }
  std::vector<TensorRef> all;
  for (int i = 0; i < request.ops_size(); ++i) {
    const auto run = [&]() -> absl::StatusOr<TensorRefs> {
      TENSORD_ASSIGN_OR_RETURN(const OpRequest op, ToRequest(request.ops(i)));
      return engine.RunOp(session, op);
    };
    const absl::StatusOr<TensorRefs> outputs = run();
    if (!outputs.ok()) {
      return WithPrefix(outputs.status(), absl::StrCat("op ", i, " of RunOps: "));
    }
    all.insert(all.end(), outputs->begin(), outputs->end());
  }
  return all;
}

}  // namespace

template <typename Call, typename Start>
void UnaryMethods::Compute(const Call& call, Start start) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) {
    call->Finish(use.status());
    return;
  }
  const absl::StatusOr<TensorRef> tensor = start(use->ref(), call->request());
  FinishWhenDone(call, *std::move(use), tensor, EarlyEnd::kStopsOp,
                 [response = call->response()](const Tensor& made) { ToProto(made, response); });
}

void UnaryMethods::CreateTensor(const UnaryRef<v1::CreateTensorRequest, v1::Tensor>& call) {
  Compute(call, [this](const SessionRef& session, const v1::CreateTensorRequest& request) {
    return Create(*context_->engine, session, request);
  });
}

void UnaryMethods::CopyToDevice(const UnaryRef<v1::CopyToDeviceRequest, v1::Tensor>& call) {
  const v1::CopyToDeviceRequest& request = call->request();
  absl::StatusOr<SessionUse> use = UseSession(*call, request.session());
  if (!use.ok()) return call->Finish(use.status());
  const absl::StatusOr<TensorRef> tensor =
      context_->engine->Copy(use->ref(), request.input(), request.output(), request.device(),
                             /*share=*/false);
  const bool is_input = tensor.ok() && (*tensor)->handle() == request.input();
  FinishWhenDone(call, *std::move(use), tensor,
                 is_input ? EarlyEnd::kKeepsWork : EarlyEnd::kStopsOp,
                 [response = call->response()](const Tensor& made) { ToProto(made, response); });
}

void UnaryMethods::Add(const UnaryRef<v1::AddRequest, v1::Tensor>& call) {
  Compute(call, [this](const SessionRef& session, const v1::AddRequest& request) {
    const Handle inputs[] = {request.a(), request.b()};
    return context_->engine->Run(session, {"add", inputs, request.output(), {}, ""});
  });
}

void UnaryMethods::MatMul(const UnaryRef<v1::MatMulRequest, v1::Tensor>& call) {
  Compute(call, [this](const SessionRef& session, const v1::MatMulRequest& request) {
    const Handle inputs[] = {request.a(), request.b()};
    Attributes attrs{{"transpose_a", request.transpose_a()},
                     {"transpose_b", request.transpose_b()},
                     {"allow_tf32", request.allow_tf32()}};
    return context_->engine->Run(session,
                                 {"matmul", inputs, request.output(), std::move(attrs), ""});
  });
}

void UnaryMethods::LinearForward(const UnaryRef<v1::LinearForwardRequest, v1::Tensor>& call) {
  Compute(call,
          [this](const SessionRef& session,
                 const v1::LinearForwardRequest& request) -> absl::StatusOr<TensorRef> {
            const Handle inputs[] = {request.input(), request.weight(), request.bias()};
            const size_t count = request.bias() == 0 ? 2 : 3;
            Attributes attrs{{"allow_tf32", request.allow_tf32()}};
            if (!request.activation().empty()) attrs.Set("activation", request.activation());
            return context_->engine->Run(session, {"linear", absl::MakeConstSpan(inputs, count),
                                                   request.output(), std::move(attrs), ""});
          });
}

void UnaryMethods::RunOp(const UnaryRef<v1::RunOpRequest, v1::Tensor>& call) {
  Compute(call,
          [this](const SessionRef& session,
                 const v1::RunOpRequest& request) -> absl::StatusOr<TensorRef> {
            if (request.op().num_outputs() > 1) {
              return absl::InvalidArgumentError(
                  absl::StrCat("RunOp answers with one tensor, and the op has ",
                               request.op().num_outputs(), " outputs; use RunOps"));
            }
            TENSORD_ASSIGN_OR_RETURN(const OpRequest op, ToRequest(request.op()));
            return context_->engine->Run(session, op);
          });
}

void UnaryMethods::RunOps(const UnaryRef<v1::RunOpsRequest, v1::RunOpsResponse>& call) {
  absl::StatusOr<SessionUse> use = UseSession(*call, call->request().session());
  if (!use.ok()) return call->Finish(use.status());
  absl::StatusOr<std::vector<TensorRef>> tensors =
      RunInOrder(*context_->engine, use->ref(), call->request());
  if (!tensors.ok()) return call->Finish(tensors.status());
  FinishWhenAllDone(call, *std::move(use), *std::move(tensors),
                    [response = call->response()](const Tensor& made) {
                      ToProto(made, response->add_tensors());
                    });
}

}  // namespace tensord::server
