// Ids against what the vocabularies' own tokenizers give: tools/fetch_vocabularies.sh fetches GGUF files that hold nothing but
// a vocabulary, each with texts and the ids that its authors' tokenizer gave them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/gguf.h"
#include "text/text.h"

namespace headwater::text {
namespace {

const std::string kFolder = HEADWATER_SOURCE_DIR "/models/vocabularies/";

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> texts_of(const std::string& path) {
  static constexpr std::string_view kBetween = "\n__ggml_vocab_test__\n";
  const std::string all = contents(path);
  std::vector<std::string> texts;
  size_t at = 0;
  for (size_t found; (found = all.find(kBetween, at)) != std::string::npos; at = found + kBetween.size()) {
    texts.push_back(all.substr(at, found - at));
  }
  if (at < all.size()) texts.push_back(all.substr(at));
  return texts;
}

std::vector<std::vector<TokenId>> ids_of(const std::string& path) {
  std::vector<std::vector<TokenId>> ids;
  std::istringstream lines(contents(path));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    ids.emplace_back(std::istream_iterator<TokenId>(numbers), std::istream_iterator<TokenId>());
  }
  return ids;
}

class Vocabularies : public ::testing::TestWithParam<const char*> {};

TEST_P(Vocabularies, GiveTheIdsOfTheirAuthors) {
  const std::string path = kFolder + "ggml-vocab-" + GetParam() + ".gguf";
  const auto file = model::GgufFile::open(path);
  ASSERT_TRUE(file.is_ok()) << file.status().message() << "; run tools/fetch_vocabularies.sh";
  const auto tokenizer = Tokenizer::create(*file);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const auto texts = texts_of(path + ".inp");
  const auto expected = ids_of(path + ".out");
  ASSERT_GE(texts.size(), 40u);
  ASSERT_EQ(texts.size(), expected.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<TokenId> ids = tokenizer->encode(texts[i], SpecialTokens::kAsText).value();
    EXPECT_EQ(ids, expected[i]) << "\"" << texts[i] << "\"";
    EXPECT_EQ(tokenizer->decode(ids, true), texts[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Fetched, Vocabularies,
                         ::testing::Values("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2",
                                           "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact",
                                           "starcoder"));

TEST(VocabulariesWithoutExpectedIds, GiveTheTextBack) {
  const auto texts = texts_of(kFolder + "ggml-vocab-gpt-2.gguf.inp");
  ASSERT_GE(texts.size(), 40u);
  for (const char* name : {"baichuan", "gpt-neox"}) {
    const auto file = model::GgufFile::open(kFolder + "ggml-vocab-" + name + ".gguf");
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    const auto tokenizer = Tokenizer::create(*file);
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    for (const std::string& text : texts) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, SpecialTokens::kAsText).value(), true), text) << name;
    }
  }
}

TEST(VocabulariesWithoutExpectedIds, RefuseWordPieceByName) {
  const auto file = model::GgufFile::open(kFolder + "ggml-vocab-bert-bge.gguf");
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  const Status status = Tokenizer::create(*file).status();
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("\"bert\""));
}

}  // namespace
}  // namespace headwater::text
