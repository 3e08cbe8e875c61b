// Errors of limits and of sessions.
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/integration/errors_page.h"
#include "tensord/tests/integration/rpc_helpers.h"

namespace tensord::integration {
namespace {

absl::Status Open(RpcClient& client, int64_t lease_seconds = 0) {
  v1::OpenSessionRequest request;
  request.set_lease_seconds(lease_seconds);
  return client.Call<v1::Session>("OpenSession", request).status();
}

ConnectOptions WithoutReconnecting() {
  ConnectOptions options;
  options.reconnect_timeout = -absl::Seconds(1);
  return options;
}

absl::Status JoinGroup(const RpcSession& session) {
  v1::JoinGroupRequest request;
  request.set_session(session.id());
  request.set_member(1);
  request.set_device("cpu:0");
  request.set_size(1);
  request.set_group_id(std::string(16, 'g'));
  return session.client().Call<v1::JoinGroupResponse>("JoinGroup", request).status();
}

// Sends the definitions of `count` ops, each with 12 MiB of attributes.
absl::Status SendDefinitions(const RpcSession& session, uint32_t first, uint32_t count) {
  std::vector<v1::SessionStreamRequest> messages = {session.Attach()};
  for (uint32_t i = 0; i < count; ++i) {
    v1::Definition& definition = AddDefinition(&messages.emplace_back(), first + i, "constant", 0);
    (*definition.mutable_attrs())["data"].set_data(std::string(12 << 20, 'x'));
  }
  return RunStream(session.client(), messages);
}

}  // namespace

void AddLimitErrors(ErrorsPage* page) {
  const auto server = StartDaemon(
      page, "gpu-a",
      {"--max-handles-per-session=2", "--max-bytes-per-session=1MiB", "--max-message-bytes=64KiB",
       "--max-published-per-principal=1", "--max-group-members-per-session=0"});
  const auto small =
      StartDaemon(page, "gpu-b", {"--max-sessions=2", "--max-sessions-per-principal=1"});
  const auto host = StartDaemon(page, "gpu-c", {"--max-host-bytes-per-principal=64KiB"});
  ASSERT_TRUE(server != nullptr && small != nullptr && host != nullptr);
  const auto connected = Client::Connect(server->address());
  ASSERT_TRUE(connected.ok()) << connected.status();
  const Client& client = *connected;
  const Device cpu = *client.device("cpu:0");
  page->BeginSection("Limits",
                     "The flags in the messages set the limits; [LIMITS.md](../server/LIMITS.md) "
                     "lists all. The server returns these errors. `CreateTensor`, `ReadTensor` "
                     "and `JoinGroup` are calls of the protocol.");
  page->Add("`Zeros(cpu, {1 << 20})` of 4 MiB", Zeros(cpu, {1 << 20}));
  {
    const Tensor held = Zeros(cpu, {200, 1000});
    page->Add("`Zeros(cpu, {200, 1000})` while another tensor of this size exists",
              Zeros(cpu, {200, 1000}));
    ASSERT_TRUE(client.Publish(held, "first").ok());
    page->Add("`Publish` of a second tensor", client.Publish(held, "second"));
    ASSERT_TRUE(client.Unpublish("first").ok());
  }
  RpcClient calls(server->address());
  RpcSession session(calls);
  ASSERT_TRUE(session.Ones(1, {200, 1000}).ok());
  page->Add("`CreateTensor` with 1 MB of data",
            session.CreateFloats(2, std::vector<float>(250000)));
  page->Add("`ReadTensor` of 800 kB", session.Read(1));
  ASSERT_TRUE(session.CreateFloats(2, {1, 2}).ok());
  page->Add("`CreateTensor` with a third handle", session.CreateFloats(3, {1, 2}));
  page->Add("`JoinGroup`", JoinGroup(session));
  RpcClient small_calls(small->address());
  const RpcSession first(small_calls);
  page->Add("opens a second session", Open(small_calls));
  RpcClient host_calls(host->address());
  absl::Status opened;
  for (int i = 0; i < 1000 && opened.ok(); ++i) opened = Open(host_calls);
  page->Add("opens more sessions than fit in the host memory", opened);
}

void AddStreamLimitErrors(ErrorsPage* page, const DaemonProcess& daemon) {
  RpcClient calls(daemon.address());
  page->Add("`CreateTensor` with 17 MiB of data",
            RpcSession(calls).CreateFloats(1, std::vector<float>(17 << 18)));
  page->Add("defines ops with 36 MiB of attributes on one stream",
            SendDefinitions(RpcSession(calls), 1, 3));
  page->Add("defines op 7 before ops 1 to 6", SendDefinitions(RpcSession(calls), 7, 1));
}

void AddSessionErrors(ErrorsPage* page) {
  const auto server = StartDaemon(page, "gpu-a");
  const auto restarted = StartDaemon(page, "gpu-b");
  ASSERT_TRUE(server != nullptr && restarted != nullptr);
  page->BeginSection("Handles and sessions",
                     "Authors of clients in other languages see these errors of calls.");
  RpcClient calls(server->address());
  RpcClient calls_after_restart(restarted->address());
  RpcSession session(calls);
  ASSERT_TRUE(session.CreateFloats(1, {1, 2}).ok());
  page->Add("`GetTensor` of handle 7", session.Get(7));
  page->Add("`GetTensor` of handle 0", session.Get(0));
  page->Add("`CreateTensor` with a handle in use", session.CreateFloats(1, {1, 2}));
  page->Add("`CreateTensor` with too few bytes",
            session.Create(2, {DType::kFloat32, {2, 2}}, std::string(12, '\0')));
  page->Add("`CreateTensor` without a dtype", session.Create(2, {}, ""));
  page->Add("`CreateTensor` on cuda:0", session.CreateFloats(2, {1}, "cuda:0"));
  page->Add("`ListTensors` with `page_size` -1", session.List(-1));
  page->Add("`OpenSession` with `lease_seconds` -5", Open(calls, -5));
  v1::GetTensorRequest request;
  request.set_handle(1);
  page->Add("`GetTensor` without a session", calls.Call<v1::Tensor>("GetTensor", request));
  request.set_session(session.id());
  page->Add("`GetTensor`, after the server was restarted",
            calls_after_restart.Call<v1::Tensor>("GetTensor", request));
  ASSERT_TRUE(session.Close().ok());
  page->Add("`GetTensor` in a session that was closed", session.Get(1));
  page->Add("a method that doesn't exist", calls.CallAnyKind("/tensord.v1.TensorService/Sum", ""));
}

void AddLostSessionErrors(ErrorsPage* page) {
  const auto server = StartDaemon(page, "gpu-a");
  const auto killed = StartDaemon(page, "gpu-b");
  ASSERT_TRUE(server != nullptr && killed != nullptr);
  page->BeginSection("Sessions that have ended",
                     "The client library returns these errors of reads, and of all later calls.");
  const auto closed = Client::Connect(server->address());
  const auto closed_by_other = Client::Connect(server->address());
  const auto stopped = Client::Connect(server->address());
  const auto lost = Client::Connect(killed->address(), WithoutReconnecting());
  for (const auto* client : {&closed, &closed_by_other, &stopped, &lost}) {
    ASSERT_TRUE(client->ok()) << client->status();
  }
  const auto tensor = [](const Client& client) { return Ones(*client.device("cpu:0"), {2}); };
  const Tensor x = tensor(*closed), y = tensor(*closed_by_other), z = tensor(*stopped);
  const Tensor w = tensor(*lost);
  Client(*closed).Close();
  page->Add("after `Client::Close`", x.Wait());
  RpcClient calls(server->address());
  v1::CloseSessionRequest close;
  close.set_session_number(closed_by_other->session_number());
  ASSERT_TRUE(calls.Call<v1::CloseSessionResponse>("CloseSession", close).ok());
  // A call before the stream has ended would not know how the session ended.
  ASSERT_TRUE(Eventually([&] { return !closed_by_other->status().ok(); }));
  page->Add("after another program has closed the session (`tensorctl close`)", y.Wait());
  ASSERT_TRUE(z.Wait().ok());
  server->ExpectTerminatesCleanly();
  page->Add("after the server was stopped by SIGTERM", z.Wait());
  ASSERT_TRUE(w.Wait().ok());
  killed->Signal(SIGKILL);
  page->Add("after the server was killed, with a negative `reconnect_timeout`", w.Wait());
}

}  // namespace tensord::integration
