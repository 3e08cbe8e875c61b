// The latency of one client's op while another principal floods the daemon, compared with the
// latency beside busy loops that take as much CPU time as the flood.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tensord/common/util/token_file.h"
#include "tensord/tests/bench/bench.h"
#include "tensord/tests/integration/rpc_helpers.h"
#include "tensord/tests/integration/test_certificates.h"

namespace tensord::bench {
namespace {

using integration::RpcClient;
using integration::RpcSession;

constexpr char kBusyLoops[] = "beside busy loops";
constexpr char kAttackersToken[] = "the-token-of-the-attacker";
constexpr char kClientsToken[] = "the-token-of-the-client";
// The ops that are measured in a round. In a much shorter round, the results would depend mostly on
// how the operating system's scheduler treats threads that have just become busy.
constexpr int kOpsPerTurn = 2000;

double SecondsOfClock(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Runs `work` again and again on its own thread, from its construction until Stop().
class Background {
 public:
  explicit Background(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          while (!ended_) work();
          cpu_seconds_ = SecondsOfClock(CLOCK_THREAD_CPUTIME_ID);
        }) {}
  ~Background() { Stop(); }

  // Returns the CPU time of the thread.
  double Stop() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    return cpu_seconds_;
  }

 private:
  std::atomic<bool> ended_ = false;
  double cpu_seconds_ = 0;
  std::thread thread_;
};

// Occupies `cores` cores, from its construction to its destruction. Each thread occupies a whole
// core, except the last one if `cores` isn't a whole number: it is busy for a part of each kPeriod.
class BusyLoops {
 public:
  explicit BusyLoops(double cores) {
    // About as long as the server works on a message of the floods.
    constexpr std::chrono::milliseconds kPeriod(10);
    for (; cores > 0; cores -= 1) {
      const auto busy = std::chrono::duration_cast<Clock::duration>(kPeriod * std::min(cores, 1.0));
      loops_.push_back(std::make_unique<Background>([busy, kPeriod] {
        const auto start = Clock::now();
        while (Clock::now() < start + busy) {
        }
        std::this_thread::sleep_until(start + kPeriod);
      }));
    }
  }

 private:
  std::vector<std::unique_ptr<Background>> loops_;
};

// A session whose handle 1 is a tensor, and its stream, on which the definition 1 is the op "neg".
class Attacker {
 public:
  explicit Attacker(const std::string& address)
      : client_(address, {.token = kAttackersToken}), session_(client_) {
    Check(session_.Ones(1, {kSmall}).status());
    client_.set_deadline_seconds(3600);
    stream_ = client_.SessionStream();
    v1::SessionStreamRequest message = session_.Attach();
    integration::AddDefinition(&message, 1, "neg", 1);
    stream_->Send(message);
    reader_ = std::thread([this] {
      while (stream_->Next()) {
      }
    });
  }
  // Ends the stream and closes the session, so that its work doesn't outlast this object.
  ~Attacker() {
    stream_->Cancel();
    reader_.join();
    Check(session_.Close().status());
  }

  // Sends a message. Exits the program if the stream has ended, unless End() was called.
  void Send(const v1::SessionStreamRequest& message) {
    if (!stream_->Send(message) && !ending_) {
      Check(absl::AbortedError("the attacker's stream has ended"));
    }
  }
  // Ends the stream. If another thread is blocked in Send(), Send() then returns.
  void End() {
    ending_ = true;
    stream_->Cancel();
  }
  // Returns the number of the stream's next program.
  uint32_t NextProgram() { return ++last_program_; }
  const std::string& session() const { return session_.id(); }
  RpcClient& client() { return client_; }

 private:
  RpcClient client_;
  RpcSession session_;
  std::unique_ptr<integration::StreamCall> stream_;
  std::thread reader_;
  std::atomic<bool> ending_ = false;
  uint32_t last_program_ = 0;
};

// Returns a message with the same commands, but already encoded, so that sending it takes little
// CPU time here. A flood should occupy the daemon, not the attacker, because in practice the
// attacker runs on another machine.
v1::SessionStreamRequest Encoded(const v1::SessionStreamRequest& message) {
  v1::SessionStreamRequest encoded;
  for (const v1::Command& command : message.commands()) {
    encoded.GetReflection()->MutableUnknownFields(&encoded)->AddLengthDelimited(
        v1::SessionStreamRequest::kCommandsFieldNumber, command.SerializeAsString());
  }
  return encoded;
}

// `ops` ops, each with a drop of its result.
v1::SessionStreamRequest ManyOps(uint64_t ops) {
  v1::SessionStreamRequest message;
  v1::Batch& batch = *message.add_commands()->mutable_batch();
  for (uint64_t handle = 2; handle < 2 + ops; ++handle) {
    for (const uint64_t word : {uint64_t{1}, handle == 2 ? handle : 1, handle - 1}) {
      batch.add_words(word);
    }
    batch.add_words(0);  // a drop of the result
    batch.add_words(0);
  }
  return Encoded(message);
}

// Makes messages with a program of 65,536 ops and a command that drops the program.
class LongPrograms {
 public:
  LongPrograms() {
    v1::SessionStreamRequest message;
    integration::AddChainProgram(&message, kNumber, TensorSpec{DType::kFloat32, {kSmall}}, 65536);
    message.add_commands()->mutable_drop()->add_programs(kNumber);
    message_ = Encoded(message);
    google::protobuf::UnknownFieldSet* commands =
        message_.GetReflection()->MutableUnknownFields(&message_);
    for (int i = 0; i < commands->field_count(); ++i) {
      std::string* command = commands->mutable_field(i)->mutable_length_delimited();
      numbers_.push_back(command->data() + command->rfind(kNumberBytes));
    }
  }

  // Returns the message whose program has this number. The reference is valid until the next call.
  const v1::SessionStreamRequest& WithNumber(uint32_t number) {
    for (char* byte : numbers_) {
      for (int i = 0; i < 4; ++i)
        byte[i] = static_cast<char>((number >> (7 * i) & 0x7f) | (i < 3) << 7);
    }
    return message_;
  }

 private:
  // The largest number that takes four bytes as a varint. These bytes occur nowhere else in the
  // message.
  static constexpr uint32_t kNumber = (1 << 28) - 1;
  static constexpr char kNumberBytes[] = "\xff\xff\xff\x7f";

  v1::SessionStreamRequest message_;
  std::vector<char*> numbers_;  // the occurrences of the program's number in message_
};

// Returns the bytes of a RunOp request with 1.5 million attributes.
std::string ManyAttributes(const std::string& session) {
  constexpr int kAttributes = 1500000;
  v1::Op op;
  op.set_name("neg");
  op.add_inputs(1);
  op.set_output(2);
  std::string op_bytes = op.SerializeAsString();
  for (int i = 0; i < kAttributes; ++i) {
    // An entry of Op.attrs: a key of three bytes, and no value.
    const char key[] = {static_cast<char>('0' + i % 64), static_cast<char>('0' + i / 64 % 64),
                        static_cast<char>('0' + i / 4096 % 64),
                        static_cast<char>('0' + i / 262144)};
    op_bytes.append("\x22\x06\x0a\x04", 4).append(key, sizeof(key));
  }
  v1::RunOpRequest request;
  request.set_session(session);
  // The field 2 of RunOpRequest, and its length as a varint.
  std::string bytes = request.SerializeAsString() + "\x12";
  for (size_t left = op_bytes.size(); left > 0; left >>= 7) {
    bytes += static_cast<char>((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
  }
  return bytes + op_bytes;
}

// Starts a flood by an attacker. It ends when the returned object is destroyed.
using Flood = std::function<std::unique_ptr<Background>(Attacker&)>;

Flood FloodOfOps(uint64_t ops) {
  return [ops](Attacker& attacker) {
    return std::make_unique<Background>(
        [&attacker, message = ManyOps(ops)] { attacker.Send(message); });
  };
}

std::unique_ptr<Background> FloodOfPrograms(Attacker& attacker) {
  return std::make_unique<Background>([&attacker, programs = std::make_shared<LongPrograms>()] {
    attacker.Send(programs->WithNumber(attacker.NextProgram()));
  });
}

std::unique_ptr<Background> FloodOfAttributes(Attacker& attacker) {
  return std::make_unique<Background>([&attacker, bytes = ManyAttributes(attacker.session())] {
    attacker.client().CallRaw("RunOp", bytes).IgnoreError();
  });
}

}  // namespace

void FairnessCases(Bench& bench) {
  struct Attack {
    std::string name;
    int sessions;
    Flood flood;  // each session starts one
  };
  const Attack attacks[] = {{"batches of 100,000 ops", 1, FloodOfOps(100'000)},
                            {"batches of 100,000 ops from 16 sessions", 16, FloodOfOps(100'000)},
                            {"batches of 10,000 ops", 1, FloodOfOps(10'000)},
                            {"batches of 1,000 ops from 16 sessions", 16, FloodOfOps(1'000)},
                            {"batches of 1,000 ops from 48 sessions", 48, FloodOfOps(1'000)},
                            {"programs of 65,536 ops", 1, FloodOfPrograms},
                            {"RunOp with 1.5 M attributes", 1, FloodOfAttributes}};
  for (const Attack& attack : attacks) {
    const std::string measure = absl::StrCat("one op beside a flood of ", attack.name, ", p99");
    if (!bench.Wants(measure)) continue;
    const integration::TestFolder folder;
    const std::string tokens = folder.Write(
        "tokens",
        absl::StrCat(*TokenLine("mallory", HashToken(kAttackersToken), absl::InfiniteFuture()),
                     "\n", *TokenLine("bob", HashToken(kClientsToken), absl::InfiniteFuture()),
                     "\n"));
    const auto daemon = Check(integration::DaemonProcess::Start(
        {"--devices=cpu=1GiB", "--cpu-threads=1", "--token-file=" + tokens}));
    const Client client =
        Check(Client::Connect(daemon->address(), {.shared_memory = false, .token = kClientsToken}));
    const Tensor x = Ones(Check(client.device("cpu:0")), {kSmall});
    Comparison comparison(bench);
    clockid_t daemon_clock = 0;
    clock_getcpuclockid(daemon->pid(), &daemon_clock);
    double cores = 0;  // how many the flood occupied
    comparison.Add(kOurs, [&] {
      std::vector<std::unique_ptr<Attacker>> attackers;
      for (int i = 0; i < attack.sessions; ++i) {
        attackers.push_back(std::make_unique<Attacker>(daemon->address()));
      }
      const auto start = Clock::now();
      const double daemon_start = SecondsOfClock(daemon_clock);
      std::vector<std::unique_ptr<Background>> floods;
      for (const auto& attacker : attackers) floods.push_back(attack.flood(*attacker));
      std::vector<double> microseconds = OpAndRead(x, kOpsPerTurn);
      double cpu_seconds = SecondsOfClock(daemon_clock) - daemon_start;
      const double seconds = 1e-6 * MicrosecondsSince(start);
      for (const auto& attacker : attackers) attacker->End();
      for (const auto& flood : floods) cpu_seconds += flood->Stop();
      cores = cpu_seconds / seconds;
      return microseconds;
    });
    comparison.Add(kBusyLoops, [&] {
      const BusyLoops loops(cores);
      return OpAndRead(x, kOpsPerTurn);
    });
    comparison.Run(9);
    comparison.AddRow({.measure = measure,
                       .unit = "us",
                       .reference = kBusyLoops,
                       .better = Better::kLower,
                       .quantile = 0.99,
                       .goal = 0.5});
  }
}

}  // namespace tensord::bench
