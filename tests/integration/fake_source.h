// A fake source server for Fetch calls. The test scripts its answers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tensord/v1/tensord.pb.h"

namespace tensord::integration {

// Listens on 127.0.0.1. Runs the script for each Fetch call, on a separate thread.
class FakeSource {
 public:
  // One Fetch call.
  class Call {
   public:
    virtual ~Call() = default;
    virtual bool Send(const v1::FetchResponse& message) = 0;
    // Compresses all messages by gzip. Call it before the first Send().
    virtual void Compress() = 0;
    // Blocks until the destination's next message and returns it. Returns none once the
    // destination has half-closed or disconnected.
    virtual std::optional<v1::FetchRequest> Next() = 0;
  };
  // Returns the gRPC status code that ends the call. 0 is OK.
  using Script = std::function<int(Call&)>;

  explicit FakeSource(Script script);
  ~FakeSource();

  const std::string& address() const { return address_; }

 private:
  struct Server;
  std::unique_ptr<Server> server_;
  std::string address_;
};

}  // namespace tensord::integration
