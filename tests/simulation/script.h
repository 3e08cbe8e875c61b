// The random program of a client.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tensord/tests/simulation/client_end.h"
#include "tensord/tests/simulation/model.h"
#include "tensord/tests/simulation/random_source.h"
#include "tensord/tests/simulation/trace.h"

namespace tensord::simulation {

class Script {
 public:
  // `devices` is the number of devices. The other objects must outlive this one.
  Script(ClientEnd* client, int devices, RandomSource* random, Trace* trace)
      : client_(client), devices_(devices), random_(random), trace_(trace) {}

  // Does one random action. Ignores errors that occur because the client has ended.
  void Act();
  // Reads all tensors that the client holds.
  void ReadAll();
  void Barrier();
  // Promises a tensor. The caller must upload its bytes. Returns null if the client has ended.
  ValueRef Promise();
  // Drops the tensor, if the client holds it.
  void Drop(const ValueRef& value);

  bool Holds(const ValueRef& value) const;
  // Returns the tensors that the client holds.
  const std::vector<ValueRef>& live() const { return live_; }

 private:
  // A recorded program. If it has two inputs, both have the same spec.
  struct Recorded {
    uint32_t number;
    int device;
    TensorSpec spec;
    bool two_inputs;
  };

  void Create();
  // Creates a tensor with these elements. Returns null if the client has ended.
  ValueRef CreateConstant(const TensorSpec& spec, int device, std::vector<int64_t> elements);
  void Compute();
  // Computes elements at indices, of which one may be out of range.
  void Index(const ValueRef& x);
  // Sends an op. Sometimes donates its first input. `value_error` is Value::value_error.
  void Send(const std::string& op, std::vector<ValueRef> inputs, const Attributes& attrs,
            std::vector<int64_t> elements, std::string value_error = "");
  // Returns whether an op may donate the value now.
  bool MayDonate(const ValueRef& value);
  // Drops the handle of a donated value, as the library does: the server keeps it if it refuses the
  // op.
  void DropDonated(const ValueRef& value);
  void Copy();
  void Read(const ValueRef& value);
  void DropOne();
  void RemoveLive(const ValueRef& value);
  void Record();
  void Run();

  // Adds a value that the queue's last command makes.
  ValueRef AddResult(std::string by, uint64_t handle, const TensorSpec& spec, int device,
                     std::vector<int64_t> elements, std::vector<ValueRef> inputs);
  TensorSpec RandomSpec();
  std::vector<int64_t> RandomElements(const TensorSpec& spec);
  ValueRef Any() { return live_.empty() ? nullptr : random_->Pick(live_); }
  // Returns a value that can be the other operand of an elementwise op, possibly the value itself.
  ValueRef Partner(const ValueRef& value);
  std::string DeviceName(int device) const { return absl::StrCat("cpu:", device); }

  ClientEnd* const client_;
  const int devices_;
  RandomSource* const random_;
  Trace* const trace_;
  std::vector<ValueRef> live_;
  std::vector<Recorded> programs_;
};

}  // namespace tensord::simulation
