// An execution path through the engine and a session in this process, without RPCs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/common/util/status_macros.h"
#include "tensord/server/device/device_factory.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/conformance/execution_path.h"
#include "tensord/tests/unit/engine/read_tensor.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::conformance {

// Returns why there is no GPU; empty if there is one.
inline std::string DescribeMissingGpu() {
  for (const server::UnavailableKind& kind : server::UnavailableKinds(server::BuiltInBackends())) {
    if (kind.kind == DeviceKind::kCuda) return kind.reason;
  }
  return "";
}

class EnginePath : public ExecutionPath {
 public:
  explicit EnginePath(std::vector<std::unique_ptr<server::Device>> devices)
      : engine_(std::move(devices)), sessions_({}, engine_.slots()) {}

  absl::StatusOr<std::vector<HostTensor>> Run(absl::string_view op, const Attributes& attrs,
                                              absl::Span<const HostTensor> inputs,
                                              const std::string& device, int num_outputs) override {
    TENSORD_ASSIGN_OR_RETURN(server::SessionRef session,
                             sessions_.Open(server::TestPrincipal(), 0, "conformance"));
    absl::StatusOr<std::vector<HostTensor>> result =
        RunIn(session, op, attrs, inputs, device, num_outputs);
    TENSORD_RETURN_IF_ERROR(sessions_.Close(server::TestPrincipal(), session->id()).status());
    return result;
  }

  std::vector<std::string> devices() const override {
    std::vector<std::string> names;
    for (const server::DeviceSlot* slot : engine_.slots()) {
      names.push_back(slot->device->name().ToString());
    }
    return names;
  }

  std::string cuda_unavailable_reason() const override { return DescribeMissingGpu(); }

 protected:
  // Runs the op. Returns the tensors that hold the results.
  virtual absl::StatusOr<server::TensorRefs> Compute(const server::SessionRef& session,
                                                     const server::OpRequest& request) {
    return engine_.RunOp(session, request);
  }
  server::Engine& engine() { return engine_; }

 private:
  absl::StatusOr<std::vector<HostTensor>> RunIn(const server::SessionRef& session,
                                                absl::string_view op, const Attributes& attrs,
                                                absl::Span<const HostTensor> inputs,
                                                const std::string& device, int num_outputs) {
    server::OpRequest request{.op = op,
                              .output = 1 + inputs.size(),
                              .attrs = attrs,
                              .device = device,
                              .num_outputs = static_cast<uint32_t>(num_outputs)};
    std::vector<server::Handle> handles;
    for (const HostTensor& input : inputs) {
      handles.push_back(1 + handles.size());
      TENSORD_RETURN_IF_ERROR(Upload(*session, handles.back(), input, device));
    }
    request.inputs = handles;
    TENSORD_ASSIGN_OR_RETURN(const server::TensorRefs outputs, Compute(session, request));
    std::vector<HostTensor> results;
    for (const server::TensorRef& output : outputs) {
      TENSORD_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes,
                               server::ReadTensor<uint8_t>(engine_, output));
      results.push_back({output->spec(), std::move(bytes)});
    }
    return results;
  }

  absl::Status Upload(server::Session& session, server::Handle handle, const HostTensor& input,
                      const std::string& device) {
    TENSORD_ASSIGN_OR_RETURN(server::Engine::Upload upload,
                             engine_.BeginUpload(session, handle, input.spec, device));
    if (!input.bytes.empty()) {
      TENSORD_RETURN_IF_ERROR(upload.tensor->device().Write(*upload.buffer, 0, input.bytes.data(),
                                                            input.spec.size_bytes()));
    }
    return engine_.FinishUpload(session, std::move(upload), absl::OkStatus());
  }

  server::Engine engine_;
  server::SessionTable sessions_;
};

// Makes two logical CPU devices and, if there is a GPU, cuda:0.
inline absl::StatusOr<std::vector<std::unique_ptr<server::Device>>> MakeTwoCpusAndAGpu() {
  std::vector<server::DeviceRequest> requests(2, {.kind = DeviceKind::kCpu});
  if (DescribeMissingGpu().empty()) requests.push_back({.kind = DeviceKind::kCuda});
  return server::MakeDevices(requests, 0);
}

}  // namespace tensord::conformance
