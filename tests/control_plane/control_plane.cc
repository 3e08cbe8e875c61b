#include "tensord/tests/control_plane/control_plane.h"

#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/create_channel.h"

namespace tensord {
namespace {

constexpr char kAddressPrefix[] = "inproc-";

std::atomic<grpc::Server*> in_process_server{nullptr};

}  // namespace

namespace internal {

std::shared_ptr<grpc::Channel> CreateChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    const grpc::ChannelArguments& arguments) {
  grpc::Server* const server = in_process_server;
  if (server != nullptr && absl::StartsWith(address, kAddressPrefix)) {
    return server->InProcessChannel(arguments);
  }
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace internal
}  // namespace tensord

namespace tensord::control_plane {
namespace {

using Request = v1::SessionStreamRequest;
using Response = v1::SessionStreamResponse;

// The state of a session, over all streams that have attached to it.
struct SessionRecord {
  uint64_t commands = 0;
  uint64_t answers = 0;
  bool lost = false;
  std::map<uint32_t, uint32_t> inputs;  // definition -> its number of inputs
};

}  // namespace

class ControlPlane::Service final : public v1::TensorService::CallbackService {
 public:
  explicit Service(std::vector<std::string> devices) : devices_(std::move(devices)) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* /*request*/,
                                          v1::ServerInfo* response) override {
    response->set_version("0.1.0");
    response->set_min_protocol_version(1);
    response->set_max_protocol_version(1);
    response->set_epoch("0123456789abcdef0123456789abcdef");
    response->set_max_message_bytes(16 << 20);
    return Finish(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* /*request*/,
                                        v1::ListDevicesResponse* response) override {
    for (const std::string& name : devices_) {
      v1::Device* device = response->add_devices();
      device->set_name(name);
      device->set_state(v1::DEVICE_STATE_SERVING);
    }
    return Finish(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* /*request*/,
                                        v1::Session* response) override {
    MutexLock lock(&mu_);
    response->set_session(absl::StrCat(sessions_.size()));
    response->set_lease_seconds(30);
    response->set_session_number(sessions_.size() + 1);
    sessions_.emplace_back();
    return Finish(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::CloseSessionRequest* /*request*/,
                                         v1::CloseSessionResponse* /*response*/) override {
    return Finish(context, grpc::Status::OK);
  }

  grpc::ServerBidiReactor<Request, Response>* SessionStream(
      grpc::CallbackServerContext* /*context*/) override {
    return new Stream(this);
  }

  int64_t sessions() const {
    MutexLock lock(&mu_);
    return static_cast<int64_t>(sessions_.size());
  }
  int64_t commands() const {
    MutexLock lock(&mu_);
    int64_t commands = 0;
    for (const SessionRecord& session : sessions_) commands += session.commands;
    return commands;
  }
  int64_t messages() const {
    MutexLock lock(&mu_);
    return messages_;
  }

  void Disconnect(int session) {
    MutexLock lock(&mu_);
    sessions_[session].lost = true;
    for (Stream* stream : streams_) {
      if (stream->session() == &sessions_[session]) stream->End();
    }
  }

 private:
  // One connection's stream. Deletes itself.
  class Stream final : public grpc::ServerBidiReactor<Request, Response> {
   public:
    explicit Stream(Service* service) : service_(service) { StartRead(&request_); }

    const SessionRecord* session() const { return session_; }
    // Ends the stream with NOT_FOUND. The caller must hold the service's lock.
    void End() {
      if (std::exchange(ended_, true)) return;
      Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "no such session"));
    }

    void OnReadDone(bool ok) override {
      MutexLock lock(&service_->mu_);
      if (ended_) return;
      if (!ok) {
        ended_ = true;
        return Finish(grpc::Status::OK);
      }
      if (request_.has_attach()) {
        session_ = &service_->sessions_[std::stoull(request_.attach().session())];
        service_->streams_.insert(this);
        if (session_->lost) return End();
      }
      ++service_->messages_;
      AnswerRequest();
      request_.Clear();
      StartRead(&request_);
    }

    void OnWriteDone(bool ok) override {
      MutexLock lock(&service_->mu_);
      writing_ = false;
      if (ok && !ended_) Send();
    }

    void OnDone() override {
      {
        MutexLock lock(&service_->mu_);
        service_->streams_.erase(this);
      }
      delete this;
    }

   private:
    void AnswerRequest() {
      Response response;
      for (const v1::Command& command : request_.commands()) {
        if (command.has_batch()) {
          CountBatch(command.batch());
          continue;
        }
        ++session_->commands;
        if (command.has_define()) {
          session_->inputs[command.define().number()] = command.define().num_inputs();
        }
        if (command.has_barrier()) {
          response.add_barriers()->set_barrier_id(command.barrier().barrier_id());
          ++session_->answers;
        }
      }
      response.set_commands_received(session_->commands);
      response.set_answers(session_->answers);
      outgoing_.push_back(std::move(response));
      Send();
    }

    void CountBatch(const v1::Batch& batch) {
      for (int i = 0; i < batch.words_size(); ++session_->commands) {
        const uint64_t definition = batch.words(i);
        i += definition == 0 ? 2 : 2 + static_cast<int>(session_->inputs[definition]);
      }
    }

    void Send() {
      if (writing_ || outgoing_.empty()) return;
      writing_ = true;
      response_ = std::move(outgoing_.front());
      outgoing_.pop_front();
      StartWrite(&response_);
    }

    Service* const service_;
    SessionRecord* session_ = nullptr;
    Request request_;
    Response response_;
    std::deque<Response> outgoing_;
    bool writing_ = false;
    bool ended_ = false;
  };

  static grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                          const grpc::Status& status) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  const std::vector<std::string> devices_;
  mutable Mutex mu_;
  std::deque<SessionRecord> sessions_;  // a deque: streams keep pointers to its elements
  std::set<Stream*> streams_;
  int64_t messages_ = 0;
};

ControlPlane::ControlPlane(std::vector<std::string> devices)
    : service_(std::make_unique<Service>(std::move(devices))) {
  grpc::ServerBuilder builder;
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  in_process_server = server_.get();
}

ControlPlane::~ControlPlane() {
  in_process_server = nullptr;
  server_->Shutdown();
}

std::vector<std::string> ControlPlane::Addresses(int count) {
  std::vector<std::string> addresses;
  for (int i = 0; i < count; ++i) addresses.push_back(absl::StrCat(kAddressPrefix, i, ":1"));
  return addresses;
}

int64_t ControlPlane::sessions() const { return service_->sessions(); }
int64_t ControlPlane::commands() const { return service_->commands(); }
int64_t ControlPlane::messages() const { return service_->messages(); }
void ControlPlane::Disconnect(int session) { service_->Disconnect(session); }

}  // namespace tensord::control_plane
