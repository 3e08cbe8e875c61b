// Connections and devices: Client, Cluster, Device, the current connection.
#include "tensord/client/client.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tensord/client/cluster.h"
#include "tensord/client/internal/connect_option.h"
#include "tensord/client/internal/session.h"
#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/client/python/tensord/_core/reports.h"

namespace tensord::python {
namespace {

using Connection = std::variant<std::monostate, Client, Cluster>;

// The state of the process. Guarded by the interpreter's lock, and never destroyed: the destructors
// of other objects may run later.
struct Process {
  Connection current;  // the last one that was made and isn't closed
  // Weak references to the objects that connect() returned. When the current connection is closed,
  // the last open one takes its place.
  std::vector<nb::object> connections;
  Device default_device;  // not valid(): the first device of `current`
  std::vector<std::weak_ptr<internal::Session>> sessions;  // to close at exit
};

Process& TheProcess() {
  static auto* process = new Process;
  return *process;
}

void RememberSessions(const std::vector<Device>& devices) {
  Process& process = TheProcess();
  std::erase_if(process.sessions, [](const auto& session) { return session.expired(); });
  for (const Device& device : devices) process.sessions.push_back(device.session());
}

void SetCurrent(Connection connection) {
  // The old connection may end here, which blocks.
  Connection old = std::exchange(TheProcess().current, std::move(connection));
  Device device = std::exchange(TheProcess().default_device, Device());
  WithoutGil([&] {
    old = {};
    device = {};
  });
}

bool IsOpen(const std::vector<Device>& devices) {
  return !devices.empty() && devices[0].session()->status().ok();
}

// Returns a connection that connect() made earlier and that is still open and in use.
Connection LastOpenConnection() {
  std::vector<nb::object>& connections = TheProcess().connections;
  for (; !connections.empty(); connections.pop_back()) {
    const nb::object object = connections.back()();  // None if it is gone
    Client* client = nullptr;
    Cluster* cluster = nullptr;
    if (nb::try_cast(object, client, false) && client != nullptr && IsOpen(client->devices())) {
      return *client;
    }
    if (nb::try_cast(object, cluster, false) && cluster != nullptr && IsOpen(cluster->devices())) {
      return *cluster;
    }
  }
  return {};
}

// Makes a connection the current one, and returns its Python object.
template <typename C>
nb::object AddConnection(const C& connection) {
  RememberSessions(connection.devices());
  SetCurrent(connection);
  nb::object object = nb::cast(connection);
  std::vector<nb::object>& connections = TheProcess().connections;
  std::erase_if(connections, [](const nb::object& weak) { return weak().is_none(); });
  connections.push_back(nb::steal(PyWeakref_NewRef(object.ptr(), nullptr)));
  return object;
}

// Closes the sessions of this process. In a forked child it has no effect.
void CloseAll() {
  std::vector<std::shared_ptr<internal::Session>> sessions;
  for (const auto& weak : TheProcess().sessions) {
    if (std::shared_ptr<internal::Session> session = weak.lock())
      sessions.push_back(std::move(session));
  }
  absl::flat_hash_set<internal::Session*> closed;
  WithoutGil([&] {
    for (const auto& session : sessions) {
      if (closed.insert(session.get()).second) session->Close();
    }
    sessions.clear();
  });
}

// ---------------------------------------------------------------- options

ConnectOptions ReadOptions(const nb::kwargs& arguments) {
  ConnectOptions options;
  for (const auto& [key, value] : arguments) {
    if (value.is_none()) continue;
    if (PyBytes_Check(value.ptr())) {
      RaiseTypeError(absl::StrCat("connect(): ", nb::cast<const char*>(key),
                                  " must not be bytes: give a str"));
    }
    const absl::Status set = internal::SetConnectOption(
        nb::cast<const char*>(key), nb::cast<std::string>(nb::str(value)), &options);
    if (absl::IsNotFound(set)) RaiseTypeError(std::string(set.message()));
    if (!set.ok()) RaiseValueError(std::string(set.message()));
  }
  return options;
}

// Connects to one server as a Client, to several as a Cluster, and makes it the current connection.
nb::object Connect(const std::vector<std::string>& addresses, bool allow_missing,
                   const nb::kwargs& arguments) {
  const ConnectOptions options = ReadOptions(arguments);
  if (addresses.size() == 1 && !allow_missing) {
    Client client =
        Unwrap(InterruptibleCall([&] { return Client::Connect(addresses[0], options); }));
    return AddConnection(client);
  }
  Cluster cluster = Unwrap(InterruptibleCall([&] {
    return Cluster::Connect(addresses, {.connect = options, .allow_missing = allow_missing});
  }));
  return AddConnection(cluster);
}

// ---------------------------------------------------------------- what servers report

template <typename T>
nb::list ToList(const std::vector<T>& items) {
  nb::list list;
  for (const T& item : items) list.append(ToDict(item));
  return list;
}

nb::list ToPython(const std::vector<Device>& devices) {
  nb::list list;
  for (const Device& device : devices) list.append(nb::cast(device));
  return list;
}

template <typename C>
nb::object DeviceOf(const C& connection, nb::handle name) {
  if (PyUnicode_Check(name.ptr())) {
    return nb::cast(Unwrap(connection.device(absl::string_view(nb::cast<const char*>(name)))));
  }
  return nb::cast(Unwrap(connection.device(static_cast<int>(ReadInt(name.ptr(), "device")))));
}

// Returns the devices as a table, for notebooks. Doesn't contact the server.
std::string ToHtml(const std::vector<Device>& devices) {
  std::string rows;
  for (const Device& device : devices) {
    std::string model = device.model();
    model = absl::StrReplaceAll(model, {{"&", "&amp;"}, {"<", "&lt;"}});
    absl::StrAppend(&rows, "<tr><td>", device.name(), "</td><td>", model, "</td></tr>");
  }
  return absl::StrCat("<table><thead><tr><th>device</th><th>model</th></tr></thead><tbody>", rows,
                      "</tbody></table>");
}

std::vector<Device> CurrentDevices() {
  const Connection& current = TheProcess().current;
  if (const auto* client = std::get_if<Client>(&current)) return client->devices();
  if (const auto* cluster = std::get_if<Cluster>(&current)) return cluster->devices();
  return {};
}

// Closes a connection. If a signal's handler raises an exception meanwhile, doesn't wait for the
// server's answer, and raises it.
template <typename C>
void CloseConnection(C connection) {
  const auto use_other = [] {
    if (!IsOpen(CurrentDevices())) SetCurrent(LastOpenConnection());
  };
  try {
    InterruptibleCall([&] {
      connection.Close();
      return true;
    });
  } catch (nb::python_error&) {
    use_other();
    throw;
  }
  use_other();
}

// The methods that Client and Cluster share.
template <typename C>
nb::class_<C> BindConnection(nb::module_& m, const char* name, const char* doc) {
  return nb::class_<C>(m, name, nb::is_weak_referenceable(), doc)
      .def_prop_ro(
          "devices", [](const C& c) { return ToPython(c.devices()); },
          nb::sig("def devices(self) -> list[Device]"), "The devices, in the order of the servers.")
      .def("device", &DeviceOf<C>, nb::arg("name"),
           nb::sig("def device(self, name: str | int, /) -> Device"),
           "Returns the device with this name, such as \"cuda:1\", or at this position of devices.")
      .def_prop_ro(
          "default_device", [](const C& c) { return nb::cast(c.TryDevice()); },
          nb::sig("def default_device(self) -> Device"),
          "The first GPU, or the first CPU where there is no GPU.")
      .def(
          "synchronize",
          [](const C& c) {
            const C connection = c;
            RaiseIfError(Interruptible([&] { return connection.Synchronize(); }));
          },
          "Waits until everything sent so far has run. Raises the first error that no other call "
          "has raised.")
      .def("_repr_html_", [](const C& c) { return ToHtml(c.devices()); })
      .def(
          "close", [](const C& c) { CloseConnection(c); },
          "Ends the session, and frees its tensors. A second call has no effect.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> Self"))
      .def(
          "__exit__", [](nb::handle self, nb::args) { self.attr("close")(); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def(
          "__reduce__",
          [](nb::handle self) -> nb::object {
            RaiseTypeError(absl::StrCat("can't pickle a ", TypeName(self.ptr()),
                                        ": connect in the process that needs it"));
          },
          nb::sig("def __reduce__(self) -> NoReturn"));
}

void BindDevice(nb::module_& m) {
  nb::class_<Device>(m, "Device", "A device of a connected server.")
      .def_prop_ro("name", &Device::name,
                   "Such as \"cuda:0\"; for several servers \"gpu-a/cuda:0\".")
      .def_prop_ro(
          "type", [](const Device& d) { return std::string(d.kind().name()); },
          "\"cpu\" or \"cuda\".")
      .def_prop_ro("index", &Device::index)
      .def_prop_ro("model", &Device::model, "The manufacturer's name.")
      .def("__repr__", [](const Device& d) { return absl::StrCat("Device('", d.name(), "')"); })
      .def("__str__", &Device::name)
      .def(
          "__eq__",
          [](const Device& d, nb::handle other) -> nb::object {
            if (!nb::isinstance<Device>(other)) return nb::borrow(Py_NotImplemented);
            return nb::bool_(d == nb::cast<const Device&>(other));
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Device& d) { return std::hash<std::string>()(d.name()); })
      .def(
          "__reduce__",
          [](const Device& d) {
            return nb::make_tuple(nb::module_::import_("tensord._pickle").attr("restore_device"),
                                  nb::make_tuple(d.name()));
          },
          nb::sig("def __reduce__(self) -> tuple[object, ...]"));
}

// Connects as tensord.connect() does, if the process has no connection. Of several threads that call
// this at once, one connects.
void ConnectIfThereIsNone() {
  static std::mutex mutex;
  std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
  // The thread that connects needs the interpreter's lock.
  RaiseIfError(Interruptible([&] { return internal::PollUntil([&] { return lock.try_lock(); }); }));
  if (!std::holds_alternative<std::monostate>(TheProcess().current)) return;
  nb::module_::import_("tensord._connect").attr("connect")();
}

}  // namespace

nb::object ToPython(const Device& device) { return nb::cast(device); }

Device DefaultDevice() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Process& process = TheProcess();
    if (process.default_device.valid()) return process.default_device;
    if (const auto* client = std::get_if<Client>(&process.current)) return client->TryDevice();
    if (const auto* cluster = std::get_if<Cluster>(&process.current)) return cluster->TryDevice();
    ConnectIfThereIsNone();
  }
  return {};
}

std::vector<Device> AllDevices() {
  DefaultDevice();  // connects if the process has no connection yet
  return CurrentDevices();
}

Device ReadDevice(PyObject* object) {
  if (object == nullptr || object == Py_None) return DefaultDevice();
  if (const nb::handle handle(object); nb::isinstance<Device>(handle))
    return nb::cast<const Device&>(handle);
  if (!PyUnicode_Check(object))
    RaiseTypeError(absl::StrCat("device must be a Device or its name, not ", TypeName(object)));
  const absl::string_view name = nb::cast<const char*>(nb::handle(object));
  DefaultDevice();  // connects if the process has no connection yet
  const Process& process = TheProcess();
  if (const auto* cluster = std::get_if<Cluster>(&process.current))
    return Unwrap(cluster->device(name));
  if (const auto* client = std::get_if<Client>(&process.current))
    return Unwrap(client->device(name));
  Raise(absl::FailedPreconditionError("there is no connection: call tensord.connect()"));
}

void BindClient(nb::module_& m) {
  BindDevice(m);
  BindConnection<Client>(
      m, "Client",
      "A connection to a server, and a session there. The session's tensors are freed when the\n"
      "Client is closed, or when it and its last Device and Tensor are gone.")
      .def_prop_ro("address", &Client::address)
      .def_prop_ro(
          "info", [](const Client& c) { return ToDict(c.info()); },
          nb::sig("def info(self) -> dict[str, Any]"),
          "What the server reported about itself when this client connected.")
      .def_prop_ro("session_number", &Client::session_number)
      .def_prop_ro(
          "lease", [](const Client& c) { return absl::ToDoubleSeconds(c.lease()); },
          "How long, in seconds, the server keeps the tensors after it has lost the connection.")
      .def_prop_ro("connected", &Client::connected, "Whether the client is connected now.")
      .def_prop_ro(
          "stats", [](const Client& c) { return ToDict(c.stats()); },
          nb::sig("def stats(self) -> dict[str, Any]"),
          "What this connection has done so far: commands, bytes, waits.")
      .def(
          "list_devices",
          [](const Client& c) {
            const Client client = c;
            return ToList(Unwrap<std::vector<DeviceInfo>>(
                InterruptibleCall([&] { return client.ListDevices(); })));
          },
          nb::sig("def list_devices(self) -> list[dict[str, Any]]"),
          "Waits, and returns what the server reports about its devices.")
      .def(
          "memory",
          [](const Client& c, const Device& device) {
            const Client client = c;
            return ToDict(Unwrap(InterruptibleCall([&] { return client.memory(device); })));
          },
          nb::arg("device"), nb::sig("def memory(self, device: Device, /) -> dict[str, int]"),
          "Waits, and returns the memory figures of a device.")
      .def(
          "list_tensors",
          [](const Client& c) {
            const Client client = c;
            return ToList(Unwrap<std::vector<TensorInfo>>(
                InterruptibleCall([&] { return client.ListTensors(); })));
          },
          nb::sig("def list_tensors(self) -> list[dict[str, Any]]"),
          "Waits, and returns the tensors of this session.")
      .def(
          "publish",
          [](const Client& c, const Box& tensor, const std::string& name,
             const std::vector<std::string>& principals) {
            const Client client = c;
            const Tensor value = tensor.value;
            RaiseIfError(
                InterruptibleCall([&] { return client.Publish(value, name, principals); }));
          },
          nb::arg("tensor"), nb::arg("name"), nb::arg("principals") = std::vector<std::string>(),
          "Shares a tensor under a name with these identities, and with other sessions of this "
          "one.")
      .def(
          "unpublish",
          [](const Client& c, const std::string& name) {
            const Client client = c;
            RaiseIfError(InterruptibleCall([&] { return client.Unpublish(name); }));
          },
          nb::arg("name"), "Ends the sharing. Tensors that were opened stay valid.")
      .def(
          "open",
          [](const Client& c, const std::string& name, const std::string& owner) {
            const Client client = c;
            return Wrap(Unwrap(InterruptibleCall([&] { return client.Open(name, owner); })));
          },
          nb::arg("name"), nb::arg("owner") = "",
          nb::sig("def open(self, name: str, owner: str = \"\") -> Tensor"),
          "Opens a tensor that another session has published, without a copy.")
      .def("__repr__", [](const Client& c) {
        std::vector<std::string> names;
        for (const Device& device : c.devices()) names.push_back(device.name());
        return absl::StrCat("<tensord.Client of ", c.address(), ": ", absl::StrJoin(names, ", "),
                            ">");
      });
  BindConnection<Cluster>(m, "Cluster",
                          "Connections to several servers, with one list of their devices: "
                          "\"gpu-a/cuda:0\". An op runs\n"
                          "where its inputs are, and x.to(device) copies from server to server.")
      .def_prop_ro(
          "servers",
          [](const Cluster& c) {
            nb::list list;
            for (const ClusterServer& server : c.servers()) {
              nb::dict dict;
              dict["name"] = server.name;
              dict["address"] = server.address;
              dict["state"] = ServerStateName(server.state);
              dict["error"] = server.status.ok() ? nb::object(nb::none())
                                                 : nb::cast(std::string(server.status.message()));
              list.append(dict);
            }
            return list;
          },
          nb::sig("def servers(self) -> list[dict[str, Any]]"),
          "The servers with their states. Doesn't contact them.")
      .def(
          "server",
          [](const Cluster& c, const std::string& name) {
            return nb::cast(Unwrap(c.server(name)));
          },
          nb::arg("name"), nb::sig("def server(self, name: str, /) -> Client"),
          "Returns the client of the server with this name or address.")
      .def("__repr__", [](const Cluster& c) {
        std::vector<std::string> names;
        for (const Device& device : c.devices()) names.push_back(device.name());
        return absl::StrCat("<tensord.Cluster of ", absl::StrJoin(names, ", "), ">");
      });

  m.def(
      "_connect",
      [](const std::vector<std::string>& addresses, bool allow_missing, const nb::kwargs& options) {
        return Connect(addresses, allow_missing, options);
      },
      nb::sig("def _connect(addresses: list[str], allow_missing: bool, /, **options: Any) -> "
              "Client | Cluster"));
  nb::class_<internal::Interruption>(m, "_Interruption",
                                     "Ends the waits of a thread early (aio.py).")
      .def("__init__", [](internal::Interruption* self) { new (self) internal::Interruption(); })
      .def(
          "run",
          [](internal::Interruption& self, nb::handle function) {
            const internal::Interruption::Scope scope(&self);
            return nb::object(function());
          },
          nb::sig("def run(self, function: Callable[[], Any], /) -> Any"),
          "Calls the function, whose waits interrupt() ends with an error.")
      .def("interrupt", [](internal::Interruption& self) { self.Interrupt(); });
  m.def("_close_at_exit", [] {
    KeepOtherThreadsOut();
    CloseAll();
  });
  m.def("_for_python", [](const std::string& message) { return ForPython(message); });
  m.def(
      "current_connection",
      []() -> nb::object {
        const Connection& current = TheProcess().current;
        if (const auto* client = std::get_if<Client>(&current)) return nb::cast(*client);
        if (const auto* cluster = std::get_if<Cluster>(&current)) return nb::cast(*cluster);
        return nb::none();
      },
      nb::sig("def current_connection() -> Client | Cluster | None"),
      "Returns the connection that was made last, unless it is closed.");
  m.def(
      "default_device", [] { return nb::cast(DefaultDevice()); },
      nb::sig("def default_device() -> Device"),
      "Returns the device on which functions make tensors if the call names none: that of "
      "set_default_device, or\n"
      "the first GPU or CPU of the current connection. Connects if there is no connection.");
  m.def(
      "set_default_device",
      [](nb::handle device) {
        Device value = device.is_none() ? Device() : ReadDevice(device.ptr());
        TheProcess().default_device = std::move(value);
      },
      nb::arg("device").none(),
      nb::sig("def set_default_device(device: DeviceLike | None, /) -> None"),
      "Sets the default device until the next connect(). None: the first device of the current "
      "connection.");
  m.def(
      "synchronize",
      [] {
        const Connection current = TheProcess().current;
        RaiseIfError(Interruptible([&]() -> absl::Status {
          if (const auto* client = std::get_if<Client>(&current)) return client->Synchronize();
          if (const auto* cluster = std::get_if<Cluster>(&current)) return cluster->Synchronize();
          return absl::OkStatus();
        }));
      },
      "Waits until everything sent so far over the current connection has run, and raises its "
      "first error.");
}

}  // namespace tensord::python
