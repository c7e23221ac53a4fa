#include "model/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headwater::model {
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
                     {{"id": 9, "content": "xy", "special": false}}], {}}})",
                     merges, after);
}

Status write(const std::string& json, GgufHeader& header) {
  return write_tokenizer({json, R"({"bos_token": "<s>", "add_bos_token": true})", ""}, 11, header);
}

TEST(GgufTokenizer, OfSentencePieceHasScoresInTheOrderOfItsMerges) {
  GgufHeader header;
  const std::string json = sentencepiece(kMerges, fmt::format(R"("normalizer": {})", kMarks));
  const Status status = write(json, header);
  ASSERT_TRUE(status) << status.message();
  const std::vector<std::byte> image = header.bytes();
  const GgufFile file = GgufFile::parse(image).value();
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

TEST(GgufTokenizer, OfSentencePieceSaysThatAMarkStandsInFront) {
  GgufHeader header;
  const std::string both =
      fmt::format(R"({{"type": "Sequence", "normalizers": [{{"type": "Prepend", "prepend": "▁"}}, {}]}})", kMarks);
  ASSERT_TRUE(write(sentencepiece(kMerges, R"("normalizer": )" + both), header));
  const std::vector<std::byte> image = header.bytes();
  EXPECT_TRUE(GgufFile::parse(image)->bool_at("tokenizer.ggml.add_space_prefix").value());
}

TEST(GgufTokenizer, RefusesWhatScoresOrTheReadersOfGgufDoNotSay) {
  const std::string marks = fmt::format(R"("normalizer": {})", kMarks);
  const auto refusal = [](const std::string& json) {
    GgufHeader header;
    const Status status = write(json, header);
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << json;
    return std::string(status.message());
  };
  for (const char* merges : {R"("▁ a", "a b", "▁a b")",             // "▁ ab" is a join as well
                             R"("▁ ab", "▁ a", "a b", "▁a b")"}) {  // which a score would not let come first
    EXPECT_THAT(refusal(sentencepiece(merges, marks)), HasSubstr("\"▁ab\" do not come from scores"));
  }
  const std::string first = R"("pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})";
  EXPECT_THAT(refusal(sentencepiece(kMerges, first)), HasSubstr("are not those of SentencePiece that GGUF has"));
  EXPECT_THAT(refusal(R"({"model": {"type": "Unigram"}})"), HasSubstr("is not BPE"));
}

TEST(GgufTokenizer, NamesAPreTokeniserByItsExpressionAndWhetherItIgnoresMerges) {
  const auto named = [](const char* ignores) {
    GgufHeader header;
    const std::string words =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|)"
        R"(\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
    EXPECT_TRUE(
        write(fmt::format(R"({{"model": {{"type": "BPE", "vocab": {{"a": 0}}, "merges": [], "ignore_merges": {}}},
      "pre_tokenizer": {{"pretokenizers": [
        {{"type": "Split", "pattern": {{"Regex": "{}"}}, "behavior": "Isolated", "invert": false}},
        {{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}]}}}})",
                          ignores, words),
              header));
    const std::vector<std::byte> image = header.bytes();
    return std::string(GgufFile::parse(image)->string_at("tokenizer.ggml.pre").value());
  };
  EXPECT_EQ(named("true"), "llama-bpe");
  EXPECT_EQ(named("false"), "dbrx");
}

}  // namespace
}  // namespace headwater::model
