// A server, its clients and the network between them, from beginning to end, as a seed has it.
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
  World(uint64_t seed, Journal* journal);
  ~World();

  // All of it; what goes wrong is in the journal.
  void Run();

  // What has happened in it, for the sum over many worlds.
  struct Counts {
    int64_t steps = 0;
    int64_t commands = 0;
    int64_t breaks = 0;
    int64_t restarts = 0;
    int64_t leases_ended = 0;
    int64_t reads = 0;
    int64_t uploads = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  // A stream's connection. Its client may be at another by now, or may never have been there.
  struct Connection {
    std::shared_ptr<Link> link;
    std::shared_ptr<ServerEnd> server;  // null: the server has gone
    ClientEnd* client;
    bool ClientIsThere() const { return client != nullptr && client->link() == link; }
  };
  struct Actor {
    std::unique_ptr<ClientEnd> client;
    std::unique_ptr<Script> script;
    std::weak_ptr<server::Session> session;
    int epoch;
    int64_t actions_left;
    bool robbed = false;
    bool checked = false;  // how it has ended
  };

  void Step();
  void ActOnce();
  void Act(Actor& actor);
  void ReadBeside(Actor& actor);
  void OpenClient();
  void Connect(ClientEnd* client);
  // Transport: each does one thing, or nothing and says false.
  bool DeliverToServer(Connection& connection);
  bool DeliverToClient(Connection& connection);
  bool EndWrite(Connection& connection);
  bool ClientNotices(Connection& connection);
  bool ServerNotices(Connection& connection);
  bool RandomTransport();
  bool StepCalls();  // those beside the streams
  bool StepUploads();
  void TakeOutcome(const UploadCall& upload);
  Actor& ActorOf(const UploadCall& upload);
  // Everything that can go on, goes on one step. False where nothing can.
  bool Progress();
  // Until nothing can go on any more, connecting as clients do.
  void Settle();
  // A client waits for room among its commands.
  void MakeRoom(ClientEnd* client);

  void CauseTrouble();
  void BreakOne();
  void Pass(std::chrono::milliseconds time);
  void EndLeases();
  void Restart();
  void Drain();
  void Leave(Actor& actor, bool in_good_order);
  void Rob();
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

  Journal* const journal_;
  Dice dice_;
  const Plan plan_;
  Host host_;
  LeaseBook leases_;
  std::vector<Connection> connections_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<std::unique_ptr<UploadCall>> uploads_;
  std::vector<std::unique_ptr<ReadCall>> reads_;
  std::vector<std::pair<Script*, ValueRef>> failed_uploads_;  // to be let go of
  bool acting_ = false;                                       // a script is
  std::vector<std::weak_ptr<server::Session>> sessions_;      // all that ever were
  int epoch_ = 0;
  bool troubled_ = true;
  Counts counts_;
};

}  // namespace tensord::simulation
