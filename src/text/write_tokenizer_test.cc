#include "text/write_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer.h"

namespace headwater::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kConfig =
    R"({"bos_token": {"content": "<|end|>"}, "eos_token": "<|end|>", "chat_template": "{{ messages }}"})";

// A small tokenizer of SmolLM's kind, with one stretch of its file replaced.
std::string file_with(std::string_view stretch = "", std::string_view replacement = "") {
  std::string text = R"({"added_tokens": [{"id": 5, "content": "<|end|>", "special": true},
      {"id": 6, "content": "x", "special": false, "normalized": false}], "normalizer": null,
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [5], "tokens": ["<|end|>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 3}, "merges": [["a", "b"], ["ab", "b"]]}})";
  const size_t at = text.find(stretch);
  EXPECT_NE(at, std::string::npos) << stretch;
  return text.replace(at, stretch.size(), replacement);
}

Result<std::vector<std::byte>> written(const model::TokenizerTexts& texts, uint64_t rows = 9) {
  model::GgufHeader header;
  HEADWATER_RETURN_IF_ERROR(write_tokenizer(texts, rows, header));
  return header.bytes();
}

std::string_view pre_of(const std::string& tokenizer) {
  static std::vector<std::byte> image;
  image = written({tokenizer, "", ""}).value();
  return model::GgufFile::parse(image)->string_at("tokenizer.ggml.pre").value();
}

TEST(WriteTokenizer, WritesWhatTheTextsSay) {
  const std::string tokenizer = file_with();
  const std::vector<std::byte> image = written({tokenizer, kConfig, ""}).value();
  const model::GgufFile file = model::GgufFile::parse(image).value();
  EXPECT_EQ(file.string_at("tokenizer.ggml.model").value(), "gpt2");
  EXPECT_EQ(file.string_at("tokenizer.ggml.pre").value(), "smollm");
  EXPECT_THAT(file.strings_at("tokenizer.ggml.tokens").value(),
              ElementsAre("a", "b", "ab", "abb", "[PAD4]", "<|end|>", "x", "[PAD7]", "[PAD8]"));
  EXPECT_THAT(file.integers_at("tokenizer.ggml.token_type").value(), ElementsAre(1, 1, 1, 1, 5, 3, 4, 5, 5));
  EXPECT_THAT(file.strings_at("tokenizer.ggml.merges").value(), ElementsAre("a b", "ab b"));
  EXPECT_EQ(file.unsigned_at("tokenizer.ggml.bos_token_id").value(), 5u);
  EXPECT_EQ(file.unsigned_at("tokenizer.ggml.eos_token_id").value(), 5u);
  EXPECT_TRUE(file.bool_at("tokenizer.ggml.add_bos_token").value());
  EXPECT_EQ(file.string_at("tokenizer.chat_template").value(), "{{ messages }}");
}

TEST(WriteTokenizer, GivesAFileThatEncodesAsTheTextsDo) {
  const std::string tokenizer = file_with();
  const std::vector<std::byte> image = written({tokenizer, kConfig, ""}).value();
  const Tokenizer from_gguf = Tokenizer::create(model::GgufFile::parse(image).value()).value();
  const Tokenizer from_texts = Tokenizer::create(model::TokenizerTexts{tokenizer, kConfig}).value();
  for (const std::string_view text : {"abb", "abx<|end|>ba", "a1b"}) {
    EXPECT_EQ(from_gguf.encode(text, SpecialTokens::kParse).value(),
              from_texts.encode(text, SpecialTokens::kParse).value())
        << text;
    EXPECT_EQ(from_gguf.encode_prompt(text).value(), from_texts.encode_prompt(text).value()) << text;
  }
}

// What stops an answer and stands around a prompt, and added tokens of every kind: by GGUF's own keys where they have a place,
// else by the whole tokenizer.json.
TEST(WriteTokenizer, KeepsWhatGgufsOwnKeysHaveNoPlaceFor) {
  const auto with_token = [](std::string_view flags) {
    return file_with(R"({"id": 6, "content": "x", "special": false, "normalized": false})",
                     fmt::format(R"({{"id": 6, "content": "x", "special": false, "normalized": {}}})", flags));
  };
  const std::string both_ends = file_with(R"({"Sequence": {"id": "A", "type_id": 0}}])",
                                          R"({"Sequence": {"id": "A", "type_id": 0}},
                                             {"SpecialToken": {"id": "<|end|>", "type_id": 0}}])");
  std::string composing = with_token("true");
  composing.replace(composing.find(R"("normalizer": null)"), 18, R"("normalizer": {"type": "NFC"})");
  const auto with_two_ids = [](int first, int second) {  // of one spelling: the first of the file counts
    constexpr const char* kToken = R"({{"id": {}, "content": "x", "special": false, "normalized": false}})";
    return file_with(fmt::format(fmt::runtime(kToken), 6),
                     fmt::format(fmt::runtime(kToken), first) + "," + fmt::format(fmt::runtime(kToken), second));
  };
  struct Case {
    std::string tokenizer, config, generation;
    bool is_whole;
  };
  for (const Case& c : std::vector<Case>{
           {file_with(), std::string(kConfig), "", false},
           {file_with(), R"({"add_bos_token": false, "bos_token": "<|end|>"})", "", false},
           {file_with(), R"({"bos_token": "a", "eos_token": "b", "add_bos_token": true, "add_eos_token": true})", "",
            true},
           {file_with(), R"({"bos_token": "<|end|>", "eos_token": "b", "add_eos_token": true})", "", false},
           {file_with(), "", "", true},                           // a prompt begins with a token that is not named BOS
           {both_ends, R"({"bos_token": "<|end|>"})", "", true},  // and ends with one that is not named EOS
           {both_ends, std::string(kConfig), "", false},
           {file_with(), std::string(kConfig), R"({"eos_token_id": 3})", false},
           {file_with(), std::string(kConfig), R"({"eos_token_id": [0, 1, 2, 3, 6]})", false},
           {with_token(R"(false, "lstrip": true)"), std::string(kConfig), R"({"eos_token_id": [0, 1, 2, 3]})", true},
           {with_token(R"(false, "rstrip": true)"), std::string(kConfig), "", true},
           {with_token(R"(false, "single_word": true)"), std::string(kConfig), "", true},
           {with_token("true"), std::string(kConfig), "", true},  // looked for behind the others
           {with_two_ids(4, 6), std::string(kConfig), "", false},
           {with_two_ids(6, 4), std::string(kConfig), "", true},
           {composing, std::string(kConfig), "", true}}) {
    const model::TokenizerTexts texts{.tokenizer = c.tokenizer, .config = c.config, .generation = c.generation};
    const std::vector<std::byte> image = written(texts).value();
    const model::GgufFile file = model::GgufFile::parse(image).value();
    EXPECT_EQ(file.has("tokenizer.huggingface.json"), c.is_whole) << c.tokenizer << c.config;
    const Tokenizer from_gguf = Tokenizer::create(file).value();
    const Tokenizer from_texts = Tokenizer::create(texts).value();
    EXPECT_EQ(from_gguf.end_of_generation(), from_texts.end_of_generation()) << c.config << c.generation;
    EXPECT_EQ(from_gguf.bos(), from_texts.bos());
    EXPECT_EQ(from_gguf.eos(), from_texts.eos());
    for (const std::string_view text : {"abb", "a x b", " xa", "x", "ax", "X x\u0301 \u00e9", "e\u0301 <|end|> ba"}) {
      EXPECT_EQ(from_gguf.encode_prompt(text).value(), from_texts.encode_prompt(text).value()) << text;
      EXPECT_EQ(from_gguf.encode(text, SpecialTokens::kParse).value(),
                from_texts.encode(text, SpecialTokens::kParse).value())
          << text;
    }
  }
}

TEST(WriteTokenizer, RefusesAWholeTokenizerThatIsBrokenOrNamesTokensItHasNot) {
  const auto refusal = [](const std::string& json, std::vector<uint32_t> ends) {
    model::GgufHeader header;
    header.value("tokenizer.huggingface.json", json).array("headwater.eos_token_ids", ends);
    const std::vector<std::byte> image = header.bytes();
    return Tokenizer::create(model::GgufFile::parse(image).value()).status().message();
  };
  EXPECT_THAT(refusal("{}", {}), HasSubstr("tokenizer.huggingface.json: tokenizer.json has no model"));
  EXPECT_THAT(refusal(file_with(), {7}), HasSubstr("headwater.eos_token_ids holds 7, but the vocabulary has 7 tokens"));
}

TEST(WriteTokenizer, NamesTheRuleThatCutsComposesAndMergesAlike) {
  const std::string steps = file_with(R"({"type": "Digits", "individual_digits": true},)", "");
  EXPECT_EQ(pre_of(steps), "gpt-2");
  EXPECT_EQ(pre_of(file_with(R"("normalizer": null)", R"("normalizer": {"type": "NFC"})")), "command-r");
}

TEST(WriteTokenizer, WritesTheTemplateOfItsOwnFileFirstAndTheOneForTools) {
  const std::string tokenizer = file_with();
  std::vector<std::byte> image = written({tokenizer, kConfig, "{{ other }}"}).value();
  EXPECT_EQ(model::GgufFile::parse(image)->string_at("tokenizer.chat_template").value(), "{{ other }}");
  constexpr std::string_view kNamed =
      R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}],
          "add_bos_token": false, "bos_token": "<|end|>"})";
  image = written({tokenizer, kNamed, ""}).value();
  const model::GgufFile file = model::GgufFile::parse(image).value();
  EXPECT_EQ(file.string_at("tokenizer.chat_template").value(), "d");
  EXPECT_EQ(file.string_at("tokenizer.chat_template.tool_use").value(), "t");
  EXPECT_FALSE(file.bool_at("tokenizer.ggml.add_bos_token").value());
}

// llama-bpe and dbrx differ in that alone.
TEST(WriteTokenizer, NamesAPreTokeniserByItsExpressionAndWhetherItIgnoresMerges) {
  const auto named = [](const char* ignores) {
    const std::string words =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|)"
        R"(\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
    return std::string(
        pre_of(fmt::format(R"({{"model": {{"type": "BPE", "vocab": {{"a": 0}}, "merges": [], "ignore_merges": {}}},
      "pre_tokenizer": {{"type": "Sequence", "pretokenizers": [
        {{"type": "Split", "pattern": {{"Regex": "{}"}}, "behavior": "Isolated", "invert": false}},
        {{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}]}},
      "decoder": {{"type": "ByteLevel"}}}})",
                           ignores, words)));
  };
  EXPECT_EQ(named("true"), "llama-bpe");
  EXPECT_EQ(named("false"), "dbrx");
}

TEST(WriteTokenizer, RefusesWhatGgufHasNoNameFor) {
  const auto refusal = [](const std::string& tokenizer, uint64_t rows = 9) {
    return written({tokenizer, "", ""}, rows).status().message();
  };
  EXPECT_THAT(refusal(file_with("individual_digits\": true", "individual_digits\": false")),
              HasSubstr("known are gpt-2, mpt, smollm, command-r, llama-bpe"));
  EXPECT_THAT(refusal(file_with(R"("normalizer": null)", R"("normalizer": {"type": "Lowercase"})")),
              HasSubstr("\"normalizer\""));
  std::string of_characters = file_with(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})",
                                        R"({"type": "WhitespaceSplit"})");
  of_characters.replace(of_characters.find(R"("decoder": {"type": "ByteLevel"})"), 32,
                        R"("decoder": {"type": "Fuse"})");
  EXPECT_THAT(refusal(of_characters), HasSubstr("not byte-level BPE"));
  const std::string of_lines =
      file_with(R"({"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})",
                R"({"type": "Split", "pattern": {"Regex": "[^\\n]+|[\\n]+"}, "behavior": "Isolated",
      "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})");
  EXPECT_THAT(refusal(of_lines), HasSubstr("no pre-tokeniser that GGUF has a name for"));  // gemma4's are not of bytes
  EXPECT_EQ(written({file_with(), "", ""}, 6).status().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(refusal(file_with(), 6), HasSubstr("ids up to 6, but the embedding has 6 rows"));
  EXPECT_THAT(refusal("{}"), HasSubstr("no model"));
}

}  // namespace
}  // namespace headwater::text
