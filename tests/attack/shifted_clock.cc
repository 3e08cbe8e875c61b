// A library for LD_PRELOAD. It shifts the wall clock of a program, and leaves the monotonic clock
// as it is. The shift is a number of seconds, an int64_t in the file that the environment variable
// TENSORD_CLOCK_SHIFT_FILE names. A change of the file takes effect at once. The times at which the
// kernel ends a wait aren't shifted.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

const volatile int64_t* shift = nullptr;

// Runs when the library is loaded, not at the first use: another library may read the clock while
// it replaces mmap(2).
__attribute__((constructor)) void MapShift() {
  const char* const path = std::getenv("TENSORD_CLOCK_SHIFT_FILE");
  const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void* const mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) shift = static_cast<const int64_t*>(mapped);
}

int64_t ShiftSeconds() { return shift == nullptr ? 0 : *shift; }

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) {
  // Makes the system call itself, because dlsym(3) can't be called at any time.
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += ShiftSeconds();
  return result;
}

int gettimeofday(timeval* now, void*) noexcept {
  timespec exact = {};
  const int result = clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return result;
}

time_t time(time_t* now) noexcept {
  timespec exact = {};
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now != nullptr) *now = exact.tv_sec;
  return exact.tv_sec;
}

}  // extern "C"
