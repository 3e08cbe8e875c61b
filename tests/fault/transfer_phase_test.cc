// Transfers of several chunks whose connection fails in each phase. All bytes must arrive exactly
// once, at the right offset.
#include <string>
#include <vector>

#include "tensord/tests/fault/network_fault_fixture.h"

namespace tensord::fault {
namespace {

using proxy::CallPosition;
using proxy::Direction;

class TransferPhaseTest : public NetworkFaultFixture {
 protected:
  // Runs the transfer with a cut and a half-open connection at each of these positions. The fault
  // affects all of the client's connections, or the call's connection only.
  void RunAll(const CallCase& transfer, const std::vector<CallPosition>& positions) {
    std::vector<Job> jobs;
    for (int round = 0; round < (Long() ? 30 : 1); ++round) {
      for (const CallPosition& position : positions) {
        for (const bool cut : {true, false}) {
          jobs.push_back({transfer, Break(position, cut, /*all=*/true)});
          if (cut || Long()) jobs.push_back({transfer, Break(position, cut, /*all=*/false)});
        }
      }
    }
    Run(jobs);
    ExpectNoLeaks();
  }
};

CallPosition ToServer(int64_t messages, int64_t bytes = 0) {
  return {.direction = Direction::kToServer, .messages = messages, .bytes = bytes};
}
CallPosition ToClient(int64_t messages, int64_t bytes = 0) {
  return {.direction = Direction::kToClient, .messages = messages, .bytes = bytes};
}

// The client sends the spec, three full chunks, a partial chunk, and the end of the stream. The
// server sends one response and the status.
TEST_F(TransferPhaseTest, Upload) {
  RunAll(UploadCase(), {
                           ToServer(0),
                           ToServer(1),
                           ToServer(1, 200000),
                           ToServer(2),
                           ToServer(2, 1),
                           ToServer(3, 400000),
                           ToServer(4),
                           ToServer(4, 100000),
                           {.direction = Direction::kToServer, .at_end = true},
                           ToClient(0),
                           ToClient(0, 20),
                           ToClient(1),
                           {.direction = Direction::kToClient, .at_end = true},
                       });
}

// The client sends one request. The server sends three full chunks, a partial chunk, and the
// status.
TEST_F(TransferPhaseTest, Download) {
  RunAll(DownloadCase(), {
                             ToServer(0),
                             ToServer(0, 250),
                             ToClient(0),
                             ToClient(0, 200000),
                             ToClient(1),
                             ToClient(1, 1),
                             ToClient(2, 400000),
                             ToClient(3),
                             ToClient(3, 100000),
                             ToClient(4),
                             {.direction = Direction::kToClient, .at_end = true},
                         });
}

// The client opens the ring, sends the spec, and sends a message for each slot that it has filled.
// The server describes the ring, and sends a message for each free slot and one at the end.
TEST_F(TransferPhaseTest, UploadThroughSharedMemory) {
  RunAll(SharedUploadCase(), {
                                 ToServer(0),
                                 ToServer(1),
                                 ToServer(1, 20),
                                 ToServer(2),
                                 ToServer(2, 5),
                                 ToServer(3),
                                 ToServer(4),
                                 ToServer(5),
                                 ToClient(0),
                                 ToClient(0, 30),
                                 ToClient(1),
                                 ToClient(2),
                                 ToClient(2, 5),
                             });
}

// The server sends a message for each slot that it has filled, the client one for each slot that it
// has read.
TEST_F(TransferPhaseTest, DownloadThroughSharedMemory) {
  RunAll(SharedDownloadCase(), {
                                   ToServer(1),
                                   ToServer(2),
                                   ToServer(2, 5),
                                   ToServer(3),
                                   ToServer(4),
                                   ToClient(1),
                                   ToClient(1, 5),
                                   ToClient(2),
                                   ToClient(3),
                                   ToClient(4),
                               });
}

}  // namespace
}  // namespace tensord::fault
