// Separates what a reasoning model thinks from what it answers: the block <think> ... </think> at the start of its text
// (white space before it aside), over any cut of the text into pieces. Only the first block counts; behind it, and in a
// text that begins otherwise, the tags are text. The tags themselves and the white space before the first are dropped,
// nothing else is: line breaks beside the tags stay, as in vLLM's deepseek_r1 and qwen3 parsers. A block that the end of
// the text cuts off is reasoning.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headwater::text {

class ReasoningSplit {
 public:
  // opened: the prompt has opened the block, so the text begins inside it (and may repeat the opening tag).
  explicit ReasoningSplit(bool opened) : opened_(opened) {}

  // Appends what is certain; holds back what could become a tag.
  void feed(std::string_view text, std::string& reasoning, std::string& content);
  void finish(std::string& reasoning, std::string& content);  // the text ends here

 private:
  enum class Place : uint8_t { kStart, kReasoning, kContent };
  bool find_start();  // false: more text is needed

  bool opened_;
  Place place_ = Place::kStart;
  std::string held_;
};

}  // namespace headwater::text
