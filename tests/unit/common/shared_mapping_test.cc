#include "tensord/common/util/shared_mapping.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tensord {
namespace {

constexpr int64_t kSlotBytes = 4096;
constexpr uint32_t kSlots = 3;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr unsigned int kGoodSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string Digits() {
  static int next = 0;
  return absl::StrCat(absl::Hex(getpid(), absl::kZeroPad16), absl::Hex(++next, absl::kZeroPad16));
}

int Descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

int MemoryFile(int64_t size, unsigned int seals, unsigned int flags = 0) {
  const int fd = memfd_create("shared_mapping_test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
  if (fd < 0) return fd;
  EXPECT_EQ(ftruncate(fd, size), 0);
  if (seals != 0) {
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  }
  return fd;
}

// A server that answers each datagram with these descriptors. The destructor closes them.
class Server {
 public:
  Server(std::string name, std::vector<int> files)
      : name_(std::move(name)), files_(std::move(files)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::copy(name_.begin(), name_.end(), address.sun_path + 1);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address),
                   offsetof(sockaddr_un, sun_path) + 1 + name_.size()),
              0);
    thread_ = std::thread([this] { Run(); });
  }
  ~Server() {
    stopped_ = true;
    thread_.join();
    close(socket_);
    for (const int fd : files_) close(fd);
  }

  SharedMapping::Offer Offer() const {
    return {.socket_name = name_,
            .secret = std::string(kSharedSecretBytes, 'a'),
            .slot_bytes = kSlotBytes,
            .slots = kSlots};
  }
  int asked() const { return asked_; }

 private:
  void Run() {
    while (!stopped_) {
      pollfd waited = {.fd = socket_, .events = POLLIN, .revents = 0};
      if (poll(&waited, 1, 10) == 1) Answer();
    }
  }
  void Answer() {
    char request[64];
    sockaddr_un from = {};
    socklen_t from_size = sizeof(from);
    recvfrom(socket_, request, sizeof(request), 0, reinterpret_cast<sockaddr*>(&from), &from_size);
    ++asked_;
    char byte = 0;
    iovec data = {.iov_base = &byte, .iov_len = 1};
    alignas(cmsghdr) char control[256] = {};
    msghdr message = {};
    message.msg_name = &from;
    message.msg_namelen = from_size;
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!files_.empty()) {
      const size_t bytes = files_.size() * sizeof(int);
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(bytes);
      std::memcpy(CMSG_DATA(header), files_.data(), bytes);
    }
    sendmsg(socket_, &message, MSG_NOSIGNAL);
  }

  const std::string name_;
  const std::vector<int> files_;
  const int socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  std::atomic<int> asked_ = 0;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

std::string Name() { return absl::StrCat(kSharedSocketPrefix, Digits()); }

// Expects that an offer can't be mapped, and that no descriptor is left open.
void ExpectNone(const SharedMapping::Offer& offer, absl::StatusCode code,
                int64_t max_bytes = kNoLimit) {
  const int before = Descriptors();
  const auto mapped = SharedMapping::Map(offer, SharedMapping::Access::kRead, max_bytes);
  EXPECT_EQ(mapped.status().code(), code) << mapped.status();
  EXPECT_EQ(Descriptors(), before);
}

TEST(SharedMappingTest, BothSeeTheSameBytes) {
  const int file = MemoryFile(kSlots * kSlotBytes, kGoodSeals);
  const Server server(Name(), {file});
  void* const theirs =
      mmap(nullptr, kSlots * kSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(theirs, MAP_FAILED);
  const int before = Descriptors();
  {
    const auto mapped =
        SharedMapping::Map(server.Offer(), SharedMapping::Access::kReadWrite, kNoLimit);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_EQ((*mapped)->slots(), kSlots);
    EXPECT_EQ((*mapped)->slot_bytes(), kSlotBytes);
    std::memset((*mapped)->slot(1), 'x', kSlotBytes);
    EXPECT_EQ(static_cast<char*>(theirs)[kSlotBytes], 'x');
    EXPECT_EQ(static_cast<char*>(theirs)[2 * kSlotBytes], 0);
    EXPECT_EQ(Descriptors(), before + 1);
  }
  EXPECT_EQ(Descriptors(), before);
  munmap(theirs, kSlots * kSlotBytes);
}

TEST(SharedMappingTest, DetectsWithdrawnMemory) {
  const int file = MemoryFile(kSlots * kSlotBytes, kGoodSeals);
  const Server server(Name(), {file});
  const auto mapped = SharedMapping::Map(server.Offer(), SharedMapping::Access::kRead, kNoLimit);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_FALSE((*mapped)->withdrawn());
  ASSERT_EQ(fchmod(file, kWithdrawnMode), 0);
  EXPECT_TRUE((*mapped)->withdrawn());
}

TEST(SharedMappingTest, RefusesFilesWhoseSizeMayChange) {
  constexpr auto kCode = absl::StatusCode::kFailedPrecondition;
  const int64_t size = kSlots * kSlotBytes;
  for (const int file :
       {MemoryFile(size, 0), MemoryFile(size, F_SEAL_GROW), MemoryFile(size - 1, kGoodSeals),
        MemoryFile(size + 1, kGoodSeals), open("/dev/zero", O_RDWR | O_CLOEXEC),
        open("/proc/self/exe", O_RDONLY | O_CLOEXEC)}) {
    const Server server(Name(), {file});
    ExpectNone(server.Offer(), kCode);
    EXPECT_EQ(server.asked(), 1);
  }
  // A file of huge pages, if the host has any.
  const int huge = MemoryFile(2 << 20, kGoodSeals, MFD_HUGETLB);
  if (huge >= 0) {
    const Server server(Name(), {huge});
    SharedMapping::Offer offer = server.Offer();
    offer.slots = 1;
    offer.slot_bytes = 2 << 20;
    ExpectNone(offer, kCode);
  }
}

TEST(SharedMappingTest, ClosesAllDescriptorsOfAnInvalidAnswer) {
  const int64_t size = kSlots * kSlotBytes;
  for (const int count : {0, 2, 3, 20}) {
    std::vector<int> files;
    for (int i = 0; i < count; ++i) files.push_back(MemoryFile(size - 1, kGoodSeals));
    const Server server(Name(), files);
    ExpectNone(server.Offer(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(SharedMappingTest, SendsNothingToOtherSockets) {
  const std::string digits = Digits();
  for (const std::string& name :
       {"tensord" + digits, "other-" + digits, absl::StrCat("tensord-", digits, "0"),
        "tensord-" + digits.substr(1), absl::StrCat("tensord-", digits.substr(1), "g")}) {
    const Server server(name, {MemoryFile(kSlots * kSlotBytes, kGoodSeals)});
    ExpectNone(server.Offer(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(server.asked(), 0) << name;
  }
  const Server server(Name(), {MemoryFile(kSlots * kSlotBytes, kGoodSeals)});
  for (const std::string& secret : {std::string(), std::string(31, 'a'), std::string(33, 'a'),
                                    std::string(32, 'x'), std::string(1000, 'a')}) {
    SharedMapping::Offer offer = server.Offer();
    offer.secret = secret;
    ExpectNone(offer, absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(server.asked(), 0);
}

TEST(SharedMappingTest, RejectsInvalidOffersWithoutAsking) {
  const Server server(Name(), {MemoryFile(kSlots * kSlotBytes, kGoodSeals)});
  const auto with = [&](int64_t slot_bytes, uint32_t slots) {
    SharedMapping::Offer offer = server.Offer();
    offer.slot_bytes = slot_bytes;
    offer.slots = slots;
    return offer;
  };
  for (const auto& offer : {with(0, 3), with(-1, 3), with(INT64_MAX, 3), with(kSlotBytes, 0),
                            with(kSlotBytes, 65), with(kSlotBytes, UINT32_MAX)}) {
    ExpectNone(offer, absl::StatusCode::kInternal);
  }
  ExpectNone(server.Offer(), absl::StatusCode::kInternal, kSlots * kSlotBytes - 1);
  EXPECT_EQ(server.asked(), 0);
}

TEST(SharedMappingTest, DoesNotWaitForAMissingServer) {
  SharedMapping::Offer offer;
  offer.socket_name = Name();
  offer.secret = std::string(kSharedSecretBytes, 'a');
  offer.slot_bytes = kSlotBytes;
  offer.slots = kSlots;
  ExpectNone(offer, absl::StatusCode::kFailedPrecondition);
}

TEST(SharedMappingTest, EnvironmentVariableSwitchesItOff) {
  for (const auto& [value, off] :
       {std::pair<const char*, bool>{"0", true}, {"1", false}, {"", false}, {"00", false}}) {
    setenv("TENSORD_SHARED_MEMORY", value, 1);
    EXPECT_EQ(SharedMemorySwitchedOff(), off) << value;
  }
  unsetenv("TENSORD_SHARED_MEMORY");
  EXPECT_FALSE(SharedMemorySwitchedOff());
}

}  // namespace
}  // namespace tensord
