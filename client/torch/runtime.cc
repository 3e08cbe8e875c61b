// The device guard, streams, events and hooks that PyTorch calls, and pinned memory.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "cell.h"
#include "generator.h"
#include "guarded.h"
#include "kernels.h"

namespace torch_tensord {
namespace {

void Synchronize(c10::DeviceIndex device) {
  if (!IsInitialized()) return;
  TensordError* error = nullptr;
  Check(Api().synchronize(DeviceAt(device), &error), error, "synchronize");
}

TensordEvent* Record(c10::DeviceIndex device) {
  TensordEvent* event = nullptr;
  TensordError* error = nullptr;
  Check(Api().record_event(DeviceAt(device), &event, &error), error, "record");
  return event;
}

bool HasHappened(TensordEvent* event) {
  int happened = 0;
  TensordError* error = nullptr;
  Check(Api().query_event(event, &happened, &error), error, "query");
  return happened != 0;
}

// Waits, and returns the time of the event in nanoseconds.
int64_t Await(TensordEvent* event) {
  int64_t nanoseconds = 0;
  TensordError* error = nullptr;
  Check(Api().wait_event(event, &nanoseconds, &error), error, "synchronize");
  return nanoseconds;
}

int64_t NumCommands(c10::DeviceIndex device) {
  TensordStats stats;
  Api().stats(DeviceAt(device), &stats);
  return stats.commands;
}

// Returns whether the device's server has run everything that was sent. If the last mark isn't
// newer than the last command, sends another one, for later calls. Doesn't wait, unless the queue
// of commands is full.
bool HasRunAll(c10::DeviceIndex device) {
  struct Mark {
    std::shared_ptr<TensordEvent> event;
    int connection = 0;
    int64_t commands = 0;  // the number of commands up to the mark, which is one of them
  };
  // The key is the server. Its devices share the commands: if each device had a mark, the mark of
  // one would be a newer command for the others.
  static auto* const marks = new Guarded<std::map<std::string, Mark>>;
  const std::string server = Api().device_server(DeviceAt(device));
  Mark mark = (*marks->Lock())[server];
  const int connection = ConnectionNumber();
  const int64_t commands = NumCommands(device);
  if (mark.event == nullptr || mark.connection != connection || mark.commands != commands) {
    // A thread that waits here for room in the queue needs the interpreter's lock afterwards, so it
    // must not hold the mutex. If another thread sends a command first, `commands` + 1 is too
    // small, and the next call sends another mark.
    mark = {{Record(device), Api().release_event}, connection, commands + 1};
    Mark replaced = mark;  // released after the lock
    std::swap((*marks->Lock())[server], replaced);
  }
  return HasHappened(mark.event.get());
}

// A device has one stream. The server orders ops by what they depend on.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  at::DeviceType type() const override { return at::kPrivateUse1; }
  at::Device exchangeDevice(at::Device device) const override {
    const at::Device old = getDevice();
    SetCurrentDevice(device.index());
    return old;
  }
  at::Device getDevice() const override { return {at::kPrivateUse1, CurrentDevice()}; }
  void setDevice(at::Device device) const override { SetCurrentDevice(device.index()); }
  void uncheckedSetDevice(at::Device device) const noexcept override {
    SetCurrentDevice(device.index());
  }
  // PyTorch's engine of backward passes calls this, also if all tensors are on the CPU. Programs
  // don't: torch.accelerator.device_count() calls torch.tensord.device_count().
  c10::DeviceIndex deviceCount() const noexcept override { return NumBackwardThreads(); }

  // PyTorch calls this for each node of a graph, when an op makes it.
  c10::Stream getStream(at::Device device) const override {
    RunBackwardOnCallingThread();
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(at::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(at::Device device, bool) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(at::Device device, int) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::DEFAULT, stream.device());
  }
  bool queryStream(const c10::Stream& stream) const override {
    return !IsInitialized() || HasRunAll(stream.device_index());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Synchronize(stream.device_index());
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    Synchronize(device < 0 ? CurrentDevice() : device);
  }

#if __has_include(<c10/core/DeviceCapability.h>)
  c10::DeviceCapability getDeviceCapability(at::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    auto& has = capability.capability_data.supported_scalar_types;
    has.has_Bool = has.has_Byte = has.has_Char = has.has_Short = has.has_Int = has.has_Long = 1;
    has.has_UInt16 = has.has_UInt32 = has.has_UInt64 = 1;
    has.has_Half = has.has_BFloat16 = has.has_Float = has.has_Double = 1;
    return capability;
  }
#endif

  // An event is a TensordEvent*.
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    TensordEvent* const made = Record(stream.device_index());
    Api().release_event(static_cast<TensordEvent*>(std::exchange(*event, made)));
  }
  // Ops are ordered by what they depend on, and later ops can't change what earlier ones read.
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    return event == nullptr || HasHappened(static_cast<TensordEvent*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Await(static_cast<TensordEvent*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event != nullptr) Api().release_event(static_cast<TensordEvent*>(event));
  }
  // Returns milliseconds. PyTorch has checked that both events have happened.
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    constexpr double kNanosecondsPerMillisecond = 1e6;
    const int64_t elapsed =
        Await(static_cast<TensordEvent*>(end)) - Await(static_cast<TensordEvent*>(start));
    return static_cast<double>(elapsed) / kNanosecondsPerMillisecond;
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Host memory, which the client library reads without another copy. It is pinned in name only, so
// that programs with pin_memory=True work.
class PinnedMemory final : public at::Allocator {
 public:
  at::DataPtr allocate(size_t size_bytes) override {
    at::DataPtr made = c10::GetCPUAllocator()->allocate(size_bytes);
    void* const data = made.get();
    if (data == nullptr) return made;
    (*ranges_.Lock())[data] = size_bytes;
    made.release_context();
    return {data, data, &Free, at::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
  bool Contains(const void* data) {
    const auto ranges = ranges_.Lock();
    auto next = ranges->upper_bound(const_cast<void*>(data));
    if (next == ranges->begin()) return false;
    --next;
    return static_cast<const char*>(data) <
           static_cast<const char*>(next->first) + std::max<size_t>(next->second, 1);
  }
  static PinnedMemory& Get() {
    static auto* const memory = new PinnedMemory;
    return *memory;
  }

 private:
  static void Free(void* data) {
    Get().ranges_.Lock()->erase(data);
    c10::GetCPUAllocator()->raw_deallocate(data);
  }
  Guarded<std::map<void*, size_t>> ranges_;  // address → bytes
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  // PyTorch calls this also without a connection. torch.tensord.is_available() looks for a server.
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return IsInitialized(); }
  at::DeviceIndex deviceCount() const override {
    return static_cast<at::DeviceIndex>(NumKnownDevices());
  }
  at::DeviceIndex getCurrentDevice() const override { return CurrentDevice(); }
  void setCurrentDevice(at::DeviceIndex device) const override {
    DeviceAt(device);
    SetCurrentDevice(device);
  }
  at::DeviceIndex exchangeDevice(at::DeviceIndex device) const override {
    const at::DeviceIndex old = CurrentDevice();
    SetCurrentDevice(device);
    return old;
  }
  at::DeviceIndex maybeExchangeDevice(at::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  at::Device getDeviceFromPtr(void*) const override { ThrowNoPointers(); }
  bool isPinnedPtr(const void* data) const override { return PinnedMemory::Get().Contains(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedMemory::Get(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return DefaultGenerator(device);
  }
  at::Generator getNewGenerator(at::DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? CurrentDevice() : device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size_bytes) const override {
    ResizeStorage(static_cast<Cell*>(storage.unsafeGetStorageImpl()), size_bytes);
  }
};

const bool registered = [] {
  static auto* const hooks = new Hooks;
  at::RegisterPrivateUse1HooksInterface(hooks);
  return true;
}();

std::atomic<int> debug_mode{0};

}  // namespace

int sync_debug_mode() { return debug_mode.load(std::memory_order_relaxed); }
void SetSyncDebugMode(int mode) { debug_mode.store(mode); }
void SynchronizeDevice(c10::DeviceIndex device) { Synchronize(device); }

void ReportWait(const char* what) {
  TORCH_CHECK(sync_debug_mode() != 2, "tensord: ", what,
              " waits for the device (set_sync_debug_mode('error'))");
  TORCH_WARN("tensord: ", what, " waits for the device");
}

}  // namespace torch_tensord
