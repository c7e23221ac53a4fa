// Keys of a GGUF file that its reader and its writer (write_tokenizer.h) name.
#pragma once

#include <string_view>

namespace headwater::text {

// A tokenizer.json as it is: a standard key, for what the others have no place for. Where it is there it counts.
inline constexpr std::string_view kWholeTokenizerKey = "tokenizer.huggingface.json";

// Tokens beside EOS that end an answer, and a list of our own for those beyond two.
inline constexpr std::string_view kEndKeys[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
inline constexpr std::string_view kMoreEndsKey = "headwater.eos_token_ids";

}  // namespace headwater::text
