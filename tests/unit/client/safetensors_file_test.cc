#include "tensord/client/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace tensord {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

namespace fs = std::filesystem;

// A temporary folder, which the destructor deletes.
class SafetensorsFileTest : public testing::Test {
 protected:
  SafetensorsFileTest() {
    std::string name = testing::TempDir() + "/safetensors.XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~SafetensorsFileTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  std::string Write(uint64_t header_bytes, const std::string& rest) const {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &header_bytes, 8);
    return WriteRaw(bytes + rest);
  }

  std::string WriteRaw(const std::string& bytes) const {
    std::ofstream(Path("x.safetensors"), std::ios::binary) << bytes;
    return Path("x.safetensors");
  }

  fs::path folder_;
};

TEST_F(SafetensorsFileTest, ReadsARealFile) {
  const SafetensorsFile file =
      SafetensorsFile::Open(TENSORD_SOURCE_DIR "/tests/data/digits_mlp.safetensors").value();
  EXPECT_THAT(file.names(),
              ElementsAre("0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"));
  EXPECT_THAT(file.metadata(), Contains(Pair("input", "pixel/16")));
  EXPECT_EQ(file.spec("2.weight").value(), (TensorSpec{DType::kFloat32, {64, 128}}));
  EXPECT_EQ(file.bytes("4.bias").value().size(), 40u);
  EXPECT_TRUE(file.contains("4.bias"));
  EXPECT_FALSE(file.contains("6.bias"));
}

TEST_F(SafetensorsFileTest, GivesTheBytesOfEachTensor) {
  const std::string header = R"({"b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]},)"
                             R"("a": {"dtype": "I8", "shape": [], "data_offsets": [0, 1]}})";
  const SafetensorsFile file = SafetensorsFile::Open(Write(header.size(), header + "xyz")).value();
  EXPECT_THAT(file.bytes("a").value(), ElementsAre('x'));
  EXPECT_THAT(file.bytes("b").value(), ElementsAre('y', 'z'));
  EXPECT_EQ(file.spec("a").value(), (TensorSpec{DType::kInt8, {}}));
}

TEST_F(SafetensorsFileTest, TheMappingOutlivesTheFile) {
  const std::string header = R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})";
  const std::string path = Write(header.size(), header + "x");
  const SafetensorsFile file = SafetensorsFile::Open(path).value();
  fs::remove(path);
  EXPECT_THAT(file.bytes("a").value(), ElementsAre('x'));
}

TEST_F(SafetensorsFileTest, UnknownDTypeFailsOnlyItsTensor) {
  const std::string header = R"({"q": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]},)"
                             R"("a": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]}})";
  const SafetensorsFile file = SafetensorsFile::Open(Write(header.size(), header + "xyz")).value();
  EXPECT_TRUE(file.spec("a").ok());
  for (const absl::Status& status :
       {file.spec("q").status(), file.bytes("q").status(), file.Load(Device(), "q").status(),
        file.LoadAll(Device()).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr("\"q\" has dtype F8_E4M3"));
  }
}

TEST_F(SafetensorsFileTest, ReadsUnsignedAndComplexTensors) {
  const std::string header = R"({"u": {"dtype": "U16", "shape": [1], "data_offsets": [8, 10]},)"
                             R"("c": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}})";
  const SafetensorsFile file =
      SafetensorsFile::Open(Write(header.size(), header + "01234567xy")).value();
  EXPECT_EQ(file.spec("u").value(), (TensorSpec{DType::kUInt16, {1}}));
  EXPECT_THAT(file.bytes("u").value(), ElementsAre('x', 'y'));
  EXPECT_EQ(file.spec("c").value(), (TensorSpec{DType::kComplex64, {1}}));
}

TEST_F(SafetensorsFileTest, AMissingTensorIsNotFound) {
  const SafetensorsFile file = SafetensorsFile::Open(Write(2, "{}")).value();
  EXPECT_EQ(file.spec("a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(file.Load(Device(), "a").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsFileTest, AMissingFileIsNotFound) {
  const absl::Status status = SafetensorsFile::Open(Path("none")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(Path("none")));
}

TEST_F(SafetensorsFileTest, AFolderIsRefused) {
  const absl::Status status = SafetensorsFile::Open(folder_.string()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SafetensorsFileTest, WrongHeaderLengthsAreRefused) {
  const auto complaint = [](const std::string& path) {
    const absl::Status status = SafetensorsFile::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(complaint(WriteRaw("")), HasSubstr("has 0 bytes"));
  EXPECT_THAT(complaint(WriteRaw("1234567")), HasSubstr("has 7 bytes"));
  EXPECT_THAT(complaint(Write(3, "{}")), HasSubstr("3 bytes, but only 2 bytes follow"));
  EXPECT_THAT(complaint(Write(0, "{}")), HasSubstr("doesn't begin with"));
  EXPECT_THAT(complaint(Write(~uint64_t{0}, "{}")), HasSubstr("the limit is"));
  EXPECT_THAT(complaint(Write(100'000'001, "{}")), HasSubstr("the limit is"));
  EXPECT_THAT(complaint(Write(1, "{}")), HasSubstr("isn't JSON"));
}

// torch.save writes a zip archive, and wrote a pickle before PyTorch 1.6.
TEST_F(SafetensorsFileTest, APyTorchFileIsRefusedWithTheWayToConvertIt) {
  const std::string zip("PK\x03\x04\x00\x00\x08\x08\x00\x00 archive/data.pkl", 26);
  const std::string pickle("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.", 15);
  for (const std::string& bytes : {zip, pickle}) {
    const absl::Status status = SafetensorsFile::Open(WriteRaw(bytes)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("it may be a file of torch.save (.pt, .pth)"));
    EXPECT_THAT(status.message(), HasSubstr("safetensors.torch.save_file"));
  }
  EXPECT_THAT(SafetensorsFile::Open(WriteRaw(zip)).status().message(), HasSubstr("a zip archive"));
  EXPECT_THAT(SafetensorsFile::Open(WriteRaw(pickle)).status().message(), HasSubstr("a pickle"));
  // A damaged safetensors file may begin with the same byte.
  EXPECT_THAT(SafetensorsFile::Open(Write(0x280, "{}")).status().message(),
              HasSubstr("640 bytes, but only 2 bytes follow"));
}

TEST_F(SafetensorsFileTest, AFileOfAnotherFormatIsRefusedWithTheNameOfTheFormat) {
  const std::pair<std::string, const char*> kCases[] = {
      {"\x93NUMPY\x01 and the rest", "it begins as a NumPy file (.npy); convert it"},
      {"GGUF\x03 and the rest", "it begins as a GGUF file"},
      {"\x89HDF\r\n\x1a\n and the rest", "it begins as an HDF5 file"},
      {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
      {"<!DOCTYPE html>\n", "it begins as text"}};
  for (const auto& [bytes, what] : kCases) {
    const absl::Status status = SafetensorsFile::Open(WriteRaw(bytes)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(status.message(), HasSubstr("not a safetensors file"));
  }
}

TEST_F(SafetensorsFileTest, FailedSaveKeepsTheOldFile) {
  const std::string path = WriteRaw("old");
  const Tensor failed = Tensor::Failed(absl::InternalError("broken"));
  const absl::Status status = SaveSafetensors(path, {{"t", failed}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("\"t\""));
  EXPECT_EQ(SaveSafetensors(path, {}, {{"a", "\xff"}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(fs::file_size(path), 3u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(SafetensorsFileTest, SavesMetadataAndReplacesTheFile) {
  const std::string path = WriteRaw("old");
  ASSERT_TRUE(SaveSafetensors(path, {}, {{"key", "vålue"}}).ok());
  const SafetensorsFile file = SafetensorsFile::Open(path).value();
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("key", "vålue")));
  EXPECT_EQ(fs::file_size(path) % 8, 0u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(SafetensorsFileTest, SavingIntoAMissingFolderIsNotFound) {
  EXPECT_EQ(SaveSafetensors(Path("none/x"), {}).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tensord
