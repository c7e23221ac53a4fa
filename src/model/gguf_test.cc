#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <limits>

#include "support/gguf_writer.h"

namespace headwater::model {
namespace {

using headwater::testing::GgufWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 0.25f * static_cast<float>(i % 32) - 3.0f;
  return values;
}

GgufWriter sample() {
  GgufWriter writer;
  writer.value("a.u8", uint8_t{200}).value("a.i8", int8_t{-3}).value("a.u16", uint16_t{60000});
  writer.value("a.i16", int16_t{-30000}).value("a.u32", uint32_t{4000000000}).value("a.i32", int32_t{-2000000000});
  writer.value("a.u64", std::numeric_limits<uint64_t>::max()).value("a.i64", int64_t{-5});
  writer.value("a.f32", 0.5f).value("a.f64", 1e300).value("a.bool", true).value("a.string", std::string("llama"));
  writer.array("b.strings", std::vector<std::string>{"one", "", "three"});
  writer.array("b.integers", std::vector<int32_t>{-1, 2, 3}).array("b.floats", std::vector<float>{0.25f, -1.0f});
  writer.array("b.bools", std::vector<bool>{true, false}).array("b.none", std::vector<uint8_t>{});
  writer.tensor("t.f32", DType::kF32, {3}, ramp(3)).tensor("t.f16", DType::kF16, {4, 3}, ramp(12));
  writer.tensor("t.bf16", DType::kBF16, {2, 2, 2, 2}, ramp(16)).tensor("t.q8_0", DType::kQ8_0, {64, 2}, ramp(128));
  writer.tensor("t.q4_1", DType::kQ4_1, {32, 5}, ramp(160)).tensor("t.q4_0", DType::kQ4_0, {32, 5}, ramp(160));
  return writer;
}

// The error that the reader gives for `image`; fails the test when it gives none.
Status refusal(std::span<const std::byte> image) {
  // The image in its own allocation: an address sanitizer sees a read past its end.
  const std::vector<std::byte> exact(image.begin(), image.end());
  auto file = GgufFile::parse(exact);
  EXPECT_FALSE(file.is_ok());
  return file.status();
}

Status refusal(const GgufWriter& writer) {
  return refusal(writer.image());
}

void expect_corrupt(const Status& status, const char* text) {
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt) << status.message();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("offset "), HasSubstr(text)));
}

void expect_unsupported(const Status& status, const char* text) {
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << status.message();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("offset "), HasSubstr(text)));
}

void put_u32(std::vector<std::byte>& image, size_t position, uint32_t number) {
  std::memcpy(image.data() + position, &number, sizeof(number));
}

TEST(Gguf, ReadsEveryMetadataType) {
  const auto image = sample().image();
  auto file = GgufFile::parse(image);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(file->entries().size(), 17u);
  EXPECT_EQ(file->unsigned_at("a.u8").value(), 200u);
  EXPECT_EQ(file->integer_at("a.i8").value(), -3);
  EXPECT_EQ(file->unsigned_at("a.u16").value(), 60000u);
  EXPECT_EQ(file->integer_at("a.i16").value(), -30000);
  EXPECT_EQ(file->integer_at("a.u32").value(), 4000000000);
  EXPECT_EQ(file->number_at("a.i32").value(), -2000000000.0);
  EXPECT_EQ(file->unsigned_at("a.u64").value(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(file->integer_at("a.i64").value(), -5);
  EXPECT_EQ(file->number_at("a.f32").value(), 0.5);
  EXPECT_EQ(file->number_at("a.f64").value(), 1e300);
  EXPECT_TRUE(file->bool_at("a.bool").value());
  EXPECT_EQ(file->string_at("a.string").value(), "llama");
  EXPECT_THAT(file->strings_at("b.strings").value(), ElementsAre("one", "", "three"));
  EXPECT_THAT(file->integers_at("b.integers").value(), ElementsAre(-1, 2, 3));
  EXPECT_THAT(file->numbers_at("b.floats").value(), ElementsAre(0.25, -1.0));
  EXPECT_THAT(file->numbers_at("b.none").value(), ElementsAre());
  EXPECT_TRUE(file->has("b.bools"));
  EXPECT_FALSE(file->has("b"));
}

TEST(Gguf, ReadsEveryTensorType) {
  const auto image = sample().image();
  auto file = GgufFile::parse(image);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 6u);
  EXPECT_EQ(file->file_bytes(), image.size());
  EXPECT_EQ(file->find("t"), nullptr);
  for (const Tensor& tensor : file->tensors()) {
    EXPECT_EQ(file->find(tensor.name), &tensor);
    EXPECT_EQ(tensor.data.data(), image.data() + tensor.file_offset);
    EXPECT_EQ(tensor.file_offset % 32, 0u);
    EXPECT_EQ(tensor.data.size(), tensor.rows() * row_bytes(tensor.dtype, tensor.columns()));
    std::vector<float> values(tensor.rows() * tensor.columns());
    dequantize_row(tensor.dtype, tensor.data.data(), values.size(), values.data());
    const float tolerance = block_elements(tensor.dtype) == 1 ? 0.0f : 0.3f;  // half a step of Q4_1 over this range
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], ramp(i + 1)[i], tolerance) << tensor.name << " element " << i;
    }
  }
  EXPECT_THAT(file->find("t.bf16")->shape, ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(file->find("t.bf16")->rows(), 8u);
}

TEST(Gguf, KnowsTheNumberOfEveryWeightType) {
  for (const DType dtype : headwater::testing::weight_types()) {
    ASSERT_TRUE(gguf_number(dtype)) << to_string(dtype);
    EXPECT_EQ(gguf_dtype(*gguf_number(dtype)), dtype);
  }
  EXPECT_EQ(gguf_number(DType::kQ6_K), 14u);
  EXPECT_EQ(gguf_number(DType::kMXFP4), 39u);
  EXPECT_FALSE(gguf_number(DType::kI64));
  EXPECT_FALSE(gguf_dtype(9));
}

TEST(Gguf, HonoursTheAlignmentOfTheFile) {
  GgufWriter writer;
  writer.alignment(256).tensor("a", DType::kF32, {1}, ramp(1)).tensor("b", DType::kF32, {1}, ramp(1));
  const auto image = writer.image();
  auto file = GgufFile::parse(image);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(file->alignment(), 256u);
  EXPECT_EQ(file->find("b")->file_offset, file->find("a")->file_offset + 256);
}

TEST(Gguf, ReadsAFileWithoutTensors) {
  GgufWriter writer;
  writer.value("k", uint8_t{1});
  EXPECT_TRUE(GgufFile::parse(writer.image()).is_ok());
}

TEST(Gguf, NamesTheKeyThatIsMissing) {
  const auto image = sample().image();
  const auto status = GgufFile::parse(image)->unsigned_at("llama.block_count").status();
  EXPECT_EQ(status.code(), ErrorCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("llama.block_count"));
}

TEST(Gguf, NamesTheTypeThatWasFound) {
  const auto image = sample().image();
  auto file = GgufFile::parse(image);
  const auto expect = [](const Status& status, const char* text) {
    EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  const auto of_bool = std::ranges::find(file->entries(), "a.bool", &GgufFile::Entry::key);
  EXPECT_EQ(image[of_bool->offset], std::byte{1});
  EXPECT_THAT(file->unsigned_at("a.bool").status().message(), HasSubstr(fmt::format("offset {}: ", of_bool->offset)));
  expect(file->unsigned_at("a.i8").status(), "holds -3 (i8); expected an integer of at least 0");
  expect(file->unsigned_at("a.f32").status(), "holds 0.5 (f32)");
  expect(file->unsigned_at("a.bool").status(), "holds true (bool)");
  expect(file->integer_at("a.u64").status(), "18446744073709551615");
  expect(file->number_at("a.string").status(), "holds \"llama\" (string); expected a number");
  expect(file->bool_at("a.u8").status(), "expected a bool");
  expect(file->string_at("b.strings").status(), "(array of string); expected a string");
  expect(file->strings_at("a.string").status(), "expected an array of strings");
  expect(file->strings_at("b.integers").status(), "(array of i32); expected an array of strings");
  expect(file->integers_at("b.floats").status(), "expected an array of integers");
  expect(file->integers_at("a.i32").status(), "expected an array of integers");
  expect(file->numbers_at("b.strings").status(), "expected an array of numbers");
}

TEST(Gguf, DescribesValuesOnOnePrintableLine) {
  GgufWriter writer = sample();
  writer.value("c.text", std::string("a\"b\\c\nd\x1b[31m\xc2\x9b\xff \xc4\xa0"));
  writer.array("c.many", std::vector<uint16_t>{1, 2, 3, 4, 5, 6});
  const auto image = writer.image();
  auto file = GgufFile::parse(image);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(file->describe("a.f32", 80), "0.5");
  EXPECT_EQ(file->describe("a.i8", 80), "-3");
  EXPECT_EQ(file->describe("a.bool", 80), "true");
  EXPECT_EQ(file->describe("a.string", 80), "\"llama\"");
  EXPECT_EQ(file->describe("a.string", 2), "\"ll...\"");
  EXPECT_EQ(file->describe("b.strings", 80), "[3] \"one\", \"\", \"three\"");
  EXPECT_EQ(file->describe("b.strings", 3), "[3] \"one\", ...");
  EXPECT_EQ(file->describe("b.none", 80), "[0]");
  EXPECT_EQ(file->describe("c.many", 80), "[6] 1, 2, 3, 4, ...");
  EXPECT_EQ(file->describe("c.text", 80), "\"a\\\"b\\\\c\\nd\\x1b[31m\\xc2\\x9b\\xff \xc4\xa0\"");
  EXPECT_EQ(file->describe("absent", 80), "");
}

TEST(Gguf, OpensAFileAndKeepsItMapped) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("headwater_gguf_test_{}.gguf", getpid());
  sample().write(path);
  auto opened = GgufFile::open(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  GgufFile file = std::move(opened).value();
  EXPECT_EQ(file.string_at("a.string").value(), "llama");
  float first = 0;
  std::memcpy(&first, file.find("t.f32")->data.data(), sizeof(first));
  EXPECT_EQ(first, -3.0f);
}

TEST(Gguf, SaysWhichPathCannotBeOpened) {
  EXPECT_EQ(GgufFile::open("/nonexistent/model.gguf").status().code(), ErrorCode::kNotFound);
  EXPECT_THAT(GgufFile::open("/nonexistent/model.gguf").status().message(), HasSubstr("/nonexistent/model.gguf"));
  EXPECT_EQ(GgufFile::open("/").status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(GgufFile::open("/dev/null").status().message(), HasSubstr("is a pipe or a device; expected a file"));
}

TEST(GgufRefuses, AFileCutAtAnyByte) {
  const auto image = sample().image();
  for (size_t bytes = 0; bytes < image.size(); ++bytes) {
    ASSERT_EQ(refusal(std::span(image).first(bytes)).code(), ErrorCode::kCorrupt) << "cut at " << bytes;
  }
  EXPECT_TRUE(GgufFile::parse(image).is_ok());
}

TEST(GgufRefuses, EveryCountLengthAndSizeThatIsHuge) {
  const GgufWriter writer = sample();
  const auto image = writer.image();
  for (const GgufWriter::Field& field : writer.fields()) {
    for (const uint64_t huge : {uint64_t{1} << 63, uint64_t{1} << 60, ~uint64_t{0}, ~uint64_t{0} - 7,
                                uint64_t{0x7fffffffffffffe0}, uint64_t{0xfffffff0}, uint64_t{1} << 30}) {
      auto wrong = image;
      std::memcpy(wrong.data() + field.position, &huge, field.bytes);
      if (field.bytes == 4 && static_cast<uint32_t>(huge) == 0) continue;  // not huge in this width
      EXPECT_NE(refusal(wrong).code(), ErrorCode::kOk) << field.what << " at " << field.position << " set to " << huge;
    }
  }
}

TEST(GgufRefuses, OrReadsSafelyWhateverASingleByteBecomes) {
  const auto image = sample().image();
  size_t accepted = 0;
  for (size_t position = 0; position < image.size(); ++position) {
    for (const unsigned flip : {0x01u, 0x10u, 0x80u, 0xffu}) {
      auto wrong = image;
      wrong[position] ^= static_cast<std::byte>(flip);
      auto file = GgufFile::parse(wrong);
      if (!file) continue;
      ++accepted;
      for (const auto& entry : file->entries()) (void)file->describe(entry.key, 20);
      for (const auto& tensor : file->tensors()) {
        EXPECT_EQ(tensor.data.data() + tensor.data.size() <= wrong.data() + wrong.size(), true);
      }
    }
  }
  EXPECT_GT(accepted, 0u);  // bytes of values and of data may be anything
}

TEST(GgufRefuses, AnotherMagicVersionOrByteOrder) {
  auto image = sample().image();
  image[0] = std::byte{'X'};
  expect_corrupt(refusal(image), "GGUF");
  image = sample().image();
  for (const uint32_t version : {0u, 1u, 2u, 4u}) {
    put_u32(image, 4, version);
    expect_unsupported(refusal(image), fmt::format("version {}", version).c_str());
  }
  put_u32(image, 4, 0x03000000);
  expect_unsupported(refusal(image), "big-endian");
}

TEST(GgufRefuses, OtherFilesAndSaysWhatTheyAre) {
  const auto as_file = [](std::string_view text) {
    return refusal(std::as_bytes(std::span(text.data(), text.size())));
  };
  expect_corrupt(as_file("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull");
  expect_corrupt(as_file("PK\x03\x04zip"), "zip archive");
  expect_corrupt(as_file("<!DOCTYPE html>"), "download failed");
  expect_corrupt(as_file(std::string_view("\x02\0\0\0\0\0\0\0{}", 10)), "give its folder");
  EXPECT_THAT(as_file("something else").message(), ::testing::EndsWith("has the bytes \"GGUF\""));
}

TEST(GgufRefuses, TensorTypesItCannotRead) {
  const std::array<std::byte, 32> data = {};
  const auto with_type = [&](uint32_t type) { return refusal(GgufWriter().tensor_bytes("w", type, {32}, data)); };
  expect_unsupported(
      with_type(16),
      "tensor 'w' has type IQ2_XXS (16); supported are F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, "
      "Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16, MXFP4");
  expect_unsupported(with_type(27), "I64");
  expect_unsupported(with_type(99), "tensor 'w' has type unknown (99)");
  expect_unsupported(with_type(4), "unknown (4)");
}

TEST(GgufRefuses, ShapesThatWrapOrDoNotFit) {
  const std::array<std::byte, 160> data = {};
  const auto with_shape = [&](const std::vector<uint64_t>& shape, DType dtype) {
    return refusal(GgufWriter().tensor_bytes("w", GgufWriter::ggml_number(dtype), shape, data));
  };
  expect_corrupt(with_shape({4, 1073741823, 1073741825, 1}, DType::kF32), "needs");
  expect_corrupt(with_shape({1ull << 32, 1ull << 32}, DType::kF32), "exceeds 64 bits");
  expect_corrupt(with_shape({1ull << 32, 1ull << 31, 2, 4}, DType::kF16), "exceeds 64 bits");
  expect_corrupt(with_shape({1, 1, 1, 1, 1}, DType::kF32), "5 dimensions");
  expect_corrupt(with_shape({0, 4}, DType::kF32), "a dimension of 0");
  expect_corrupt(with_shape({48, 2}, DType::kQ8_0), "blocks of 32");
  expect_corrupt(with_shape({}, DType::kQ4_1), "blocks of 32");
  expect_corrupt(with_shape({32, 9}, DType::kQ4_1), "needs 180 bytes from 0 of a data section of 160");
}

TEST(GgufRefuses, MoreEntriesTensorsOrSmallNumbersThanAnyModelHas) {
  GgufWriter entries, tensors;
  for (uint32_t i = 0; i <= 1 << 16; ++i) entries.value(fmt::format("k{}", i), true);
  expect_corrupt(refusal(entries), "65537 metadata entries; the limit is 65536");
  for (uint32_t i = 0; i <= 1 << 17; ++i) tensors.tensor_bytes(fmt::format("t{}", i), 0, {}, {});
  expect_corrupt(refusal(tensors), "131073 tensors; the limit is 131072");
  const auto image = GgufWriter().array("k", std::vector<uint8_t>((1 << 21) + 1)).image();
  auto file = GgufFile::parse(image);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->integers_at("k").status().code(), ErrorCode::kUnsupported);
}

// Position and value of the field of the last tensor's offset.
void move_last_tensor(const GgufWriter& writer, std::vector<std::byte>& image, uint64_t offset) {
  std::memcpy(image.data() + writer.fields().back().position, &offset, sizeof(offset));
}

TEST(GgufRefuses, TensorsThatOverlap) {
  GgufWriter writer;
  writer.tensor("a", DType::kF32, {16}, ramp(16)).tensor("b", DType::kF32, {4}, ramp(4));
  auto image = writer.image();
  for (const uint64_t offset : {uint64_t{0}, uint64_t{32}}) {
    move_last_tensor(writer, image, offset);
    const Status status = refusal(image);
    expect_corrupt(status, "begins within tensor");
  }
  EXPECT_THAT(refusal(image).message(), HasSubstr("tensor 'b' begins within tensor 'a', which lies from "));
}

TEST(Gguf, ReadsTensorsBehindHolesAndBytesBehindTheLastOne) {
  GgufWriter writer;
  writer.tensor("a", DType::kF32, {16}, ramp(16)).tensor("b", DType::kF32, {4}, ramp(4));
  auto image = writer.image();
  image.resize(image.size() + 1000);
  move_last_tensor(writer, image, 512);
  auto file = GgufFile::parse(image);
  ASSERT_TRUE(file) << file.status().message();
  EXPECT_EQ(file->find("b")->file_offset, file->find("a")->file_offset + 512);
}

TEST(GgufRefuses, AFileThatEndsBeforeItsData) {
  const GgufWriter writer = GgufWriter().tensor("a", DType::kF32, {16}, ramp(16));
  const auto image = writer.image();
  const uint64_t data = image.size() - 64, infos = writer.fields().back().position + 8;
  ASSERT_LT(infos, data);
  expect_corrupt(
      refusal(std::span(image).first(infos)),
      fmt::format("offset {}: the file ends where the data of its 1 tensors should begin, at {}", infos, data).c_str());
}

TEST(GgufRefuses, NamesAndKeysThatAreLongOrSteerATerminal) {
  const auto with_key = [](std::string_view key) { return refusal(GgufWriter().value(key, uint8_t{1})); };
  const Status twice = refusal(GgufWriter().value(std::string(60000, 'k'), true).value(std::string(60000, 'k'), true));
  expect_corrupt(twice, "kkk...' appears twice");
  EXPECT_LT(twice.message().size(), 120u);
  expect_corrupt(with_key("a\x1b[31m"), "the metadata key \"a\\x1b[31m\" is empty or not printable ASCII");
}

TEST(GgufRefuses, OffsetsThatAreNotAligned) {
  GgufWriter writer = sample();
  auto image = writer.image();
  for (const GgufWriter::Field& field : writer.fields()) {
    if (field.what != "offset") continue;
    auto wrong = image;
    wrong[field.position] |= std::byte{1};
    expect_corrupt(refusal(wrong), "multiples of 32");
  }
}

TEST(GgufRefuses, AlignmentsThatAreNotPowersOfTwo) {
  for (const uint32_t alignment : {0u, 1u, 3u, 4u, 24u, 33u}) {
    expect_corrupt(refusal(GgufWriter().value("general.alignment", alignment)), "power of two");
  }
  expect_corrupt(refusal(GgufWriter().value("general.alignment", uint64_t{32})), "of type u64");
  expect_corrupt(refusal(GgufWriter().value("general.alignment", std::string("32"))), "of type string");
}

TEST(GgufRefuses, NamesThatRepeatAreEmptyOrTooLong) {
  expect_corrupt(refusal(GgufWriter().value("k", true).value("k", true)), "'k' appears twice");
  expect_corrupt(refusal(GgufWriter().value("", true)), "empty");
  expect_corrupt(refusal(GgufWriter().value(std::string(65536, 'k'), true)), "the limit is 65535");
  EXPECT_TRUE(GgufFile::parse(GgufWriter().value(std::string(65535, 'k'), true).image()).is_ok());
  const auto with_names = [](const std::string& first, const std::string& second) {
    GgufWriter writer;
    writer.tensor(first, DType::kF32, {1}, ramp(1)).tensor(second, DType::kF32, {1}, ramp(1));
    return writer;
  };
  expect_corrupt(refusal(with_names("w", "w")), "'w' appears twice");
  expect_corrupt(refusal(with_names("w", "")), "empty");
  expect_corrupt(refusal(with_names("w", std::string(65, 'w'))), "the limit is 64");
  EXPECT_TRUE(GgufFile::parse(with_names("w", std::string(64, 'w')).image()).is_ok());
}

TEST(GgufRefuses, BoolsThatAreNeitherZeroNorOne) {
  GgufWriter writer;
  auto image = writer.value("k", true).image();
  image[24 + 8 + 1 + 4] = std::byte{2};  // after the header: key length, key, type
  expect_corrupt(refusal(image), "has the bool 2");
  image = GgufWriter().array("k", std::vector<bool>{true, false}).image();
  image[24 + 8 + 1 + 4 + 4 + 8 + 1] = std::byte{255};
  expect_corrupt(refusal(image), "has the bool 255");
}

TEST(GgufRefuses, ArraysOfArraysAndUnknownValueTypes) {
  auto image = GgufWriter().array("k", std::vector<uint8_t>(64)).image();
  put_u32(image, 24 + 8 + 1 + 4, 9);
  expect_unsupported(refusal(image), "array of arrays");
  put_u32(image, 24 + 8 + 1 + 4, 13);
  expect_corrupt(refusal(image), "value type 13");
}

}  // namespace
}  // namespace headwater::model
