#include "tensord/server/rpc/bulk/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/shared_mapping.h"

namespace tensord::server {

absl::StatusOr<std::shared_ptr<SharedRegion>> SharedRegion::Make(int64_t size_bytes) {
  std::shared_ptr<SharedRegion> region(new SharedRegion());
  region->fd_ = memfd_create("tensord", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (region->fd_ < 0) {
    return absl::FailedPreconditionError("the server's host can't make memory files");
  }
  // Allocates all pages at once. If a page couldn't be allocated later, a signal would end the
  // process.
  if (fallocate(region->fd_, 0, 0, size_bytes) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server's host can't allocate ", size_bytes, " bytes to share"));
  }
  if (fcntl(region->fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::FailedPreconditionError("the server's host can't seal memory files");
  }
  void* data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, region->fd_, 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, "shared memory can't be mapped");
  region->data_ = static_cast<uint8_t*>(data);
  region->size_bytes_ = size_bytes;
  region->memory_ = std::make_unique<HostMemory>(data, size_bytes);
  return region;
}

SharedRegion::~SharedRegion() {
  memory_.reset();  // before the memory is unmapped
  if (data_ != nullptr) munmap(data_, size_bytes_);
  if (fd_ < 0) return;
  // The mode marks the file. It is set first, so that no reader takes the zeros of freed pages for
  // data.
  if (fchmod(fd_, kWithdrawnMode) == 0) {
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size_bytes_);
  }
  close(fd_);
}

}  // namespace tensord::server
