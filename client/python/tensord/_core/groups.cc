// Group: collective operations.
#include "tensord/client/group.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/client/python/tensord/_core/core.h"

namespace tensord::python {
namespace {

Reduction ReadReduction(const std::string& name) {
  if (name == "sum") return Reduction::kSum;
  if (name == "mean") return Reduction::kMean;
  if (name == "max") return Reduction::kMax;
  RaiseValueError(
      absl::StrCat("reduction must be \"sum\", \"mean\" or \"max\", not \"", name, "\""));
}

Group Create(nb::handle devices, double timeout) {
  std::vector<Device> members;
  for (const nb::handle device : nb::iter(devices)) members.push_back(ReadDevice(device.ptr()));
  return Unwrap(
      WithoutGil([&] { return Group::Create(members, {.timeout = absl::Seconds(timeout)}); }));
}

}  // namespace

void BindGroups(nb::module_& m) {
  nb::class_<Group>(m, "Group",
                    "A group of devices for collective operations, such as torch.distributed's "
                    "process groups. Each device\n"
                    "is a member, and ranks follow the order of the devices. Inputs are the "
                    "members' tensors by rank, all\n"
                    "of one dtype and shape; results are lists by rank. Operations don't wait.")
      .def(
          "__init__",
          [](Group* self, nb::handle devices, double timeout) {
            new (self) Group(Create(devices, timeout));
          },
          nb::arg("devices"), nb::arg("timeout") = 30.0,
          nb::sig(
              "def __init__(self, devices: Sequence[DeviceLike], timeout: float = 30.0) -> None"))
      .def_prop_ro("size", &Group::size)
      .def_prop_ro(
          "devices",
          [](const Group& g) {
            nb::list list;
            for (const Device& device : g.devices()) list.append(ToPython(device));
            return list;
          },
          nb::sig("def devices(self) -> list[Device]"))
      .def(
          "all_reduce",
          [](const Group& g, nb::handle inputs, const std::string& reduction) {
            return WrapAll(
                g.AllReduce(ReadTensors(inputs.ptr(), "inputs"), ReadReduction(reduction)));
          },
          nb::arg("inputs"), nb::arg("reduction") = "sum",
          nb::sig("def all_reduce(self, inputs: Sequence[Tensor], reduction: str = \"sum\") -> "
                  "list[Tensor]"),
          "Each output is the reduction of all inputs: \"sum\", \"mean\" or \"max\".")
      .def(
          "all_gather",
          [](const Group& g, nb::handle inputs) {
            return WrapAll(g.AllGather(ReadTensors(inputs.ptr(), "inputs")));
          },
          nb::arg("inputs"),
          nb::sig("def all_gather(self, inputs: Sequence[Tensor]) -> list[Tensor]"),
          "Each output is the concatenation of all inputs along the first axis.")
      .def(
          "reduce_scatter",
          [](const Group& g, nb::handle inputs, const std::string& reduction) {
            return WrapAll(
                g.ReduceScatter(ReadTensors(inputs.ptr(), "inputs"), ReadReduction(reduction)));
          },
          nb::arg("inputs"), nb::arg("reduction") = "sum",
          nb::sig("def reduce_scatter(self, inputs: Sequence[Tensor], reduction: str = \"sum\") -> "
                  "list[Tensor]"),
          "Reduces the inputs, and splits the result along its first axis: output i is part i.")
      .def(
          "broadcast",
          [](const Group& g, const Box& input) { return WrapAll(g.Broadcast(input.value)); },
          nb::arg("input"), nb::sig("def broadcast(self, input: Tensor) -> list[Tensor]"),
          "Each output is a copy of the input, which must be on the device of a member.")
      .def(
          "barrier",
          [](const Group& g) {
            const Group group = g;
            RaiseIfError(InterruptibleCall([&] { return group.Barrier(); }));
          },
          "Waits until every member has run all operations that were called before.");
}

}  // namespace tensord::python
