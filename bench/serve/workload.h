// The prompts of a level: a prefix that the chats of a group have in common, then a few tokens of each chat's own.
// The same shape, seed and level always give the same prompts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/core.h"

namespace headwater::bench::serve {

enum class Endpoint : uint8_t { kChat, kCompletions };

struct WorkloadShape {
  Endpoint endpoint = Endpoint::kCompletions;
  uint32_t shared_tokens = 2048, groups = 1, prompt_tokens = 32, tokens_max = 128;
  uint64_t seed = 1;
  bool cold = false;           // every level has new prefixes
  double tokens_per_word = 1;  // chat: how the server's tokenizer cuts sizing_text()
};

struct Prompt {
  std::vector<TokenId> ids;      // completions: exact, for any vocabulary of at least kIdEnd tokens
  std::string system, question;  // chat: as many words as make that many tokens, the template's own not counted
};
inline constexpr TokenId kIdBegin = 1000, kIdEnd = 32000;

// level: a number that no other level of the run has; its prompts end differently.
std::vector<Prompt> make_prompts(const WorkloadShape& shape, uint32_t level, uint32_t count);

// The JSON body of a streamed, greedy request that ignores the model's end of text.
std::string request_body(const WorkloadShape& shape, const std::string& model, const Prompt& prompt);

// Every word that a chat prompt is made of, and how many there are.
std::string sizing_text();
uint32_t sizing_words();

}  // namespace headwater::bench::serve
