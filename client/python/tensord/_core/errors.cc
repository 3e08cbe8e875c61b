// Raises statuses as exceptions.
#include <optional>

#include "absl/strings/cord.h"
#include "tensord/client/python/tensord/_core/core.h"
#include "tensord/client/python/tensord/_core/debug.h"
#include "tensord/common/status_details.h"

namespace tensord::python {
namespace {

// Reads a varint of a protobuf message. Returns nullopt at the end.
std::optional<uint64_t> ReadVarint(absl::string_view* bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes->front());
    bytes->remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Returns the seconds of google.rpc.RetryInfo: field 1 of the Duration that is field 1.
std::optional<double> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryInfoUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string encoded(*payload);
  absl::string_view bytes = encoded;
  if (ReadVarint(&bytes) != 0x0au || !ReadVarint(&bytes).has_value()) return std::nullopt;
  if (ReadVarint(&bytes) != 0x08u) return std::nullopt;
  const std::optional<uint64_t> seconds = ReadVarint(&bytes);
  return seconds.has_value() ? std::optional(static_cast<double>(*seconds)) : std::nullopt;
}

}  // namespace

void Raise(const absl::Status& error) {
  // A signal's handler has raised an exception while the op waited (waits.cc).
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  const std::optional<double> retry_after = RetryAfter(error);
  const std::string message(error.message());
  nb::object exception =
      nb::module_::import_("tensord._errors")
          .attr("from_status")(absl::StatusCodeToString(error.code()), ForPython(message),
                               ErrorReason(error),
                               retry_after.has_value() ? nb::object(nb::float_(*retry_after))
                                                       : nb::object(nb::none()));
  if (const std::string line = Debug().tracebacks ? LineOf(message) : ""; !line.empty()) {
    exception.attr("add_note")("The failed op was called at " + line);
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

void RaiseTypeError(const std::string& message) {
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

void RaiseValueError(const std::string& message) {
  PyErr_SetString(PyExc_ValueError, message.c_str());
  throw nb::python_error();
}

}  // namespace tensord::python
