#include "graph.h"

#include <torch/library.h>

#include <map>
#include <utility>

#include "generator.h"
#include "guarded.h"
#include "kernels.h"

namespace torch_tensord {
namespace {

constexpr size_t kMaxRecordings = 16;  // of a graph
constexpr size_t kMaxOutputs = TENSORD_MAX_PROGRAM_OUTPUTS;

// Where a tensor lies in its storage.
struct Geometry {
  explicit Geometry(const at::Tensor& x)
      : sizes(x.sizes()),
        strides(x.strides()),
        offset(x.storage_offset()),
        dtype(x.scalar_type()) {}
  bool Fits(const at::Tensor& x) const {
    return x.scalar_type() == dtype && x.storage_offset() == offset && x.sizes().equals(sizes) &&
           x.strides().equals(strides);
  }
  // Makes such a tensor on a storage.
  at::Tensor MakeOn(c10::intrusive_ptr<c10::StorageImpl> storage) const {
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::scalarTypeToTypeMeta(dtype));
    made.unsafeGetTensorImpl()->set_storage_offset(offset);
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    return made;
  }
  c10::DimVector sizes, strides;
  int64_t offset;
  at::ScalarType dtype;
};

// The dtype and the shape of a cell's value.
struct Spec {
  explicit Spec(const Value& value) : dtype(value->spec.dtype), dims(value->sizes()) {}
  bool Fits(const Value& value) const {
    return value->spec.dtype == dtype && value->sizes().equals(dims);
  }
  TensordSpec Get() const { return {dtype, static_cast<int32_t>(dims.size()), dims.data()}; }
  int32_t dtype;
  c10::DimVector dims;
};

// Says where a value of a run comes from: it is an input or an output of the program.
struct Source {
  bool is_input;
  size_t index;
};
struct NewCell {
  size_t nbytes;
  Source value;
};
struct Output {
  enum { kInput, kCellOfInput, kNewCell } kind;
  size_t index;  // of an input, of an input's cell, or of a new cell
  Geometry geometry;
};

c10::intrusive_ptr<Cell> MakeCell(size_t nbytes, Value value, c10::DeviceIndex device) {
  auto cell = c10::make_intrusive<Cell>(nbytes, FakeAddress(nbytes, device), true);
  cell->Set(std::move(value));
  return cell;
}

Value Hold(TensordTensor* tensor) {
  Api().retain(tensor);
  return c10::make_intrusive<Handle>(tensor);
}

// The storages of a call's inputs. Each is there once, in the order of the inputs.
struct Cells {
  explicit Cells(at::TensorList inputs) {
    for (const at::Tensor& input : inputs) {
      Cell* const cell = CellOf(input);
      size_t index = 0;
      while (index < all.size() && all[index] != cell) ++index;
      if (index == all.size()) {
        all.push_back(cell);
        Value value = cell->value();
        values.push_back(value ? std::move(value) : ReadStorage(cell, input.scalar_type()));
      }
      of_input.push_back(index);
    }
  }
  c10::SmallVector<Cell*, 16> all;
  c10::SmallVector<Value, 16> values;
  c10::SmallVector<size_t, 16> of_input;
};

// A program, and how its inputs and outputs are those of the graph.
class Recording {
 public:
  Recording(at::TensorList inputs, const Cells& cells)
      : device_(DeviceOf(inputs[0])), of_input_(cells.of_input) {
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input);
    for (const Value& value : cells.values) specs_.emplace_back(value);
    for (const Cell* cell : cells.all) nbytes_.push_back(cell->nbytes());
  }
  ~Recording() { Api().release_program(program_); }
  Recording(const Recording&) = delete;

  // Returns whether the program is of the connection that the devices have now.
  bool IsAlive() const { return connection_ == ConnectionNumber(); }
  bool Fits(at::TensorList inputs, const Cells& cells) const {
    if (inputs.size() != inputs_.size() || cells.of_input != of_input_ ||
        DeviceOf(inputs[0]) != device_) {
      return false;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs_[i].Fits(inputs[i])) return false;
    }
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (!specs_[i].Fits(cells.values[i]) || cells.all[i]->nbytes() != nbytes_[i]) return false;
    }
    return true;
  }

  // Returns false if `trace` has failed.
  bool Record(int (*trace)());
  std::vector<at::Tensor> Run(at::TensorList inputs, const Cells& cells) const;

  // ---- while `trace` runs
  const std::vector<at::Tensor>& placeholders() const { return placeholders_; }
  void SetOutputs(at::TensorList outputs) { given_.assign(outputs.begin(), outputs.end()); }
  Value AddEachRun(std::function<Value()> make);
  void AddOrigin(const Origin& origin) { named_.push_back(&origin); }

 private:
  static int Body(void* context, TensordTensor* const* inputs, size_t num_inputs,
                  TensordTensor** outputs, size_t* num_outputs);
  void MakePlaceholders(TensordTensor* const* inputs, size_t num_inputs);
  void ReadOutputs();
  Source SourceOf(const Value& value);
  bool RecordOnce(int (*trace)());

  const int connection_ = ConnectionNumber();
  const c10::DeviceIndex device_;
  const c10::SmallVector<size_t, 16> of_input_;
  std::vector<Geometry> inputs_;
  std::vector<Spec> specs_;
  std::vector<size_t> nbytes_;
  std::vector<std::function<Value()>> each_run_;
  std::vector<Spec> each_run_specs_;
  std::vector<std::pair<size_t, Source>> written_;  // cells of inputs that the graph writes
  std::vector<NewCell> new_cells_;
  std::vector<Output> outputs_;
  size_t num_outputs_ = 0;  // of the program
  TensordProgram* program_ = nullptr;
  const Origin* origins_ = nullptr;

  // ---- while the program is recorded
  int (*trace_)() = nullptr;
  std::vector<Value> input_values_, output_values_;
  std::vector<c10::intrusive_ptr<Cell>> cells_;
  std::vector<at::Tensor> placeholders_, given_;
  std::vector<const Origin*> named_;
  size_t next_each_run_ = 0;
};

thread_local Recording* recording = nullptr;

struct RecordingScope {
  explicit RecordingScope(Recording* now) : before(std::exchange(recording, now)) {}
  ~RecordingScope() { recording = before; }
  Recording* const before;
};

void Recording::MakePlaceholders(TensordTensor* const* inputs, size_t num_inputs) {
  input_values_.clear();
  for (size_t i = 0; i < num_inputs; ++i) input_values_.push_back(Hold(inputs[i]));
  cells_.clear();
  for (size_t i = 0; i < specs_.size(); ++i) {
    cells_.push_back(MakeCell(nbytes_[i], input_values_[i], device_));
  }
  placeholders_.clear();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    placeholders_.push_back(inputs_[i].MakeOn(cells_[of_input_[i]]));
  }
}

Value Recording::AddEachRun(std::function<Value()> make) {
  const size_t index = next_each_run_++;
  if (index < each_run_specs_.size()) return input_values_[specs_.size() + index];
  // This input is new: after this trace, the graph is traced again with it.
  Value value = make();
  each_run_.push_back(std::move(make));
  return value;
}

Source Recording::SourceOf(const Value& value) {
  for (size_t i = 0; i < input_values_.size(); ++i) {
    if (input_values_[i] == value) return {true, i};
  }
  for (size_t i = 0; i < output_values_.size(); ++i) {
    if (output_values_[i] == value) return {false, i};
  }
  output_values_.push_back(value);
  return {false, output_values_.size() - 1};
}

void Recording::ReadOutputs() {
  output_values_.clear();
  written_.clear();
  new_cells_.clear();
  outputs_.clear();
  for (size_t i = 0; i < cells_.size(); ++i) {
    const Value value = cells_[i]->value();
    if (value != input_values_[i]) written_.emplace_back(i, SourceOf(value));
  }
  std::vector<Cell*> made;
  for (const at::Tensor& output : given_) {
    TORCH_CHECK(IsOurs(output) && DeviceOf(output) == device_, "an output is on ", output.device());
    const auto same = [&](const at::Tensor& input) { return input.is_same(output); };
    const auto input = std::find_if(placeholders_.begin(), placeholders_.end(), same);
    if (input != placeholders_.end()) {
      outputs_.push_back(
          {Output::kInput, static_cast<size_t>(input - placeholders_.begin()), Geometry(output)});
      continue;
    }
    Cell* const cell = CellOf(output);
    const auto own = [&](const c10::intrusive_ptr<Cell>& each) { return each.get() == cell; };
    const auto of_input = std::find_if(cells_.begin(), cells_.end(), own);
    if (of_input != cells_.end()) {
      outputs_.push_back(
          {Output::kCellOfInput, static_cast<size_t>(of_input - cells_.begin()), Geometry(output)});
      continue;
    }
    const auto known = std::find(made.begin(), made.end(), cell);
    const auto index = static_cast<size_t>(known - made.begin());
    if (known == made.end()) {
      made.push_back(cell);
      Value value = cell->value();
      if (!value) value = ReadStorage(cell, output.scalar_type());
      new_cells_.push_back({cell->nbytes(), SourceOf(value)});
    }
    outputs_.push_back({Output::kNewCell, index, Geometry(output)});
  }
  // A program needs an output.
  if (output_values_.empty()) output_values_.push_back(input_values_[0]);
  TORCH_CHECK(output_values_.size() <= kMaxOutputs, "the graph has ", output_values_.size(),
              " outputs, and a program has at most ", kMaxOutputs);
}

int Recording::Body(void* context, TensordTensor* const* inputs, size_t num_inputs,
                    TensordTensor** outputs, size_t* num_outputs) {
  constexpr int kAborted = 10;
  auto& self = *static_cast<Recording*>(context);
  try {
    self.MakePlaceholders(inputs, num_inputs);
    self.next_each_run_ = 0;
    if (self.trace_() != 0) return kAborted;
    self.ReadOutputs();
  } catch (const std::exception& e) {
    TORCH_WARN_ONCE("tensord: a graph runs op by op: ", e.what());
    return kAborted;
  }
  for (size_t i = 0; i < self.output_values_.size(); ++i) {
    Api().retain(self.output_values_[i]->tensor);
    outputs[i] = self.output_values_[i]->tensor;
  }
  *num_outputs = self.num_outputs_ = self.output_values_.size();
  return 0;
}

bool Recording::RecordOnce(int (*trace)()) {
  trace_ = trace;
  std::vector<TensordSpec> specs;
  for (const Spec& spec : specs_) specs.push_back(spec.Get());
  for (const Spec& spec : each_run_specs_) specs.push_back(spec.Get());
  TensordProgram* made = nullptr;
  TensordError* error = nullptr;
  const int code = Api().record_program(DeviceAt(device_), specs.data(), specs.size(), &Body, this,
                                        &made, &error);
  input_values_.clear();
  output_values_.clear();
  cells_.clear();
  placeholders_.clear();
  given_.clear();
  origins_ = ListOrigins(std::exchange(named_, {}));
  if (code != 0) {
    Api().release_error(error);
    return false;
  }
  program_ = made;
  return true;
}

// Puts the generator back, so that the first run has the numbers that the recording has drawn.
struct GeneratorScope {
  explicit GeneratorScope(c10::DeviceIndex device)
      : generator(DefaultGenerator(device)), offset(generator.get_offset()) {}
  ~GeneratorScope() { generator.set_offset(offset); }
  at::Generator generator;
  const uint64_t offset;
};

bool Recording::Record(int (*trace)()) {
  const RecordingScope scope(this);
  const GeneratorScope unchanged(device_);
  if (!RecordOnce(trace)) return false;
  if (each_run_.empty()) return true;
  // The first trace has found what differs in each run.
  for (const auto& make : each_run_) each_run_specs_.emplace_back(make());
  Api().release_program(std::exchange(program_, nullptr));
  return RecordOnce(trace);
}

std::vector<at::Tensor> Recording::Run(at::TensorList inputs, const Cells& cells) const {
  c10::SmallVector<Value, 8> drawn;
  for (const auto& make : each_run_) drawn.push_back(make());
  std::vector<TensordTensor*> given;
  given.reserve(cells.values.size() + drawn.size());
  for (const Value& value : cells.values) given.push_back(value->tensor);
  for (const Value& value : drawn) given.push_back(value->tensor);
  TensordOutput results[kMaxOutputs];
  size_t num_outputs = kMaxOutputs;
  TensordError* error = nullptr;
  Check(Api().run_program(program_, given.data(), given.size(), results, &num_outputs, &error),
        error, "a compiled graph");
  std::vector<Value> values;
  values.reserve(num_outputs);
  for (size_t i = 0; i < num_outputs; ++i)
    values.push_back(c10::make_intrusive<Handle>(results[i]));
  NameProgram(origins_, device_, values[0]);
  const auto value_of = [&](const Source& source) -> const Value& {
    if (!source.is_input) return values[source.index];
    return source.index < cells.values.size() ? cells.values[source.index]
                                              : drawn[source.index - cells.values.size()];
  };
  for (const auto& [index, source] : written_) cells.all[index]->Set(value_of(source));
  std::vector<c10::intrusive_ptr<Cell>> made;
  for (const NewCell& each : new_cells_)
    made.push_back(MakeCell(each.nbytes, value_of(each.value), device_));
  std::vector<at::Tensor> outputs;
  outputs.reserve(outputs_.size());
  for (const Output& output : outputs_) {
    if (output.kind == Output::kInput) {
      outputs.push_back(inputs[output.index]);
    } else if (output.kind == Output::kNewCell) {
      outputs.push_back(output.geometry.MakeOn(made[output.index]));
    } else {
      outputs.push_back(output.geometry.MakeOn(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(cells.all[output.index])));
    }
  }
  return outputs;
}

// ---- graphs by number

using Graph = Guarded<std::vector<std::shared_ptr<const Recording>>>;
struct Graphs {
  std::map<int64_t, std::shared_ptr<Graph>> by_number;
  int64_t last = 0;
};
Guarded<Graphs>& graphs() {
  static auto* const all = new Guarded<Graphs>;
  return *all;
}

int64_t MakeGraph() {
  const auto all = graphs().Lock();
  all->by_number[++all->last] = std::make_shared<Graph>();
  return all->last;
}
void DropGraph(int64_t number) {
  std::shared_ptr<Graph> dropped;  // destroyed after the lock
  const auto all = graphs().Lock();
  dropped = std::move(all->by_number[number]);
  all->by_number.erase(number);
}

// Runs a graph. If it wasn't recorded for such inputs, calls `trace`, the address of a C function.
// This takes each _graph_input(), runs the graph, and gives the results to _set_graph_outputs(). If
// the graph can't be recorded, returns nothing.
std::optional<std::vector<at::Tensor>> RunGraph(int64_t number, at::TensorList inputs,
                                                int64_t trace) {
  if (inputs.empty()) return std::nullopt;
  for (const at::Tensor& input : inputs) {
    if (!IsOurs(input) || input.device() != inputs[0].device()) return std::nullopt;
  }
  const std::shared_ptr<Graph> graph = graphs().Lock()->by_number.at(number);
  const Cells cells(inputs);
  std::shared_ptr<const Recording> fitting;
  {
    const auto recordings = graph->Lock();
    std::erase_if(*recordings, [](const auto& each) { return !each->IsAlive(); });
    for (const auto& each : *recordings) {
      if (fitting == nullptr && each->Fits(inputs, cells)) fitting = each;
    }
    if (fitting == nullptr && recordings->size() >= kMaxRecordings) return std::nullopt;
  }
  if (fitting == nullptr) {
    auto made = std::make_shared<Recording>(inputs, cells);
    if (!made->Record(reinterpret_cast<int (*)()>(trace))) return std::nullopt;
    fitting = made;
    graph->Lock()->push_back(std::move(made));
  }
  return fitting->Run(inputs, cells);
}

Recording& Current() {
  TORCH_CHECK(recording != nullptr, "tensord: no graph is being recorded");
  return *recording;
}

}  // namespace

bool IsRecording() { return recording != nullptr; }
void AddOriginToRecording(const Origin& origin) { Current().AddOrigin(origin); }
Value MakeForEachRun(std::function<Value()> make) {
  return recording == nullptr ? make() : recording->AddEachRun(std::move(make));
}

TORCH_LIBRARY_FRAGMENT(tensord, m) {
  m.def("_make_graph() -> int", MakeGraph);
  m.def("_drop_graph(int graph) -> ()", DropGraph);
  m.def("_run_graph(int graph, Tensor(a)[] inputs, int trace) -> Tensor(a)[]?",
        [](int64_t graph, at::TensorList inputs, int64_t trace) {
          return RunGraph(graph, inputs, trace);
        });
  m.def("_graph_input(int index) -> Tensor",
        [](int64_t index) { return Current().placeholders().at(static_cast<size_t>(index)); });
  m.def("_set_graph_outputs(Tensor[] outputs) -> ()",
        [](at::TensorList outputs) { Current().SetOutputs(outputs); });
}

}  // namespace torch_tensord
