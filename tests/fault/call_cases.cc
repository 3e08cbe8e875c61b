#include "tensord/tests/fault/call_cases.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/tests/integration/rpc_helpers.h"

namespace tensord::fault {
namespace {

using integration::RpcClient;
using integration::RpcSession;

constexpr int64_t kChunkedElements = 440000;  // float32: 3.4 chunks of 512 KiB
constexpr int64_t kSharedElements = 2200000;  // enough for the client to open a ring

absl::Status Wrong(absl::string_view what) { return absl::InternalError(what); }

absl::Status Expect(bool right, absl::string_view what) {
  return right ? absl::OkStatus() : Wrong(what);
}

std::vector<float> Counting(int64_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

absl::Status ExpectValues(const Tensor& tensor, const std::vector<float>& expected) {
  TENSORD_ASSIGN_OR_RETURN(const std::vector<float> values, tensor.Read<float>());
  return Expect(values == expected, "the elements are wrong");
}

absl::Status ConnectClient(CaseRun& run) {
  TENSORD_ASSIGN_OR_RETURN(run.client, Client::Connect(run.proxy->address(), run.options));
  TENSORD_ASSIGN_OR_RETURN(run.device, run.client.device("cpu:0"));
  return absl::OkStatus();
}

absl::Status MakeKept(CaseRun& run) {
  run.kept = Full(run.device, {8}, 7.0f);
  return run.client.Synchronize();
}

// If the connection breaks, Connect() may return UNAVAILABLE with the address.
absl::Status ActConnect(CaseRun& run) {
  const absl::Status status = ConnectClient(run);
  if (status.ok()) return MakeKept(run);
  const bool promised = run.breaks && absl::IsUnavailable(status) &&
                        absl::StrContains(status.message(), run.proxy->address());
  return promised ? absl::OkStatus() : status;
}

// Makes the client connect again. A fault acts on a connection's first call of its method, and
// Connect() has made this call on the old connection.
absl::Status ConnectAnew(CaseRun& run) {
  run.proxy->CutAll();
  const Tensor unused = run.kept + 1;
  return run.client.Synchronize();
}

absl::Status ActServerInfo(CaseRun& run) {
  TENSORD_ASSIGN_OR_RETURN(const ServerInfo info, run.client.GetServerInfo());
  return Expect(info.epoch == run.client.epoch(), "another epoch");
}

absl::Status ActListDevices(CaseRun& run) {
  TENSORD_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, run.client.ListDevices());
  return Expect(devices.size() == 2, "another number of devices");
}

absl::Status ActListTensors(CaseRun& run) {
  TENSORD_ASSIGN_OR_RETURN(const std::vector<TensorInfo> tensors, run.client.ListTensors());
  return Expect(tensors.size() == 1 && tensors[0].handle == run.kept.handle(), "other tensors");
}

// Returns whether the server has a session with this number that holds tensors.
absl::StatusOr<bool> HoldsTensors(const std::string& server, uint64_t session_number) {
  RpcClient direct(server);
  v1::ListTensorsRequest all;
  all.set_session("-");
  TENSORD_ASSIGN_OR_RETURN(const auto listed,
                           direct.Call<v1::ListTensorsResponse>("ListTensors", all));
  return std::any_of(
      listed.tensors().begin(), listed.tensors().end(),
      [&](const v1::Tensor& tensor) { return tensor.session_number() == session_number; });
}

// The session must have ended when its lease has expired, even if the call is lost.
absl::Status ActClose(CaseRun& run) {
  const uint64_t number = run.client.session_number();
  run.client.Close();
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (absl::Now() < deadline) {
    TENSORD_ASSIGN_OR_RETURN(const bool there, HoldsTensors(run.server, number));
    if (!there) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(20));
  }
  return Wrong("the session has not ended");
}

absl::Status PublishKept(CaseRun& run) { return run.client.Publish(run.kept, run.unique); }

absl::Status ActPublish(CaseRun& run) {
  TENSORD_RETURN_IF_ERROR(PublishKept(run));
  TENSORD_ASSIGN_OR_RETURN(const Tensor opened, run.client.Open(run.unique));
  TENSORD_RETURN_IF_ERROR(ExpectValues(opened, std::vector<float>(8, 7)));
  return run.client.Unpublish(run.unique);
}

absl::Status ActOpenPublished(CaseRun& run) {
  TENSORD_ASSIGN_OR_RETURN(const Tensor opened, run.client.Open(run.unique));
  TENSORD_RETURN_IF_ERROR(ExpectValues(opened, std::vector<float>(8, 7)));
  return run.client.Unpublish(run.unique);
}

absl::Status ActUnpublish(CaseRun& run) {
  TENSORD_RETURN_IF_ERROR(run.client.Unpublish(run.unique));
  const auto opened = run.client.Open(run.unique);
  return Expect(absl::IsNotFound(opened.status()), "the name is still there");
}

absl::Status ActUpload(CaseRun& run, int64_t elements, const TransferOptions& options = {}) {
  const std::vector<float> values = Counting(elements);
  const int64_t before = run.client.stats().bytes_uploaded;
  const Tensor tensor = FromSpan<float>(run.device, {elements}, values, options);
  TENSORD_RETURN_IF_ERROR(ExpectValues(tensor, values));
  return Expect(run.client.stats().bytes_uploaded - before == elements * 4,
                "the upload counts more than once, or not at all");
}

absl::Status ActDownload(CaseRun& run, int64_t elements) {
  const Tensor tensor = Arange(run.device, elements, {.dtype = DType::kFloat32});
  return ExpectValues(tensor, Counting(elements));
}

// Cuts the connection during an upload. The client then calls GetUpload to find the offset at which
// it resumes.
absl::Status ActGetUpload(CaseRun& run) {
  bool cut = false;
  return ActUpload(run, kChunkedElements, {.progress = [&](int64_t done, int64_t total) {
                     if (done == total || std::exchange(cut, true)) return;
                     run.proxy->CutAll();
                   }});
}

// Copies between this client and one that bypasses the proxy. Only the calls go through the proxy,
// not the tensor's bytes.
absl::Status ActCopy(CaseRun& run, bool from_near) {
  TENSORD_ASSIGN_OR_RETURN(Client near, Client::Connect(run.server));
  TENSORD_ASSIGN_OR_RETURN(const Device device, near.device("cpu:0"));
  const Tensor copy = from_near ? Full(device, {8}, 7.0f).To(run.device) : run.kept.To(device);
  TENSORD_ASSIGN_OR_RETURN(const CopyReport report, copy.copy_report());
  TENSORD_RETURN_IF_ERROR(
      Expect(report.path == CopyPath::kNetwork, "the bytes went " + CopyPathName(report.path)));
  TENSORD_RETURN_IF_ERROR(ExpectValues(copy, std::vector<float>(8, 7)));
  near.Close();
  return absl::OkStatus();
}

absl::Status ActGroup(CaseRun& run) {
  TENSORD_ASSIGN_OR_RETURN(const Group group, Group::Create({run.device}));
  return ExpectValues(group.AllReduce({run.kept})[0], std::vector<float>(8, 7));
}

// Adds one with each op, so that the sum shows ops that are lost or run twice.
absl::Status ActStream(CaseRun& run) {
  TENSORD_RETURN_IF_ERROR(ConnectClient(run));
  TENSORD_RETURN_IF_ERROR(MakeKept(run));
  const Tensor one = Ones(run.device, {8});
  Tensor sum = Zeros(run.device, {8});
  for (int round = 1; round <= 12; ++round) {
    for (int i = 0; i < 5; ++i) sum = sum + one;
    TENSORD_RETURN_IF_ERROR(ExpectValues(sum, std::vector<float>(8, 5.0f * round)));
  }
  return absl::OkStatus();
}

// A raw call of a method. ActRaw() makes the call through the proxy, where it succeeds or fails
// because the connection breaks. Then it makes the same call without the proxy. After both calls,
// the request must have been executed exactly once.
struct RawCase {
  std::string method;
  std::function<std::string(const std::string& session)> request;
  // The error of the second call if the first was executed.
  absl::StatusCode again = absl::StatusCode::kAlreadyExists;
  // The elements of handle 10 afterwards; none if the request doesn't create it.
  std::optional<std::vector<float>> result = {};
  // Runs before the first call, without the proxy.
  std::function<absl::Status(RpcSession& session)> prepare = nullptr;
};

v1::JoinGroupRequest JoinAlone(const std::string& session) {
  v1::JoinGroupRequest request;
  request.set_session(session);
  request.set_member(1);
  request.set_device("cpu:0");
  request.set_size(1);
  request.set_group_id(std::string(16, 'g'));
  return request;
}

// Makes a group with one member.
absl::Status MakeGroup(RpcSession& session) {
  TENSORD_ASSIGN_OR_RETURN(const auto joined, session.client().Call<v1::JoinGroupResponse>(
                                                  "JoinGroup", JoinAlone(session.id())));
  v1::ConnectGroupRequest request;
  request.set_session(session.id());
  request.set_member(1);
  request.add_addresses(joined.address());
  return session.client().Call<v1::ConnectGroupResponse>("ConnectGroup", request).status();
}

absl::Status ActRaw(const RawCase& raw, CaseRun& run) {
  RpcClient direct(run.server);
  RpcSession session(direct);
  TENSORD_RETURN_IF_ERROR(session.CreateFloats(1, {7, 7, 7, 7}).status());
  TENSORD_RETURN_IF_ERROR(
      session.Run("reshape", {1}, 2, {{"shape", std::vector<int64_t>{2, 2}}}).status());
  if (raw.prepare) TENSORD_RETURN_IF_ERROR(raw.prepare(session));
  const std::string path = absl::StrCat("/tensord.v1.TensorService/", raw.method);
  RpcClient broken(run.proxy->address());
  if (run.silent) broken.set_deadline_seconds(0.5);
  const absl::Status first = broken.CallAnyKind(path, raw.request(session.id()));
  const bool promised = run.breaks && (absl::IsUnavailable(first) || absl::IsUnknown(first) ||
                                       (run.silent && absl::IsDeadlineExceeded(first)));
  if (!first.ok() && !promised) return first;
  const absl::Status second = direct.CallAnyKind(path, raw.request(session.id()));
  if (!second.ok() && second.code() != raw.again) return second;
  if (raw.result) {
    TENSORD_ASSIGN_OR_RETURN(const std::vector<float> values, session.ReadFloats(10));
    TENSORD_RETURN_IF_ERROR(Expect(values == *raw.result, "the elements are wrong"));
  }
  TENSORD_ASSIGN_OR_RETURN(const auto listed, session.List());
  const int expected = raw.method == "DeleteTensors" ? 1 : raw.result ? 3 : 2;
  TENSORD_RETURN_IF_ERROR(Expect(listed.tensors_size() == expected, "other tensors than these"));
  TENSORD_ASSIGN_OR_RETURN(const int64_t freed, session.Close());
  return Expect(freed == expected, "the session had other tensors than these");
}

template <typename Request, typename Fill>
std::function<std::string(const std::string&)> Make(Fill fill) {
  return [fill](const std::string& session) {
    Request request;
    request.set_session(session);
    fill(request);
    return request.SerializeAsString();
  };
}

std::vector<RawCase> RawCases() {
  const std::vector<float> sums(4, 14.0f);
  const std::vector<float> products(4, 98.0f);
  return {
      {"ListOps", [](const std::string&) { return std::string(); }},
      {"ListSessions", [](const std::string&) { return std::string(); }},
      {"CreateTensor", Make<v1::CreateTensorRequest>([](v1::CreateTensorRequest& request) {
         request.set_handle(10);
         *request.mutable_spec() = integration::ToProto({DType::kFloat32, {3}});
         request.set_device("cpu:0");
         request.set_pattern(v1::PATTERN_ONES);
       }),
       absl::StatusCode::kAlreadyExists, std::vector<float>(3, 1)},
      {"CopyToDevice", Make<v1::CopyToDeviceRequest>([](v1::CopyToDeviceRequest& request) {
         request.set_input(1);
         request.set_output(10);
         request.set_device("cpu:1");
       }),
       absl::StatusCode::kAlreadyExists, std::vector<float>(4, 7)},
      {"Add", Make<v1::AddRequest>([](v1::AddRequest& request) {
         request.set_a(1);
         request.set_b(1);
         request.set_output(10);
       }),
       absl::StatusCode::kAlreadyExists, sums},
      {"MatMul", Make<v1::MatMulRequest>([](v1::MatMulRequest& request) {
         request.set_a(2);
         request.set_b(2);
         request.set_output(10);
       }),
       absl::StatusCode::kAlreadyExists, products},
      {"LinearForward", Make<v1::LinearForwardRequest>([](v1::LinearForwardRequest& request) {
         request.set_input(2);
         request.set_weight(2);
         request.set_output(10);
       }),
       absl::StatusCode::kAlreadyExists, products},
      {"RunOp", Make<v1::RunOpRequest>([](v1::RunOpRequest& request) {
         request.mutable_op()->set_name("add");
         request.mutable_op()->add_inputs(1);
         request.mutable_op()->add_inputs(1);
         request.mutable_op()->set_output(10);
       }),
       absl::StatusCode::kAlreadyExists, sums},
      {"RunOps", Make<v1::RunOpsRequest>([](v1::RunOpsRequest& request) {
         v1::Op* op = request.add_ops();
         op->set_name("add");
         op->add_inputs(1);
         op->add_inputs(1);
         op->set_output(10);
       }),
       absl::StatusCode::kAlreadyExists, sums},
      {"ReadTensor",
       Make<v1::ReadTensorRequest>([](v1::ReadTensorRequest& request) { request.set_handle(1); })},
      {"CheckPeer",
       [](const std::string&) {
         v1::CheckPeerRequest request;
         request.set_address("127.0.0.1:1");  // no server; the response reports this
         return request.SerializeAsString();
       }},
      {"JoinGroup",
       [](const std::string& session) { return JoinAlone(session).SerializeAsString(); }},
      {"LeaveGroup",
       Make<v1::LeaveGroupRequest>([](v1::LeaveGroupRequest& request) { request.set_member(1); }),
       absl::StatusCode::kNotFound,
       {},
       MakeGroup},
      {"RunCollective", Make<v1::RunCollectiveRequest>([](v1::RunCollectiveRequest& request) {
         v1::Collective* collective = request.mutable_collective();
         collective->set_member(1);
         collective->set_kind(v1::COLLECTIVE_KIND_ALL_REDUCE);
         collective->set_reduction(v1::REDUCTION_SUM);
         collective->set_input(1);
         collective->set_output(10);
         *collective->mutable_spec() = integration::ToProto({DType::kFloat32, {4}});
       }),
       absl::StatusCode::kAlreadyExists, std::vector<float>(4, 7), MakeGroup},
      {"DeleteTensors", Make<v1::DeleteTensorsRequest>([](v1::DeleteTensorsRequest& request) {
         request.add_handles(2);
       }),
       absl::StatusCode::kNotFound},
  };
}

// Checks that the client still works, and that the session holds only the kept tensor.
absl::Status CheckSession(CaseRun& run) {
  TENSORD_RETURN_IF_ERROR(run.client.status());
  TENSORD_RETURN_IF_ERROR(ExpectValues(run.kept + 1, std::vector<float>(8, 8)));
  TENSORD_RETURN_IF_ERROR(run.client.Synchronize());
  return ActListTensors(run);
}

absl::Status RunPreparedCase(const CallCase& call, const Fault& fault, CaseRun& run) {
  if (!call.connects) {
    TENSORD_RETURN_IF_ERROR(ConnectClient(run));
    TENSORD_RETURN_IF_ERROR(MakeKept(run));
  }
  if (call.prepare) TENSORD_RETURN_IF_ERROR(call.prepare(run));
  if (fault.call_fault) {
    proxy::CallFault call_fault = *fault.call_fault;
    call_fault.position.method = absl::StrCat("/tensord.v1.TensorService/", call.method);
    run.proxy->SetCallFault(call_fault);
  }
  run.proxy->SetDelay(fault.delay);
  run.proxy->SetBandwidth(fault.bytes_per_second);
  TENSORD_RETURN_IF_ERROR(call.act(run));
  run.proxy->ClearCallFault();
  if (call.ends_session || !run.kept.ok()) return absl::OkStatus();
  return CheckSession(run);
}

}  // namespace

CallCase UploadCase() {
  return {"Write", [](CaseRun& run) { return ActUpload(run, kChunkedElements); }};
}

CallCase DownloadCase() {
  return {"Read", [](CaseRun& run) { return ActDownload(run, kChunkedElements); }};
}

CallCase SharedUploadCase() {
  return {.method = "SharedMemory",
          .act = [](CaseRun& run) { return ActUpload(run, kSharedElements); },
          .shared_memory = true};
}

CallCase SharedDownloadCase() {
  return {.method = "SharedMemory",
          .act = [](CaseRun& run) { return ActDownload(run, kSharedElements); },
          .shared_memory = true};
}

std::vector<CallCase> CallCases() {
  std::vector<CallCase> cases = {
      {.method = "GetServerInfo", .act = ActConnect, .connects = true},
      {.method = "ListDevices", .act = ActConnect, .connects = true},
      {.method = "OpenSession", .act = ActConnect, .connects = true},
      {.method = "GetServerInfo", .act = ActServerInfo, .prepare = ConnectAnew},
      {.method = "ListDevices", .act = ActListDevices, .prepare = ConnectAnew},
      {.method = "CloseSession", .act = ActClose, .ends_session = true},
      {.method = "GetTensor", .act = [](CaseRun& run) { return run.kept.Wait(); }},
      {.method = "ListTensors", .act = ActListTensors},
      {.method = "PublishTensor", .act = ActPublish},
      {.method = "OpenPublished", .act = ActOpenPublished, .prepare = PublishKept},
      {.method = "UnpublishTensor", .act = ActUnpublish, .prepare = PublishKept},
      {.method = "GetUpload", .act = ActGetUpload},
      {.method = "CreateTicket",
       .act = [](CaseRun& run) { return ActCopy(run, /*from_near=*/false); }},
      {.method = "PullTensor",
       .act = [](CaseRun& run) { return ActCopy(run, /*from_near=*/true); }},
      {.method = "JoinGroup", .act = ActGroup},
      {.method = "ConnectGroup", .act = ActGroup},
      {.method = "SessionStream", .act = ActStream, .connects = true},
      UploadCase(),
      DownloadCase(),
      SharedUploadCase(),
      SharedDownloadCase(),
  };
  for (const RawCase& raw : RawCases()) {
    cases.push_back(
        {.method = raw.method, .act = [raw](CaseRun& run) { return ActRaw(raw, run); }});
  }
  return cases;
}

absl::Status RunCase(const std::string& server, const CallCase& call, const Fault& fault,
                     bool* injected) {
  CaseRun run;
  run.server = server;
  TENSORD_ASSIGN_OR_RETURN(run.proxy, proxy::DelayProxy::Start({.target = server}));
  run.breaks = fault.call_fault.has_value();
  run.silent = run.breaks && !fault.call_fault->cut;
  run.unique = absl::StrCat("run", run.proxy->address().substr(10));
  run.options.connect_timeout = absl::Seconds(run.silent && call.connects ? 3 : 30);
  // With a long lease, the checks find a session that the client fails to close. The lease must be
  // short if the fault can lose the calls that open or close the session.
  const bool may_lose_session = call.connects && call.method != "SessionStream";
  run.options.lease = may_lose_session || call.ends_session ? absl::Seconds(2) : absl::Seconds(90);
  run.options.shared_memory = call.shared_memory;
  if (run.silent) {
    run.options.keepalive_interval = absl::Seconds(1);
    run.options.keepalive_timeout = absl::Seconds(1);
  }
  const absl::Status status = RunPreparedCase(call, fault, run);
  *injected = run.proxy->stats().faults_injected > 0;
  TENSORD_RETURN_IF_ERROR(status);
  const uint64_t number = run.client.session_number();
  run.client.Close();
  TENSORD_ASSIGN_OR_RETURN(const bool there, HoldsTensors(run.server, number));
  return Expect(!there, "the session is still there after Close");
}

}  // namespace tensord::fault
