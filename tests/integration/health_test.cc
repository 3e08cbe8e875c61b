// The standard health service, by its generated stub.
#include <grpcpp/create_channel.h>

#include <chrono>
#include <memory>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {
namespace {

namespace health_v1 = grpc::health::v1;
using Response = health_v1::HealthCheckResponse;

// A call of Watch, given up after a minute.
class Watch {
 public:
  Watch(const std::string& address, const std::string& service)
      : stub_(health_v1::Health::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    health_v1::HealthCheckRequest request;
    request.set_service(service);
    reader_ = stub_->Watch(&context_, request);
  }
  ~Watch() { context_.TryCancel(); }

  // The next thing it says, once it does; UNKNOWN where the call has ended.
  Response::ServingStatus Next() {
    Response response;
    return reader_->Read(&response) ? response.status() : Response::UNKNOWN;
  }
  grpc::Status End() { return reader_->Finish(); }

 private:
  const std::unique_ptr<health_v1::Health::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<Response>> reader_;
};

TEST(HealthTest, WatchersHearThatTheServerEnds) {
  auto daemon = DaemonProcess::Start({"--devices=cpu"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const std::string& address = (*daemon)->address();
  auto whole = std::make_unique<Watch>(address, "");
  auto device = std::make_unique<Watch>(address, "cpu:0");
  auto unknown = std::make_unique<Watch>(address, "cuda:9");
  EXPECT_EQ(whole->Next(), Response::SERVING);
  EXPECT_EQ(device->Next(), Response::SERVING);
  EXPECT_EQ(unknown->Next(), Response::SERVICE_UNKNOWN);
  // Nobody waits for the watchers to go: the grace time is half a minute.
  (*daemon)->Signal(SIGTERM);
  EXPECT_EQ(whole->Next(), Response::NOT_SERVING);
  EXPECT_EQ(device->Next(), Response::NOT_SERVING);
  for (auto* watch : {&whole, &device, &unknown}) {
    EXPECT_EQ((*watch)->Next(), Response::UNKNOWN);
    EXPECT_EQ((*watch)->End().error_code(), grpc::StatusCode::UNAVAILABLE);
    watch->reset();  // and closes its connection, which nobody would look after any more
  }
  EXPECT_EQ(*(*daemon)->WaitForEnd(), 0);
}

TEST(HealthTest, AWatcherThatGoesIsForgotten) {
  auto daemon = DaemonProcess::Start({"--devices=cpu"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  for (int i = 0; i < 50; ++i) {
    Watch watch((*daemon)->address(), "cpu:0");
    ASSERT_EQ(watch.Next(), Response::SERVING);
  }
  EXPECT_EQ(*(*daemon)->Terminate(), 0);
}

}  // namespace
}  // namespace tensord::integration
