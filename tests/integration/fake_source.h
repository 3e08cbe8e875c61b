// A server that gives tensors to others, and says what a test has it say.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tensord/v1/tensord.pb.h"

namespace tensord::integration {

// Listens at 127.0.0.1. Each Fetch is answered by the script, on a thread of its own.
class FakeSource {
 public:
  // One Fetch.
  class Call {
   public:
    virtual ~Call() = default;
    virtual bool Send(const v1::FetchResponse& message) = 0;
    // What the destination says next; none once it has half-closed, or has gone.
    virtual std::optional<v1::FetchRequest> Next() = 0;
  };
  // Ends the call with this code: 0 for OK.
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
