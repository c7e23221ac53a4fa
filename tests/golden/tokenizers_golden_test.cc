// Ids, and what they decode to, against the Python package tokenizers on 2,386 texts: tools/make_tokenizer_goldens.py wrote
// small tokenizers that have every part a tokenizer.json may have, and says what became of the texts; likewise for the
// vocabularies that tools/fetch_vocabularies.sh fetches. And the same ids from what `headwater quantize` makes of such files.
#include <gtest/gtest.h>

#include <fstream>

#include "golden/json_lines.h"
#include "golden/tokenizer_texts.h"
#include "model/gguf.h"
#include "support/streamed.h"
#include "text/text.h"
#include "text/tokenizer_gguf.h"
#include "text/write_tokenizer.h"

namespace headwater::text {
namespace {

const std::string kFolder = HEADWATER_SOURCE_DIR "/tests/golden/tokenizers/";
const std::string kVocabularies = HEADWATER_SOURCE_DIR "/models/vocabularies/ggml-vocab-";

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Hash {  // FNV-1a
 public:
  void add(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001B3u; }
  void add(std::string_view bytes) {
    for (const char byte : bytes) add(static_cast<uint8_t>(byte));
  }
  void add(const std::vector<TokenId>& ids) {
    for (const TokenId id : ids) {
      for (int shift = 0; shift < 32; shift += 8) add(static_cast<uint8_t>(static_cast<uint32_t>(id) >> shift));
    }
    add("\xff\xff\xff\xff");
  }
  std::string folded() const { return fmt::format("{:06x}", (value_ ^ value_ >> 24 ^ value_ >> 48) & 0xFFFFFF); }

 private:
  uint64_t value_ = 0xCBF29CE484222325u;
};

boost::json::object golden_of(const std::string& name) {
  for (const auto& line : testing::read_json_lines(kFolder + "goldens.jsonl")) {
    if (line.at("name").as_string() == name) return line;
  }
  ADD_FAILURE() << "no golden of " << name;
  return {};
}

Result<Tokenizer> create(const std::string& name, bool is_fetched) {
  if (!is_fetched) return Tokenizer::create(model::TokenizerTexts{contents(kFolder + name + ".json")});
  HEADWATER_ASSIGN_OR_RETURN(const model::GgufFile file, model::GgufFile::open(kVocabularies + name + ".gguf"));
  return Tokenizer::create(file);
}

class TokenizersGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizersGolden, GivesTheSameIdsAndTexts) {
  static const std::vector<std::string> kTexts = testing::tokenizer_texts();
  const std::string name = GetParam();
  const boost::json::object golden = golden_of(name);
  const auto created = create(name, golden.contains("gguf"));
  ASSERT_TRUE(created.is_ok()) << created.status().message();
  const Tokenizer& tokenizer = *created;
  const std::string_view hashes = golden.at("hashes").as_string();
  ASSERT_GE(kTexts.size(), 2000u);
  ASSERT_EQ(hashes.size(), 6 * kTexts.size());
  for (const boost::json::value& sample : golden.at("samples").as_array()) {
    const auto number = static_cast<size_t>(sample.at(0).as_int64());
    EXPECT_EQ(tokenizer.encode(kTexts[number], SpecialTokens::kParse).value(),
              boost::json::value_to<std::vector<TokenId>>(sample.at(1)))
        << number << " \"" << kTexts[number] << "\"";
  }
  size_t differing = 0;
  for (size_t i = 0; i < kTexts.size(); ++i) {
    const std::vector<TokenId> plain = tokenizer.encode(kTexts[i], SpecialTokens::kAsText).value();
    const std::vector<TokenId> parsed = tokenizer.encode(kTexts[i], SpecialTokens::kParse).value();
    Hash hash;
    hash.add(plain);
    hash.add(parsed);
    if (!golden.contains("decodes_otherwise")) hash.add(tokenizer.decode(parsed, false));
    EXPECT_EQ(testing::streamed(tokenizer, parsed), tokenizer.decode(parsed, true));
    if (hash.folded() == hashes.substr(6 * i, 6)) continue;
    if (++differing > 5) continue;
    ADD_FAILURE() << "text " << i << " \"" << kTexts[i] << "\" became " << ::testing::PrintToString(plain) << "\nand "
                  << ::testing::PrintToString(parsed) << "\nand \"" << tokenizer.decode(parsed, false)
                  << "\"; compare: tools/make_tokenizer_goldens.py --show " << name << " " << i;
  }
  EXPECT_EQ(differing, 0u);
  if (golden.contains("prompt")) {
    EXPECT_EQ(tokenizer.encode_prompt("a").value(), boost::json::value_to<std::vector<TokenId>>(golden.at("prompt")));
  }
}

INSTANTIATE_TEST_SUITE_P(FromJson, TokenizersGolden,
                         ::testing::Values("gpt2_like", "llama3_like", "deepseek_like", "falcon_like", "llama2_like",
                                           "gemma_like", "characters", "precompiled", "folded"));
INSTANTIATE_TEST_SUITE_P(FromGguf, TokenizersGolden,
                         ::testing::Values("gpt-2", "llama-bpe", "qwen2", "starcoder", "falcon", "deepseek-coder",
                                           "command-r", "llama-spm", "gemma-4"));

// The golden file; merges of SentencePiece are completed as its converters make them: all that give a token, the tokens in
// order.
boost::json::value tokenizer_for_gguf(const std::string& name) {
  boost::json::value file = boost::json::parse(contents(kFolder + name + ".json"));
  boost::json::object& model = file.at("model").as_object();
  if (model.at("byte_fallback").as_bool()) {
    const boost::json::object& words = model.at("vocab").as_object();
    std::map<int64_t, std::string> in_order;
    for (const auto& [text, id] : words) in_order.emplace(id.as_int64(), text);
    boost::json::array merges;
    for (const auto& [id, text] : in_order) {
      for (size_t at = 1; at < text.size(); ++at) {
        const std::string left = text.substr(0, at), right = text.substr(at);
        if (words.contains(left) && words.contains(right)) merges.push_back(boost::json::array{left, right});
      }
    }
    model.at("merges") = merges;
  }
  return file;
}

// Without added tokens that want more than their spelling, for which GGUF's own keys have no place.
void keep_plain_tokens(boost::json::value& file) {
  boost::json::array added;
  for (const boost::json::value& token : file.at("added_tokens").as_array()) {
    const auto wants = [&](const char* flag) { return token.at(flag).as_bool(); };
    if (!wants("single_word") && !wants("lstrip") && !wants("rstrip") && !wants("normalized")) added.push_back(token);
  }
  file.at("added_tokens") = added;
}

class QuantizedTokenizer : public ::testing::TestWithParam<const char*> {
 protected:
  void expect_same(const boost::json::value& tokenizer, bool is_whole) {
    const std::string json = boost::json::serialize(tokenizer);
    const model::TokenizerTexts texts{.tokenizer = json,
                                      .config = R"({"bos_token": "<s>", "eos_token": "</s>"})",
                                      .generation = R"({"eos_token_id": [2, 7, 11, 30, 9]})"};
    const auto folder = Tokenizer::create(texts);
    ASSERT_TRUE(folder.is_ok()) << folder.status().message();
    model::GgufHeader header;
    const Status status = write_tokenizer(texts, folder->vocabulary_size() + 3, header);
    ASSERT_TRUE(status) << status.message();
    const std::vector<std::byte> image = header.bytes();
    const auto file = model::GgufFile::parse(image);
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    EXPECT_EQ(file->has(kWholeTokenizerKey), is_whole);
    const auto gguf = Tokenizer::create(*file);
    ASSERT_TRUE(gguf.is_ok()) << gguf.status().message();
    EXPECT_EQ(gguf->end_of_generation(), folder->end_of_generation());
    EXPECT_EQ(gguf->encode_prompt("a").value(), folder->encode_prompt("a").value());
    size_t differing = 0;
    for (const std::string& text : testing::tokenizer_texts()) {
      const std::vector<TokenId> expected = folder->encode(text, SpecialTokens::kParse).value();
      const std::vector<TokenId> got = gguf->encode(text, SpecialTokens::kParse).value();
      EXPECT_EQ(gguf->decode(expected, false), folder->decode(expected, false));
      if (got == expected || ++differing > 5) continue;
      ADD_FAILURE() << "\"" << text << "\" became " << ::testing::PrintToString(got) << "\nand is "
                    << ::testing::PrintToString(expected);
    }
    EXPECT_EQ(differing, 0u);
  }
};

TEST_P(QuantizedTokenizer, GivesTheIdsOfItsFolder) {
  expect_same(tokenizer_for_gguf(GetParam()), true);
}

TEST_P(QuantizedTokenizer, GivesTheIdsOfItsFolderByKeysAloneWhereTheySayAll) {
  boost::json::value file = tokenizer_for_gguf(GetParam());
  keep_plain_tokens(file);
  expect_same(file, false);
}

// What Mistral's files have: a mark in front of the first text alone, by Metaspace.
TEST_P(QuantizedTokenizer, GivesTheIdsOfAFolderWithMetaspace) {
  boost::json::value file = tokenizer_for_gguf(GetParam());
  if (!file.at("model").at("byte_fallback").as_bool()) GTEST_SKIP() << "its spaces are bytes";
  keep_plain_tokens(file);
  for (const char* scheme : {"first", "always", "never"}) {
    const boost::json::object metaspace = {
        {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}};
    file.at("normalizer") = nullptr;
    file.at("pre_tokenizer") = metaspace;
    expect_same(file, true);
  }
}

INSTANTIATE_TEST_SUITE_P(FromJson, QuantizedTokenizer, ::testing::Values("llama3_like", "llama2_like", "gemma_like"));

}  // namespace
}  // namespace headwater::text
