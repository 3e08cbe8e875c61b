// The C interface of tensord, and its errors as exceptions of PyTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "tensord_c.h"

namespace torch_tensord {

// Returns the table of functions that UsePython() has set, or else that of libtensord_c.
const TensordApi& Api();
// Makes this a program in Python. `throw_error` throws PyTorch's exception for an exception of
// Python that is set.
__attribute__((visibility("default"))) void UsePython(const TensordApi* table,
                                                      void (*throw_error)());
bool InPython();

// Throws the exception for `code`, and releases the error. The exception is OutOfMemoryError,
// AcceleratorError for a lost server, NotImplementedError, or else RuntimeError. If a signal's
// handler has raised an exception of Python, throws that. `what` names the op.
[[noreturn]] void ThrowError(int code, TensordError* error, const char* what);
// Throws the exception of Python that a signal's handler has raised while this thread waited.
[[noreturn]] void ThrowInterrupted();
// `error` is a reference, so that it is read after the call that sets it.
inline void Check(int code, TensordError* const& error, const char* what) {
  if (C10_UNLIKELY(code != 0)) ThrowError(code, error, what);
}

// Returns the number of the connection's devices, which are fixed at the first call. If there is no
// connection, connects. May block.
int NumDevices();
// Returns a device. Throws if it doesn't exist.
TensordDevice* DeviceAt(c10::DeviceIndex index);
// Calls `look` with each device by number. Meanwhile no other thread replaces them.
void ForEachDevice(const std::function<void(const TensordDevice*)>& look);
// Returns the number of the device that has the tensor, or -1 if it belongs to another connection.
c10::DeviceIndex DeviceOf(const TensordTensor* tensor);
// Returns the number of the connection's devices. If there is no connection, returns 0.
int NumKnownDevices();
// Replaces the devices by those of the package tensord's current connection, and closes the
// previous connection. Blocks. Returns the number of devices.
int ReplaceDevices();
// Returns how often ReplaceDevices() was called: the number of the connection.
int ConnectionNumber();
// Returns whether the connection exists.
bool IsInitialized();
// Returns true in a forked child of a process that had a connection.
bool InBadFork();

// Makes this thread run the backward passes that it calls. PyTorch's default, a thread for each
// device, helps devices whose kernels take the thread's time. Ours only send commands, so the
// change of threads would cost more than it gains. After the first call on a thread, the program
// may change this setting of PyTorch, unless PyTorch has no threads for our devices.
void RunBackwardOnCallingThread();
// Returns for how many devices PyTorch starts threads at the first backward pass of the process. If
// there is no connection, returns 0: a program that uses only the CPU must be able to fork, and to
// run backward passes in the child. All later backward passes then run on the calling thread.
c10::DeviceIndex NumBackwardThreads();

// Returns the memory of a device, of all its clients together. Waits for the server.
TensordMemory MemoryOf(c10::DeviceIndex device);

c10::DeviceIndex CurrentDevice();
void SetCurrentDevice(c10::DeviceIndex index);

// Throws if tensord has no such dtype, or only stores it.
int32_t ToServerDType(at::ScalarType dtype);
at::ScalarType ToTorchDType(int32_t dtype);

}  // namespace torch_tensord
