// Errors of ops, devices, reads, programs, modules and files, through the C++ library.
#include <functional>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/errors_page.h"
#include "tensord/tests/integration/test_certificates.h"

namespace tensord::integration {
namespace {

// Returns a safetensors file with one tensor, "weight" of two elements, which take `bytes` bytes.
std::string Safetensors(const std::string& dtype, int bytes) {
  const std::string header = absl::StrCat(R"({"weight":{"dtype":")", dtype,
                                          R"(","shape":[2],"data_offsets":[0,)", bytes, "]}}");
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  return length + header + std::string(static_cast<size_t>(bytes), '\0');
}

}  // namespace

void AddOpErrors(ErrorsPage* page, const Client& client) {
  const Device cpu = *client.device("cpu:0");
  const Tensor x = Ones(cpu, {2, 3});
  const Tensor y = Ones(cpu, {3, 3});
  const Tensor ints = Arange(cpu, 3);
  const Tensor empty = Zeros(cpu, {0, 3});
  page->BeginSection("Shapes and dtypes",
                     "`x` is float32[2, 3], `y` is float32[3, 3], `ints` is int64[3] and `empty` "
                     "is float32[0, 3], all on `cpu`, the device cpu:0. The client finds these "
                     "errors at the call. They are in the result's `status()`.");
  TENSORD_ERROR_ROW(page, x + Ones(cpu, {2, 4}));
  TENSORD_ERROR_ROW(page, x + ints);
  TENSORD_ERROR_ROW(page, ints + Cast(ints, DType::kUInt64));
  TENSORD_ERROR_ROW(page, Exp(Zeros(cpu, {2}, {DType::kComplex64})));
  TENSORD_ERROR_ROW(page, Matmul(x, x));
  TENSORD_ERROR_ROW(page, Matmul(x, ints));
  TENSORD_ERROR_ROW(page, Matmul(x, FromScalar(cpu, 2.0)));
  TENSORD_ERROR_ROW(page, Relu(Matmul(x, x)));
  TENSORD_ERROR_ROW(page, Linear(x, Ones(cpu, {3, 4})));
  TENSORD_ERROR_ROW(page, Linear(x, y, Ones(cpu, {2})));
  TENSORD_ERROR_ROW(page, Linear(x, y, Tensor()));
  TENSORD_ERROR_ROW(page, Concat({x, y}, 1));
  TENSORD_ERROR_ROW(page, Concat({x, Ones(cpu, {4, 5})}, 0));
  TENSORD_ERROR_ROW(page, Concat({x, ints}, 0));
  TENSORD_ERROR_ROW(page, Concat({}, 0));
  TENSORD_ERROR_ROW(page, Reshape(x, {4, 2}));
  TENSORD_ERROR_ROW(page, Reshape(x, {-1, 4}));
  TENSORD_ERROR_ROW(page, Reshape(empty, {-1, 0}));
  TENSORD_ERROR_ROW(page, BroadcastTo(x, {3, 2}));
  TENSORD_ERROR_ROW(page, BroadcastTo(x, {3}));
  TENSORD_ERROR_ROW(page, Transpose(x, 0, 2));
  TENSORD_ERROR_ROW(page, Permute(x, {0, 0}));
  TENSORD_ERROR_ROW(page, Slice(x, {0, 0, 0}, {1, 1, 1}));
  TENSORD_ERROR_ROW(page, x[2]);
  TENSORD_ERROR_ROW(page, Sum(x, {.axes = {2}}));
  TENSORD_ERROR_ROW(page, Sum(x, {.axes = {1, -1}}));
  TENSORD_ERROR_ROW(page, Max(empty, {.axes = {0}}));
  TENSORD_ERROR_ROW(page, Mean(ints));
  TENSORD_ERROR_ROW(page, Where(x, 1, 0));
  TENSORD_ERROR_ROW(page, Index(x, {Gt(ints, 1)}, 1));
  TENSORD_ERROR_ROW(page, Index(x, {ints.To(DType::kUInt8)}, 1));
  TENSORD_ERROR_ROW(page, -Gt(x, 0.0));
  TENSORD_ERROR_ROW(page, Clamp(x, y, 1));
  TENSORD_ERROR_ROW(page, LayerNorm(x, {.weight = Ones(cpu, {2})}));
  TENSORD_ERROR_ROW(page, LayerNorm(x, {.bias = Ones(cpu, {3})}));
  TENSORD_ERROR_ROW(page, CrossEntropy(x, ints));
  TENSORD_ERROR_ROW(page, Conv2d(Ones(cpu, {1, 3, 8, 8}), Ones(cpu, {6, 4, 3, 3})));
  TENSORD_ERROR_ROW(page, Conv2d(Ones(cpu, {1, 3, 2, 8}), Ones(cpu, {6, 3, 3, 3})));
  TENSORD_ERROR_ROW(page, ScaledDotProductAttention(x, x, y));
  TENSORD_ERROR_ROW(page, ScaledDotProductAttention(x, x, x, {.dropout_p = 0.5}));
  TENSORD_ERROR_ROW(page, MaxPool(x, {.kernel = {2, 4}}));
}

void AddAttributeErrors(ErrorsPage* page, const Client& client) {
  const Device cpu = *client.device("cpu:0");
  const Tensor x = Ones(cpu, {2, 3});
  page->BeginSection("Values, attributes and names of ops",
                     "`x` is float32[2, 3] on `cpu`, the device cpu:0.");
  TENSORD_ERROR_ROW(page, Zeros(cpu, {-1, 3}));
  TENSORD_ERROR_ROW(page, Zeros(cpu, {1 << 30, 1 << 30}));
  TENSORD_ERROR_ROW(page, Full(cpu, {2}, 300, {.dtype = DType::kUInt8}));
  TENSORD_ERROR_ROW(page, Ones(cpu, {2}, {DType::kInt8}) + 200);
  TENSORD_ERROR_ROW(page, Ones(cpu, {2}, {DType::kUInt64}) * -1);
  TENSORD_ERROR_ROW(page, Arange(cpu, 0, 10, 0));
  TENSORD_ERROR_ROW(page, Uniform(cpu, {2}, 7, {.low = 1, .high = 0}));
  TENSORD_ERROR_ROW(page, FromVector<float>(cpu, {2, 2}, {1, 2, 3}));
  TENSORD_ERROR_ROW(page, Add(1, 2));
  TENSORD_ERROR_ROW(page, RunOp("matmull", {x, x}));
  TENSORD_ERROR_ROW(page, RunOp("clamp", {x}));
  TENSORD_ERROR_ROW(page, RunOp("unsqueeze", {x}));
  TENSORD_ERROR_ROW(page, RunOp("stack", {x, x}));
  TENSORD_ERROR_ROW(page, RunOp("conv2d", {x}));
  TENSORD_ERROR_ROW(page, RunOp("matmul", {x}));
  TENSORD_ERROR_ROW(page, RunOp("sort", {x}));
  TENSORD_ERROR_ROW(page, RunOp("softmax", {x}, {{"dim", int64_t{1}}}));
  TENSORD_ERROR_ROW(page, RunOp("softmax", {x}, {{"axis", true}}));
  TENSORD_ERROR_ROW(page, RunOp("reshape", {x}));
  TENSORD_ERROR_ROW(page, RunOp("gelu", {x}, {{"approximate", std::string("fast")}}));
}

void AddDeviceErrors(ErrorsPage* page, const Client& client) {
  const Device cpu = *client.device("cpu:0");
  const Tensor x = Ones(cpu, {2, 3});
  const Tensor z = Ones(*client.device("cpu:1"), {2, 3});
  const auto connected = Client::Connect(client.address());
  ASSERT_TRUE(connected.ok()) << connected.status();
  const Client& other = *connected;
  page->BeginSection("Devices",
                     "`x` is on cpu:0 and `z` on cpu:1 of one server. `other` is a second `Client` "
                     "of this server.");
  TENSORD_ERROR_ROW(page, client.device("cuda"));
  TENSORD_ERROR_ROW(page, client.device("gpu"));
  TENSORD_ERROR_ROW(page, client.device("CPU"));
  TENSORD_ERROR_ROW(page, client.device("CPU 0"));
  TENSORD_ERROR_ROW(page, client.device(5));
  TENSORD_ERROR_ROW(page, Client().device("cpu"));
  TENSORD_ERROR_ROW(page, Ones(Device(), {2}));
  TENSORD_ERROR_ROW(page, x + z);
  page->Add("`Linear(x, weight)`, with the weight on cpu:1",
            Linear(x, Ones(*client.device("cpu:1"), {4, 3})));
  TENSORD_ERROR_ROW(page, x + Ones(*other.device("cpu:0"), {2, 3}));
  TENSORD_ERROR_ROW(page, x.To("cpu:2"));
  TENSORD_ERROR_ROW(page, x.To("gpu-b/cuda:0"));
  TENSORD_ERROR_ROW(page, x.To(Device()));
  TENSORD_ERROR_ROW(page, client.memory(*other.device("cpu:0")));
}

void AddDonationErrors(ErrorsPage* page, const Client& client) {
  const Device cpu = *client.device("cpu:0");
  const auto ones = [&] { return Ones(cpu, {2, 3}); };
  const Tensor x = ones(), y = ones(), published = ones();
  const auto add = [](const Tensor& a, const Tensor& b, std::vector<int> donate) {
    return RunOpWithOutputs("add", {a, b}, {}, {.donate = std::move(donate)});
  };
  page->BeginSection("Donated tensors",
                     "The program has called `RunOpWithOutputs(\"add\", {x, y}, {}, {.donate = "
                     "{0}})`, which donates `x`. `x` keeps its dtype, shape and device, but its "
                     "`status()` and all uses of it are this error. `add(a, b, donate)` is such a "
                     "call with other tensors.");
  page->Add("`add(y, y, {2})`", add(y, y, {2}).status());
  ASSERT_TRUE(add(x, y, {0}).ok());
  page->Add("`x.Read<float>()`", x.Read<float>());
  page->Add("`x + 1`", x + 1);
  page->Add("`add(x, y, {0})`, which donates `x` again", add(x, y, {0}).status());
  page->Add("`client.Publish(x, \"weights\")`", client.Publish(x, "weights"));
  // The op doesn't overwrite a published tensor: other sessions may have opened it.
  ASSERT_TRUE(client.Publish(published, "kept").ok());
  const auto sum = add(published, y, {0});
  ASSERT_TRUE(sum.ok()) << sum.status();
  ASSERT_TRUE((*sum)[0].Wait().ok());
  page->Add("`published + 1`, if `published` was donated after `Publish`", published + 1);
  const auto opened = client.Open("kept");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(*Sum(*opened).Item<float>(), 6);
}

void AddReadErrors(ErrorsPage* page, const Client& client) {
  const Device cpu = *client.device("cpu:0");
  const Tensor x = Ones(cpu, {2, 3});
  std::vector<float> three(3);
  page->BeginSection("Reads",
                     "The server finds the lack of memory, and an index that is out of range. "
                     "Reads and `Wait` return these errors, of the tensor itself and of tensors "
                     "computed from it.");
  TENSORD_ERROR_ROW(page, Tensor().Read<float>());
  TENSORD_ERROR_ROW(page, x.Read<int32_t>());
  TENSORD_ERROR_ROW(page, x.ReadInto(absl::MakeSpan(three)));
  TENSORD_ERROR_ROW(page, x.Item<float>());
  const Tensor large = Zeros(*client.device("cpu:1"), {5000, 5000});
  page->Add("`large = Zeros(cpu:1, {5000, 5000})` on a device with 64 MiB, then `large.Wait()`",
            large.Wait());
  TENSORD_ERROR_ROW(page, Sum(large + 1).Item<float>());
  const Tensor indices = FromVector<int64_t>(cpu, {2, 2}, {0, 1, 2, -1});
  const Tensor rows = RunOp("index", {x, indices});
  page->Add(
      "`rows = RunOp(\"index\", {x, indices})`, where the element of `indices` at [1, 0] is 2 "
      "and `x` has two rows, then `rows.Wait()`",
      rows.Wait());
  TENSORD_ERROR_ROW(page, Sum(rows).Item<float>());
  TENSORD_ERROR_ROW(page, CrossEntropy(x, Full(cpu, {2}, 3)).Wait());
  // Printing shows the same text, without the bytes of the status's payloads.
  EXPECT_EQ(large.ToString(), absl::StrCat("tensor(<error: ", ErrorText(large.Wait()), ">)"));
}

void AddProgramErrors(ErrorsPage* page, const Client& client) {
  using Inputs = absl::Span<const Tensor>;
  using Outputs = std::vector<Tensor>;
  const Device cpu = *client.device("cpu:0");
  const TensorSpec spec = {DType::kFloat32, {2, 3}};
  const Tensor x = Ones(cpu, spec.shape);
  const Tensor z = Ones(*client.device("cpu:1"), spec.shape);
  Tensor kept;
  const auto program = Program::Record(cpu, {spec}, [&](Inputs in) {
    kept = in[0];
    return Outputs{in[0] + 1};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  const auto body_error = [&](const std::function<Tensor(const Tensor&)>& body) {
    return Program::Record(cpu, {spec}, [&](Inputs in) { return Outputs{body(in[0])}; }).status();
  };
  page->BeginSection("Programs",
                     "`program` runs on cpu:0 and has one input, `in`, of float32[2, 3]. `x` is "
                     "on cpu:0 and `z` on cpu:1.");
  TENSORD_ERROR_ROW(page, Program().Run({x}));
  TENSORD_ERROR_ROW(page, program->Run({}));
  TENSORD_ERROR_ROW(page, program->Run({Ones(cpu, {3})}));
  TENSORD_ERROR_ROW(page, program->Run({z}));
  page->Add("the body returns no tensors",
            Program::Record(cpu, {spec}, [](Inputs) { return Outputs(); }));
  page->Add("the body returns `in + z`", body_error([&](const Tensor& in) { return in + z; }));
  page->Add("the body returns `in.To(\"cpu:1\")`",
            body_error([](const Tensor& in) { return in.To("cpu:1"); }));
  page->Add("the body reads `in`", body_error([](const Tensor& in) {
              const auto read = in.Read<float>();
              return read.ok() ? in : Tensor::Failed(read.status());
            }));
  page->Add("`in + 1` after the recording has ended", kept + 1);
}

void AddModelErrors(ErrorsPage* page, const Client& client) {
  const Device cpu = *client.device("cpu:0");
  const TestFolder folder;
  page->Replace(folder.path(), "/models");
  const std::string path = folder.Write("good", Safetensors("F32", 8));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  page->BeginSection("Modules and safetensors files",
                     "`model` is `nn::Sequential(nn::Linear(3, 2))`. `mismatched` is "
                     "`nn::Sequential(nn::Linear(3, 8), nn::ReLU(), nn::Linear(9, 2))` on `cpu`. "
                     "`file` has one tensor, `weight`.");
  nn::Sequential model(nn::Linear(3, 2));
  TENSORD_ERROR_ROW(page, model.Forward(Ones(cpu, {2, 3})));
  TENSORD_ERROR_ROW(page, nn::Linear{Tensor()}.Forward(Ones(cpu, {2, 3})));
  nn::Sequential mismatched(nn::Linear(3, 8), nn::ReLU(), nn::Linear(9, 2));
  ASSERT_TRUE(mismatched.To(cpu).ok());
  page->Add("`mismatched.Forward(Ones(cpu, {2, 3}))`", mismatched.Forward(Ones(cpu, {2, 3})));
  TENSORD_ERROR_ROW(page, model.LoadStateDict({{"0.weight", Ones(cpu, {3, 2})}}));
  TENSORD_ERROR_ROW(page, model.parameter("1.weight"));
  page->Add("`SafetensorsFile::Open` of a file that doesn't exist",
            SafetensorsFile::Open(folder.File("none")));
  page->Add("… of a text file", SafetensorsFile::Open(folder.Write("text", "hello world")));
  page->Add("… of a file of NumPy",
            SafetensorsFile::Open(folder.Write("x.npy", "\x93NUMPY\x01 and the rest")));
  page->Add("… of a file in the format GGUF",
            SafetensorsFile::Open(folder.Write("model.gguf", "GGUF\x03 and the rest")));
  page->Add(
      "… of a file that `torch.save` has made",
      SafetensorsFile::Open(folder.Write("model.pt", "PK\x03\x04 and the rest of an archive")));
  page->Add("… of a file that was cut off",
            SafetensorsFile::Open(folder.Write("cut", Safetensors("F32", 8).substr(0, 70))));
  page->Add("… of a file with an unknown dtype",
            SafetensorsFile::Open(folder.Write("dtype", Safetensors("F33", 8))));
  TENSORD_ERROR_ROW(page, file->Load(cpu, "wieght"));
  TENSORD_ERROR_ROW(page, file->Load(cpu, "bias"));
  const auto narrow = SafetensorsFile::Open(folder.Write("narrow", Safetensors("F8_E5M2", 2)));
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  page->Add("`Load` of a float8 tensor", narrow->Load(cpu, "weight"));
  page->Add("`SaveSafetensors` into a folder that doesn't exist",
            SaveSafetensors(folder.File("none/file"), {{"weight", Ones(cpu, {2})}}));
  page->Add("`SaveSafetensors` of a failed tensor",
            SaveSafetensors(path, {{"weight", Zeros(cpu, {-1})}}));
}

}  // namespace tensord::integration
