// Group: collective operations.
#include "tensord/client/group.h"

#include <optional>
#include <string>
#include <utility>
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
      Interruptible([&] { return Group::Create(members, {.timeout = absl::Seconds(timeout)}); }));
}

// Calls a Python function that takes and returns bytes. This thread doesn't hold the interpreter's
// lock. `raised` keeps an exception.
absl::StatusOr<std::vector<std::string>> CallExchange(nb::handle exchange, const std::string& own,
                                                      std::optional<nb::python_error>* raised) {
  nb::gil_scoped_acquire lock;
  // After Ctrl-C, the other processes wait for this one until their time limit.
  if (PyErr_Occurred() != nullptr) return internal::InterruptedError();
  try {
    std::vector<std::string> all;
    for (const nb::handle each : nb::iter(exchange(nb::bytes(own.data(), own.size())))) {
      const auto text = nb::cast<nb::bytes>(each);
      all.emplace_back(text.c_str(), text.size());
    }
    return all;
  } catch (nb::python_error& error) {
    raised->emplace(error);
    return absl::CancelledError("group: the exchange has failed");
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        "group: the exchange must return a sequence of bytes, one for each member");
  }
}

GroupMember Join(nb::handle device, int rank, int size, nb::handle exchange, double timeout) {
  const Device own = ReadDevice(device.ptr());
  std::optional<nb::python_error> raised;
  absl::StatusOr<GroupMember> member = Interruptible([&] {
    return GroupMember::Join(
        own, rank, size,
        [&](const std::string& text) { return CallExchange(exchange, text, &raised); },
        {.timeout = absl::Seconds(timeout)});
  });
  if (raised.has_value()) throw nb::python_error(*raised);
  return Unwrap(std::move(member));
}

void BindGroupMember(nb::module_& m) {
  nb::class_<GroupMember>(
      m, "GroupMember",
      "One member of a group whose other members belong to other processes. Each process makes one "
      "for its rank.\n"
      "`exchange` is an all-gather of bytes among the processes: it gets this process's bytes, and "
      "returns those of every\n"
      "process by rank. It is called twice. All members call the same operations in the same "
      "order. Only barrier waits.")
      .def(
          "__init__",
          [](GroupMember* self, nb::handle device, int rank, int size, nb::handle exchange,
             double timeout) {
            new (self) GroupMember(Join(device, rank, size, exchange, timeout));
          },
          nb::arg("device"), nb::arg("rank"), nb::arg("size"), nb::arg("exchange"),
          nb::arg("timeout") = 30.0,
          nb::sig("def __init__(self, device: DeviceLike, rank: int, size: int, exchange: "
                  "Callable[[bytes], Sequence[bytes]], timeout: float = 30.0) -> None"))
      .def_prop_ro("rank", &GroupMember::rank)
      .def_prop_ro("size", &GroupMember::size)
      .def_prop_ro(
          "device", [](const GroupMember& g) { return ToPython(g.device()); },
          nb::sig("def device(self) -> Device"))
      .def(
          "all_reduce",
          [](const GroupMember& g, const Box& input, const std::string& reduction) {
            return Wrap(g.AllReduce(input.value, ReadReduction(reduction)));
          },
          nb::arg("input"), nb::arg("reduction") = "sum",
          nb::sig("def all_reduce(self, input: Tensor, reduction: str = \"sum\") -> Tensor"),
          "Returns the reduction of all inputs: \"sum\", \"mean\" or \"max\".")
      .def(
          "all_gather",
          [](const GroupMember& g, const Box& input) { return Wrap(g.AllGather(input.value)); },
          nb::arg("input"), nb::sig("def all_gather(self, input: Tensor) -> Tensor"),
          "Returns the concatenation of all inputs along the first axis.")
      .def(
          "reduce_scatter",
          [](const GroupMember& g, const Box& input, const std::string& reduction) {
            return Wrap(g.ReduceScatter(input.value, ReadReduction(reduction)));
          },
          nb::arg("input"), nb::arg("reduction") = "sum",
          nb::sig("def reduce_scatter(self, input: Tensor, reduction: str = \"sum\") -> Tensor"),
          "Reduces the inputs, splits the result along its first axis, and returns part `rank`.")
      .def(
          "broadcast",
          [](const GroupMember& g, const Box& input, int root) {
            return Wrap(g.Broadcast(input.value, root));
          },
          nb::arg("input"), nb::arg("root"),
          nb::sig("def broadcast(self, input: Tensor, root: int) -> Tensor"),
          "Returns a copy of the input of the member `root`. Every member gives a tensor of the "
          "same dtype and shape.")
      .def(
          "barrier",
          [](const GroupMember& g) {
            const GroupMember member = g;
            RaiseIfError(InterruptibleCall([&] { return member.Barrier(); }));
          },
          "Waits until every member has run all operations that were called before.");
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
  BindGroupMember(m);
}

}  // namespace tensord::python
