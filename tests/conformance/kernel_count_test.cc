// Counts the kernels that each composition launches, and what they read and write, on one row of the
// table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "tensord/server/device/cpu/cpu_device.h"
#include "tensord/tests/conformance/engine_path.h"
#include "tensord/tests/conformance/row.h"

namespace tensord::conformance {
namespace {

using server::Buffer;

struct KernelCounts {
  int64_t launches = 0;
  int64_t bytes = 0;  // of the operands and results
};

// A CPU device that counts what it launches.
class CountingDevice final : public server::Device {
 public:
  CountingDevice() : cpu_(*server::MakeCpuDevice({DeviceKind::kCpu, 0}, int64_t{4} << 30, 1)) {}

  KernelCounts counts;

  const server::DeviceInfo& info() const override { return cpu_->info(); }
  server::MemoryStats memory() const override { return cpu_->memory(); }
  bool host_accessible() const override { return cpu_->host_accessible(); }
  absl::StatusOr<server::BufferRef> Allocate(int64_t size_bytes) override {
    return cpu_->Allocate(size_bytes);
  }
  absl::Status Launch(const server::KernelCall& call) override { return cpu_->Launch(call); }
  absl::StatusOr<std::unique_ptr<server::PreparedKernel>> Prepare(
      const server::KernelSpec& spec) override {
    return Counted(cpu_->Prepare(spec));
  }
  absl::StatusOr<std::unique_ptr<server::PreparedKernel>> PrepareFused(
      const server::FusedSpec& spec) override {
    return Counted(cpu_->PrepareFused(spec));
  }
  absl::Status CopyFrom(Buffer& dst, const Buffer& src, int64_t bytes) override {
    return cpu_->CopyFrom(dst, src, bytes);
  }
  absl::Status Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) override {
    return cpu_->Write(dst, offset, src, bytes);
  }
  absl::Status Read(const Buffer& src, int64_t offset, void* dst, int64_t bytes) override {
    return cpu_->Read(src, offset, dst, bytes);
  }
  void Fence(std::function<void(absl::Status)> done) override { cpu_->Fence(std::move(done)); }
  void BindThread() override { cpu_->BindThread(); }

 private:
  using Prepared = std::unique_ptr<server::PreparedKernel>;

  class CountedKernel final : public server::PreparedKernel {
   public:
    CountedKernel(KernelCounts* counts, Prepared kernel)
        : PreparedKernel(kernel.get()), counts_(counts), kernel_(std::move(kernel)) {}
    absl::Status Launch(const server::LaunchContext& context,
                        absl::Span<const Buffer* const> inputs,
                        absl::Span<Buffer* const> outputs) override {
      ++counts_->launches;
      for (const Buffer* input : inputs) counts_->bytes += input->size_bytes();
      for (const Buffer* output : outputs) counts_->bytes += output->size_bytes();
      return kernel_->Launch(context, inputs, outputs);
    }

   private:
    KernelCounts* const counts_;
    const Prepared kernel_;
  };

  absl::StatusOr<Prepared> Counted(absl::StatusOr<Prepared> kernel) {
    if (!kernel.ok()) return kernel;
    return std::make_unique<CountedKernel>(&counts, *std::move(kernel));
  }

  const std::unique_ptr<server::Device> cpu_;
};

// Returns the number of elements of the inputs. A row without elements shows nothing.
int64_t ElementsOf(const Row& row) {
  int64_t elements = 0;
  for (const Input& input : row.inputs) {
    if (input.spec.num_elements() == 0) return 0;
    elements += input.spec.num_elements();
  }
  return elements;
}

// Returns the largest row of each composition: of float32, if it has such a row. Rows that refuse
// their inputs don't count.
std::map<std::string, const Row*> RowsOfCompositions() {
  std::map<std::string, const Row*> rows;
  const auto rank = [](const Row& row) {
    const bool is_float32 = !row.inputs.empty() && row.inputs[0].spec.dtype == DType::kFloat32;
    return std::pair(is_float32, ElementsOf(row));
  };
  for (const Row& row : AllRows()) {
    const OpSchema* const schema = FindOp(row.op);
    if (schema == nullptr || schema->formula == nullptr) continue;
    if (row.refusal != absl::StatusCode::kOk || !row.off_reason.empty()) continue;
    const Row*& chosen = rows[row.op];
    if (chosen == nullptr || rank(row) > rank(*chosen)) chosen = &row;
  }
  return rows;
}

std::map<std::string, std::string> ReadTable(const std::string& path) {
  std::map<std::string, std::string> table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find(' ');
    table[line.substr(0, space)] = line.substr(space + 1);
  }
  return table;
}

// Each line of kernels.txt has a composition, its kernels, and its passes: the bytes that its
// kernels read and write, divided by those of its operands and results. A change that saves kernels
// must also change the line. TENSORD_WRITE_KERNELS=FILE writes the table of the run to FILE.
TEST(KernelCountTest, CompositionsLaunchAsManyKernelsAsTheTableSays) {
  auto owned = std::make_unique<CountingDevice>();
  CountingDevice& device = *owned;
  std::vector<std::unique_ptr<server::Device>> devices;
  devices.push_back(std::move(owned));
  EnginePath path(std::move(devices));
  std::map<std::string, std::string> table;
  for (const auto& [op, row] : RowsOfCompositions()) {
    const conformance::Prepared prepared = Prepare(*row);
    device.counts = {};
    const auto results = path.Run(op, row->attrs, prepared.inputs, "cpu:0", row->num_outputs);
    ASSERT_TRUE(results.ok()) << row->Name() << ": " << results.status();
    int64_t bytes = 0;
    for (const HostTensor& input : prepared.inputs) bytes += input.spec.size_bytes();
    for (const HostTensor& result : *results) bytes += result.spec.size_bytes();
    table[op] = absl::StrFormat("%d %.1f", device.counts.launches,
                                static_cast<double>(device.counts.bytes) /
                                    static_cast<double>(std::max<int64_t>(bytes, 1)));
  }
  if (const char* const path = std::getenv("TENSORD_WRITE_KERNELS")) {
    std::ofstream file(path);
    for (const auto& [op, counts] : table) file << op << ' ' << counts << '\n';
  }
  const std::map<std::string, std::string> expected = ReadTable(TENSORD_KERNEL_TABLE);
  for (const auto& [op, counts] : table) {
    const auto found = expected.find(op);
    EXPECT_EQ(counts, found == expected.end() ? "no line" : found->second) << op;
  }
  EXPECT_EQ(expected.size(), table.size());
}

}  // namespace
}  // namespace tensord::conformance
