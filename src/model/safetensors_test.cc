#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>

#include "model/checkpoint.h"
#include "model/f8_weight.h"
#include "model/safetensors_header.h"
#include "model/transformer/weights.h"
#include "support/safetensors_writer.h"

namespace headwater::model {
namespace {

using headwater::testing::SafetensorsWriter;
using headwater::testing::TestFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) - 2.5f;
  return values;
}

SafetensorsWriter sample() {
  SafetensorsWriter writer;
  writer.entry(R"("__metadata__": {"format": "pt"})");
  writer.tensor("a.weight", DType::kBF16, {3, 4}, ramp(12)).tensor("b", DType::kF32, {}, ramp(1));
  writer.tensor_bytes("position_ids", "I64", {2}, std::vector<std::byte>(16));
  writer.tensor("c", DType::kF16, {2, 0, 5}, {});
  return writer;
}

Status refusal(std::span<const std::byte> image) {
  const std::vector<std::byte> exact(image.begin(), image.end());  // an address sanitizer sees a read past its end
  auto contents = parse_safetensors(exact);
  EXPECT_FALSE(contents.is_ok());
  return contents.status();
}

void expect_corrupt(std::span<const std::byte> image, const char* text) {
  const Status status = refusal(image);
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt) << status.message();
  EXPECT_THAT(status.message(), ::testing::AllOf(HasSubstr("offset "), HasSubstr(text)));
}

// A header of one tensor 'w' of 16 bytes, whose fields are these.
std::vector<std::byte> with_entry(std::string_view fields, size_t data_bytes = 16) {
  return SafetensorsWriter::image_of(fmt::format(R"({{"w": {{{}}}}})", fields), std::vector<std::byte>(data_bytes));
}

TEST(Safetensors, ReadsTensorsColumnsFirst) {
  const std::vector<std::byte> image = sample().image();
  auto contents = parse_safetensors(image);
  ASSERT_TRUE(contents) << contents.status().message();
  ASSERT_EQ(contents->tensors.size(), 4u);
  const Tensor& a = contents->tensors[0];
  EXPECT_EQ(a.name, "a.weight");
  EXPECT_THAT(a.shape, ElementsAre(4, 3));
  EXPECT_EQ(a.rows(), 3u);
  EXPECT_EQ(a.data.data(), image.data() + a.file_offset);
  std::vector<float> values(12);
  dequantize_row(a.dtype, a.data.data(), 12, values.data());
  EXPECT_EQ(values, ramp(12));
  EXPECT_THAT(contents->tensors[1].shape, ElementsAre());
  EXPECT_EQ(contents->tensors[2].dtype, DType::kI64);
  EXPECT_EQ(contents->tensors[3].data.size(), 0u);
}

TEST(SafetensorsRefuses, AFileCutAtAnyByte) {
  const auto image = sample().image();
  for (size_t bytes = 0; bytes < image.size(); ++bytes) {
    ASSERT_EQ(refusal(std::span(image).first(bytes)).code(), ErrorCode::kCorrupt) << "cut at " << bytes;
  }
}

TEST(SafetensorsRefuses, AHeaderBeyondTheFileOrThatIsNotJson) {
  auto image = sample().image();
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{image.size()}}) {
    std::memcpy(image.data(), &length, sizeof(length));
    expect_corrupt(image, "offset 0: a header of");
  }
  expect_corrupt(SafetensorsWriter::image_of("not json", {}), "not JSON from offset");
  expect_corrupt(SafetensorsWriter::image_of("[]", {}), "no JSON object");
  expect_corrupt(SafetensorsWriter::image_of("", {}), "complete");
  expect_corrupt(SafetensorsWriter::image_of(R"({"w": 3})", {}), "\"dtype\"");
}

TEST(SafetensorsRefuses, OffsetsOutOfRangeOverlappingOrWithHoles) {
  const std::vector<std::byte> data(16);
  const auto two = [&](std::string_view first, std::string_view second) {
    const std::string header = fmt::format(
        R"({{"u": {{"dtype": "U8", "shape": [8], "data_offsets": {}}}, "v": {{"dtype": "U8", "shape": [8], "data_offsets": {}}}}})",
        first, second);
    return SafetensorsWriter::image_of(header, data);
  };
  EXPECT_TRUE(parse_safetensors(two("[8, 16]", "[0, 8]")));
  expect_corrupt(two("[0, 8]", "[4, 12]"), "'v' overlaps");
  expect_corrupt(two("[0, 8]", "[0, 8]"), "overlaps");
  expect_corrupt(two("[1, 9]", "[9, 17]"), "cut or damaged");
  expect_corrupt(two("[8, 0]", "[8, 16]"), "[8, 0)");
  expect_corrupt(two("[0, 8]", "[18446744073709551608, 18446744073709551615]"), "cut or damaged");
  expect_corrupt(with_entry(R"("dtype": "U8", "shape": [8], "data_offsets": [8, 16])"), "hole");
  expect_corrupt(with_entry(R"("dtype": "U8", "shape": [8], "data_offsets": [0, 8])"), "8 bytes follow");
  expect_corrupt(with_entry(R"("dtype": "U8", "shape": [16], "data_offsets": [0])"), "cut or damaged");
  expect_corrupt(with_entry(R"("dtype": "U8", "shape": [16], "data_offsets": [0, 16, 16])"), "data_offsets");
}

TEST(SafetensorsRefuses, ShapesThatWrapOrAreNotWhatLiesThere) {
  const auto with_shape = [](std::string_view shape) {
    return with_entry(fmt::format(R"("dtype": "F32", "shape": {}, "data_offsets": [0, 16])", shape));
  };
  EXPECT_TRUE(parse_safetensors(with_shape("[2, 2]")));
  expect_corrupt(with_shape("[4, 1073741823, 1073741825, 1]"), "not what its shape");
  expect_corrupt(with_shape("[4611686018427387904, 4]"), "not what its shape");
  expect_corrupt(with_shape("[3]"), "not what its shape");
  expect_corrupt(with_shape("[-4]"), "\"shape\"");
  expect_corrupt(with_shape("[4.0]"), "\"shape\"");
  expect_corrupt(with_shape("4"), "\"shape\"");
  expect_corrupt(with_shape("[1, 1, 1, 1, 1, 1, 1, 1, 4]"), "at most 8");
}

TEST(SafetensorsRefuses, NamesThatRepeatAndDtypesItDoesNotKnow) {
  const std::vector<std::byte> data(8);
  SafetensorsWriter writer;
  writer.tensor_bytes("w", "U8", {8}, data).tensor_bytes("w", "U8", {8}, data);
  expect_corrupt(writer.image(), "tensor 'w' appears twice");
  expect_corrupt(SafetensorsWriter().tensor_bytes("", "U8", {8}, data).image(), "empty");
  expect_corrupt(SafetensorsWriter().tensor_bytes(std::string(2000, 'w'), "U8", {8}, data).image(),
                 "www...\" has 2000 bytes; the limit is 1024");
  for (const char* dtype : {"F8_E5M2", "Q4_0", "u8", "\\u001b[31m"}) {
    const Status status = refusal(SafetensorsWriter().tensor_bytes("w", dtype, {8}, data).image());
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << dtype;
    EXPECT_THAT(status.message(), HasSubstr("supported are F32, F16, BF16"));
  }
}

TEST(SafetensorsRefuses, OrReadsSafelyWhateverASingleByteBecomes) {
  const auto image = sample().image();
  for (size_t position = 0; position < image.size(); ++position) {
    for (const unsigned flip : {0x01u, 0x10u, 0x80u, 0xffu}) {
      auto wrong = image;
      wrong[position] ^= static_cast<std::byte>(flip);
      auto contents = parse_safetensors(wrong);
      if (!contents) continue;
      for (const Tensor& tensor : contents->tensors) {
        EXPECT_LE(tensor.data.data() + tensor.data.size(), wrong.data() + wrong.size());
      }
    }
  }
}

TEST(SafetensorsFolder, ReadsOneFileAndItsNeighbours) {
  TestFolder folder;
  folder.write("config.json", R"({"model_type": "llama"})").write("model.safetensors", sample().image());
  folder.write("tokenizer.json", "{}").write("empty.txt", "");
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened) << opened.status().message();
  const Checkpoint checkpoint = std::move(opened).value();
  ASSERT_NE(checkpoint.folder(), nullptr);
  EXPECT_EQ(checkpoint.gguf(), nullptr);
  EXPECT_EQ(checkpoint.folder()->config().at("model_type"), "llama");
  EXPECT_EQ(checkpoint.folder()->text("tokenizer.json").value(), "{}");
  EXPECT_THAT(checkpoint.folder()->text("empty.txt").status().message(), HasSubstr("is empty: fetch it again"));
  EXPECT_EQ(checkpoint.folder()->text("chat_template.jinja").status().code(), ErrorCode::kNotFound);
  EXPECT_EQ(checkpoint.folder()->text("../etc/passwd").status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(checkpoint.tensors().size(), 4u);
  EXPECT_EQ(checkpoint.find("a.weight")->columns(), 4u);
  EXPECT_EQ(checkpoint.find("a"), nullptr);
  EXPECT_EQ(checkpoint.file_bytes(), sample().image().size());
  checkpoint.drop_resident();
}

TEST(SafetensorsFolder, ReadsTheFilesThatTheIndexNames) {
  TestFolder folder;
  folder.write("config.json", "{}");
  folder.write("one.safetensors", SafetensorsWriter().tensor("a", DType::kF32, {2}, ramp(2)).image());
  folder.write("two.safetensors", SafetensorsWriter().tensor("b", DType::kF32, {3}, ramp(3)).image());
  const auto open_with = [&](std::string_view map) {
    folder.write("model.safetensors.index.json", fmt::format(R"({{"weight_map": {}}})", map));
    return SafetensorsFolder::open(folder.path());
  };
  auto both = open_with(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  ASSERT_TRUE(both) << both.status().message();
  EXPECT_EQ(both->tensors().size(), 2u);
  EXPECT_EQ(both->find("b")->columns(), 3u);
  const auto expect = [&](std::string_view map, ErrorCode code, const char* text) {
    const Status status = open_with(map).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  expect(R"({"a": "one.safetensors", "b": "one.safetensors"})", ErrorCode::kCorrupt, "'b' is said to be in");
  expect(R"({"a": "one.safetensors", "b": "three.safetensors"})", ErrorCode::kNotFound, "three.safetensors");
  expect(R"({"a": "../one.safetensors"})", ErrorCode::kCorrupt, "no name of a file");
  expect(R"({"a": 1})", ErrorCode::kCorrupt, "no name of a file");
  expect("{}", ErrorCode::kCorrupt, "weight_map");
  expect("[", ErrorCode::kCorrupt, "not JSON from offset");
  folder.write("two.safetensors", SafetensorsWriter().tensor("a", DType::kF32, {2}, ramp(2)).image());
  expect(R"({"a": "one.safetensors", "b": "two.safetensors"})", ErrorCode::kCorrupt, "another file");
}

TEST(SafetensorsFolder, SaysWhichFileIsMissing) {
  TestFolder folder;
  EXPECT_THAT(SafetensorsFolder::open(folder.path()).status().message(), HasSubstr("has no config.json"));
  folder.write("config.json", "{}");
  EXPECT_THAT(SafetensorsFolder::open(folder.path()).status().message(), HasSubstr("has neither model.safetensors"));
  folder.write("pytorch_model.bin", "");
  EXPECT_THAT(SafetensorsFolder::open(folder.path()).status().message(), HasSubstr("pytorch_model.bin"));
  folder.write("config.json", "[]");
  EXPECT_EQ(SafetensorsFolder::open(folder.path()).status().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(Checkpoint::open(folder.file("nothing")).status().code(), ErrorCode::kNotFound);
}

// What has the name of a file and cannot be read is not taken for a file that is not there.
TEST(SafetensorsFolder, SaysWhyAFileThatIsThereCannotBeRead) {
  TestFolder test;
  test.write("config.json", "{}").write("a.json", "{}");
  const auto text = [&](const char* name) {
    return SafetensorsFolder::open_without_weights(test.path())->text_or_nothing(name);
  };
  EXPECT_EQ(text("chat_template.jinja").value(), "");
  std::filesystem::create_directory(test.file("chat_template.jinja"));
  std::filesystem::create_symlink("nowhere", test.file("tokenizer_config.json"));
  std::filesystem::create_symlink("loop.json", test.file("loop.json"));
  ASSERT_EQ(mkfifo(test.file("generation_config.json").c_str(), 0600), 0);
  for (const auto& [name, why] : {std::pair("chat_template.jinja", "is a folder; expected a file"),
                                  {"tokenizer_config.json", "it is a link to a file that is not there"},
                                  {"loop.json", "is there but cannot be opened: Too many levels of symbolic links"},
                                  {"generation_config.json", "is a pipe or a device; expected a file"}}) {
    const Status status = text(name).status();
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), ::testing::AllOf(HasSubstr(test.file(name)), HasSubstr(why)));
  }
  std::filesystem::create_symlink("nowhere", test.file("model.safetensors.index.json"));
  test.write("model.safetensors", sample().image());
  EXPECT_THAT(SafetensorsFolder::open(test.path()).status().message(), HasSubstr("it is a link to a file"));
  std::filesystem::remove(test.file("config.json"));
  std::filesystem::create_symlink("nowhere", test.file("config.json"));
  EXPECT_THAT(SafetensorsFolder::open(test.path()).status().message(), HasSubstr("it is a link to a file"));
}

TEST(SafetensorsFolder, RefusesFilesFarTooLargeForWhatTheyAre) {
  TestFolder test;
  test.write("config.json", "{}").write("tokenizer_config.json", "{}").write("tokenizer.json", "{}");
  const auto folder = SafetensorsFolder::open_without_weights(test.path());
  std::filesystem::resize_file(test.file("tokenizer_config.json"), uint64_t{2} << 30);
  std::filesystem::resize_file(test.file("tokenizer.json"), uint64_t{32} << 20);
  EXPECT_THAT(folder->text_or_nothing("tokenizer_config.json").status().message(),
              HasSubstr("has 2147483648 bytes; a file of that name has at most 16777216"));
  EXPECT_TRUE(folder->text("tokenizer.json"));
  std::filesystem::resize_file(test.file("config.json"), uint64_t{2} << 30);
  EXPECT_THAT(SafetensorsFolder::open(test.path()).status().message(), HasSubstr("at most 16777216"));
}

class F8Weight : public ::testing::Test {
 protected:
  // 130 x 3 codes and these scales beside them.
  Result<std::vector<uint16_t>> read(std::string_view suffix, DType dtype, const std::vector<uint64_t>& shape,
                                     const std::vector<float>& scales) {
    std::vector<std::byte> codes(390);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(0x30 + i % 16);
    SafetensorsWriter writer;
    writer.tensor_bytes("w.weight", "F8_E4M3", {130, 3}, codes);
    if (!suffix.empty()) writer.tensor(fmt::format("w.{}", suffix), dtype, shape, scales);
    folder_.write("config.json", "{}").write("model.safetensors", writer.image());
    const SafetensorsFolder folder = SafetensorsFolder::open(folder_.path()).value();
    return f8_weight_as_bf16(folder, *folder.find("w.weight"));
  }
  static uint16_t expected(size_t row, size_t column, float scale) {
    return f32_to_bf16(f8_e4m3_to_f32(static_cast<uint8_t>(0x30 + (row * 3 + column) % 16)) * scale);
  }

  TestFolder folder_;
};

TEST_F(F8Weight, HasOneScaleOneARowOrOneABlock) {
  const auto one = read("weight_scale", DType::kF32, {}, {0.3f});
  ASSERT_TRUE(one) << one.status().message();
  EXPECT_EQ((*one)[129 * 3 + 2], expected(129, 2, 0.3f));
  std::vector<float> rows(130);
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = 0.125f * static_cast<float>(r + 1);
  const auto by_row = read("weight_scale", DType::kBF16, {130, 1}, rows);
  ASSERT_TRUE(by_row) << by_row.status().message();
  EXPECT_EQ((*by_row)[77 * 3 + 1], expected(77, 1, rows[77]));
  const auto by_block = read("weight_scale_inv", DType::kF32, {2, 1}, {0.3f, 7.0f});
  ASSERT_TRUE(by_block) << by_block.status().message();
  EXPECT_EQ((*by_block)[127 * 3], expected(127, 0, 0.3f));
  EXPECT_EQ((*by_block)[128 * 3], expected(128, 0, 7.0f));
}

// Bytes of the heap that are in use; 0 under a sanitizer.
size_t heap_bytes() {
  return mallinfo2().uordblks;
}

TEST_F(F8Weight, IsInMemoryOneAtATimeWhereTheBackEndCopies) {
  constexpr uint64_t kRows = 128, kColumns = 256;
  const std::vector<std::byte> codes(kRows * kColumns, std::byte{0x30});
  SafetensorsWriter writer;
  std::vector<WeightPtr> places(6);
  std::vector<Slot> slots;
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string name = fmt::format("{}.weight", i);
    writer.tensor_bytes(name, "F8_E4M3", {kRows, kColumns}, codes)
        .tensor(name + "_scale", DType::kF32, {}, std::vector{1.0f});
    slots.push_back({.name = name, .columns = kColumns, .rows = kRows, .matrices = {&places[i]}});
  }
  folder_.write("config.json", "{}").write("model.safetensors", writer.image());
  const Checkpoint checkpoint = Checkpoint::open(folder_.path()).value();
  std::vector<size_t> in_use;
  const auto prepare = [&](const ops::WeightView&) {
    in_use.push_back(heap_bytes());
    return Result<WeightPtr>(WeightPtr());
  };
  ASSERT_TRUE(load_slots(checkpoint, slots, prepare, nullptr));
  ASSERT_EQ(in_use.size(), places.size());
  EXPECT_LT(in_use.back(), in_use.front() + kRows * kColumns * sizeof(uint16_t));
}

TEST_F(F8Weight, IsRefusedWithoutScalesOrWithOthers) {
  EXPECT_EQ(read("", DType::kF32, {}, {}).status().code(), ErrorCode::kNotFound);
  EXPECT_EQ(read("weight_scale", DType::kF32, {4}, ramp(4)).status().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace headwater::model
