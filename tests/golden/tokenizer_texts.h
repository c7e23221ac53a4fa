// The texts of tests/golden/tokenizers/goldens.jsonl, as tools/make_tokenizer_goldens.py makes them.
#pragma once

#include <string>
#include <vector>

namespace headwater::testing {

// The texts of tokenizer_smollm2.jsonl, and 2,000 put together from stretches of them by a fixed rule.
std::vector<std::string> tokenizer_texts();

}  // namespace headwater::testing
