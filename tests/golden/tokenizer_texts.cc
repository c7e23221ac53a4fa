#include "golden/tokenizer_texts.h"

#include <cstdint>

#include "golden/json_lines.h"

namespace headwater::testing {
namespace {

constexpr size_t kGenerated = 2000;

struct Numbers {  // a linear congruential generator
  uint64_t state = 20240315;

  size_t below(size_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((state >> 33) % limit);
  }
};

// Where each character begins, and the end.
std::vector<size_t> borders(const std::string& text) {
  std::vector<size_t> at;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) at.push_back(i);
  }
  at.push_back(text.size());
  return at;
}

}  // namespace

std::vector<std::string> tokenizer_texts() {
  std::vector<std::string> pieces;
  for (const auto& line : read_json_lines(HEADWATER_SOURCE_DIR "/tests/golden/tokenizer_smollm2.jsonl")) {
    pieces.emplace_back(line.at("text").as_string());
  }
  std::vector<std::string> texts = pieces;
  Numbers numbers;
  for (size_t i = 0; i < kGenerated; ++i) {
    std::string text;
    for (size_t left = 2 + numbers.below(5); left > 0; --left) {
      const std::string& piece = pieces[numbers.below(pieces.size())];
      const std::vector<size_t> at = borders(piece);
      const size_t characters = at.size() - 1;
      const size_t begin = characters > 40 ? numbers.below(characters - 39) : 0;
      text += piece.substr(at[begin], at[std::min(begin + 40, characters)] - at[begin]);
      static constexpr const char* kBetween[] = {"", "", " ", "\n", "  "};
      text += kBetween[numbers.below(5)];
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace headwater::testing
