// Sessions of released clients, recorded once and kept in tests/data, run on today's server.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_process.h"
#include "tensord/tests/integration/recorded_session.h"

namespace tensord::integration {
namespace {

// A program that uses each kind of command once. Every result is read, so that the recording has
// what the server must answer. All results are exact, so they are the same on every processor.
void RunProgramToRecord(const Client& client) {
  const Device device = *client.device("cpu:0");
  const Tensor x = FromVector<float>(device, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor w = FromVector<float>(device, {2, 3}, {1, 0, -1, 0.5, 0.25, 2});
  const auto expect_read = [](const Tensor& tensor) {
    ASSERT_TRUE(tensor.ReadBytes().ok()) << tensor.status();
  };
  expect_read(Add(x, w) * 2.0 - 1);
  expect_read(Linear(x, w, {.activation = Activation::kRelu}));
  expect_read(Sum(Matmul(x, w, {.transpose_b = true}), {.axes = {-1}}));
  expect_read(Slice(x, {0, 1}, {2, 3}));
  expect_read(Remainder(Arange(device, 0, 5, 1), 3));
  expect_read(Uniform(device, {4}, /*seed=*/7));
  expect_read(x.To("cpu:1").To(DType::kFloat16));
  const auto donated = RunOpWithOutputs("relu", {x + w}, {}, {.donate = {0}});
  ASSERT_TRUE(donated.ok());
  expect_read(donated->front());
  const auto program = Program::Record(device, {x.spec()}, [&](absl::Span<const Tensor> inputs) {
    return std::vector<Tensor>{Sqrt(Abs(inputs[0] + w)), Sum(inputs[0])};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  for (const Tensor& output : program->Run({x})) expect_read(output);
  EXPECT_TRUE(client.Synchronize().ok());
}

TEST(RecordedSessionTest, ServersOfLaterVersionsRunIt) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(TENSORD_TEST_DATA)) {
    if (file.path().filename().string().rfind("session_", 0) != 0) continue;
    SCOPED_TRACE(file.path());
    ++files;
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const auto events = ParseEvents(text.str());
    ASSERT_TRUE(events.ok()) << events.status();
    const auto daemon = DaemonProcess::Start({"--devices=cpu,cpu"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    ReplaySession(*events, (*daemon)->address());
  }
  EXPECT_GT(files, 0);
}

// With TENSORD_RECORD_SESSION=FILE, also writes the recording.
TEST(RecordedSessionTest, TheServerOfThisVersionRunsARecordingOfIt) {
  StartRecording();
  std::vector<CallEvent> events;
  {
    const auto daemon = DaemonProcess::Start({"--devices=cpu,cpu"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    auto client = Client::Connect((*daemon)->address(), {.shared_memory = false});
    ASSERT_TRUE(client.ok()) << client.status();
    RunProgramToRecord(*client);
    client->Close();
    events = StopRecording();
  }
  if (const char* const path = std::getenv("TENSORD_RECORD_SESSION"); path != nullptr) {
    std::ofstream out(path);
    out << "# The messages of a client's session, for recorded_session_test.\n"
        << FormatEvents(events);
    ASSERT_TRUE(out.flush().good());
  }
  const auto daemon = DaemonProcess::Start({"--devices=cpu,cpu"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  ReplaySession(events, (*daemon)->address());
}

}  // namespace
}  // namespace tensord::integration
