// A main() for fuzz targets without libFuzzer, for any compiler. Runs each seed, then mutations of
// seeds and random bytes. The same --seed gives the same inputs in the same order. If a signal ends
// the program, writes the current input to the file fuzz-crash.
//   usage: TARGET [--runs=N] [--seconds=N] [--seed=N] FILE-OR-FOLDER…
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kMaxBytes = 4096;
const std::string* running = nullptr;

void SaveRunning(int signal_number) {
  const int file = open("fuzz-crash", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file >= 0 && running != nullptr) {
    const ssize_t written = write(file, running->data(), running->size());
    (void)written;
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void Run(const std::string& input) {
  running = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<std::string>& seeds) : random_(seed), seeds_(seeds) {}

  std::string Next() {
    if (seeds_.empty() || Below(8) == 0) return Noise(Below(512));
    std::string input = seeds_[Below(seeds_.size())];
    for (size_t changes = 1 + Below(8); changes > 0; --changes) Change(input);
    if (input.size() > kMaxBytes) input.resize(kMaxBytes);
    return input;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }
  std::string Noise(size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }
  void Change(std::string& input) {
    const size_t at = Below(input.size() + 1);
    const size_t some = std::min(1 + Below(16), input.size() - at);
    switch (Below(6)) {
      case 0:
        input.insert(at, Noise(1 + Below(4)));
        return;
      case 1:
        input.erase(at, some);
        return;
      case 2:
        input.insert(Below(input.size() + 1), input.substr(at, some));
        return;
      case 3: {
        const std::string& other = seeds_[Below(seeds_.size())];
        const size_t from = Below(other.size() + 1);
        input.insert(at, other.substr(from, Below(64)));
        return;
      }
      default:
        if (at < input.size()) input[at] ^= static_cast<char>(1 << Below(8));
        return;
    }
  }

  std::mt19937_64 random_;
  const std::vector<std::string>& seeds_;
};

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Reads the files in the order of their names, which is the same on all machines.
std::vector<std::string> ReadSeeds(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry);
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const auto& file : files) seeds.push_back(ReadFile(file));
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t runs = INT64_MAX, seconds = 0, seed = 1;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    int64_t* number = absl::ConsumePrefix(&word, "--runs=")      ? &runs
                      : absl::ConsumePrefix(&word, "--seconds=") ? &seconds
                      : absl::ConsumePrefix(&word, "--seed=")    ? &seed
                                                                 : nullptr;
    if (number == nullptr) {
      paths.emplace_back(word);
    } else if (!absl::SimpleAtoi(word, number)) {
      std::fprintf(stderr, "not a number: %s\n", argv[i]);
      return 2;
    }
  }
  for (int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, SaveRunning);

  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  const std::vector<std::string> seeds = ReadSeeds(paths);
  for (const std::string& input : seeds) Run(input);
  Mutator mutator(static_cast<uint64_t>(seed), seeds);
  int64_t done = 0;
  for (; done < runs && std::chrono::steady_clock::now() < end; ++done) Run(mutator.Next());
  std::printf("%zu seeds, %lld mutations\n", seeds.size(), static_cast<long long>(done));
  return 0;
}
