// A random program of a client: what its user's code would do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tensord/tests/simulation/client_end.h"
#include "tensord/tests/simulation/dice.h"
#include "tensord/tests/simulation/journal.h"
#include "tensord/tests/simulation/model.h"

namespace tensord::simulation {

class Script {
 public:
  // `devices`: how many there are. All outlive this.
  Script(ClientEnd* client, int devices, Dice* dice, Journal* journal)
      : client_(client), devices_(devices), dice_(dice), journal_(journal) {}

  // Does something. Errors of the client's having ended are left to who looks at the client.
  void Act();
  // Reads everything that is there.
  void ReadAll();
  void Barrier();
  // A promised tensor, whose bytes somebody has to bring.
  ValueRef Promise();
  // Lets go of it.
  void Drop(const ValueRef& value);

  bool Holds(const ValueRef& value) const;
  // What the client holds.
  const std::vector<ValueRef>& live() const { return live_; }

 private:
  // Programs of one or two inputs, both of the same spec.
  struct Recorded {
    uint32_t number;
    int device;
    TensorSpec spec;
    bool two_inputs;
  };

  void Create();
  void Compute();
  void Send(const std::string& op, std::vector<ValueRef> inputs, const Attributes& attrs,
            std::vector<int64_t> elements);
  void Copy();
  void Read(const ValueRef& value);
  void DropOne();
  void Forget(const ValueRef& value);
  void Record();
  void Run();

  // A value with the handle that the command before has made, of the queue's last command.
  ValueRef Made(std::string by, uint64_t handle, const TensorSpec& spec, int device,
                std::vector<int64_t> elements, std::vector<ValueRef> inputs);
  TensorSpec RandomSpec();
  std::vector<int64_t> RandomElements(const TensorSpec& spec);
  ValueRef Any() { return live_.empty() ? nullptr : dice_->Pick(live_); }
  // Another on the same device that may stand beside it in an elementwise op.
  ValueRef Partner(const ValueRef& value);
  std::string DeviceName(int device) const { return absl::StrCat("cpu:", device); }

  ClientEnd* const client_;
  const int devices_;
  Dice* const dice_;
  Journal* const journal_;
  std::vector<ValueRef> live_;
  std::vector<Recorded> programs_;
};

}  // namespace tensord::simulation
