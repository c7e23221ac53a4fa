#include "text/pre_tokenizer_rules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "core/shown.h"

namespace headwater::text {
namespace {

// Expressions as the models' own tokenizers publish them. Which name stands for which: src/llama-vocab.cpp of llama.cpp
// (MIT), commit 00ad355e009e83abf98f96a6ded7193b95763681, which reads the same files.
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kUpToThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kYoutuScripts =
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+";
// Letters and marks but for Han and for small ones (for capitals), by what they are not: Kimi's own expression takes Han
// from the classes by an intersection.
constexpr std::string_view kKimi = R"(\p{Han}+|[^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]*)"
                                   R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                                   R"([^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]+)"
                                   R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                                   R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words with single spaces between them are one. Nothing follows their group, so that it need not remember its way.
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kUfakzeka =  // Qwen 2's without English contractions
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kLineBreak = R"([\r\n])";
constexpr std::string_view kLinesAndBreaks = R"([^\n]+|[\n]+)";
constexpr std::string_view kAsianDeepSeek = "[一-龥ࠀ-一가-퟿]+";
constexpr std::string_view kAsianDeepSeek3 = "[一-龥぀-ゟ゠-ヿ]+";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
// The cased letters of the Unicode version that DeepSeek LLM was made with.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[)"
    R"(A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ)"
    R"(ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳ)"
    R"(Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃)"
    R"(]+)";
constexpr std::string_view kDeepSeekPunctuation = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^`|~]+)";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kBytesBecomeSymbols;  // stands for the byte-level step where it is not the last

constexpr unsigned kIgnoresMerges = 1;
constexpr unsigned kAddsBos = 2;
constexpr unsigned kComposes = 4;

struct Row {
  std::vector<std::string_view> names;
  std::vector<std::string_view> expressions;  // each cuts what the one before left
  unsigned traits = 0;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {{"gpt-2", "default", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "jais", "trillion", "granite-docling"},
       {kGpt2Words}},
      {{"mpt", "olmo"}, {kGpt2Words}, kComposes},
      {{"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"}, {kDigit, kGpt2Words}},
      {{"command-r"}, {kDigit, kGpt2Words}, kComposes},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {kLlama3},
       kIgnoresMerges | kAddsBos},
      {{"dbrx", "smaug-bpe", "chatglm-bpe"}, {kLlama3}},
      {{"glm4", "glm5"}, {kLlama3}, kIgnoresMerges},
      {{"minicpm5"}, {kUpToThreeDigits, kLlama3}, kIgnoresMerges},
      {{"qwen2", "megrez"}, {kQwen2}, kComposes},
      {{"qwen35"}, {kQwen35}},
      {{"deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "grok-2", "kormo"}, {kQwen2}},
      {{"laguna"}, {kLinesAndBreaks, kQwen2}},
      {{"ufakzeka"}, {kUfakzeka}},
      {{"exaone-moe"}, {kExaoneMoe}},
      {{"gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"}, {kGpt4o}},
      {{"youtu"}, {kYoutuScripts, kYoutu}, kIgnoresMerges},
      {{"kimi-k2"}, {kKimi}},
      {{"tekken"}, {kTekken}, kIgnoresMerges | kAddsBos},
      {{"seed-coder"}, {kSeedCoder}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {kBailing}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, kDigit}},
      {{"deepseek-coder"}, {kLineBreak, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kAsianDeepSeek, kDigit}},
      {{"deepseek-llm"}, {kLineBreak, kDeepSeekLetters, kDeepSeekPunctuation, R"(\s+$)", kAsianDeepSeek, kDigit}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, {kUpToThreeDigits, kAsianDeepSeek3, kDeepSeek3}},
      {{"spark2_5"}, {kDigit, kAsianDeepSeek3, kSpark}},
      {{"falcon"}, {kPunctuation, kGpt2Words, kBytesBecomeSymbols, R"(\p{N}+)", kThreeDigits}},
      {{"gemma4"}, {kLinesAndBreaks}, kAddsBos},
  };
  return kRows;
}

PreTokenizerRule rule_of(const Row& row) {
  PreTokenizerRule rule{
      {}, (row.traits & kIgnoresMerges) != 0, (row.traits & kAddsBos) != 0, (row.traits & kComposes) != 0};
  for (const std::string_view expression : row.expressions) {
    if (expression == kBytesBecomeSymbols) {
      rule.steps.push_back({.kind = PreTokenizerStep::Kind::kByteLevel});
    } else {
      rule.steps.push_back({.kind = PreTokenizerStep::Kind::kSplit, .pattern = {std::string(expression), true}});
    }
  }
  return rule;
}

}  // namespace

Result<PreTokenizerRule> pre_tokenizer_rule(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Row& row : rows()) {
    if (std::find(row.names.begin(), row.names.end(), name) != row.names.end()) return rule_of(row);
    names.insert(names.end(), row.names.begin(), row.names.end());
  }
  return error(ErrorCode::kUnsupported, "the pre-tokeniser {} (tokenizer.ggml.pre) is not known; known are {}",
               quoted(name), fmt::join(names, ", "));
}

Result<std::string_view> pre_tokenizer_name(const TokenizerSpec& spec) {
  std::span<const PreTokenizerStep> steps = spec.pre_tokenizer;
  if (!steps.empty() && steps.back().kind == PreTokenizerStep::Kind::kByteLevel) steps = steps.first(steps.size() - 1);
  const bool is_composed = spec.normalizer.size() == 1 && spec.normalizer[0].kind == NormalizerStep::Kind::kNfc;
  std::vector<std::string_view> names;
  for (const Row& row : rows()) {
    if (row.names[0] == "gemma4") continue;  // whose words are not of bytes
    const PreTokenizerRule rule = rule_of(row);
    if (std::ranges::equal(steps, rule.steps) && rule.ignores_merges == spec.ignores_merges &&
        rule.is_composed == is_composed && spec.normalizer.size() == size_t{is_composed}) {
      return row.names[0];
    }
    names.push_back(row.names[0]);
  }
  return error(ErrorCode::kUnsupported,
               "tokenizer.json: no pre-tokeniser that GGUF has a name for cuts as its \"pre_tokenizer\" with its "
               "\"normalizer\" and \"ignore_merges\" does; known are {}",
               fmt::join(names, ", "));
}

}  // namespace headwater::text
