#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer.h"

namespace headwater::text {
namespace {

using ::testing::HasSubstr;

// A small file, with one stretch of it replaced.
std::string file_with(std::string_view stretch = "", std::string_view replacement = "") {
  std::string text = R"({"version":"1.0","truncation":null,"padding":null,
    "added_tokens":[{"id":5,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
    "normalizer":{"type":"NFC"},
    "pre_tokenizer":{"type":"Split","pattern":{"Regex":" "},"behavior":"Isolated","invert":false},
    "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
      "pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[5],"tokens":["<s>"]}}},
    "decoder":{"type":"Fuse"},
    "model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,
      "fuse_unk":false,"byte_fallback":false,"vocab":{"a":0,"b":1,"ab":2," ":3,"abab":4},"merges":[["a","b"],["ab","ab"]]}})";
  const size_t at = text.find(stretch);
  EXPECT_NE(at, std::string::npos) << stretch;
  return text.replace(at, stretch.size(), replacement);
}

Result<Tokenizer> read(const std::string& json) {
  return Tokenizer::create({.tokenizer = json,
                            .config = R"({"bos_token":{"content":"<s>"},"eos_token":"ab"})",
                            .generation = R"({"eos_token_id":[4,5]})"});
}

TEST(TokenizerJson, DescribesATokenizer) {
  const auto tokenizer = read(file_with());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("ababab b", SpecialTokens::kParse).value(), (std::vector<TokenId>{4, 2, 3, 1}));
  EXPECT_EQ(tokenizer->encode_prompt("a").value(), (std::vector<TokenId>{5, 0}));
  EXPECT_EQ(tokenizer->bos(), 5);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokenizer->end_of_generation(), (std::vector<TokenId>{2, 4, 5}));
  EXPECT_EQ(tokenizer->find("abab"), 4);
}

TEST(TokenizerJson, RefusesMoreMergesThanAnyTokenizerHas) {
  std::string merges = R"(["a b")";
  for (size_t i = 0; i < 3u << 18; ++i) merges += R"(,"a b")";
  EXPECT_THAT(read(file_with(R"([["a","b"],["ab","ab"]])", merges + "]")).status().message(),
              HasSubstr("has 786433 merges; at most 786432 are read"));
}

TEST(TokenizerJson, ReadsMergesOfBothForms) {
  const auto tokenizer = read(file_with(R"([["a","b"],["ab","ab"]])", R"(["a b","ab ab"])"));
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("abab", SpecialTokens::kParse).value(), (std::vector<TokenId>{4}));
}

TEST(TokenizerJson, RefusesByNameWhatItWouldDoDifferently) {
  for (const auto& [stretch, replacement, named] : std::vector<std::array<const char*, 3>>{
           {R"("dropout":null)", R"("dropout":0.1)", "dropout"},
           {R"("continuing_subword_prefix":null)", R"("continuing_subword_prefix":"##")", "continuing_subword_prefix"},
           {R"("type":"BPE")", R"("type":"WordPiece")", "WordPiece"},
           {R"("fuse_unk":false)", R"("fuse_unk":false,"novel":1)", "novel"},
           {R"("byte_fallback":false)", R"("byte_fallback":true)", "ByteFallback"},
           {R"("type":"NFC")", R"("type":"BertNormalizer")", "BertNormalizer"},
           {R"("type":"Split")", R"("type":"UnicodeScripts")", "UnicodeScripts"},
           {R"("Isolated")", R"("Elsewhere")", "Elsewhere"},
           {R"("Regex":" ")", R"("Regex":"\\b")", "\\b"},
           {R"("type":"TemplateProcessing")", R"("type":"BertProcessing")", "BertProcessing"},
           {R"({"type":"Fuse"})", R"({"type":"WordPiece","prefix":"##","cleanup":true})", "WordPiece"},
           {R"({"type":"Fuse"})", R"({"type":"Strip","content":" ","start":0,"stop":1})", "Strip"},
           {R"({"type":"Fuse"})", "null", "decoder"},
           {R"("version":"1.0")", R"("version":"2.0")", "version"}}) {
    const Status status = read(file_with(stretch, replacement)).status();
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << replacement << ": " << status.message();
    EXPECT_THAT(status.message(), HasSubstr(named));
  }
}

TEST(TokenizerJson, RefusesWhatContradictsItself) {
  const std::string deep(100'000, '[');
  for (const auto& [stretch, replacement, named] : std::vector<std::array<std::string, 3>>{
           {R"(["ab","ab"])", R"(["ab","x"])", "\"x\""},
           {R"(["ab","ab"])", R"(["ab"])", "merges"},
           {R"(["ab","ab"])", R"("ab")", "merges"},
           {R"("abab":4)", R"("abab":4000000000)", "4000000000"},
           {R"("abab":4)", R"("abab":-1)", "-1"},
           {R"("abab":4)", R"("abab":"4")", "model.vocab"},
           {R"("abab":4)", R"("abab":[4])", "model.vocab"},
           {R"("id":5,"content")", R"("id":99999999,"content")", "an added token"},
           {R"("id":5,"content")", R"("id":4,"content")", "\"abab\" and \"<s>\""},
           {R"("ids":[5])", R"("ids":[77])", "TemplateProcessing"},
           {R"("vocab":{"a":0,"b":1,"ab":2," ":3,"abab":4})", R"("vocab":[["a",-1.0]])", "scores"},
           {R"("version":"1.0")", "\"version\":" + deep, "JSON"},
           {R"("version":"1.0",)", "", ""},
           {R"("model":{)",
            R"("model":{)"
            "\xff",
            "JSON"}}) {
    const Status status = read(file_with(stretch, replacement)).status();
    if (named.empty()) {
      EXPECT_TRUE(status.is_ok()) << status.message();  // the version may be left out
      continue;
    }
    EXPECT_EQ(status.code(), ErrorCode::kCorrupt) << replacement.substr(0, 60) << ": " << status.message();
    EXPECT_THAT(status.message(), HasSubstr(named));
  }
}

// Splits and marks in turn would double a text each time, and a list of lists of ids is longer than its file.
TEST(TokenizerJson, RefusesPartsThatMultiply) {
  const std::string metaspace = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":false})";
  const std::string split = R"({"type":"Split","pattern":{"Regex":" "},"behavior":"Isolated","invert":false})";
  const std::string twice =
      fmt::format(R"({{"type":"Sequence","pretokenizers":[{},{},{}]}})", metaspace, split, metaspace);
  EXPECT_THAT(read(file_with(split, twice)).status().message(), HasSubstr("Metaspace a second time is not supported"));

  std::string ids = "5", pieces;
  for (int i = 1; i < 40; ++i) ids += ",5";
  for (int i = 0; i < 30; ++i) pieces += R"({"SpecialToken":{"id":"<s>","type_id":0}},)";
  std::string long_template = file_with("\"ids\":[5]", "\"ids\":[" + ids + "]");
  long_template.insert(long_template.find(R"({"SpecialToken")"), pieces);
  EXPECT_THAT(read(long_template).status().message(), HasSubstr("more than 1024 tokens on one side"));
}

TEST(TokenizerJson, RefusesAFileCutAnywhere) {
  const std::string whole = file_with();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(Tokenizer::create(model::TokenizerTexts{whole.substr(0, bytes)}).is_ok()) << bytes;
  }
}

}  // namespace
}  // namespace headwater::text
