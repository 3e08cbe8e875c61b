// Fuzzes sessions with two clients that send arbitrary messages: session streams that break and
// resume, messages that are applied in slices, uploads, shared tensors, and tickets. The input
// reaches decoding, inference and the kernels of the CPU backend. The server must not crash or
// leak. At the end, no device memory may be in use, and nothing may be charged to the clients'
// principals.
#include <google/protobuf/stubs/logging.h>

#include <memory>
#include <string>

#include "tensord/tests/fuzz/fuzz_input.h"
#include "tensord/tests/fuzz/session_frames.h"
#include "tensord/tests/fuzz/session_player.h"

namespace tensord::server {
namespace {

using fuzz::FrameKind;
using fuzz::FuzzInput;

template <typename Message, typename Use>
void With(const std::string& bytes, const Use& use) {
  Message message;
  if (message.ParseFromString(bytes)) use(message);
}

void Play(SessionPlayer& client, FrameKind kind, const std::string& bytes) {
  using Slice = SessionPlayer::Slice;
  switch (kind) {
    case FrameKind::kSend:
      return With<v1::SessionStreamRequest>(bytes,
                                            [&](const auto& m) { client.Send(m, Slice::kAll); });
    case FrameKind::kSendSlice:
      return With<v1::SessionStreamRequest>(
          bytes, [&](const auto& m) { client.Send(m, Slice::kSmallest); });
    case FrameKind::kContinue:
      return client.Continue(bytes.empty() ? Slice::kAll : Slice::kSmallest);
    case FrameKind::kRead:
      return client.Read(/*must_ack=*/!bytes.empty());
    case FrameKind::kCut:
      return client.Cut(/*noticed=*/true);
    case FrameKind::kCutUnnoticed:
      return client.Cut(/*noticed=*/false);
    case FrameKind::kWrite:
      return client.Write(bytes);
    case FrameKind::kEndWrite:
      return client.EndWrite();
    case FrameKind::kAbortWrite:
      return client.AbortWrite();
    case FrameKind::kGetUpload:
      return With<v1::GetUploadRequest>(bytes,
                                        [&](const auto& m) { client.GetUpload(m.handle()); });
    case FrameKind::kPublish:
      return With<v1::PublishTensorRequest>(bytes, [&](const auto& m) { client.Publish(m); });
    case FrameKind::kOpen:
      return With<v1::OpenPublishedRequest>(bytes, [&](const auto& m) { client.Open(m); });
    case FrameKind::kUnpublish:
      return With<v1::UnpublishTensorRequest>(bytes,
                                              [&](const auto& m) { client.Unpublish(m.name()); });
    case FrameKind::kClose:
      return client.Close();
    case FrameKind::kCreateTicket:
      return With<v1::CreateTicketRequest>(bytes, [&](const auto& m) { client.CreateTicket(m); });
    case FrameKind::kFetch:
      return With<v1::FetchRequest>(bytes, [&](const auto& m) { client.Fetch(m); });
    case FrameKind::kEndFetch:
      return client.EndFetch(/*finished=*/!bytes.empty());
    case FrameKind::kReleaseTicket:
      return With<v1::ReleaseTicketRequest>(bytes, [&](const auto& m) { client.ReleaseTicket(m); });
    default:
      return;
  }
}

void RunOne(FuzzInput in) {
  static FuzzWorld* const world = new FuzzWorld();
  {
    SessionPlayer one(world, world->one), other(world, world->other);
    SessionPlayer* client = &one;
    while (in.remaining() > 0) {
      const auto kind = static_cast<FrameKind>(in.Byte() % static_cast<int>(FrameKind::kCount));
      const size_t low = in.Byte();
      const std::string bytes = in.Bytes(low | size_t{in.Byte()} << 8);
      if (kind == FrameKind::kOtherClient) client = client == &one ? &other : &one;
      if (kind == FrameKind::kRunSlice) world->RunSlice(bytes.empty() ? 0 : bytes[0] & 1);
      Play(*client, kind, bytes);
    }
    world->Drain();
  }
  world->CheckEmpty();
}

}  // namespace
}  // namespace tensord::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  google::protobuf::SetLogHandler(nullptr);
  tensord::server::RunOne({data, size});
  return 0;
}
