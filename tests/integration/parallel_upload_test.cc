// Uploads over several connections: the client library with TLS, and the parts of raw Write calls.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensord/client/tensord.h"
#include "tensord/tests/integration/identity_fixture.h"
#include "tensord/tests/mib.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using proxy::DelayProxy;

// The connections of a client whose uploads use one connection.
constexpr int64_t kClientConnections = 3;
constexpr int64_t kElements = 16 * kMiB;  // 64 MiB

// Without this, gRPC prints an error for each connection that a server refuses.
[[maybe_unused]] const bool kQuiet = setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0) == 0;

class ParallelUploadTest : public IdentityFixture {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<float>(i % 1000003);
  }

  // Starts a daemon, and a proxy that carries 64 MiB/s per connection.
  void Start(bool use_tls, std::vector<std::string> flags = {}) {
    if (use_tls) {
      const CertificatePair pair = authority_.Issue(ServerRequest());
      flags.push_back("--tls-cert=" + folder_.Write("server.pem", pair.cert));
      flags.push_back("--tls-key=" + folder_.Write("server.key", pair.key));
      ca_file_ = folder_.Write("ca.pem", authority_.pem());
    }
    StartDaemon(std::move(flags));
    auto proxy = DelayProxy::Start({.target = daemon_->address(),
                                    .bytes_per_second = 64 * kMiB,
                                    .max_buffered_bytes = 2 * kMiB});
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
  }

  Client Connect(int max_upload_connections) {
    ConnectOptions options;
    options.shared_memory = false;
    options.max_upload_connections = max_upload_connections;
    options.tls.ca_file = ca_file_;
    auto client = Client::Connect(proxy_->address(), options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  // Uploads data_, and expects that the server has the same bytes.
  void ExpectUploads(const Client& client, const TransferOptions& options = {}) {
    const Tensor tensor = FromSpan<float>(*client.device("cpu:0"), {kElements}, data_, options);
    ASSERT_TRUE(tensor.status().ok()) << tensor.status();
    proxy_->SetBandwidth(0);
    const auto read = tensor.Read<float>();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == data_);
  }

  const Authority authority_;
  std::string ca_file_;
  std::unique_ptr<DelayProxy> proxy_;
  std::vector<float> data_ = std::vector<float>(kElements);
};

TEST_F(ParallelUploadTest, UsesAsManyConnectionsAsAllowed) {
  Start(/*use_tls=*/true);
  const Client client = Connect(3);
  int64_t reported = 0;
  ExpectUploads(client, {.progress = [&](int64_t done, int64_t total) {
                  EXPECT_GE(done, reported);
                  EXPECT_EQ(total, 4 * kElements);
                  reported = done;
                }});
  EXPECT_EQ(reported, 4 * kElements);
  EXPECT_EQ(proxy_->stats().connections, kClientConnections + 2);
  ExpectUploads(client);
  EXPECT_EQ(proxy_->stats().accepted, kClientConnections + 2) << "connections stay open";
}

TEST_F(ParallelUploadTest, UsesOneConnectionIfLimitedToOne) {
  Start(/*use_tls=*/true);
  ExpectUploads(Connect(1));
  EXPECT_EQ(proxy_->stats().accepted, kClientConnections);
}

TEST_F(ParallelUploadTest, ResumesAfterAllConnectionsAreCut) {
  Start(/*use_tls=*/true);
  const Client client = Connect(3);
  const int64_t sent_before = proxy_->stats().bytes_to_server;
  int cuts = 0;
  ExpectUploads(client, {.progress = [&](int64_t done, int64_t total) {
                  if (done < (cuts + 1) * total / 4 || cuts == 3) return;
                  ++cuts;
                  proxy_->CutAll();
                }});
  EXPECT_EQ(cuts, 3);
  EXPECT_GE(client.stats().reconnects, 1);
  EXPECT_LT(proxy_->stats().bytes_to_server - sent_before, 3 * 4 * kElements)
      << "bytes that have arrived aren't sent again";
}

// Uses no TLS, because the proxy finds the call in the bytes.
TEST_F(ParallelUploadTest, SendsAPartAgainIfItsConnectionIsCut) {
  Start(/*use_tls=*/false);
  const Client client = Connect(3);
  bool injected = false;
  ExpectUploads(client, {.progress = [&](int64_t, int64_t) {
                  if (std::exchange(injected, true)) return;
                  proxy_->SetCallFault({.position = {.method = "/tensord.v1.TensorService/Write",
                                                     .messages = 3,
                                                     .bytes = 1000}});
                }});
  EXPECT_EQ(proxy_->stats().faults_injected, 1);
  EXPECT_EQ(client.stats().reconnects, 0) << "only the connection of the part was cut";
}

TEST_F(ParallelUploadTest, UsesFewerConnectionsIfTheServerRefusesMore) {
  for (const char* limit :
       {"--max-connections-per-principal=3",
        // The server keeps a quarter in reserve.
        "--max-connections-per-principal=4", "--max-connections-per-address=3"}) {
    SCOPED_TRACE(limit);
    Start(/*use_tls=*/true, {limit});
    {
      const Client client = Connect(3);
      ExpectUploads(client);
      EXPECT_TRUE(client.Synchronize().ok());
    }
    IdentityFixture::TearDown();
    daemon_ = nullptr;
  }
}

const TensorSpec kSpec{DType::kUInt8, {40}};

// A tensor of 40 bytes, which is promised as handle 1, and a main Write that has sent 4 bytes.
class WritePartTest : public DaemonFixture {
 protected:
  void SetUp() override {
    DaemonFixture::SetUp();
    v1::SessionStreamRequest message = session_->Attach();
    v1::Promise& promise = *message.add_commands()->mutable_promise();
    promise.set_handle(1);
    *promise.mutable_spec() = ToProto(kSpec);
    promise.set_device("cpu:0");
    ASSERT_TRUE(RunStream(*client_, {message}).ok());
  }

  void StartMain() {
    main_ = client_->Write();
    ASSERT_TRUE(main_->Send(First(0, Bytes(0, 4))));
    ASSERT_TRUE(Eventually([this] { return Used(0) == 40; }));
  }

  static std::string Bytes(int64_t begin, int64_t end) {
    return std::string("abcdefghijklmnopqrstuvwxyz0123456789ABCD").substr(begin, end - begin);
  }
  static v1::WriteRequest Chunk(int64_t offset, const std::string& data) {
    v1::WriteRequest message;
    message.set_offset(offset);
    message.set_data(data);
    return message;
  }
  v1::WriteRequest First(int64_t offset, const std::string& data) {
    v1::WriteRequest message = session_->FirstWrite(1, kSpec);
    message.mutable_spec()->set_resumable(true);
    message.set_offset(offset);
    message.set_data(data);
    return message;
  }
  v1::WriteRequest FirstOfPart(int64_t offset, int64_t size_bytes, const std::string& data) {
    v1::WriteRequest message = First(offset, data);
    message.mutable_spec()->mutable_part()->set_offset(offset);
    message.mutable_spec()->mutable_part()->set_size_bytes(size_bytes);
    return message;
  }
  absl::Status Write(const std::vector<v1::WriteRequest>& messages) {
    auto call = client_->Write();
    for (const v1::WriteRequest& message : messages) {
      if (!call->Send(message)) break;
    }
    return call->Finish().status();
  }
  absl::Status WritePart(int64_t begin, int64_t end) {
    return Write({FirstOfPart(begin, end - begin, Bytes(begin, end))});
  }
  absl::StatusOr<v1::Upload> GetUpload() {
    v1::GetUploadRequest request;
    request.set_session(session_->id());
    request.set_handle(1);
    return client_->Call<v1::Upload>("GetUpload", request);
  }
  void ExpectDone() {
    const auto read = session_->Read(1);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->data(), Bytes(0, 40));
  }

  std::unique_ptr<WriteCall> main_;
};

TEST_F(WritePartTest, MainWriteSkipsCompleteParts) {
  StartMain();
  ASSERT_TRUE(WritePart(30, 40).ok());
  ASSERT_TRUE(Write({FirstOfPart(6, 10, Bytes(6, 7)), Chunk(7, Bytes(7, 16))}).ok());
  ASSERT_TRUE(WritePart(16, 20).ok());
  ASSERT_TRUE(main_->Send(Chunk(4, Bytes(4, 6))));
  ASSERT_TRUE(main_->Send(Chunk(20, Bytes(20, 30))));
  const auto made = main_->Finish();
  ASSERT_TRUE(made.ok()) << made.status();
  ExpectDone();
  ExpectError(WritePart(30, 40), Code::kAborted, {"no resumable Write"});
}

TEST_F(WritePartTest, RejectsPartsWithoutAMainWrite) {
  ExpectError(WritePart(4, 8), Code::kAborted, {"no resumable Write"});
  v1::WriteRequest unknown = FirstOfPart(0, 4, "abcd");
  unknown.mutable_spec()->set_handle(2);
  ExpectError(Write({unknown}), Code::kNotFound, {"2"});
}

TEST_F(WritePartTest, RejectsBadRanges) {
  StartMain();
  for (const auto& [offset, size] : {std::pair<int64_t, int64_t>(-1, 4),
                                     {8, 0},
                                     {8, -1},
                                     {38, 3},
                                     {40, 1},
                                     {8, INT64_MAX},
                                     {INT64_MAX, INT64_MAX},
                                     {INT64_MIN, INT64_MIN}}) {
    ExpectError(Write({FirstOfPart(offset, size, "x")}), Code::kInvalidArgument,
                {std::to_string(offset), std::to_string(size), "40"});
  }
  ExpectError(WritePart(3, 8), Code::kInvalidArgument, {"3 to 8", "4 bytes"});
  ASSERT_TRUE(WritePart(10, 20).ok());
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(10, 20), {19, 21}, {5, 30}}) {
    ExpectError(WritePart(begin, end), Code::kInvalidArgument, {"overlaps"});
  }
  v1::WriteRequest other = FirstOfPart(20, 4, "abcd");
  *other.mutable_spec()->mutable_spec() = ToProto({DType::kUInt8, {41}});
  ExpectError(Write({other}), Code::kInvalidArgument, {"[41]"});
  main_->Cancel();
}

TEST_F(WritePartTest, RejectsChunksOutsideThePart) {
  StartMain();
  for (const int64_t offset : {0, 9, 11, 40, -1}) {
    ExpectError(Write({FirstOfPart(10, 10, ""), Chunk(offset, "x")}), Code::kInvalidArgument,
                {"offset", std::to_string(offset), "10"});
  }
  ExpectError(Write({FirstOfPart(10, 10, Bytes(10, 15)), Chunk(15, Bytes(15, 21))}),
              Code::kInvalidArgument, {"20", "21"});
  ExpectError(Write({FirstOfPart(10, 10, Bytes(10, 19))}), Code::kInvalidArgument, {"20", "19"});
  ASSERT_TRUE(WritePart(10, 20).ok()) << "failed parts leave their range free";
  ASSERT_TRUE(main_->Send(Chunk(4, Bytes(4, 10))));
  ASSERT_TRUE(main_->Send(Chunk(20, Bytes(20, 40))));
  ASSERT_TRUE(main_->Finish().ok());
  ExpectDone();
}

TEST_F(WritePartTest, LimitsTheNumberOfParts) {
  StartMain();
  for (int64_t begin = 5; begin < 5 + 2 * 16; begin += 2)
    ASSERT_TRUE(WritePart(begin, begin + 1).ok());
  ExpectError(WritePart(38, 39), Code::kResourceExhausted, {"16 parts"});
  ASSERT_TRUE(main_->Send(Chunk(4, Bytes(4, 40)))) << "it may send bytes of parts itself";
  ASSERT_TRUE(main_->Finish().ok());
  ExpectDone();
}

TEST_F(WritePartTest, DropsAPartWhoseBytesTheMainWriteSends) {
  StartMain();
  auto part = client_->Write();
  ASSERT_TRUE(part->Send(FirstOfPart(20, 10, "!!!!")));
  ASSERT_TRUE(Eventually([&] { return absl::IsInvalidArgument(WritePart(25, 26)); }));
  ASSERT_TRUE(main_->Send(Chunk(4, Bytes(4, 40))));
  ASSERT_TRUE(main_->Finish().ok());
  part->Send(Chunk(24, "!!!!!!"));
  EXPECT_FALSE(part->Finish().ok());
  ExpectDone();
}

TEST_F(WritePartTest, CompletePartsOutliveTheMainWrite) {
  StartMain();
  auto active = client_->Write();
  ASSERT_TRUE(active->Send(FirstOfPart(20, 10, "!!!!")));
  ASSERT_TRUE(WritePart(4, 8).ok());
  ASSERT_TRUE(WritePart(10, 20).ok());
  ExpectError(main_->Finish().status(), Code::kAborted, {"last byte"});
  EXPECT_FALSE(active->Finish().ok());
  EXPECT_EQ(GetUpload()->received_bytes(), 8);
  ASSERT_TRUE(Write({First(8, Bytes(8, 10)), Chunk(20, Bytes(20, 40))}).ok());
  ExpectDone();
}

TEST_F(WritePartTest, PartsEndWithTheSession) {
  StartMain();
  auto part = client_->Write();
  ASSERT_TRUE(part->Send(FirstOfPart(20, 10, "!!!!")));
  ASSERT_TRUE(Eventually([&] { return absl::IsInvalidArgument(WritePart(25, 26)); }));
  ASSERT_TRUE(session_->Close().ok());
  EXPECT_FALSE(part->Finish().ok());
  EXPECT_FALSE(main_->Finish().ok());
  EXPECT_TRUE(Eventually([this] { return Used(0) == 0; }));
}

}  // namespace
}  // namespace tensord::integration
