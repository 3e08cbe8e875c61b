// An upload: bytes that come beside the stream, by connections of their own which break, too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensord/server/rpc/bulk/tensor_upload.h"
#include "tensord/tests/simulation/client_end.h"
#include "tensord/tests/simulation/dice.h"
#include "tensord/tests/simulation/lease_book.h"
#include "tensord/tests/simulation/model.h"

namespace tensord::simulation {

// The server's end of a Write: what rpc/bulk/write_call.cc does with a TensorUpload.
struct WriteEnd {
  WriteEnd(server::ServiceContext* context, LeaseBook* leases) : leases(leases), upload(context) {}
  ~WriteEnd() { Release(); }
  // The client has gone, or GetUpload has asked for what there is.
  void BreakOff();
  void Release();

  LeaseBook* const leases;
  const server::Session* session = nullptr;  // while it is used
  bool received = false;                     // the commands that it waits for
  absl::Status outcome;                      // of waiting for them
  bool stop = false;                         // to be broken off
  server::TensorUpload upload;
};

// As the client library's Session::Upload, for a tensor that has been promised.
class UploadCall {
 public:
  UploadCall(server::ServiceContext* context, server::PrincipalRef principal, ClientEnd* client,
             ValueRef value, LeaseBook* leases, Dice* dice, Journal* journal);

  const ValueRef& value() const { return value_; }
  ClientEnd* client() const { return client_; }

  // One step of either end. False where there was nothing to do.
  bool Step();
  // The connection breaks: the client notices now, the server in a later step.
  void Break();
  // The server has gone, and everything of it.
  void LoseServer();

  // The client is done with it, and how.
  bool done() const { return done_; }
  const absl::Status& status() const { return status_; }
  // No server's end is left, either.
  bool settled() const { return done_ && ends_.empty() && answer_ == nullptr; }

 private:
  // What GetUpload comes to.
  struct Answer {
    bool come = false;
    absl::Status status;
    bool complete = false;
    int64_t received_bytes = 0;
    server::SessionUse use;
    const server::Session* session = nullptr;
  };

  void Write();
  void StepWrite(WriteEnd& end);
  void AskWhatCame();
  void TakeAnswer();
  void Finish(absl::Status status);
  bool BreakOffOne();

  server::ServiceContext* context_;
  server::PrincipalRef principal_;
  ClientEnd* const client_;
  const ValueRef value_;
  const std::string bytes_;
  LeaseBook* const leases_;
  Dice* const dice_;
  Journal* const journal_;
  v1::WriteSpec spec_;
  int64_t sent_ = 0;
  std::shared_ptr<WriteEnd> writing_;            // over the connection that stands
  std::vector<std::shared_ptr<WriteEnd>> ends_;  // those the server has, that one among them
  std::shared_ptr<Answer> answer_;
  bool asks_ = false;  // is to ask how far it had come
  bool done_ = false;
  absl::Status status_;
};

}  // namespace tensord::simulation
