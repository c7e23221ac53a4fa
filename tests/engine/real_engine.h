// Engines over the default model on the cpu back end, prompts of plain English for them, and their answers to the last
// bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "golden/golden_file.h"
#include "support/default_model.h"

namespace headwater::testing {

struct RealEngine {
  std::unique_ptr<model::Decoder> decoder;
  std::unique_ptr<engine::Engine> engine;
};

inline Result<RealEngine> create_real_engine(LoadedModel& loaded, const engine::EngineConfig& config) {
  RealEngine real;
  HEADWATER_ASSIGN_OR_RETURN(real.decoder, loaded.model->create_decoder());
  HEADWATER_ASSIGN_OR_RETURN(real.engine, engine::Engine::create(config, *real.decoder, *loaded.backend));
  return real;
}

inline uint64_t kv_bytes_of(const LoadedModel& loaded, uint32_t pages) {
  return loaded.model->shape().kv_shape(kv::kPageSizeDefault, pages, DType::kBF16).bytes();
}

// Pieces of the text of the perplexity test: the model knows what may follow, so that its answers are texts, too.
class English {
 public:
  static Result<English> read() {
    HEADWATER_ASSIGN_OR_RETURN(GoldenPerplexity text, read_golden_perplexity(HEADWATER_SOURCE_DIR "/tests/golden"));
    return English(std::move(text.tokens));
  }
  std::span<const TokenId> piece(uint32_t begin, uint32_t count) const {
    check(begin + count <= tokens_.size(), "the text is shorter");
    return std::span(tokens_).subspan(begin, count);
  }
  std::vector<TokenId> prompt(std::span<const TokenId> prefix, uint32_t begin, uint32_t count) const {
    std::vector<TokenId> tokens(prefix.begin(), prefix.end());
    const std::span<const TokenId> tail = piece(begin, count);
    tokens.insert(tokens.end(), tail.begin(), tail.end());
    return tokens;
  }

 private:
  explicit English(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {}
  std::vector<TokenId> tokens_;
};

// One choice of one request. Equal answers have equal bits: no float is compared as a number.
struct ExactAnswer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> logprob_bits;      // of each token
  std::vector<uint32_t> top_logprob_bits;  // of all top log probabilities, in order
  engine::FinishReason finish = engine::FinishReason::kNone;

  bool operator==(const ExactAnswer&) const = default;
};
using ExactAnswers = std::map<std::pair<size_t, uint32_t>, ExactAnswer>;  // by index of the request and choice

inline void take(const engine::Emission& emission, ExactAnswer& answer) {
  if (emission.token >= 0) {
    answer.tokens.push_back(emission.token);
    answer.logprob_bits.push_back(std::bit_cast<uint32_t>(emission.logprob));
  }
  for (uint32_t i = 0; i < emission.top_count; ++i) {
    answer.top_logprob_bits.push_back(std::bit_cast<uint32_t>(emission.top[i].logprob));
  }
  if (emission.finish != engine::FinishReason::kNone) answer.finish = emission.finish;
}

// Submits all requests at once and steps until every one has ended.
inline Result<ExactAnswers> answer_all(engine::Engine& engine, std::span<const engine::Request> requests) {
  std::map<engine::RequestId, size_t> index_of;
  for (size_t i = 0; i < requests.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const engine::RequestId id, engine.submit(requests[i]));
    index_of[id] = i;
  }
  ExactAnswers answers;
  for (bool busy = true; busy;) {
    HEADWATER_ASSIGN_OR_RETURN(busy, engine.step());
    for (engine::Emission emission; engine.poll_any({&emission, 1}) == 1;) {
      take(emission, answers[{index_of.at(emission.request), emission.choice}]);
    }
  }
  HEADWATER_RETURN_IF_ERROR(engine.audit());
  return answers;
}

}  // namespace headwater::testing
