// A library that uses tensord only through its table of C functions (tensord_c.h). test_c_api.py
// compiles it, and calls each function whose name begins with "test_". The functions return "" or
// what is wrong. The current connection has at least two devices.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "tensord_c.h"

namespace {

const TensordApi* api = nullptr;
std::string failure;

#define CHECK_THAT(condition)                                                   \
  do {                                                                          \
    if (!(condition)) {                                                         \
      failure = "line " + std::to_string(__LINE__) + ": " #condition + message; \
      return failure.c_str();                                                   \
    }                                                                           \
  } while (false)

// The last error's text, for the messages of CHECK_THAT.
std::string message;

// Takes the error, and keeps its text.
int Take(int code, TensordError* error) {
  message.clear();
  if (error == nullptr) return code;
  message = std::string("; error: ") + api->error_message(error);
  if (api->error_code(error) != code) message += " (with another code)";
  api->release_error(error);
  return code;
}
#define CALL(function, ...)                              \
  [&] {                                                  \
    TensordError* error = nullptr;                       \
    const int code = api->function(__VA_ARGS__, &error); \
    return Take(code, error);                            \
  }()

TensordDevice* Device(size_t index) {
  TensordDevice* devices[64] = {};
  size_t count = 0;
  if (CALL(list_devices, devices, 64, &count) != 0) return nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (i != index) api->release_device(devices[i]);
  }
  return index < count ? devices[index] : nullptr;
}

TensordOp* Op(const char* name, std::vector<TensordAttr> attrs = {}) {
  TensordOp* op = nullptr;
  CALL(prepare, name, attrs.data(), attrs.size(), &op);
  return op;
}

TensordTensor* Upload(TensordDevice* device, const std::vector<float>& values,
                      std::vector<int64_t> dims) {
  const TensordSpec spec = {TENSORD_FLOAT32, static_cast<int32_t>(dims.size()), dims.data()};
  TensordTensor* tensor = nullptr;
  CALL(upload, device, &spec, values.data(), values.size() * sizeof(float), &tensor);
  return tensor;
}

std::vector<float> Download(TensordTensor* tensor) {
  TensordSpec spec;
  api->spec(tensor, &spec);
  size_t count = 1;
  for (int i = 0; i < spec.rank; ++i) count *= static_cast<size_t>(spec.dims[i]);
  std::vector<float> values(count);
  if (CALL(download, tensor, values.data(), count * sizeof(float)) != 0) values.clear();
  return values;
}

TensordInput Input(TensordTensor* tensor) { return {tensor, 0, {0, {0}}}; }
TensordInput Number(double value, int dtype = TENSORD_FLOAT32) {
  TensordInput input = {nullptr, dtype, {TENSORD_NUMBER_FLOAT64, {0}}};
  input.number.value.f = value;
  return input;
}

// Pushes an op with one output.
TensordTensor* Push(TensordOp* op, std::vector<TensordInput> inputs, uint32_t donated = 0) {
  TensordOutput output = {};
  size_t count = 1;
  if (CALL(push, op, inputs.data(), inputs.size(), donated, &output, &count) != 0) return nullptr;
  return output.tensor;
}

}  // namespace

extern "C" {

void set_api(const void* table) { api = static_cast<const TensordApi*>(table); }

const char* test_the_table_has_a_version() {
  message.clear();
  CHECK_THAT(api->version == TENSORD_C_API_VERSION);
  CHECK_THAT(api->size_bytes == sizeof(TensordApi));
  return "";
}

const char* test_devices_have_names_and_memory() {
  TensordDevice* const device = Device(0);
  CHECK_THAT(device != nullptr);
  CHECK_THAT(std::strstr(api->device_name(device), "cpu:0") != nullptr);
  CHECK_THAT(std::strcmp(api->device_kind(device), "cpu") == 0);
  CHECK_THAT(std::strstr(api->device_server(device), "127.0.0.1:") != nullptr);
  TensordMemory memory = {};
  CHECK_THAT(CALL(device_memory, device, &memory) == 0);
  CHECK_THAT(memory.limit_bytes > 0 && memory.used_bytes >= 0);
  size_t count = 0;
  CHECK_THAT(CALL(list_devices, nullptr, 0, &count) == 0 && count >= 2);
  api->retain_device(device);
  api->release_device(device);
  api->release_device(device);
  return "";
}

const char* test_an_op_returns_dtype_and_shape_at_once() {
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, {1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK_THAT(x != nullptr);
  int64_t axis = 1;
  TensordAttr attrs[2] = {};
  attrs[0].name = "axes";
  attrs[0].type = TENSORD_ATTR_INTS;
  attrs[0].ints = &axis;
  attrs[0].num_ints = 1;
  attrs[1].name = "keepdims";
  attrs[1].number.kind = TENSORD_NUMBER_BOOL;
  attrs[1].number.value.i = 1;
  TensordOp* const kept = Op("sum", {attrs[0], attrs[1]});
  CHECK_THAT(kept != nullptr);
  const TensordInput input = Input(x);
  TensordOutput output = {};
  size_t count = 1;
  CHECK_THAT(CALL(push, kept, &input, 1, 0, &output, &count) == 0 && count == 1);
  CHECK_THAT(output.spec.dtype == TENSORD_FLOAT32 && output.spec.rank == 2);
  CHECK_THAT(output.spec.dims[0] == 2 && output.spec.dims[1] == 1);
  CHECK_THAT((Download(output.tensor) == std::vector<float>{6, 15}));
  TensordDevice* of_output = nullptr;
  api->device(output.tensor, &of_output);
  CHECK_THAT(std::strcmp(api->device_name(of_output), api->device_name(device)) == 0);
  api->release_device(of_output);
  api->release(output.tensor);
  api->release_op(kept);
  api->release(x);
  api->release_device(device);
  return "";
}

const char* test_numbers_are_inputs() {
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, {1, 2}, {2});
  TensordOp* const mul = Op("mul");
  TensordOp* const sub = Op("sub");
  TensordTensor* const doubled = Push(mul, {Input(x), Number(2.5)});
  TensordTensor* const rest = Push(sub, {Number(10), Input(doubled)});
  CHECK_THAT(rest != nullptr);
  CHECK_THAT((Download(rest) == std::vector<float>{7.5, 5}));
  CHECK_THAT(Push(mul, {Input(x), Number(1e300)}) == nullptr);
  CHECK_THAT(message.find("doesn't fit the dtype float32") != std::string::npos);
  CHECK_THAT(Push(mul, {Number(1), Number(2)}) == nullptr);
  CHECK_THAT(message.find("no input is a tensor") != std::string::npos);
  for (TensordTensor* each : {x, doubled, rest}) api->release(each);
  api->release_op(mul);
  api->release_op(sub);
  api->release_device(device);
  return "";
}

const char* test_an_op_may_have_several_outputs() {
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, {3, 1, 2}, {3});
  TensordOp* const sort = Op("sort");
  const TensordInput input = Input(x);
  TensordOutput outputs[2] = {};
  size_t count = 2;
  CHECK_THAT(CALL(push, sort, &input, 1, 0, outputs, &count) == 0 && count == 2);
  CHECK_THAT(outputs[1].spec.dtype == TENSORD_INT64);
  CHECK_THAT((Download(outputs[0].tensor) == std::vector<float>{1, 2, 3}));
  for (const TensordOutput& each : outputs) api->release(each.tensor);
  count = 1;
  CHECK_THAT(CALL(push, sort, &input, 1, 0, outputs, &count) == 11);
  api->release(x);
  api->release_op(sort);
  api->release_device(device);
  return "";
}

const char* test_a_donated_input_is_refused_afterwards() {
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, {1, 2}, {2});
  TensordOp* const add = Op("add");
  CHECK_THAT(CALL(status, x) == 0);
  TensordTensor* const y = Push(add, {Number(1), Input(x)}, 1u << 1);
  CHECK_THAT(y != nullptr && (Download(y) == std::vector<float>{2, 3}));
  CHECK_THAT(CALL(status, x) == 9);
  CHECK_THAT(Push(add, {Input(x), Number(1)}) == nullptr);
  CHECK_THAT(message.find("was donated to add") != std::string::npos);
  api->release(x);
  api->release(y);
  api->release_op(add);
  api->release_device(device);
  return "";
}

const char* test_errors_have_codes_and_texts() {
  TensordOp* op = nullptr;
  CHECK_THAT(CALL(prepare, "no_such_op", nullptr, 0, &op) == 5);
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, {1, 2}, {2});
  TensordTensor* const y = Upload(device, {1, 2, 3}, {3});
  TensordOp* const add = Op("add");
  CHECK_THAT(Push(add, {Input(x), Input(y)}) == nullptr);
  CHECK_THAT(message.find("add: ") != std::string::npos);
  float small = 0;
  CHECK_THAT(CALL(download, x, &small, sizeof(small)) == 3);
  TensordSpec bad = {99, 0, nullptr};
  TensordTensor* none = nullptr;
  CHECK_THAT(CALL(upload, device, &bad, &small, sizeof(small), &none) == 3);
  // Without a place for the error, only the code says what failed.
  CHECK_THAT(api->prepare("no_such_op", nullptr, 0, &op, nullptr) == 5);
  // The server finds this one: an index out of range.
  TensordAttr attr = {};
  int64_t dims = 1;
  const TensordSpec spec = {TENSORD_INT64, 1, &dims};
  const int64_t index = 7;
  TensordTensor* indices = nullptr;
  CHECK_THAT(CALL(upload, device, &spec, &index, sizeof(index), &indices) == 0);
  attr.name = "axis";
  attr.number.kind = TENSORD_NUMBER_INT64;
  TensordOp* const pick = Op("index", {attr});
  TensordTensor* const failed = Push(pick, {Input(x), Input(indices)});
  CHECK_THAT(failed != nullptr);
  CHECK_THAT(CALL(wait, failed) == 3);
  CHECK_THAT(message.find("index") != std::string::npos);
  const std::string number = "(tensor " + std::to_string(api->handle(failed)) + ")";
  CHECK_THAT(message.find(number) != std::string::npos);
  TensordTensor* const after = Push(add, {Input(failed), Number(1)});
  CHECK_THAT(Download(after).empty() && message.find("index") != std::string::npos);
  for (TensordTensor* each : {x, y, indices, failed, after}) api->release(each);
  api->release_op(add);
  api->release_op(pick);
  api->release_device(device);
  return "";
}

const char* test_creation_copy_and_synchronize() {
  TensordDevice* const first = Device(0);
  TensordDevice* const second = Device(1);
  const int64_t dims[] = {2, 2};
  TensordAttr attrs[3] = {};
  attrs[0].name = "shape";
  attrs[0].type = TENSORD_ATTR_INTS;
  attrs[0].ints = dims;
  attrs[0].num_ints = 2;
  attrs[1].name = "value";
  attrs[1].number.kind = TENSORD_NUMBER_FLOAT64;
  attrs[1].number.value.f = 1.5;
  attrs[2].name = "dtype";
  attrs[2].type = TENSORD_ATTR_DTYPE;
  attrs[2].dtype = TENSORD_FLOAT32;
  TensordOp* const full = Op("full", {attrs[0], attrs[1], attrs[2]});
  TensordOutput made = {};
  CHECK_THAT(CALL(push_creation, full, first, &made) == 0);
  TensordTensor* copy = nullptr;
  CHECK_THAT(CALL(copy, made.tensor, second, &copy) == 0);
  CHECK_THAT((Download(copy) == std::vector<float>{1.5, 1.5, 1.5, 1.5}));
  CHECK_THAT(CALL(synchronize, first) == 0);
  api->release(made.tensor);
  api->release(copy);
  api->release_op(full);
  api->release_device(first);
  api->release_device(second);
  return "";
}

const char* test_an_asynchronous_upload_copies_the_memory() {
  TensordDevice* const device = Device(0);
  std::vector<float> values(1 << 18);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::vector<float> expected = values;
  const auto size = static_cast<int64_t>(values.size());
  const TensordSpec spec = {TENSORD_FLOAT32, 1, &size};
  TensordTensor* x = nullptr;
  CHECK_THAT(CALL(upload_async, device, &spec, values.data(), values.size() * sizeof(float), &x) ==
             0);
  std::fill(values.begin(), values.end(), -1.f);
  TensordOp* const neg = Op("neg");
  TensordTensor* const negative = Push(neg, {Input(x)});
  TensordTensor* const y = Push(neg, {Input(negative)});
  api->release(x);
  api->release(negative);
  CHECK_THAT(CALL(wait, y) == 0);
  CHECK_THAT(Download(y) == expected);
  api->release(y);
  api->release_op(neg);
  api->release_device(device);
  return "";
}

const char* test_a_program_is_recorded_and_run() {
  TensordDevice* const device = Device(0);
  const int64_t dims = 2;
  const TensordSpec spec = {TENSORD_FLOAT32, 1, &dims};
  TensordTensor* weight = Upload(device, {10, 20}, {2});
  TensordProgram* program = nullptr;
  const auto body = [](void* context, TensordTensor* const* inputs, size_t num_inputs,
                       TensordTensor** outputs, size_t* num_outputs) {
    if (num_inputs != 1) return 13;
    TensordOp* const mul = Op("mul");
    TensordTensor* const scaled =
        Push(mul, {Input(inputs[0]), Input(static_cast<TensordTensor*>(context))});
    outputs[0] = Push(mul, {Input(scaled), Number(0.5)});
    *num_outputs = 1;
    api->release(scaled);
    api->release_op(mul);
    return outputs[0] == nullptr ? 3 : 0;
  };
  CHECK_THAT(CALL(record_program, device, &spec, 1, body, weight, &program) == 0);
  TensordTensor* const x = Upload(device, {1, 2}, {2});
  for (int run = 0; run < 2; ++run) {
    TensordOutput output = {};
    size_t count = 1;
    CHECK_THAT(CALL(run_program, program, &x, 1, &output, &count) == 0 && count == 1);
    CHECK_THAT((Download(output.tensor) == std::vector<float>{5, 20}));
    api->release(output.tensor);
  }
  TensordProgram* none = nullptr;
  const auto failing = [](void*, TensordTensor* const*, size_t, TensordTensor**, size_t*) {
    return 12;
  };
  CHECK_THAT(CALL(record_program, device, &spec, 1, failing, nullptr, &none) == 12);
  api->release_program(program);
  api->release(weight);
  api->release(x);
  api->release_device(device);
  return "";
}

// The Python part of this test calls the following two functions with the interpreter's lock.
void* add_one(void* object) {
  TensordTensor* const x = api->from_python(object);
  if (x == nullptr) return nullptr;
  TensordOp* const add = Op("add");
  TensordTensor* const y = Push(add, {Input(x), Number(1)});
  void* const result = api->to_python(y);
  api->release(x);
  api->release(y);
  api->release_op(add);
  return result;
}

const char* test_an_event_happens_after_the_commands_before_it() {
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, {1, 2}, {2});
  TensordOp* const add = Op("add");
  TensordEvent *start = nullptr, *end = nullptr, *dropped = nullptr;
  TensordStats before = {}, after = {};
  api->stats(device, &before);
  CHECK_THAT(CALL(record_event, device, &start) == 0);
  for (int i = 0; i < 100; ++i) api->release(Push(add, {Input(x), Input(x)}));
  CHECK_THAT(CALL(record_event, device, &end) == 0);
  CHECK_THAT(CALL(record_event, device, &dropped) == 0);
  api->stats(device, &after);
  CHECK_THAT(after.waits == before.waits && after.commands >= before.commands + 103);
  int64_t from = 0, to = 0;
  CHECK_THAT(CALL(wait_event, end, &to) == 0);
  CHECK_THAT(CALL(wait_event, end, nullptr) == 0);
  int happened = 0;
  CHECK_THAT(CALL(query_event, start, &happened) == 0 && happened == 1);
  CHECK_THAT(CALL(wait_event, start, &from) == 0 && from > 0 && from <= to);
  api->stats(device, &after);
  CHECK_THAT(after.synchronizes <= before.synchronizes + 1);
  api->release_event(start);
  api->release_event(end);
  api->release_event(dropped);
  CHECK_THAT(CALL(synchronize, device) == 0);
  api->release(x);
  api->release_op(add);
  api->release_device(device);
  return "";
}

const char* test_wait_until_returns_when_the_state_is_ready() {
  int calls = 0;
  api->wait_until([](void* state) { return ++*static_cast<int*>(state) == 3 ? 1 : 0; }, &calls);
  CHECK_THAT(calls == 3);
  CHECK_THAT(api->raised() == 0);
  return "";
}

const char* test_reads_are_counted() {
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, {1, 2}, {2});
  TensordStats before = {}, after = {};
  api->stats(device, &before);
  CHECK_THAT(Download(x).size() == 2);
  api->stats(device, &after);
  CHECK_THAT(after.reads == before.reads + 1 && after.waits == before.waits + 1);
  CHECK_THAT(after.waited_seconds >= before.waited_seconds);
  api->release(x);
  api->release_device(device);
  return "";
}

// Closes the current connection by its first device. Returns the code of a later op, and expects
// the reason in its message.
int use_after_close() {
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, {1, 2}, {2});
  TensordOp* const add = Op("add");
  api->close(device);
  api->close(device);
  Push(add, {Input(x), Input(x)});
  const bool has_reason = message.find("closed the connection") != std::string::npos;
  float values[2];
  const int code = CALL(download, x, values, sizeof(values));
  api->release(x);
  api->release_op(add);
  api->release_device(device);
  return has_reason ? code : -1;
}

int is_tensor(void* object) {
  TensordTensor* const x = api->from_python(object);
  const int found = x != nullptr ? 1 : 0;
  api->release(x);
  return found;
}

// Pushes ops until the queue of commands has been full, and returns how often the hooks were
// called: twice the number of waits, or -1.
int count_hook_calls(int ops) {
  static int begun, ended;
  begun = ended = 0;
  api->set_wait_hooks(
      []() -> void* {
        ++begun;
        return &begun;
      },
      [](void* state) { ended += state == &begun ? 1 : 1000; });
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, {1, 2}, {2});
  TensordOp* const add = Op("add");
  for (int i = 0; i < ops; ++i) api->release(Push(add, {Input(x), Input(x)}));
  const int synchronized = CALL(synchronize, device);
  api->set_wait_hooks(nullptr, nullptr);
  api->release(x);
  api->release_op(add);
  api->release_device(device);
  return synchronized == 0 && begun == ended ? begun + ended : -1;
}

// Returns the nanoseconds of a push of `add` on 4x4 tensors, and of the release of its output.
double push_nanoseconds(int ops) {
  TensordDevice* const device = Device(0);
  TensordTensor* const x = Upload(device, std::vector<float>(16, 1), {4, 4});
  TensordOp* const add = Op("add");
  const TensordInput inputs[] = {Input(x), Input(x)};
  double least = 1e9;
  for (int round = 0; round < 20; ++round) {
    CALL(synchronize, device);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < ops; ++i) {
      TensordOutput output;
      size_t count = 1;
      api->push(add, inputs, 2, 0, &output, &count, nullptr);
      api->release(output.tensor);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    least = std::min(least, took.count() / ops);
  }
  api->release(x);
  api->release_op(add);
  api->release_device(device);
  return least;
}

}  // extern "C"
