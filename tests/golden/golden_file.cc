#include "golden/golden_file.h"

#include <array>
#include <boost/json.hpp>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "golden/json_lines.h"

namespace headwater::testing {
namespace {

namespace json = boost::json;

constexpr char kPromptsName[] = "smollm2_golden.jsonl";
constexpr char kLogitsName[] = "smollm2_golden_logits.bin";
constexpr char kPerplexityName[] = "smollm2_perplexity.json";
constexpr std::string_view kMagic = "HWGOLD01";

// The lines of `path`, each through `convert`. The one place where Boost's exceptions are turned into errors.
template <typename T>
Result<std::vector<T>> read_lines(const std::string& path, T (*convert)(const json::object&)) {
  if (!std::filesystem::exists(path)) return error(ErrorCode::kNotFound, "'{}' does not exist", path);
  try {
    std::vector<T> lines;
    for (const json::object& line : read_json_lines(path)) lines.push_back(convert(line));
    return lines;
  } catch (const std::exception& exception) {
    return error(ErrorCode::kCorrupt, "'{}': {}", path, exception.what());
  }
}

GoldenPrompt to_prompt(const json::object& value) {
  return {json::value_to<std::string>(value.at("name")),
          json::value_to<std::string>(value.at("text")),
          json::value_to<std::vector<TokenId>>(value.at("tokens")),
          json::value_to<std::vector<TokenId>>(value.at("continuation")),
          json::value_to<std::vector<double>>(value.at("margins")),
          {}};
}

GoldenPerplexity to_perplexity(const json::object& value) {
  return {json::value_to<std::vector<TokenId>>(value.at("tokens")), json::value_to<uint64_t>(value.at("scored")),
          json::value_to<double>(value.at("mean_negative_log_likelihood")),
          json::value_to<double>(value.at("perplexity"))};
}

// Takes numbers off the front of the bytes; their size was checked against the header.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  std::vector<T> take(size_t count) {
    std::vector<T> values(count);
    check(bytes_.size() >= count * sizeof(T), "the golden logits are shorter than their header says");
    std::memcpy(values.data(), bytes_.data(), count * sizeof(T));
    bytes_.remove_prefix(count * sizeof(T));
    return values;
  }
  size_t remaining() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

Status read_logits(const std::string& path, GoldenFile& golden) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return error(ErrorCode::kNotFound, "cannot open '{}'", path);
  const std::string content(std::istreambuf_iterator<char>(file), {});
  constexpr size_t kHeaderBytes = kMagic.size() + 5 * sizeof(uint32_t);
  if (!content.starts_with(kMagic) || content.size() < kHeaderBytes) {
    return error(ErrorCode::kCorrupt, "'{}' does not begin with {}", path, kMagic);
  }
  Bytes bytes(std::string_view(content).substr(kMagic.size()));
  const auto header = bytes.take<uint32_t>(5);
  const auto [prompts, steps, vocabulary, stride, top] =
      std::array{header[0], header[1], header[2], header[3], header[4]};
  const uint64_t strided = stride == 0 ? 0 : vocabulary / stride;
  const uint64_t expected = uint64_t{prompts} * steps * (strided + 2 * top + 1) * 4;
  if (prompts != golden.prompts.size() || strided == 0 || bytes.remaining() != expected) {
    return error(ErrorCode::kCorrupt, "'{}' holds {} prompts in {} bytes; {} has {}: make both again", path, prompts,
                 bytes.remaining(), kPromptsName, golden.prompts.size());
  }
  golden.vocabulary = vocabulary;
  golden.stride = stride;
  for (GoldenPrompt& prompt : golden.prompts) {
    if (prompt.continuation.size() != steps || prompt.margins.size() != steps) {
      return error(ErrorCode::kCorrupt, "'{}': prompt {} has {} steps; {} has {}: make both again", path, prompt.name,
                   prompt.continuation.size(), kLogitsName, steps);
    }
    for (uint32_t step = 0; step < steps; ++step) {
      prompt.steps.push_back(
          {bytes.take<float>(strided), bytes.take<TokenId>(top), bytes.take<float>(top), bytes.take<float>(1)[0]});
    }
  }
  return Status();
}

}  // namespace

Result<GoldenFile> read_golden(const std::string& folder) {
  GoldenFile golden;
  HEADWATER_ASSIGN_OR_RETURN(golden.prompts, read_lines(folder + "/" + kPromptsName, to_prompt));
  HEADWATER_RETURN_IF_ERROR(read_logits(folder + "/" + kLogitsName, golden));
  return golden;
}

Result<GoldenPerplexity> read_golden_perplexity(const std::string& folder) {
  const std::string path = folder + "/" + kPerplexityName;
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<GoldenPerplexity> lines, read_lines(path, to_perplexity));
  if (lines.size() != 1) return error(ErrorCode::kCorrupt, "'{}' has {} lines; it has 1", path, lines.size());
  return lines[0];
}

}  // namespace headwater::testing
