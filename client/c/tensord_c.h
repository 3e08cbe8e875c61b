/* The client library in C: a table of functions.

   A program links libtensord_c.so:

     const TensordApi* api = tensord_api();
     if (api->version < TENSORD_C_API_VERSION) …

   An extension module of Python gets the table of the package tensord, with its connections:

     const TensordApi* api = (const TensordApi*)PyCapsule_Import(TENSORD_C_API_CAPSULE, 0);

   client/c/README.md has a complete program.

   The table is valid until the process ends. A later version appends functions and changes none.
   Code that was compiled with this header needs a table whose `version` is at least its own
   TENSORD_C_API_VERSION.

   Objects. TensordTensor, TensordDevice, TensordOp, TensordProgram, TensordEvent,
   TensordGroup and TensordError are opaque. A
   function that returns one through a parameter gives the caller a reference, which the caller
   releases with the release_… function. All release functions accept NULL. Parameters that are
   pointers to const, and arrays of inputs, stay the caller's.

   Errors. A function that can fail returns a code: 0, or a status code of gRPC, such as 3
   (INVALID_ARGUMENT). If it fails, it sets no other result, and sets `*error` unless `error` is
   NULL. The caller releases the error. A failure of the device isn't an error of the call that sent
   the op: it sticks to the tensor, and `wait`, `download` and `synchronize` return it. With
   TENSORD_DEBUG=sync in the environment, each op waits, and its own call returns the failure.

   Threads. All functions are thread-safe, and all objects may be used by several threads. In a
   forked child, functions that would use a connection return FAILED_PRECONDITION (9).

   Python. In the table of the package tensord, functions that block release the interpreter's lock
   while they wait, if the calling thread has it. Functions that need the lock take it. If a signal's
   handler raises an exception (Ctrl-C) while the main thread waits, with or without the lock, the
   function returns CANCELLED (1) within 20 ms. The exception is set then, and `raised` returns 1.

   The header is C99 and C++. */
#ifndef TENSORD_CLIENT_C_TENSORD_C_H_
#define TENSORD_CLIENT_C_TENSORD_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENSORD_C_API_CAPSULE "tensord._core._C_API"
#define TENSORD_C_API_VERSION 4

typedef struct TensordDevice TensordDevice;
typedef struct TensordTensor TensordTensor;
typedef struct TensordOp TensordOp;
typedef struct TensordProgram TensordProgram;
typedef struct TensordError TensordError;
typedef struct TensordEvent TensordEvent;
typedef struct TensordGroup TensordGroup; /* one member of a group */

/* The dtypes. The numbers never change. */
enum {
  TENSORD_BOOL = 1,
  TENSORD_UINT8 = 2,
  TENSORD_INT8 = 3,
  TENSORD_INT32 = 4,
  TENSORD_INT64 = 5,
  TENSORD_FLOAT16 = 6,
  TENSORD_BFLOAT16 = 7,
  TENSORD_FLOAT32 = 8,
  TENSORD_FLOAT64 = 9,
  TENSORD_INT16 = 10,
  TENSORD_UINT16 = 11,
  TENSORD_UINT32 = 12,
  TENSORD_UINT64 = 13,
  TENSORD_COMPLEX64 = 14,
  TENSORD_COMPLEX128 = 15
};

/* The dtype and the shape of a tensor. The owner of the struct owns `dims`. */
typedef struct TensordSpec {
  int32_t dtype;
  int32_t rank;
  const int64_t* dims;
} TensordSpec;

/* A number. `kind` says which member has the value. */
enum { TENSORD_NUMBER_BOOL, TENSORD_NUMBER_INT64, TENSORD_NUMBER_UINT64, TENSORD_NUMBER_FLOAT64 };
typedef struct TensordNumber {
  int32_t kind;
  union {
    int64_t i;  /* of TENSORD_NUMBER_BOOL (0 or 1) and TENSORD_NUMBER_INT64 */
    uint64_t u; /* of TENSORD_NUMBER_UINT64 */
    double f;   /* of TENSORD_NUMBER_FLOAT64 */
  } value;
} TensordNumber;

/* An attribute of an op (common/OPS.md lists names and types). */
enum {
  TENSORD_ATTR_NUMBER, /* for the types bool, int, float and scalar */
  TENSORD_ATTR_INTS,
  TENSORD_ATTR_STRING,
  TENSORD_ATTR_DTYPE
};
typedef struct TensordAttr {
  const char* name;
  int32_t type;
  int32_t dtype;        /* of TENSORD_ATTR_DTYPE */
  TensordNumber number; /* of TENSORD_ATTR_NUMBER */
  const int64_t* ints;  /* of TENSORD_ATTR_INTS */
  size_t num_ints;
  const char* text; /* of TENSORD_ATTR_STRING; ends with a zero byte */
} TensordAttr;

/* An input of an op: a tensor, or a number. A number is sent with the op. It makes no tensor at the
   server. */
typedef struct TensordInput {
  TensordTensor* tensor; /* NULL: the input is `number`, in the dtype `dtype` */
  int32_t dtype;
  TensordNumber number;
} TensordInput;

/* An output of an op or a program. The caller has a reference to `tensor`. `spec` is valid until
   the caller releases it. */
typedef struct TensordOutput {
  TensordTensor* tensor;
  TensordSpec spec;
} TensordOutput;

/* The memory of a device, in bytes. */
typedef struct TensordMemory {
  int64_t total_bytes; /* of the physical device */
  int64_t limit_bytes; /* the limit for all tensors together */
  int64_t used_bytes;
  int64_t peak_bytes; /* the maximum of used_bytes, without copies of weights kept for speed */
} TensordMemory;

/* The statistics of the connection to a device's server: how often calls waited for it, and how
   long. The counts of waits by kind add up to `waits`. */
typedef struct TensordStats {
  int64_t commands; /* sent, or queued to be sent */
  int64_t waits;
  double waited_seconds;
  int64_t reads;
  int64_t uploads;
  int64_t tensor_waits;
  int64_t synchronizes; /* and waits for events */
  int64_t info_calls;
  int64_t full_queue_waits;
} TensordStats;

/* An option of a connection, as texts. Times are in seconds.
     timeout                 of connecting; default 10
     lease                   how long the servers keep the tensors without a connection; default 30
     reconnect_timeout       how long to reconnect; default: the lease
     keepalive_interval, keepalive_timeout   default 20
     spin                    how long a wait polls before it sleeps; default 0
     token, token_file       for servers that authenticate clients by token
     tls                     "true": encrypt
     tls_ca, tls_cert, tls_key, tls_server_name   files (PEM), and the name in the certificate
     client_name             which the servers keep with the session
     shared_memory           "false": not used with servers of this machine
     max_pending_commands, max_pending_bytes, max_upload_connections   see client/client.h */
typedef struct TensordOption {
  const char* name;
  const char* value;
} TensordOption;

/* The most outputs that a program has. */
#define TENSORD_MAX_PROGRAM_OUTPUTS 256

/* How the members' elements are combined. */
enum { TENSORD_SUM, TENSORD_MEAN, TENSORD_MAX };
/* Operations of a group. d is the length of the first axis. */
enum {
  TENSORD_ALL_REDUCE,     /* (…) -> (…). The argument is the reduction. */
  TENSORD_ALL_GATHER,     /* (d, …) -> (size*d, …), by rank. */
  TENSORD_REDUCE_SCATTER, /* (size*d, …) -> (d, …). The argument is the reduction. */
  TENSORD_BROADCAST       /* (…) -> (…). The argument is the rank that has the value. */
};

typedef struct TensordBytes {
  const char* data;
  size_t size;
} TensordBytes;
/* An all-gather of short texts among the programs of a group. Sets `all`, which has an element for
   each member by rank, to their texts, which stay valid until the next call or until `join_group`
   returns. Returns 0, or a status code from 1 to 16, which `join_group` returns. May block. In
   Python, the library calls it without the interpreter's lock. */
typedef int (*TensordExchange)(void* context, TensordBytes own, TensordBytes* all);

typedef struct TensordApi {
  uint32_t version;    /* the TENSORD_C_API_VERSION of the library */
  uint32_t size_bytes; /* of this struct in the library */

  /* ---- errors. Texts end with a zero byte, and are valid until the error is released. If `error`
     is NULL, the code is 0 and the texts are "". */

  int (*error_code)(const TensordError* error);
  const char* (*error_message)(const TensordError* error);
  /* Returns a stable reason such as "DEVICE_OUT_OF_MEMORY", or "". */
  const char* (*error_reason)(const TensordError* error);
  void (*release_error)(TensordError* error);

  /* ---- devices */

  /* Sets `devices` to the devices of the current connection, in the order of its servers, and
     `*num_devices` to their number. If there are more than `capacity`, sets the first ones, and
     `*num_devices` to the number of all. If the process has no connection, connects as `connect`
     does without addresses. May block. */
  int (*list_devices)(TensordDevice** devices, size_t capacity, size_t* num_devices,
                      TensordError** error);
  void (*retain_device)(TensordDevice* device);
  void (*release_device)(TensordDevice* device);
  /* These return the name ("cuda:0", "gpu-a/cuda:0"), the server's address, and the kind ("cpu",
     "cuda"). The texts are valid until the device is released. */
  const char* (*device_name)(const TensordDevice* device);
  const char* (*device_server)(const TensordDevice* device);
  const char* (*device_kind)(const TensordDevice* device);
  /* Blocks until the server has answered. */
  int (*device_memory)(const TensordDevice* device, TensordMemory* memory, TensordError** error);
  /* Blocks until everything that this process has sent to the device's server has run. Returns the
     first error of it that no other function has returned. */
  int (*synchronize)(const TensordDevice* device, TensordError** error);

  /* ---- tensors */

  void (*retain)(TensordTensor* tensor);
  /* When the last reference is released, the server frees the tensor. */
  void (*release)(TensordTensor* tensor);
  /* Sets `*spec`, which is valid until the tensor is released. */
  void (*spec)(const TensordTensor* tensor, TensordSpec* spec);
  /* Sets `*device` to a new reference. */
  void (*device)(const TensordTensor* tensor, TensordDevice** device);
  /* If the tensor was donated to an op, returns FAILED_PRECONDITION (9). Doesn't wait. */
  int (*status)(const TensordTensor* tensor, TensordError** error);
  /* Blocks until the device has computed the tensor, or has failed. Returns its error. */
  int (*wait)(const TensordTensor* tensor, TensordError** error);
  /* Blocks, and sets `data` to the elements in row-major order. `size_bytes` must be their size. */
  int (*download)(const TensordTensor* tensor, void* data, size_t size_bytes, TensordError** error);
  /* Makes a tensor of the elements at `data`, in row-major order. If they are larger than 64 KiB,
     blocks until the server has received them. */
  int (*upload)(const TensordDevice* device, const TensordSpec* spec, const void* data,
                size_t size_bytes, TensordTensor** tensor, TensordError** error);
  /* Does the same, but doesn't wait: copies `data`, and a thread of the library sends the copy. If
     copies of more than 256 MiB wait to be sent, sends `data` as `upload` does. An error of the
     transfer sticks to the tensor. */
  int (*upload_async)(const TensordDevice* device, const TensordSpec* spec, const void* data,
                      size_t size_bytes, TensordTensor** tensor, TensordError** error);
  /* Copies the tensor to a device of any server. Doesn't wait. If the tensor is there already, sets
     `*copy` to another reference to the same value. */
  int (*copy)(const TensordTensor* tensor, const TensordDevice* device, TensordTensor** copy,
              TensordError** error);

  /* ---- ops */

  /* Makes an op with attributes, which may be pushed any number of times. If there is no op of the
     name, returns NOT_FOUND (5). `push` checks the attributes. */
  int (*prepare)(const char* name, const TensordAttr* attrs, size_t num_attrs, TensordOp** op,
                 TensordError** error);
  void (*release_op)(TensordOp* op);
  /* Sends an op, and sets `outputs` to its results, which have a dtype and a shape at once. The
     device computes them later. Doesn't wait, unless the queue of commands is full.
     num_outputs  in: the capacity of `outputs`; out: the number of the op's outputs. If the
                  capacity is smaller, returns OUT_OF_RANGE (11). The op was sent then, and its
                  outputs are lost.
     donated      bit i: the op may overwrite input i, which must be a tensor. After success only
                  retain, release, spec, device and handle accept this tensor; `status` returns
                  FAILED_PRECONDITION (9).
     An op has at most 32 inputs, of which at most 8 are numbers. At least one must be a tensor. */
  int (*push)(const TensordOp* op, const TensordInput* inputs, size_t num_inputs, uint32_t donated,
              TensordOutput* outputs, size_t* num_outputs, TensordError** error);
  /* Sends an op without inputs, such as "full", which has one output. */
  int (*push_creation)(const TensordOp* op, const TensordDevice* device, TensordOutput* output,
                       TensordError** error);

  /* ---- programs: ops that are recorded once and run by one small message */

  /* Calls `body` once with placeholders, which have no values. `body` pushes ops on them, sets
     `outputs` to references that the library releases, and `*num_outputs` to their number (at first
     it is the capacity, TENSORD_MAX_PROGRAM_OUTPUTS). It returns 0, or a status code from 1 to 16,
     which record_program returns. Other tensors that `body` uses become constants of the program. */
  int (*record_program)(const TensordDevice* device, const TensordSpec* inputs, size_t num_inputs,
                        int (*body)(void* context, TensordTensor* const* inputs, size_t num_inputs,
                                    TensordTensor** outputs, size_t* num_outputs),
                        void* context, TensordProgram** program, TensordError** error);
  void (*release_program)(TensordProgram* program);
  /* Runs the program. `num_outputs` is as for `push`. Doesn't wait. */
  int (*run_program)(const TensordProgram* program, TensordTensor* const* inputs, size_t num_inputs,
                     TensordOutput* outputs, size_t* num_outputs, TensordError** error);

  /* ---- waits of `push` */

  /* `push` waits while the queue of commands is full. From this call on, the library calls
     `before` on the waiting thread when such a wait begins, without the interpreter's lock, and
     `after`, with the result of `before`, when it has ended. If both are NULL, it calls nothing. */
  void (*set_wait_hooks)(void* (*before)(void), void (*after)(void* state));

  /* ---- Python objects. In libtensord_c.so these return NULL. */

  /* Returns a new reference to a tensord.Tensor (a PyObject*) with this tensor as its value. If
     that fails, returns NULL, and sets a Python exception. */
  void* (*to_python)(const TensordTensor* tensor);
  /* Returns a reference to the value that a tensord.Tensor has now. If `object`, a PyObject*, is
     anything else, returns NULL, and sets no exception. */
  TensordTensor* (*from_python)(void* object);

  /* ---- Version 2. */

  /* Ends the session of the device's connection, and frees its tensors at the server. Later calls
     that use them return the reason why the session ended. `list_devices` returns these devices
     until `connect` is called. Blocks for about two seconds at most. A second call has no effect. */
  void (*close)(const TensordDevice* device);
  /* Sets `*stats` to the statistics since the connection was made. Doesn't wait. */
  void (*stats)(const TensordDevice* device, TensordStats* stats);
  /* Returns 1 if the calling thread has an exception of Python, 0 if not. */
  int (*raised)(void);
  /* Blocks until `ready(state)` returns a number other than 0, and calls it repeatedly. In Python,
     calls it without the interpreter's lock, and if a signal's handler raises an exception
     meanwhile, returns earlier. */
  void (*wait_until)(int (*ready)(void* state), void* state);

  /* ---- events: moments in the order of the commands for a device's server */

  /* Makes an event, which happens when everything that this process has sent to the device's server
     has run. Each 16384th call waits until the earlier events have happened. Other calls don't
     wait, unless the queue of commands is full. */
  int (*record_event)(const TensordDevice* device, TensordEvent** event, TensordError** error);
  /* No other call may use the event meanwhile. */
  void (*release_event)(TensordEvent* event);
  /* Sets `*happened` to 1 if the event has happened, to 0 if not, or if another thread is waiting
     for it. If the connection has ended, returns the reason. Doesn't wait. */
  int (*query_event)(TensordEvent* event, int* happened, TensordError** error);
  /* Blocks until the event has happened. If `nanoseconds` isn't null, sets it to the time at which
     this process has heard of the event. Only differences of such times have a meaning. */
  int (*wait_event)(TensordEvent* event, int64_t* nanoseconds, TensordError** error);

  /* ---- Version 3. */

  /* Returns the number of the tensor at its server, as in the error "index (tensor 17): …". If the
     tensor belongs to a program that is being recorded, returns 0. */
  uint64_t (*handle)(const TensordTensor* tensor);

  /* ---- Version 4. */

  /* Connects to the servers at `addresses` ("gpu-a:50051,gpu-b:50051", "unix:/path"), and makes
     this the current connection. NULL or "": the environment's TENSORD_SERVERS or TENSORD_SERVER,
     or else a server of this machine, 127.0.0.1:50051; in Python, a private server if none answers
     there. An earlier connection exists as long as its devices and tensors do. When the process
     ends by exit() or by the return of main, the library closes its connections: threads that
     still use them get errors. Blocks.
     If no option has a name, returns NOT_FOUND (5). If a value isn't of the option's type, returns
     INVALID_ARGUMENT (3). In Python, if connecting raises an exception other than tensord.Error,
     returns CANCELLED (1), and the exception is set; so does `list_devices`. */
  int (*connect)(const char* addresses, const TensordOption* options, size_t num_options,
                 TensordError** error);

  /* Returns 1 if both devices belong to one connection to one server, otherwise 0. */
  int (*same_connection)(const TensordDevice* a, const TensordDevice* b);

  /* ---- groups for collective operations, whose members belong to several programs */

  /* Makes `device` the member `rank` of a group of `size` members. Every program calls this once.
     Calls `exchange` twice. Blocks until all members are connected. Each wait for another member
     ends after `timeout_seconds`. Errors:
       INVALID_ARGUMENT (3)     `rank` isn't in [0, size), or the devices are of different kinds
       FAILED_PRECONDITION (9)  a server takes no part (tensord --collectives)
       DEADLINE_EXCEEDED (4)    members can't reach each other in time
     Reductions take the floating dtypes, and integers of 8, 32 or 64 bits; TENSORD_MEAN takes the
     floating ones. The other operations take all dtypes. */
  int (*join_group)(const TensordDevice* device, int rank, int size, TensordExchange exchange,
                    void* context, double timeout_seconds, TensordGroup** group,
                    TensordError** error);
  /* After the operations have run, the server forgets the member. */
  void (*release_group)(TensordGroup* group);
  /* Sends an operation. `input` and `*output` are this member's. All members send the same
     operations in the same order. Doesn't wait. */
  int (*collective)(const TensordGroup* group, int operation, int argument,
                    const TensordTensor* input, TensordTensor** output, TensordError** error);
  /* Blocks until every member has run all operations that were sent before. */
  int (*barrier)(const TensordGroup* group, TensordError** error);
} TensordApi;

/* Returns the table of libtensord_c.so. */
#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
const TensordApi*
tensord_api(void);

#ifdef __cplusplus
}
#endif

#endif /* TENSORD_CLIENT_C_TENSORD_C_H_ */
