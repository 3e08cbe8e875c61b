// A world has a server, its clients and the network between them. A seed determines all its events.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensord/tests/simulation/client_end.h"
#include "tensord/tests/simulation/host.h"
#include "tensord/tests/simulation/lease_book.h"
#include "tensord/tests/simulation/link.h"
#include "tensord/tests/simulation/plan.h"
#include "tensord/tests/simulation/read_call.h"
#include "tensord/tests/simulation/script.h"
#include "tensord/tests/simulation/server_end.h"
#include "tensord/tests/simulation/upload_call.h"

namespace tensord::simulation {

class World {
 public:
  World(uint64_t seed, Trace* trace);
  ~World();

  // Runs the world to its end. The trace has its failure, if any.
  void Run();

  // Counts of events, to be summed over many worlds.
  struct Counts {
    int64_t steps = 0;
    int64_t commands = 0;
    int64_t breaks = 0;
    int64_t restarts = 0;
    int64_t leases_ended = 0;
    int64_t reads = 0;
    int64_t uploads = 0;
    int64_t interrupted = 0;  // messages that weren't completely applied when they arrived
  };
  const Counts& counts() const { return counts_; }

 private:
  // A stream's connection.
  struct Connection {
    std::shared_ptr<Link> link;
    std::shared_ptr<ServerEnd> server;  // null if the server has been restarted
    ClientEnd* client;                  // null if TakeOverSession() made the connection
    // Returns whether this is the client's current connection.
    bool IsCurrent() const { return client != nullptr && client->link() == link; }
  };
  struct Actor {
    std::unique_ptr<ClientEnd> client;
    std::unique_ptr<Script> script;
    std::weak_ptr<server::Session> session;
    int epoch;
    int64_t actions_left;
    bool session_taken_over = false;
    bool checked = false;  // CheckEnds() has checked the client's end
  };

  void Step();
  void ActOnce();
  void Act(Actor& actor);
  void ReadBeside(Actor& actor);
  void OpenClient();
  void Connect(ClientEnd* client);
  // Returns the deadline of the next slice of a message: one that has passed, or none.
  ServerEnd::Deadline EndOfSlice();
  // Each makes one step of the transport. Returns false if there is nothing to do.
  bool DeliverToServer(Connection& connection);
  bool ContinueMessage(Connection& connection);
  bool DeliverToClient(Connection& connection);
  bool EndWrite(Connection& connection);
  bool DetectBreakAtClient(Connection& connection);
  bool DetectBreakAtServer(Connection& connection);
  bool RandomTransport();
  bool StepCalls();  // uploads and unary reads
  bool StepUploads();
  void TakeOutcome(const UploadCall& upload);
  Actor& ActorOf(const UploadCall& upload);
  // Makes one step of everything that can make progress. Returns false if nothing can.
  bool Progress();
  // Calls Progress() until nothing can make progress, and no client waits to reconnect.
  void RunUntilIdle();
  // The client's command queue calls this when it is full. Runs the world until the queue has room.
  void MakeRoom(ClientEnd* client);

  void InjectFault();
  void BreakOne();
  void Pass(std::chrono::milliseconds time);
  void EndLeases();
  void Restart();
  void Drain();
  void EndClient(Actor& actor, bool in_good_order);
  void TakeOverSession();
  ClientEnd* RandomClient();

  void CheckLimits();
  void CheckPrincipal(const server::PrincipalRef& principal);
  void CheckUse(absl::string_view what, int64_t used, int64_t limit);
  void CheckAllDone(Actor& actor, uint64_t before_command);
  void CheckEnds();
  void CheckHandles(Actor& actor);
  void CheckNothingLeft();
  void FinishPrograms();
  void EndClients();

  Trace* const trace_;
  RandomSource random_;
  const Plan plan_;
  Host host_;
  LeaseBook leases_;
  std::vector<Connection> connections_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<std::unique_ptr<UploadCall>> uploads_;
  std::vector<std::unique_ptr<ReadCall>> reads_;
  std::vector<std::pair<Script*, ValueRef>> failed_uploads_;  // their tensors must be dropped
  bool acting_ = false;                                       // a script is running
  std::vector<std::weak_ptr<server::Session>> sessions_;      // all sessions that were opened
  int epoch_ = 0;
  bool injects_faults_ = true;
  Counts counts_;
};

}  // namespace tensord::simulation
