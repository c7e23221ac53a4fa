#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "support/gguf_writer.h"
#include "support/safetensors_writer.h"

namespace headwater::model {
namespace {

using headwater::testing::GgufWriter;
using headwater::testing::TestFolder;
using ::testing::HasSubstr;

class GgufSplit : public ::testing::Test {
 protected:
  void write(std::string_view name, uint16_t number, uint16_t count, std::string_view tensor, int32_t tensors = 3) {
    GgufWriter writer;
    writer.value("split.no", number).value("split.count", count).value("split.tensors.count", tensors);
    if (number == 0) writer.value("general.architecture", std::string("llama"));
    writer.tensor(tensor, DType::kF32, {1}, std::vector<float>{static_cast<float>(number)});
    folder_.write(name, writer.image());
  }
  void write_three() {
    write("m-00001-of-00003.gguf", 0, 3, "a");
    write("m-00002-of-00003.gguf", 1, 3, "b");
    write("m-00003-of-00003.gguf", 2, 3, "c");
  }
  void expect(std::string_view name, ErrorCode code, const char* text) {
    const Status status = GgufFile::open(folder_.file(name)).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(text));
  }

  TestFolder folder_;
};

TEST_F(GgufSplit, OpensAllPartsFromAnyOfThem) {
  write_three();
  for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    auto file = GgufFile::open(folder_.file(name));
    ASSERT_TRUE(file) << file.status().message();
    EXPECT_EQ(file->parts(), 3u);
    EXPECT_EQ(file->tensors().size(), 3u);
    EXPECT_EQ(file->string_at("general.architecture").value(), "llama");
    float value = 0;
    std::memcpy(&value, file->find("c")->data.data(), sizeof(value));
    EXPECT_EQ(value, 2.0f);
    EXPECT_EQ(file->find("c"), &file->tensors()[2]);
    file->drop_resident();
  }
}

TEST_F(GgufSplit, IsOneCheckpoint) {
  write_three();
  auto opened = Checkpoint::open(folder_.file("m-00002-of-00003.gguf"));
  ASSERT_TRUE(opened) << opened.status().message();
  const Checkpoint checkpoint = std::move(opened).value();
  EXPECT_EQ(checkpoint.folder(), nullptr);
  EXPECT_EQ(checkpoint.gguf()->parts(), 3u);
  EXPECT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.find("b"), &checkpoint.tensors()[1]);
  EXPECT_EQ(checkpoint.file_bytes(), checkpoint.gguf()->file_bytes());
  checkpoint.drop_resident();
}

TEST_F(GgufSplit, SaysWhichPartIsMissingForeignOrDamaged) {
  write_three();
  std::filesystem::remove(folder_.file("m-00002-of-00003.gguf"));
  expect("m-00001-of-00003.gguf", ErrorCode::kNotFound, "part 2 of 3: cannot open");
  write("m-00002-of-00003.gguf", 2, 3, "b");
  expect("m-00001-of-00003.gguf", ErrorCode::kCorrupt, "says that it is part 3 of 3; its name says part 2 of 3");
  folder_.write("m-00002-of-00003.gguf", GgufWriter().image());
  expect("m-00001-of-00003.gguf", ErrorCode::kCorrupt, "no part of a split file");
  folder_.write("m-00002-of-00003.gguf", "GGUF");
  expect("m-00001-of-00003.gguf", ErrorCode::kCorrupt, "part 2 of 3: ");
  write("m-00002-of-00003.gguf", 1, 3, "a");
  expect("m-00001-of-00003.gguf", ErrorCode::kCorrupt, "tensor 'a' is in a part before it");
}

TEST_F(GgufSplit, RefusesCountsAndNamesThatDoNotFit) {
  write("m-00001-of-00002.gguf", 0, 2, "a", 5);
  write("m-00002-of-00002.gguf", 1, 2, "b", 5);
  expect("m-00002-of-00002.gguf", ErrorCode::kCorrupt, "hold 2 tensors; split.tensors.count is 5");
  write("renamed.gguf", 0, 2, "a");
  expect("renamed.gguf", ErrorCode::kNotFound, "-00001-of-00002.gguf");
  write("wrong.gguf", 2, 2, "a");
  expect("wrong.gguf", ErrorCode::kCorrupt, "split.no is 2 of a split.count of 2");
  write("alone.gguf", 0, 1, "a", 1);
  EXPECT_TRUE(GgufFile::open(folder_.file("alone.gguf")));
}

}  // namespace
}  // namespace headwater::model
