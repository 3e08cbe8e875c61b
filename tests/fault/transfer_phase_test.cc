// Transfers of several chunks whose connection fails at each of their phases: every byte arrives,
// once, and where it belongs.
#include <string>
#include <vector>

#include "tensord/tests/fault/network_fault_fixture.h"

namespace tensord::fault {
namespace {

using proxy::CallSpot;
using proxy::Direction;

class TransferPhaseTest : public NetworkFaultFixture {
 protected:
  // Cuts and half-opens at each of these places, the call's connection and all of the client's.
  void RunAll(const CallCase& transfer, const std::vector<CallSpot>& spots) {
    std::vector<Job> jobs;
    for (int round = 0; round < (Long() ? 30 : 1); ++round) {
      for (const CallSpot& spot : spots) {
        for (const bool cut : {true, false}) {
          jobs.push_back({transfer, Break(spot, cut, /*all=*/true)});
          if (cut || Long()) jobs.push_back({transfer, Break(spot, cut, /*all=*/false)});
        }
      }
    }
    Run(jobs);
    ExpectNothingLeft();
  }
};

CallSpot ToServer(int64_t messages, int64_t bytes = 0) {
  return {.direction = Direction::kToServer, .messages = messages, .bytes = bytes};
}
CallSpot ToClient(int64_t messages, int64_t bytes = 0) {
  return {.direction = Direction::kToClient, .messages = messages, .bytes = bytes};
}

// The client sends what is to be written, three whole chunks and part of one, and that this is all;
// the server one answer and the status.
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

// The client asks; the server sends three whole chunks and part of one, and the status.
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

// The client opens the ring, says what is to be written, and then, slot by slot, that it is filled;
// the server tells of the ring and of slots to be filled again, and that all is written.
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

// Of downloads the server says that slots are filled, the client that it has emptied them.
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
