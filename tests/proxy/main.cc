// delay_proxy: simulates a bad network, for manual tests.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "tensord/tests/proxy/delay_proxy.h"

int main(int argc, char** argv) {
  tensord::proxy::DelayProxyOptions options;
  double delay_ms = 0;
  bool refuse = false;
  std::string swallow;
  CLI::App app("Forwards TCP connections to another address, with a delay and a rate limit",
               "delay_proxy");
  app.add_option("target", options.target, "Address of the server: IPV4:PORT")->required();
  app.add_option("--listen", options.listen,
                 "Address to listen on: IPV4:PORT; port 0 means any free port")
      ->capture_default_str();
  app.add_option("--delay-ms", delay_ms,
                 "Delay in each direction, in milliseconds; a round trip takes twice as long")
      ->check(CLI::Range(0.0, 3.6e6));
  app.add_option("--bytes-per-second", options.bytes_per_second,
                 "Maximum rate of each connection in each direction; 0 means no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--max-buffered-bytes", options.max_buffered_bytes,
                 "Maximum number of buffered bytes of each connection in each direction")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--refuse", refuse, "Don't accept connections; they wait in the listener's queue");
  app.add_option("--swallow", swallow, "Discard the bytes of this direction")
      ->check(CLI::IsMember({"to-server", "to-client"}));
  app.footer("SIGUSR1 resets all connections. SIGTERM and SIGINT end the proxy.");
  CLI11_PARSE(app, argc, argv);
  options.one_way_delay = std::chrono::microseconds(static_cast<int64_t>(delay_ms * 1000));

  // The signals are blocked before the proxy starts its thread, so that only sigwait receives them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const auto proxy = tensord::proxy::DelayProxy::Start(options);
  if (!proxy.ok()) {
    std::fprintf(stderr, "delay_proxy: %s\n", std::string(proxy.status().message()).c_str());
    return 1;
  }
  if (refuse) (*proxy)->SetAccepting(false);
  using tensord::proxy::Direction;
  if (swallow == "to-server") (*proxy)->SetDiscarding(Direction::kToServer, true);
  if (swallow == "to-client") (*proxy)->SetDiscarding(Direction::kToClient, true);
  std::printf("%s\n", (*proxy)->address().c_str());
  std::fflush(stdout);
  for (int number = 0; sigwait(&signals, &number) == 0 && number == SIGUSR1;) (*proxy)->CutAll();
  return 0;
}
