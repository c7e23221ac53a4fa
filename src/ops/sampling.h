// How a token is chosen from a row of logits. Order of steps, as vLLM applies them:
//   logprobs are taken from the raw logits (log softmax) -> banned ids and logit bias -> repetition, frequency and presence
//   penalties -> temperature -> min_p -> top_k -> top_p -> draw. Greedy (temperature 0) takes the argmax after the penalties;
//   equal logits go to the lower id.
// Likelier is who has the larger logit, among equal ones the lower id: every filter keeps the first tokens of that order.
// A token weighs exp((logit - peak) / temperature) in units of 2^-44, with the same bits on every machine; sums are exact.
// The draw of one token uses Philox with key = seed and counter = (position, choice): it does not depend on the batch.
#pragma once

#include <cstdint>
#include <span>

#include "core/core.h"

namespace headwater::ops {

struct LogitBias {
  TokenId token;
  float bias;
};

inline constexpr uint32_t kLogprobsMax = 20;

struct SampleRow {
  float temperature = 1.0f;  // 0: greedy
  uint32_t top_k = 0;        // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // 1: none; over prompt and generated tokens
  float frequency_penalty = 0.0f;   // over generated tokens
  float presence_penalty = 0.0f;
  uint64_t seed = 0;
  uint32_t choice = 0;                 // index of the choice of an n > 1 request
  uint32_t position = 0;               // index of the token being generated, from 0
  std::span<const LogitBias> bias;     // ids inside the vocabulary; may be empty
  std::span<const TokenId> banned;     // never chosen (end tokens before min_tokens)
  std::span<const TokenId> prompt;     // read only when repetition_penalty != 1
  std::span<const TokenId> generated;  // read only when counts_tokens()
  bool want_logprob = false;
  uint32_t top_logprobs = 0;  // <= kLogprobsMax
};

struct TokenLogprob {
  TokenId token;
  float logprob;  // natural logarithm; may be -inf
};

struct Sampled {
  TokenId token = -1;                // -1: no token could be chosen; then
  ErrorCode error = ErrorCode::kOk;  // why: kInternal (NaN or +inf logits) or kInvalidArgument (every token is banned)
  float logprob = 0;                 // of token, when wanted
  uint32_t top_count = 0;
  TokenLogprob top[kLogprobsMax];  // most likely first; equal ones by lower id
};

// Scratch of one caller: sized once for a vocabulary, no allocation afterwards.
class SampleScratch {
 public:
  struct Candidate {
    uint32_t token;
    uint32_t key;  // ordered as logits are
    uint64_t weight;
  };

  static Result<SampleScratch> create(uint32_t vocabulary);  // at most kVocabularyMax (logit_blocks.h)
  std::span<float> logits() { return logits_.as<float>(); }
  std::span<Candidate> candidates() { return candidates_.as<Candidate>(); }
  std::span<uint32_t> counts() { return counts_.as<uint32_t>(); }
  std::span<float> maxima() { return maxima_.as<float>(); }
  std::span<uint64_t> sums() { return sums_.as<uint64_t>(); }

 private:
  Buffer logits_;      // [vocabulary], after biases and penalties
  Buffer candidates_;  // [vocabulary]
  Buffer counts_;      // [vocabulary], zero between calls
  Buffer maxima_;      // [blocks of logits], see logit_blocks.h
  Buffer sums_;        // [blocks of logits]
};

// The one host implementation, used by the reference and CPU back ends. logits: [vocabulary] f32, finite or -inf; a NaN
// or +inf is an error (kInternal), never a silent choice.
Result<Sampled> sample_row(std::span<const float> logits, const SampleRow& row, SampleScratch& scratch);

// What a back end that samples on its device asks here.
uint64_t draw_bits(const SampleRow& row);  // random, a function of seed, choice and position alone
bool counts_tokens(const SampleRow& row);  // a penalty is set: the row needs every token before it
bool changes_logits(const SampleRow& row);
float min_p_floor(const SampleRow& row);      // of (logit - peak) / temperature; the lowest float without min_p
double log_sum(float peak, uint64_t weight);  // log of the sum of exponentials that weigh so much beside the peak

}  // namespace headwater::ops
