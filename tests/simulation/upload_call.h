// An upload by Write calls, whose connections break, too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensord/server/rpc/bulk/tensor_upload.h"
#include "tensord/tests/simulation/client_end.h"
#include "tensord/tests/simulation/lease_book.h"
#include "tensord/tests/simulation/model.h"
#include "tensord/tests/simulation/random_source.h"

namespace tensord::simulation {

// The server's end of a Write call. It uses a TensorUpload as rpc/bulk/write_call.cc does.
struct WriteEnd {
  WriteEnd(server::ServiceContext* context, LeaseBook* leases) : leases(leases), upload(context) {}
  ~WriteEnd() { Release(); }
  // Aborts the upload: the client has disconnected, or GetUpload has been called.
  void Interrupt();
  void Release();

  LeaseBook* const leases;
  const server::Session* session = nullptr;  // null if the call doesn't use the session
  bool received = false;                     // the wait for earlier commands has ended
  absl::Status outcome;                      // the result of that wait
  bool stop = false;                         // the upload must be aborted
  server::TensorUpload upload;
};

// Uploads a promised tensor, like the client library's Session::Upload.
class UploadCall {
 public:
  UploadCall(server::ServiceContext* context, server::PrincipalRef principal, ClientEnd* client,
             ValueRef value, LeaseBook* leases, RandomSource* random, Trace* trace);

  const ValueRef& value() const { return value_; }
  ClientEnd* client() const { return client_; }

  // Makes one step of either end. Returns false if there is nothing to do.
  bool Step();
  // Breaks the connection. The client notices at once, the server in a later step.
  void Break();
  // Handles the end of the server, with all its state.
  void OnServerLost();

  // Returns whether the client's end is done. status() is then the result.
  bool done() const { return done_; }
  const absl::Status& status() const { return status_; }
  // Returns whether both ends are done.
  bool settled() const { return done_ && ends_.empty() && answer_ == nullptr; }

 private:
  // The result of GetUpload.
  struct Answer {
    bool ready = false;
    absl::Status status;
    bool complete = false;
    int64_t received_bytes = 0;
    server::SessionUse use;
    const server::Session* session = nullptr;
  };

  void Write();
  void StepWrite(WriteEnd& end);
  void CallGetUpload();
  void TakeAnswer();
  void Finish(absl::Status status);
  bool AbortOneWrite();

  server::ServiceContext* context_;
  server::PrincipalRef principal_;
  ClientEnd* const client_;
  const ValueRef value_;
  const std::string bytes_;
  LeaseBook* const leases_;
  RandomSource* const random_;
  Trace* const trace_;
  v1::WriteSpec spec_;
  int64_t sent_ = 0;
  std::shared_ptr<WriteEnd> writing_;            // the end of the current connection
  std::vector<std::shared_ptr<WriteEnd>> ends_;  // all ends at the server, including writing_
  std::shared_ptr<Answer> answer_;
  bool must_get_upload_ = false;  // the client must call GetUpload
  bool done_ = false;
  absl::Status status_;
};

}  // namespace tensord::simulation
