#include "text/sentencepiece_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/write_tokenizer.h"

namespace headwater::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kMarks = R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})";
constexpr std::string_view kMerges = R"("▁ a", "a b", "▁a b", "▁ ab")";

// A tokenizer.json of SentencePiece. after: what stands behind the model.
std::string sentencepiece(std::string_view merges, std::string_view after) {
  return fmt::format(R"({{"model": {{"type": "BPE", "byte_fallback": true, "unk_token": "<unk>", "merges": [{}],
    "vocab": {{"<unk>": 0, "<s>": 1, "<0x09>": 2, "\t": 2, "▁a": 3, "ab": 4, "▁ab": 5, "▁": 6, "a": 7, "b": 8, "xy": 9}}}},
    "added_tokens": [{{"id": 0, "content": "<unk>", "special": true}}, {{"id": 1, "content": "<s>", "special": true}},
                     {{"id": 9, "content": "xy", "special": false}}], {},
    "decoder": {{"type": "Sequence", "decoders": [{{"type": "ByteFallback"}}, {{"type": "Fuse"}}]}}}})",
                     merges, after);
}

Status write(const std::string& json, model::GgufHeader& header) {
  return write_tokenizer({json, R"({"bos_token": "<s>", "add_bos_token": true})", ""}, 11, header);
}

TEST(WriteTokenizer, OfSentencePieceHasScoresInTheOrderOfItsMerges) {
  model::GgufHeader header;
  const std::string json = sentencepiece(kMerges, fmt::format(R"("normalizer": {})", kMarks));
  const Status status = write(json, header);
  ASSERT_TRUE(status) << status.message();
  const std::vector<std::byte> image = header.bytes();
  const model::GgufFile file = model::GgufFile::parse(image).value();
  EXPECT_EQ(file.string_at("tokenizer.ggml.model").value(), "llama");
  EXPECT_FALSE(file.bool_at("tokenizer.ggml.add_space_prefix").value());
  EXPECT_THAT(file.strings_at("tokenizer.ggml.tokens").value(),
              ElementsAre("<unk>", "<s>", "<0x09>", "▁a", "ab", "▁ab", "▁", "a", "b", "xy", "[PAD10]"));
  EXPECT_THAT(file.integers_at("tokenizer.ggml.token_type").value(), ElementsAre(3, 3, 6, 1, 1, 1, 1, 1, 1, 4, 5));
  EXPECT_THAT(file.numbers_at("tokenizer.ggml.scores").value(),
              ElementsAre(-1e9, -1e9, -1e9, 0, -1, -2, -1e9, -1e9, -1e9, -1e9, -1e9));
  EXPECT_EQ(file.unsigned_at("tokenizer.ggml.bos_token_id").value(), 1u);
  EXPECT_EQ(file.unsigned_at("tokenizer.ggml.unknown_token_id").value(), 0u);
}

TEST(WriteTokenizer, OfSentencePieceSaysThatAMarkStandsInFront) {
  model::GgufHeader header;
  const std::string both =
      fmt::format(R"({{"type": "Sequence", "normalizers": [{{"type": "Prepend", "prepend": "▁"}}, {}]}})", kMarks);
  ASSERT_TRUE(write(sentencepiece(kMerges, R"("normalizer": )" + both), header));
  const std::vector<std::byte> image = header.bytes();
  EXPECT_TRUE(model::GgufFile::parse(image)->bool_at("tokenizer.ggml.add_space_prefix").value());
}

TEST(WriteTokenizer, RefusesWhatScoresOrTheReadersOfGgufDoNotSay) {
  const std::string marks = fmt::format(R"("normalizer": {})", kMarks);
  const auto refusal = [](const std::string& json) {
    model::GgufHeader header;
    const Status status = write(json, header);
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << json;
    return std::string(status.message());
  };
  for (const char* merges : {R"("▁ a", "a b", "▁a b")",             // "▁ ab" is a join as well
                             R"("▁ ab", "▁ a", "a b", "▁a b")"}) {  // which a score would not let come first
    EXPECT_THAT(refusal(sentencepiece(merges, marks)), HasSubstr("\"▁ab\" do not come from scores"));
  }
  const std::string other = R"("pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"})";
  const std::string removes =
      R"(, "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": true})";
  for (const std::string& steps : {other, marks + removes}) {
    EXPECT_THAT(refusal(sentencepiece(kMerges, steps)), HasSubstr("are not those of SentencePiece that GGUF has"));
  }
  std::string takes_words = sentencepiece(kMerges, marks);
  takes_words.insert(takes_words.find("\"byte_fallback\""), R"("ignore_merges": true, )");
  EXPECT_THAT(refusal(takes_words), HasSubstr("are not those of SentencePiece that GGUF has"));
  EXPECT_THAT(
      refusal(R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<s>", -1.5]]}, "decoder": {"type": "Fuse"}})"),
      HasSubstr("is not BPE"));
}

// A byte's token may be named by its character too, and that be merged.
TEST(WriteTokenizer, OfSentencePieceGivesAFileThatEncodesAsTheTextsDoWhereAByteHasTwoNames) {
  for (const char* names : {R"("<0x09>": 9, "\t": 9,)", R"("\t": 9, "<0x09>": 9,)"}) {
    std::string words = names;
    for (int byte = 0; byte < 256; ++byte) {
      if (byte != 9) words += fmt::format(R"("<0x{:02X}>": {}, )", byte, byte);
    }
    const std::string json =
        fmt::format(R"({{"model": {{"type": "BPE", "byte_fallback": true, "vocab": {{{} "\t\t": 256}},
      "merges": [["\t", "\t"]]}}, "normalizer": {},
      "decoder": {{"type": "Sequence", "decoders": [{{"type": "ByteFallback"}}, {{"type": "Fuse"}}]}}}})",
                    words, kMarks);
    model::GgufHeader header;
    const Status status = write_tokenizer({json, "", ""}, 257, header);
    ASSERT_TRUE(status) << names << ": " << status.message();
    const std::vector<std::byte> image = header.bytes();
    for (const auto& tokenizer :
         {Tokenizer::create(model::TokenizerTexts{json}), Tokenizer::create(model::GgufFile::parse(image).value())}) {
      ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
      EXPECT_THAT(tokenizer->encode("\t\t\té", SpecialTokens::kParse).value(), ElementsAre(256, 9, 0xC3, 0xA9))
          << names;
    }
  }
}

}  // namespace
}  // namespace headwater::text
