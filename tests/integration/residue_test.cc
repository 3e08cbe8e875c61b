// Residual data in memory. One caller fills memory in every way and frees it. Another caller
// allocates memory in every way, and must read only its own data.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tensord/tests/integration/identity_fixture.h"
#include "tensord/tests/integration/receive_region.h"

namespace tensord::integration {
namespace {

constexpr char kAlices = '\xa5';
constexpr uint64_t kPromised = 7;

// The ways in which a caller can make a tensor.
enum Way { kCreate, kWrite, kRing, kOp, kCopy, kProgram, kWays };
const char* const kNames[] = {"create", "write", "ring", "op", "copy", "program"};

TensorSpec BytesSpec(int64_t size) { return {DType::kUInt8, {size}}; }

// A ring of shared memory, mapped here. The mapping outlives the call.
class MappedRing {
 public:
  explicit MappedRing(RpcSession& session)
      : session_(session), call_(session.client().SharedMemory()) {
    v1::SharedMemoryRequest open;
    open.mutable_open()->set_session(session.id());
    if (!call_->Send(open)) return;
    const auto opened = call_->Next();
    if (!opened.has_value()) return;
    ring_ = opened->ring();
    const int fd = ReceiveRegion(ring_.socket_name(), ring_.secret(), 30'000);
    size_ = ring_.slots() * ring_.slot_bytes();
    void* data = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data != MAP_FAILED) data_ = static_cast<char*>(data);
    close(fd);
  }
  ~MappedRing() {
    if (data_ != nullptr) munmap(data_, size_);
  }

  bool mapped() const { return data_ != nullptr; }
  bool Has(char byte) const { return std::memchr(data_, byte, size_) != nullptr; }
  bool AllZero() const { return data_[0] == 0 && std::memcmp(data_, data_ + 1, size_ - 1) == 0; }
  void Fill(char byte) { std::memset(data_, byte, size_); }

  bool Upload(uint64_t handle, const std::string& bytes) {
    v1::SharedMemoryRequest request;
    const auto size = static_cast<int64_t>(bytes.size());
    *request.mutable_write() = session_.FirstWrite(handle, BytesSpec(size)).spec();
    if (!call_->Send(request)) return false;
    for (int64_t at = 0, i = 0; at < size; ++i) {
      const int64_t count = std::min(size - at, ring_.slot_bytes());
      std::memcpy(Slot(i), bytes.data() + at, count);
      at += count;
      if (!SendSlot(i, count)) return false;
      const auto response = call_->Next();
      if (!response.has_value() || response->has_written() != (at == size)) return false;
    }
    return true;
  }

  std::string Download(uint64_t handle, int64_t size) {
    v1::SharedMemoryRequest request;
    *request.mutable_read() = session_.ReadRequest(handle);
    call_->Send(request);
    std::string bytes;
    for (int64_t i = 0; static_cast<int64_t>(bytes.size()) < size; ++i) {
      const auto filled = call_->Next();
      if (!filled.has_value()) return bytes;
      bytes.append(Slot(i), filled->slot().bytes());
      SendSlot(i, 0);
    }
    return bytes;
  }

  // Cancels the call and waits for its end.
  void End() {
    call_->Cancel();
    while (call_->Next().has_value()) {
    }
    call_->Finish().IgnoreError();
  }

 private:
  char* Slot(int64_t i) { return data_ + i % ring_.slots() * ring_.slot_bytes(); }
  bool SendSlot(int64_t i, int64_t bytes) {
    v1::SharedMemoryRequest request;
    request.mutable_slot()->set_slot(i % ring_.slots());
    request.mutable_slot()->set_bytes(bytes);
    return call_->Send(request);
  }

  RpcSession& session_;
  std::unique_ptr<SharedMemoryCall> call_;
  v1::SharedRing ring_;
  int64_t size_ = 0;
  char* data_ = nullptr;
};

// A caller that makes tensors whose bytes are all the same.
class Caller {
 public:
  Caller(RpcClient& client, char byte, int64_t size)
      : session_(client), ring_(session_), byte_(byte), size_(size) {}

  RpcSession& session() { return session_; }
  MappedRing& ring() { return ring_; }
  std::string wanted() const { return std::string(size_, byte_); }

  // Makes a tensor under handle 100 + way.
  absl::Status Make(Way way) {
    const uint64_t handle = 100 + way;
    switch (way) {
      case kCreate:
        return session_.Create(handle, BytesSpec(size_), wanted()).status();
      case kWrite: {
        auto call = session_.client().Write();
        v1::WriteRequest request = session_.FirstWrite(handle, BytesSpec(size_));
        request.set_data(wanted());
        call->Send(request);
        return call->Finish().status();
      }
      case kRing:
        return ring_.Upload(handle, wanted()) ? absl::OkStatus()
                                              : absl::UnknownError("the ring ended");
      case kOp: {
        const Attributes attrs = {{"shape", std::vector<int64_t>{size_}},
                                  {"value", int64_t{static_cast<uint8_t>(byte_)}},
                                  {"dtype", DType::kUInt8}};
        const absl::Status made = session_.Run("full", {}, 99, attrs, "cpu:0").status();
        return made.ok() ? session_.Run("maximum", {99, 99}, handle).status() : made;
      }
      case kCopy:
        return session_.Copy(100 + kCreate, handle, "cpu:1").status();
      default:
        return RunProgram(handle);
    }
  }

  // Reads a whole tensor in one of three ways.
  std::string Read(uint64_t handle, int way) {
    if (way % 3 == 0) {
      const auto read = session_.Read(handle);
      return read.ok() ? read->data() : std::string(read.status().message());
    }
    if (way % 3 == 1) return ring_.Download(handle, size_);
    const auto call = session_.client().Read(session_.ReadRequest(handle));
    std::string bytes;
    while (const auto part = call->Next()) bytes += part->data();
    return call->Finish().ok() ? bytes : "the read failed";
  }

 private:
  // Runs max(max(x, x), x) as a program. Its intermediate value is freed when the program ends.
  absl::Status RunProgram(uint64_t handle) {
    v1::SessionStreamRequest message = session_.Attach();
    AddDefinition(&message, 1, "maximum", 2);
    v1::Program& program = *message.add_commands()->mutable_program();
    program.set_number(1);
    program.set_device("cpu:0");
    *program.add_inputs() = ToProto(BytesSpec(size_));
    for (uint32_t word : {1, 0, 0, 1, 1, 0}) program.add_ops(word);
    program.add_outputs(2);
    v1::ProgramRun& run = *message.add_commands()->mutable_run();
    run.set_number(1);
    run.add_inputs(100 + kCreate);
    run.add_outputs(handle);
    message.add_commands()->mutable_barrier()->set_barrier_id(1);
    absl::Status failed;
    const auto take = [&failed](const v1::SessionStreamResponse& answer) {
      for (const v1::HandleError& error : answer.errors()) {
        failed = absl::UnknownError(error.message());
      }
    };
    const absl::Status ended = RunStream(session_.client(), {message}, take);
    return ended.ok() ? failed : ended;
  }

  RpcSession session_;
  MappedRing ring_;
  const char byte_;
  const int64_t size_;
};

class ResidueTest : public IdentityFixture {
 protected:
  void SetUp() override {
    folder_.Write("tokens", Line("alice", "a") + Line("bob", "b"));
    StartDaemon({"--token-file=" + folder_.File("tokens")});
    for (const char* token : {"a", "b"}) {
      clients_.push_back(
          std::make_unique<RpcClient>(daemon_->address(), RpcCredentials{.token = token}));
    }
  }
  void TearDown() override {
    clients_.clear();
    IdentityFixture::TearDown();
  }

  // Makes tensors in every way. Then frees them, by their handles or by closing the session.
  void FillAndFree(Caller& alice, bool by_handle) {
    std::vector<uint64_t> handles = {99};
    for (int way = 0; way < kWays; ++way) {
      ASSERT_TRUE(alice.Make(static_cast<Way>(way)).ok()) << kNames[way];
      ASSERT_EQ(alice.Read(100 + way, way), alice.wanted()) << kNames[way];
      handles.push_back(100 + way);
    }
    alice.ring().Fill(kAlices);
    if (by_handle) {
      ASSERT_TRUE(alice.session().Delete(handles).ok());
    }
    alice.ring().End();
    ASSERT_TRUE(alice.session().Close().ok());
  }

  // Makes tensors in every way. Expects that they hold only their own data.
  void ExpectOnlyItsOwn(Caller& bob, int cycle) {
    ASSERT_TRUE(bob.ring().mapped());
    EXPECT_TRUE(bob.ring().AllZero()) << "the ring's own memory";
    for (int way = 0; way < kWays; ++way) {
      const absl::Status made = bob.Make(static_cast<Way>(way));
      ASSERT_TRUE(made.ok()) << kNames[way] << ": " << made;
      ASSERT_TRUE(bob.Read(100 + way, way + cycle) == bob.wanted())
          << kNames[way] << " shows what was in memory before";
    }
    EXPECT_FALSE(bob.ring().Has(kAlices));
  }

  // Sends none or half of the bytes of several uploads. Expects that none of them can be read.
  static void ExpectNothingOfBrokenUploads(Caller& bob, int64_t size, int cycle) {
    RpcSession& session = bob.session();
    const auto part = [&](uint64_t handle) {
      v1::WriteRequest request = session.FirstWrite(handle, BytesSpec(size));
      if (cycle % 2 == 0) request.set_data(std::string(size / 2, 'b'));
      return request;
    };
    auto ended = session.client().Write();  // half-closed too soon
    ended->Send(part(1));
    EXPECT_FALSE(ended->Finish().ok());
    auto cut = session.client().Write();
    cut->Send(part(2));
    cut->Cancel();
    for (uint64_t handle : {1, 2}) ExpectNothing(session, handle);
    Promise(session, size);
    auto promised = session.client().Write();
    promised->Send(part(kPromised));
    EXPECT_FALSE(promised->Finish().ok());
    ExpectNothing(session, kPromised);
  }

  static void Promise(RpcSession& session, int64_t size) {
    v1::SessionStreamRequest message = session.Attach();
    v1::Promise& promise = *message.add_commands()->mutable_promise();
    promise.set_handle(kPromised);
    *promise.mutable_spec() = ToProto(BytesSpec(size));
    promise.set_device("cpu:0");
    EXPECT_TRUE(RunStream(session.client(), {message}).ok());
  }

  static void ExpectNothing(RpcSession& session, uint64_t handle) {
    const auto read = session.Read(handle);
    EXPECT_FALSE(read.ok()) << "handle " << handle << ": " << read->data().size()
                            << " bytes, the last "
                            << int{static_cast<uint8_t>(read->data().back())};
  }

  std::vector<std::unique_ptr<RpcClient>> clients_;
};

TEST_F(ResidueTest, CallersNeverReadEachOthersBytes) {
  constexpr int64_t kSizes[] = {2, 100, 4096, 65536, 70000, 1 << 20, (4 << 20) + 4093};
  const int cycles = std::getenv("TENSORD_TEST_LONG") != nullptr ? 10'000 : 42;
  for (int cycle = 0; cycle < cycles; ++cycle) {
    SCOPED_TRACE(testing::Message() << "cycle " << cycle);
    const int64_t size = kSizes[cycle % std::size(kSizes)];
    Caller alice(*clients_[0], kAlices, size);
    ASSERT_TRUE(alice.ring().mapped());
    ASSERT_NO_FATAL_FAILURE(FillAndFree(alice, cycle % 2 == 0));
    Caller bob(*clients_[1], static_cast<char>(0x11 + cycle % 64), size);
    ASSERT_NO_FATAL_FAILURE(ExpectNothingOfBrokenUploads(bob, size, cycle));
    ASSERT_NO_FATAL_FAILURE(ExpectOnlyItsOwn(bob, cycle));
    EXPECT_FALSE(alice.ring().Has(static_cast<char>(0x11 + cycle % 64)))
        << "the memory that alice still has mapped isn't used again";
    bob.ring().End();
    ASSERT_TRUE(bob.session().Close().ok());
    ASSERT_FALSE(HasFailure());
  }
}

// A read waits for an upload that may be resumed. It returns none of the received bytes.
TEST_F(ResidueTest, ResumableUploadIsNotReadable) {
  Caller alice(*clients_[0], kAlices, 70000);
  ASSERT_NO_FATAL_FAILURE(FillAndFree(alice, true));
  RpcSession bob(*clients_[1]);
  Promise(bob, 70000);
  auto write = clients_[1]->Write();
  v1::WriteRequest request = bob.FirstWrite(kPromised, BytesSpec(70000));
  request.mutable_spec()->set_resumable(true);
  request.set_data(std::string(100, 'b'));
  write->Send(request);
  EXPECT_FALSE(write->Finish().ok());
  clients_[1]->set_deadline_seconds(0.5);
  ExpectError(bob.Read(kPromised), absl::StatusCode::kDeadlineExceeded);
  clients_[1]->set_deadline_seconds(60);
  ASSERT_TRUE(bob.Delete({kPromised}).ok());
  ExpectNothing(bob, kPromised);
}

}  // namespace
}  // namespace tensord::integration
