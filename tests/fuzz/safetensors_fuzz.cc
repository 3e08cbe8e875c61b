// Fuzzes safetensors files. The library must open or refuse them without reading out of bounds.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>

#include "tensord/client/safetensors.h"

namespace {

// Reads all bytes of all tensors, so that a wrong bound causes a fault.
void ReadAll(const tensord::SafetensorsFile& file) {
  for (const std::string& name : file.names()) {
    auto bytes = file.bytes(name);
    auto spec = file.spec(name);
    if (!bytes.ok() || !spec.ok()) continue;
    if (static_cast<int64_t>(bytes->size()) != spec->size_bytes()) std::abort();
    volatile unsigned sum = std::accumulate(bytes->begin(), bytes->end(), 0u);
    (void)sum;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("fuzz.safetensors", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  auto file = tensord::SafetensorsFile::Open("/proc/self/fd/" + std::to_string(fd));
  if (file.ok()) ReadAll(*file);
  close(fd);
  return 0;
}
