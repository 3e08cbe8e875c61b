// The latency of one client's op while another principal floods the daemon, compared with the
// latency while a thread of the benchmark occupies one core.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

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

constexpr char kBusyLoop[] = "beside a busy loop";
constexpr char kAttackersToken[] = "the-token-of-the-attacker";
constexpr char kClientsToken[] = "the-token-of-the-client";

// Runs `work` again and again on its own thread, from its construction to its destruction.
class Background {
 public:
  explicit Background(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          while (!ended_) work();
        }) {}
  ~Background() {
    ended_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// A session whose handle 1 is a tensor, and its stream, on which the definition 1 is the op "neg".
class Attacker {
 public:
  explicit Attacker(const std::string& address)
      : client_(address, {.token = kAttackersToken}), session_(client_) {
    Check(session_.Ones(1, {kSmall}).status());
    client_.set_deadline_seconds(3600);
    stream_ = client_.SessionStream();
    v1::SessionStreamRequest message;
    message.mutable_attach()->set_session(session_.id());
    v1::Definition& definition = *message.add_commands()->mutable_define();
    definition.set_number(1);
    definition.set_name("neg");
    definition.set_num_inputs(1);
    stream_->Send(message);
    reader_ = std::thread([this] {
      while (stream_->Next()) {
      }
    });
  }
  ~Attacker() {
    stream_->Cancel();
    reader_.join();
  }

  // Exits the program if the stream has ended.
  void Send(const v1::SessionStreamRequest& message) {
    if (!stream_->Send(message)) Check(absl::AbortedError("the attacker's stream has ended"));
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
  uint32_t last_program_ = 0;
};

// Returns a message with 100,000 ops whose results are dropped at once.
v1::SessionStreamRequest ManyOps() {
  v1::SessionStreamRequest message;
  v1::Batch& batch = *message.add_commands()->mutable_batch();
  for (uint64_t handle = 2; handle < 100002; ++handle) {
    for (const uint64_t word : {uint64_t{1}, handle == 2 ? handle : 1, handle - 1}) {
      batch.add_words(word);
    }
    batch.add_words(0);  // a drop of the result
    batch.add_words(0);
  }
  return message;
}

// Returns a message with a program of 65,536 ops that is dropped at once. The caller sets the
// program's number.
v1::SessionStreamRequest LongProgram() {
  v1::SessionStreamRequest message;
  v1::Program& program = *message.add_commands()->mutable_program();
  program.set_device("cpu:0");
  *program.add_inputs() = integration::ToProto(TensorSpec{DType::kFloat32, {kSmall}});
  for (uint32_t value = 0; value < 65536; ++value) {
    program.add_ops(1);
    program.add_ops(value);
  }
  program.add_outputs(65536);
  message.add_commands()->mutable_drop()->add_programs(0);
  return message;
}

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

std::unique_ptr<Background> FloodOfOps(Attacker& attacker) {
  return std::make_unique<Background>([&attacker, message = ManyOps()] { attacker.Send(message); });
}

std::unique_ptr<Background> FloodOfPrograms(Attacker& attacker) {
  return std::make_unique<Background>([&attacker, message = LongProgram()]() mutable {
    const uint32_t number = attacker.NextProgram();
    message.mutable_commands(0)->mutable_program()->set_number(number);
    message.mutable_commands(1)->mutable_drop()->set_programs(0, number);
    attacker.Send(message);
  });
}

std::unique_ptr<Background> FloodOfAttributes(Attacker& attacker) {
  return std::make_unique<Background>([&attacker, bytes = ManyAttributes(attacker.session())] {
    attacker.client().CallRaw("RunOp", bytes).IgnoreError();
  });
}

}  // namespace

void FairnessCases(Bench& bench) {
  const std::pair<std::string, Flood> floods[] = {
      {"batches of 100,000 ops", FloodOfOps},
      {"programs of 65,536 ops", FloodOfPrograms},
      {"RunOp with 1.5 M attributes", FloodOfAttributes}};
  for (const auto& [name, flood] : floods) {
    const std::string measure = absl::StrCat("one op beside a flood of ", name, ", p99");
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
    Attacker attacker(daemon->address());
    Turns turns(bench);
    turns.Join(kOurs, [&] {
      const auto flooding = flood(attacker);
      return OpAndRead(x, 250);
    });
    turns.Join(kBusyLoop, [&] {
      const Background loop([] {});
      return OpAndRead(x, 250);
    });
    turns.Run(9);
    turns.AddRow({.measure = measure,
                  .unit = "us",
                  .reference = kBusyLoop,
                  .better = Better::kLower,
                  .quantile = 0.99,
                  .goal = 0.5});
  }
}

}  // namespace tensord::bench
