// An engine over two fake devices, cpu:0 and cpu:1, and one session.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/unit/engine/fake_device.h"
#include "tensord/tests/unit/engine/read_tensor.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {

class EngineFixture : public testing::Test {
 protected:
  explicit EngineFixture(FakeDevice::Options first = {}, const Limits& limits = {})
      : principals_(limits) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < 2; ++i) {
      auto device = std::make_unique<FakeDevice>(i, i == 0 ? first : FakeDevice::Options{});
      devices_.push_back(device.get());
      devices.push_back(std::move(device));
    }
    engine_ = std::make_unique<Engine>(std::move(devices));
    sessions_ = std::make_unique<SessionTable>(limits, engine_->slots());
    session_ = *sessions_->Open(Named("tester"), kTestLeaseSeconds, "test");
  }

  // Releases the devices, because a held device would block the engine's destructor.
  ~EngineFixture() override {
    for (FakeDevice* device : devices_) {
      device->Release();
      device->ReleaseFences();
    }
    session_.reset();
    sessions_.reset();
    engine_.reset();
  }

  PrincipalRef Named(absl::string_view name) {
    return principals_.Get(Principal::Kind::kToken, name);
  }
  FakeDevice& device(int i) { return *devices_[i]; }
  int64_t UsedBytes(int i) { return device(i).memory().used_bytes; }

  absl::StatusOr<TensorRef> Run(absl::string_view op, std::vector<Handle> inputs, Handle output,
                                Attributes attrs = {}, absl::string_view device = "") {
    return engine_->Run(session_, {.op = op,
                                   .inputs = inputs,
                                   .output = output,
                                   .attrs = std::move(attrs),
                                   .device = device});
  }

  // Makes an int64 tensor of `n` elements, all `value`.
  absl::StatusOr<TensorRef> Full(Handle output, int64_t n, int64_t value,
                                 absl::string_view device = "cpu:0") {
    return Run("full", {}, output, {{"shape", std::vector<int64_t>{n}}, {"value", value}}, device);
  }

  // Blocks until the tensor can be read. Returns its elements, or its error.
  absl::StatusOr<std::vector<int64_t>> Read(Handle handle) {
    absl::StatusOr<TensorRef> tensor = session_->Find(handle);
    if (!tensor.ok()) return tensor.status();
    return ReadTensor<int64_t>(*engine_, *tensor);
  }

  // Blocks until the tensor is done. Returns its status.
  absl::Status Outcome(Handle handle) {
    absl::StatusOr<TensorRef> tensor = session_->Find(handle);
    if (!tensor.ok()) return tensor.status();
    Event done;
    (*tensor)->WhenDone([done] { done.Set(); });
    if (!done.Wait()) return absl::DeadlineExceededError("the tensor isn't done");
    return (*tensor)->status();
  }

  void Settle() {
    Event idle;
    ASSERT_TRUE(engine_->WhenIdle(session_, [idle] { idle.Set(); }).ok());
    ASSERT_TRUE(idle.Wait());
  }

  absl::Status Upload(Handle handle, const std::vector<int64_t>& values,
                      absl::string_view device = "cpu:0") {
    const TensorSpec spec{DType::kInt64, {static_cast<int64_t>(values.size())}};
    auto upload = engine_->BeginUpload(*session_, handle, spec, device);
    if (!upload.ok()) return upload.status();
    const absl::Status written =
        upload->tensor->device().Write(*upload->buffer, 0, values.data(), spec.size_bytes());
    return engine_->FinishUpload(*session_, *std::move(upload), written);
  }

  PrincipalTable principals_;
  std::vector<FakeDevice*> devices_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionTable> sessions_;
  SessionRef session_;
};

}  // namespace tensord::server
