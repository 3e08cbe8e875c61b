/* A program in C11 that uses each part of the C interface, and meets its errors. c_program_test.cc
   runs it with the address of a server that has two devices. Ends with status 0, or prints what is
   wrong. */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensord_c.h"

enum { CANCELLED = 1, INVALID_ARGUMENT = 3, NOT_FOUND = 5, FAILED_PRECONDITION = 9 };
enum { OUT_OF_RANGE = 11, UNAVAILABLE = 14 };

static const TensordApi* api;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

/* Ends the program if a call has failed. */
static void check(int code, TensordError* error) {
  if (code == 0) return;
  fprintf(stderr, "unexpected error %d: %s\n", code, api->error_message(error));
  exit(1);
}

/* Ends the program unless a call has failed with this code and a message that has this text. */
static void check_error(int line, int code, TensordError* error, int expected, const char* text) {
  const char* const message = error == NULL ? "(no error)" : api->error_message(error);
  if (code != expected || strstr(message, text) == NULL || api->error_code(error) != code) {
    fprintf(stderr, "line %d: %d: %s\nexpected %d: %s\n", line, code, message, expected, text);
    exit(1);
  }
  api->release_error(error);
}
/* `call` sets the caller's `error`. */
#define EXPECT_ERROR(expected, text, call)                      \
  do {                                                          \
    const int returned = (call);                                \
    check_error(__LINE__, returned, error, (expected), (text)); \
    error = NULL;                                               \
  } while (0)

static TensordDevice* devices[2];
static TensordTensor* volatile kept; /* until the end of the program */

static TensordTensor* upload(const TensordDevice* device, const float* data, int64_t count) {
  TensordError* error = NULL;
  TensordTensor* tensor = NULL;
  const TensordSpec spec = {TENSORD_FLOAT32, 1, &count};
  check(api->upload(device, &spec, data, (size_t)count * sizeof(float), &tensor, &error), error);
  return tensor;
}

static float first_of(const TensordTensor* tensor, int64_t count) {
  TensordError* error = NULL;
  float values[8] = {0};
  check(api->download(tensor, values, (size_t)count * sizeof(float), &error), error);
  return values[0];
}

static TensordOp* prepare(const char* name, const TensordAttr* attrs, size_t num_attrs) {
  TensordError* error = NULL;
  TensordOp* op = NULL;
  check(api->prepare(name, attrs, num_attrs, &op, &error), error);
  return op;
}

static TensordInput of_tensor(TensordTensor* tensor) {
  TensordInput input = {0};
  input.tensor = tensor;
  return input;
}
static TensordInput of_number(double number) {
  TensordInput input = {0};
  input.dtype = TENSORD_FLOAT32;
  input.number.kind = TENSORD_NUMBER_FLOAT64;
  input.number.value.f = number;
  return input;
}

/* Runs an op of two inputs. */
static int push(const TensordOp* op, TensordInput a, TensordInput b, uint32_t donated,
                TensordTensor** made, TensordError** error) {
  const TensordInput inputs[2] = {a, b};
  TensordOutput output;
  size_t num_outputs = 1;
  const int code = api->push(op, inputs, 2, donated, &output, &num_outputs, error);
  *made = code == 0 ? output.tensor : NULL;
  return code;
}

static void connect_to(const char* address) {
  const TensordOption lease = {"lease", "20"}, unknown = {"leese", "20"}, wrong = {"lease", "long"};
  TensordError* error = NULL;
  EXPECT_ERROR(NOT_FOUND, "leese", api->connect(address, &unknown, 1, &error));
  EXPECT_ERROR(INVALID_ARGUMENT, "seconds", api->connect(address, &wrong, 1, &error));
  const TensordOption soon = {"timeout", "0.5"};
  EXPECT_ERROR(UNAVAILABLE, "127.0.0.1:1", api->connect("127.0.0.1:1", &soon, 1, &error));
  check(api->connect(address, &lease, 1, &error), error);
  size_t num_devices = 0;
  check(api->list_devices(devices, 2, &num_devices, &error), error);
  CHECK(num_devices == 2);
  CHECK(strcmp(api->device_name(devices[0]), "cpu:0") == 0);
  CHECK(strcmp(api->device_server(devices[1]), address) == 0);
  CHECK(strcmp(api->device_kind(devices[1]), "cpu") == 0);
  CHECK(api->same_connection(devices[0], devices[1]) == 1);

  /* Another connection, and this one again. */
  TensordDevice* others[2];
  check(api->connect(address, NULL, 0, &error), error);
  check(api->list_devices(others, 2, &num_devices, &error), error);
  CHECK(api->same_connection(devices[0], others[0]) == 0);
  api->close(devices[0]);
  for (int i = 0; i < 2; ++i) {
    api->release_device(devices[i]);
    devices[i] = others[i];
  }
}

static void compute(void) {
  TensordError* error = NULL;
  const float data[] = {1, 2, 3};
  TensordTensor* const x = upload(devices[0], data, 3);
  TensordTensor* const other = upload(devices[1], data, 3);
  TensordTensor* const shorter = upload(devices[0], data, 2);
  TensordOp* const add = prepare("add", NULL, 0);
  TensordTensor* sum = NULL;
  check(push(add, of_tensor(x), of_tensor(x), 0, &sum, &error), error);
  CHECK(first_of(sum, 3) == 2);
  TensordTensor* more = NULL;
  check(push(add, of_tensor(sum), of_number(0.5), 0, &more, &error), error);
  CHECK(first_of(more, 3) == 2.5F);
  check(api->wait(more, &error), error);
  check(api->status(more, &error), error);
  CHECK(api->handle(more) != 0);

  TensordTensor* none = NULL;
  TensordOp* op = NULL;
  EXPECT_ERROR(NOT_FOUND, "logaddexp", api->prepare("logadexp", NULL, 0, &op, &error));
  EXPECT_ERROR(INVALID_ARGUMENT, "shape",
               push(add, of_tensor(x), of_tensor(shorter), 0, &none, &error));
  EXPECT_ERROR(INVALID_ARGUMENT, "cpu:1",
               push(add, of_tensor(x), of_tensor(other), 0, &none, &error));
  EXPECT_ERROR(INVALID_ARGUMENT, "no input is a tensor",
               push(add, of_number(1), of_number(2), 0, &none, &error));
  float values[4];
  EXPECT_ERROR(INVALID_ARGUMENT, "12", api->download(x, values, sizeof(values), &error));
  TensordTensor* final_sum = NULL;
  check(push(add, of_tensor(sum), of_tensor(x), 1, &final_sum, &error), error);
  EXPECT_ERROR(FAILED_PRECONDITION, "donated", api->status(sum, &error));
  CHECK(first_of(final_sum, 3) == 3);

  /* An error of the device sticks to the tensor. */
  TensordOp* const index = prepare("index", NULL, 0);
  TensordTensor* rows = NULL;
  const int64_t beyond = 7, one = 1;
  const TensordSpec integers = {TENSORD_INT64, 1, &one};
  check(api->upload(devices[0], &integers, &beyond, sizeof(beyond), &rows, &error), error);
  TensordTensor* lost = NULL;
  check(push(index, of_tensor(x), of_tensor(rows), 0, &lost, &error), error);
  EXPECT_ERROR(INVALID_ARGUMENT, "index 7", api->wait(lost, &error));

  /* Another device, and references. */
  TensordTensor* copy = NULL;
  check(api->copy(x, devices[1], &copy, &error), error);
  TensordDevice* device = NULL;
  api->device(copy, &device);
  CHECK(strcmp(api->device_name(device), "cpu:1") == 0);
  api->release_device(device);
  api->retain(copy);
  api->release(copy);
  CHECK(first_of(copy, 3) == 1);

  TensordTensor* const all[] = {x, other, shorter, sum, more, final_sum, rows, lost, copy};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); ++i) api->release(all[i]);
  api->release_op(add);
  api->release_op(index);
}

static void create_and_reduce(void) {
  TensordError* error = NULL;
  const int64_t dims[] = {2, 3}, axes[] = {1};
  TensordAttr attrs[2] = {{0}, {0}};
  attrs[0].name = "shape";
  attrs[0].type = TENSORD_ATTR_INTS;
  attrs[0].ints = dims;
  attrs[0].num_ints = 2;
  attrs[1].name = "dtype";
  attrs[1].type = TENSORD_ATTR_DTYPE;
  attrs[1].dtype = TENSORD_FLOAT32;
  TensordOp* const ones = prepare("ones", attrs, 2);
  TensordOutput made, sums;
  check(api->push_creation(ones, devices[0], &made, &error), error);
  CHECK(made.spec.rank == 2 && made.spec.dims[1] == 3);
  TensordAttr along = {0};
  along.name = "axes";
  along.type = TENSORD_ATTR_INTS;
  along.ints = axes;
  along.num_ints = 1;
  TensordOp* const sum = prepare("sum", &along, 1);
  const TensordInput input = of_tensor(made.tensor);
  size_t room = 0;
  EXPECT_ERROR(OUT_OF_RANGE, "room for 0", api->push(sum, &input, 1, 0, &sums, &room, &error));
  room = 1;
  check(api->push(sum, &input, 1, 0, &sums, &room, &error), error);
  CHECK(sums.spec.rank == 1 && sums.spec.dims[0] == 2 && first_of(sums.tensor, 2) == 3);
  api->release(made.tensor);
  api->release(sums.tensor);
  api->release_op(ones);
  api->release_op(sum);
}

/* The body of a program: x * 2. */
static int twice(void* context, TensordTensor* const* inputs, size_t num_inputs,
                 TensordTensor** outputs, size_t* num_outputs) {
  CHECK(num_inputs == 1 && *num_outputs >= 1);
  *num_outputs = 1;
  TensordError* error = NULL;
  check(push(context, of_tensor(inputs[0]), of_number(2), 0, &outputs[0], &error), error);
  return 0;
}

/* The body of a program with too many outputs. */
static int exceed(void* context, TensordTensor* const* inputs, size_t num_inputs,
                  TensordTensor** outputs, size_t* num_outputs) {
  CHECK(*num_outputs == TENSORD_MAX_PROGRAM_OUTPUTS);
  (void)context, (void)inputs, (void)num_inputs, (void)outputs;
  ++*num_outputs;
  return 0;
}

static int fail(void* context, TensordTensor* const* inputs, size_t num_inputs,
                TensordTensor** outputs, size_t* num_outputs) {
  (void)context, (void)inputs, (void)num_inputs, (void)outputs, (void)num_outputs;
  return CANCELLED;
}

static void run_programs_and_events(void) {
  TensordError* error = NULL;
  const float data[] = {4, 5};
  const int64_t count = 2;
  const TensordSpec spec = {TENSORD_FLOAT32, 1, &count};
  TensordOp* const mul = prepare("mul", NULL, 0);
  TensordProgram* program = NULL;
  EXPECT_ERROR(CANCELLED, "has failed",
               api->record_program(devices[0], &spec, 1, fail, NULL, &program, &error));
  EXPECT_ERROR(OUT_OF_RANGE, "has failed",
               api->record_program(devices[0], &spec, 1, exceed, NULL, &program, &error));
  check(api->record_program(devices[0], &spec, 1, twice, mul, &program, &error), error);
  TensordTensor* x = NULL;
  check(api->upload_async(devices[0], &spec, data, sizeof(data), &x, &error), error);
  TensordOutput output;
  size_t num_outputs = 1;
  check(api->run_program(program, &x, 1, &output, &num_outputs, &error), error);
  TensordEvent* event = NULL;
  check(api->record_event(devices[0], &event, &error), error);
  int64_t nanoseconds = 0;
  check(api->wait_event(event, &nanoseconds, &error), error);
  int happened = 0;
  check(api->query_event(event, &happened, &error), error);
  CHECK(happened == 1 && nanoseconds > 0);
  CHECK(first_of(output.tensor, 2) == 8);
  check(api->synchronize(devices[0], &error), error);
  TensordMemory memory;
  check(api->device_memory(devices[0], &memory, &error), error);
  CHECK(memory.limit_bytes > 0);
  TensordStats stats;
  api->stats(devices[0], &stats);
  CHECK(stats.commands > 0 && stats.waits > 0);
  api->release(output.tensor);
  api->release(x);
  api->release_event(event);
  api->release_program(program);
  api->release_op(mul);
}

/* In a forked child, the parent's connection can't be used. */
static void fork_child(void) {
  TensordError* error = NULL;
  TensordEvent* event = NULL;
  check(api->record_event(devices[0], &event, &error), error);
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    int happened = 0;
    int64_t nanoseconds = 0;
    size_t count = 0;
    EXPECT_ERROR(FAILED_PRECONDITION, "fork", api->query_event(event, &happened, &error));
    EXPECT_ERROR(FAILED_PRECONDITION, "fork", api->wait_event(event, &nanoseconds, &error));
    EXPECT_ERROR(FAILED_PRECONDITION, "fork", api->list_devices(NULL, 0, &count, &error));
    EXPECT_ERROR(FAILED_PRECONDITION, "fork", api->synchronize(devices[0], &error));
    api->release_event(event);
    _exit(0); /* a leak checker would miss the threads of gRPC */
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  check(api->wait_event(event, NULL, &error), error);
  api->release_event(event);
}

/* An all-gather of texts between two threads. */
static struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  char texts[2][2][1024]; /* of each round and rank */
  size_t sizes[2][2];
  int given[2];
} board = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{{0}}}, {{0}}, {0}};

struct member {
  int rank, round;
  float sum, gathered, part, root;
};

static int exchange(void* context, TensordBytes own, TensordBytes* all) {
  struct member* const member = context;
  const int round = member->round++;
  CHECK(round < 2 && own.size <= sizeof(board.texts[0][0]));
  pthread_mutex_lock(&board.mutex);
  memcpy(board.texts[round][member->rank], own.data, own.size);
  board.sizes[round][member->rank] = own.size;
  ++board.given[round];
  pthread_cond_broadcast(&board.changed);
  while (board.given[round] < 2) pthread_cond_wait(&board.changed, &board.mutex);
  pthread_mutex_unlock(&board.mutex);
  for (int rank = 0; rank < 2; ++rank) {
    all[rank] = (TensordBytes){board.texts[round][rank], board.sizes[round][rank]};
  }
  return 0;
}

static float collective(const TensordGroup* group, int operation, int argument,
                        const TensordTensor* x, int64_t count) {
  TensordError* error = NULL;
  TensordTensor* made = NULL;
  check(api->collective(group, operation, argument, x, &made, &error), error);
  const float first = first_of(made, count);
  api->release(made);
  return first;
}

static void* run_member(void* context) {
  struct member* const member = context;
  TensordError* error = NULL;
  TensordGroup* group = NULL;
  const TensordDevice* const device = devices[member->rank];
  check(api->join_group(device, member->rank, 2, exchange, member, 20, &group, &error), error);
  const float data[] = {(float)member->rank + 1, 10};
  TensordTensor* const x = upload(device, data, 2);
  member->sum = collective(group, TENSORD_ALL_REDUCE, TENSORD_SUM, x, 2);
  member->gathered = collective(group, TENSORD_ALL_GATHER, 0, x, 4);
  member->part = collective(group, TENSORD_REDUCE_SCATTER, TENSORD_MAX, x, 1);
  member->root = collective(group, TENSORD_BROADCAST, 1, x, 2);
  TensordTensor* none = NULL;
  EXPECT_ERROR(INVALID_ARGUMENT, "reduction 9",
               api->collective(group, TENSORD_ALL_REDUCE, 9, x, &none, &error));
  check(api->barrier(group, &error), error);
  api->release(x);
  api->release_group(group);
  return NULL;
}

static void run_group(void) {
  struct member members[2] = {{.rank = 0}, {.rank = 1}};
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i)
    CHECK(pthread_create(&threads[i], NULL, run_member, &members[i]) == 0);
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < 2; ++i) {
    CHECK(members[i].sum == 3 && members[i].gathered == 1 && members[i].root == 2);
    CHECK(members[i].part == (i == 0 ? 2.0F : 10.0F));
  }
}

static int end(void* context, TensordBytes own, TensordBytes* all) {
  (void)context, (void)own, (void)all;
  return CANCELLED;
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  api = tensord_api();
  CHECK(api->version == TENSORD_C_API_VERSION && api->size_bytes == sizeof(*api));
  connect_to(argv[1]);
  compute();
  create_and_reduce();
  run_programs_and_events();
  fork_child();
  run_group();
  TensordError* error = NULL;
  TensordGroup* group = NULL;
  EXPECT_ERROR(CANCELLED, "exchange",
               api->join_group(devices[0], 0, 2, end, NULL, 5, &group, &error));
  CHECK(api->raised() == 0 && api->to_python(NULL) == NULL && api->from_python(NULL) == NULL);
  const float data[] = {1};
  TensordTensor* const x = upload(devices[0], data, 1);
  api->close(devices[0]);
  float value = 0;
  EXPECT_ERROR(FAILED_PRECONDITION, "closed", api->download(x, &value, sizeof(value), &error));
  api->release(x);
  for (int i = 0; i < 2; ++i) api->release_device(devices[i]);

  /* The library closes this connection at the end. */
  check(api->connect(argv[1], NULL, 0, &error), error);
  check(api->list_devices(devices, 1, &(size_t){0}, &error), error);
  kept = upload(devices[0], data, 1);
  return 0;
}
