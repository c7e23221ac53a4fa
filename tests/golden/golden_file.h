// The golden data of the default model, as README.md of this folder describes it: what an independent float64 forward
// pass computes. Loaded whole; under 2 MB.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/core.h"

namespace headwater::testing {

// One position: the logits that chose continuation[step] when tokens and continuation[0 .. step) came before it.
struct GoldenStep {
  std::vector<float> strided;     // logits of token ids 0, stride, 2 * stride, ...
  std::vector<TokenId> top_ids;   // of the largest logits, falling
  std::vector<float> top_logits;  // theirs
  float logsumexp = 0;            // natural, over the whole vocabulary
};

struct GoldenPrompt {
  std::string name;
  std::string text;
  std::vector<TokenId> tokens;        // of the text
  std::vector<TokenId> continuation;  // greedy; goes on past end-of-text tokens
  std::vector<double> margins;        // of each step: largest logit less the second
  std::vector<GoldenStep> steps;      // as many as continuation
};

struct GoldenFile {
  uint32_t vocabulary = 0;
  uint32_t stride = 0;
  std::vector<GoldenPrompt> prompts;
};

struct GoldenPerplexity {
  std::vector<TokenId> tokens;
  uint64_t scored = 0;  // tokens[1..] are predicted, each from all before it
  double mean_negative_log_likelihood = 0;
  double perplexity = 0;
};

// `folder` is tests/golden. kNotFound or kCorrupt, naming the file.
Result<GoldenFile> read_golden(const std::string& folder);
Result<GoldenPerplexity> read_golden_perplexity(const std::string& folder);

}  // namespace headwater::testing
