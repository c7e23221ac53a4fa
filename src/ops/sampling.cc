// One pass finds the peak and the largest logit of each block of 64 (logit_blocks.h); a greedy row needs no more. Then
// each filter gives a floor under what it can keep: min_p its own, top_k the k-th largest of the blocks' maxima, top_p
// what the tokens it leaves out can weigh at most. Blocks below the floor are not read again, and of the tokens above it
// top_k and top_p select without sorting. A draw from all tokens walks the blocks' sums and then one block.
#include "ops/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "ops/logit_blocks.h"

namespace headwater::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr uint32_t kInPrompt = 0x80000000u;  // flag beside the count of generated occurrences

using Candidate = SampleScratch::Candidate;

// A row as a draw sees it, and its parts of the scratch.
struct DrawRow {
  std::span<const float> logits;
  std::span<const float> maxima;  // of blocks
  Relative relative;
  std::span<uint64_t> sums;  // of blocks
  std::span<Candidate> candidates;
};

// A logit as a whole number in the same order; both zeros are one.
uint32_t key_of(float logit) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

// Larger first, equal ones by lower id.
bool comes_before(const Candidate& a, const Candidate& b) {
  return a.key > b.key || (a.key == b.key && a.token < b.token);
}

Status broken_logit(std::span<const float> logits) {
  const auto broken = std::ranges::find_if(logits, [](float logit) { return !(logit < kInfinity); });
  return error(ErrorCode::kInternal,
               "the logit of token {} is {}; logits must be finite or -inf: the model's weights or state are broken",
               broken - logits.begin(), *broken);
}

size_t checked(TokenId token, size_t vocabulary) {
  check(token >= 0 && static_cast<size_t>(token) < vocabulary, "a token id outside the vocabulary");
  return static_cast<size_t>(token);
}

void apply_penalties(const SampleRow& row, std::span<float> logits, std::span<uint32_t> counts) {
  if (!counts_tokens(row)) return;
  const bool repeats = row.repetition_penalty != 1.0f;
  const std::span<const TokenId> prompt = repeats ? row.prompt : std::span<const TokenId>();
  for (const TokenId token : prompt) counts[checked(token, logits.size())] |= kInPrompt;
  for (const TokenId token : row.generated) ++counts[checked(token, logits.size())];
  // Each token once: its count is taken, and so all counts are zero again in the end.
  const auto apply = [&](TokenId token) {
    const uint32_t count = std::exchange(counts[static_cast<size_t>(token)], 0u);
    if (count == 0) return;
    float& logit = logits[static_cast<size_t>(token)];
    if (repeats) logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    const uint32_t generated = count & ~kInPrompt;
    logit -= row.frequency_penalty * static_cast<float>(generated) + (generated > 0 ? row.presence_penalty : 0.0f);
  };
  std::for_each(prompt.begin(), prompt.end(), apply);
  std::for_each(row.generated.begin(), row.generated.end(), apply);
}

// As far into a sum of weights as the draw is into its range: [0, sum).
uint64_t part_of(uint64_t sum, uint64_t draw) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(sum) * draw >> 64);
}

// A number that at least `rank` relative logits reach: the rank-th largest maximum of a block. With fewer blocks than
// that, the lowest float.
float reached_by(uint32_t rank, const DrawRow& row) {
  if (rank > row.maxima.size()) return kLowest;
  const std::span<Candidate> order = row.candidates.first(row.maxima.size());
  for (uint32_t block = 0; block < order.size(); ++block) order[block] = {block, key_of(row.maxima[block]), 0};
  std::nth_element(order.begin(), order.begin() + (rank - 1), order.end(), comes_before);
  return row.relative.of(row.maxima[order[rank - 1].token]);
}

// The tokens whose relative logit is at least `floor` and finite, by ascending id. Only blocks that hold one are read.
std::span<Candidate> collect(const DrawRow& row, float floor) {
  floor = std::max(floor, kLowest);
  size_t count = 0;
  for (size_t block = 0; block < row.maxima.size(); ++block) {
    if (!(row.relative.of(row.maxima[block]) >= floor)) continue;
    const LogitBlock values = relative_block(row.logits, block, row.relative);
    const WeightBlock weights = weigh_block(values);
    const size_t begin = block * kLogitBlock;
    const size_t size = std::min(kLogitBlock, row.logits.size() - begin);
    std::array<uint32_t, kLogitBlock> keys;
    for (size_t i = 0; i < size; ++i) keys[i] = key_of(row.logits[begin + i]);
    for (size_t i = 0; i < size; ++i) {  // written in any case: in a flat row a branch is a toss-up
      row.candidates[count] = {static_cast<uint32_t>(begin + i), keys[i], weights[i]};
      count += values[i] >= floor ? 1 : 0;
    }
  }
  return row.candidates.first(count);
}

void keep_top_k(uint32_t top_k, std::span<Candidate>& candidates) {
  if (top_k >= candidates.size()) return;
  std::nth_element(candidates.begin(), candidates.begin() + top_k, candidates.end(), comes_before);
  candidates = candidates.first(top_k);
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
}

uint64_t sum_of(std::span<const Candidate> candidates) {
  uint64_t sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.weight;
  return sum;
}

struct Cut {
  uint32_t key;   // of the least logit that is kept
  uint64_t kept;  // sum of the weights above it
};

// Finds the logit at which the sum of the likeliest tokens' weights reaches `needed`: sums of ranges of logits, 2,048 at a
// time, narrow the range that holds it until it is one logit.
Cut find_cut(std::span<const Candidate> candidates, uint64_t needed) {
  uint32_t low = std::numeric_limits<uint32_t>::max(), high = 0;
  for (const Candidate& candidate : candidates) {
    low = std::min(low, candidate.key);
    high = std::max(high, candidate.key);
  }
  uint64_t kept = 0;
  while (low < high) {
    constexpr int kRangeBits = 11;
    const int shift = std::max(static_cast<int>(std::bit_width(high - low)) - kRangeBits, 0);
    std::array<uint64_t, 1 << kRangeBits> sums{};  // of ranges of logits, the largest first
    for (const Candidate& candidate : candidates) {
      const uint32_t below = high - candidate.key;
      if (below <= high - low) sums[below >> shift] += candidate.weight;
    }
    const uint32_t last = (high - low) >> shift;
    uint32_t range = 0;
    while (range < last && kept + sums[range] < needed) kept += sums[range++];
    high -= range << shift;
    if (range < last) low = high - ((1u << shift) - 1);
  }
  return {high, kept};
}

// Keeps the likeliest tokens whose weights together reach `needed`; at least one. Order stays.
void keep_top_p(uint64_t needed, std::span<Candidate>& candidates) {
  auto [cut, kept] = find_cut(candidates, needed);
  size_t count = 0;
  bool is_reached = false;  // later ones of the cut's logit are left out
  for (const Candidate& candidate : candidates) {
    bool is_kept = candidate.key > cut;
    if (candidate.key == cut && !is_reached) {
      is_kept = true;
      is_reached = (kept += candidate.weight) >= needed;
    }
    candidates[count] = candidate;
    count += is_kept ? 1 : 0;
  }
  candidates = candidates.first(count);
}

struct Reached {
  size_t index = 0;
  uint64_t target = 0;  // what is left of it there
};

// Where the running sum of weights exceeds `target`, which is less than their whole sum.
template <typename Weights, typename WeightOf>
Reached reach(const Weights& weights, const WeightOf& weight_of, uint64_t target) {
  size_t i = 0;
  for (; i + 1 < weights.size() && weight_of(weights[i]) <= target; ++i) target -= weight_of(weights[i]);
  return {i, target};
}

uint32_t draw_from(std::span<const Candidate> candidates, uint64_t draw) {
  const auto weight_of = [](const Candidate& candidate) { return candidate.weight; };
  return candidates[reach(candidates, weight_of, part_of(sum_of(candidates), draw)).index].token;
}

// Of all tokens: the sums of blocks lead to the block.
uint32_t draw_from_all(const DrawRow& row, uint64_t draw) {
  const uint64_t target = part_of(sum_weights(row.logits, row.relative, row.sums), draw);
  const Reached block = reach(row.sums, std::identity(), target);
  const WeightBlock weights = weigh_block(relative_block(row.logits, block.index, row.relative));
  const Reached token = reach(weights, std::identity(), block.target);
  return static_cast<uint32_t>(block.index * kLogitBlock + token.index);
}

// All tokens that top_p can keep. Those left out weigh at most what it may leave out, divided by the number of all tokens:
// what is missing together is no more than may be. The 0.01 is more than any rounding.
std::span<Candidate> collect_for_top_p(const DrawRow& row, uint64_t left_out) {
  const uint64_t part = left_out / row.logits.size();
  const double least = std::ldexp(static_cast<double>(part), -kWeightBits);
  return collect(row, static_cast<float>(std::log(least) - 0.01));
}

// The weight that the tokens kept by top_p must reach, of `total`.
uint64_t needed_for_top_p(const SampleRow& sample, uint64_t total) {
  return static_cast<uint64_t>(double{sample.top_p} * static_cast<double>(total));
}

// Weights are relative to the peak's; the draw walks the kept tokens in ascending order.
uint32_t draw_token(const SampleRow& sample, const DrawRow& row) {
  const uint64_t draw = draw_bits(sample);
  const bool is_top_k = sample.top_k > 0 && sample.top_k < row.logits.size();
  const bool is_top_p = sample.top_p < 1;
  if (!is_top_k && !is_top_p && !(sample.min_p > 0)) return draw_from_all(row, draw);

  std::span<Candidate> candidates;
  uint64_t needed = 0;
  if (is_top_k || sample.min_p > 0) {
    float floor = min_p_floor(sample);
    if (is_top_k) floor = std::max(floor, reached_by(sample.top_k, row));
    candidates = collect(row, floor);
    if (is_top_k) keep_top_k(sample.top_k, candidates);
    if (is_top_p) needed = needed_for_top_p(sample, sum_of(candidates));
  } else {
    const uint64_t total = sum_weights(row.logits, row.relative, row.sums);
    needed = needed_for_top_p(sample, total);
    candidates = collect_for_top_p(row, total - needed);
  }
  if (is_top_p) keep_top_p(needed, candidates);
  return draw_from(candidates, draw);
}

// Fills the top logprobs, equal ones by lower id; returns the logarithm of the sum of all exponentials.
double add_top_logprobs(const DrawRow& row, uint32_t top_logprobs, Sampled& sampled) {
  const double log_total = log_sum(row.relative.peak, sum_weights(row.logits, row.relative, row.sums));
  const auto wanted = static_cast<uint32_t>(std::min<size_t>(top_logprobs, row.logits.size()));
  check(wanted <= kLogprobsMax, "more top logprobs than a row can hold");
  const auto is_in = [&](float logit) {
    return sampled.top_count < wanted || (wanted > 0 && logit > sampled.top[wanted - 1].logprob);
  };
  for (size_t block = 0; block < row.maxima.size(); ++block) {
    if (!is_in(row.maxima[block])) continue;
    const size_t end = std::min(row.logits.size(), (block + 1) * kLogitBlock);
    for (size_t id = block * kLogitBlock; id < end; ++id) {  // insertion into a short sorted list
      const float logit = row.logits[id];
      if (!is_in(logit)) continue;
      uint32_t at = sampled.top_count < wanted ? sampled.top_count++ : wanted - 1;
      for (; at > 0 && logit > sampled.top[at - 1].logprob; --at) sampled.top[at] = sampled.top[at - 1];
      sampled.top[at] = {static_cast<TokenId>(id), logit};
    }
  }
  for (TokenLogprob& top : std::span(sampled.top, sampled.top_count)) {
    top.logprob = static_cast<float>(top.logprob - log_total);
  }
  return log_total;
}

}  // namespace

uint64_t draw_bits(const SampleRow& row) {
  const auto bits = philox4x32({row.position, row.choice, 0, 0},
                               {static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)});
  return uint64_t{bits[0]} << 32 | bits[1];
}

bool counts_tokens(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.frequency_penalty != 0 || row.presence_penalty != 0;
}

bool changes_logits(const SampleRow& row) {
  return !row.bias.empty() || !row.banned.empty() || counts_tokens(row);
}

float min_p_floor(const SampleRow& row) {
  return row.min_p > 0 ? std::min(std::log(row.min_p), 0.0f) : kLowest;
}

double log_sum(float peak, uint64_t weight) {
  return peak + std::log(std::ldexp(static_cast<double>(weight), -kWeightBits));
}

Result<SampleScratch> SampleScratch::create(uint32_t vocabulary) {
  SampleScratch scratch;
  if (vocabulary > kVocabularyMax) {
    return error(ErrorCode::kUnsupported, "a vocabulary of {} tokens; sampling takes up to {}", vocabulary,
                 kVocabularyMax);
  }
  const uint64_t blocks = logit_blocks(vocabulary);
  HEADWATER_ASSIGN_OR_RETURN(scratch.logits_, Buffer::create(uint64_t{vocabulary} * sizeof(float)));
  HEADWATER_ASSIGN_OR_RETURN(scratch.candidates_, Buffer::create(uint64_t{vocabulary} * sizeof(Candidate)));
  HEADWATER_ASSIGN_OR_RETURN(scratch.counts_, Buffer::create(uint64_t{vocabulary} * sizeof(uint32_t)));
  HEADWATER_ASSIGN_OR_RETURN(scratch.maxima_, Buffer::create(blocks * sizeof(float)));
  HEADWATER_ASSIGN_OR_RETURN(scratch.sums_, Buffer::create(blocks * sizeof(uint64_t)));
  return scratch;
}

Result<Sampled> sample_row(std::span<const float> logits, const SampleRow& row, SampleScratch& scratch) {
  check(logits.size() <= scratch.logits().size(), "a row of logits longer than the scratch");
  const size_t blocks = logit_blocks(logits.size());
  const std::span<float> maxima = scratch.maxima().first(blocks);
  LogitScan scan = scan_logits(logits, maxima);
  if (!scan.is_sound) return broken_logit(logits);
  DrawRow draw_row{logits, maxima, {scan.peak, 1}, scratch.sums().first(blocks), scratch.candidates()};

  Sampled sampled;
  const bool wants_logprobs = row.want_logprob || row.top_logprobs > 0;
  const double log_total = wants_logprobs ? add_top_logprobs(draw_row, row.top_logprobs, sampled) : 0;
  if (changes_logits(row)) {
    const std::span<float> modified = scratch.logits().first(logits.size());
    std::copy(logits.begin(), logits.end(), modified.begin());
    for (const LogitBias& bias : row.bias) modified[checked(bias.token, modified.size())] += bias.bias;
    for (const TokenId token : row.banned) modified[checked(token, modified.size())] = -kInfinity;
    apply_penalties(row, modified, scratch.counts());
    scan = scan_logits(modified, maxima);
    draw_row.logits = modified;
  }
  if (!std::isfinite(scan.peak)) {
    return error(
        ErrorCode::kInvalidArgument,
        "none of {} tokens can be chosen: {} are banned and the largest logit left, after biases and penalties, "
        "is {}; ban fewer tokens or soften the penalties",
        logits.size(), row.banned.size(), scan.peak);
  }
  draw_row.relative = {scan.peak, row.temperature};
  sampled.token = static_cast<TokenId>(row.temperature == 0 ? scan.token : draw_token(row, draw_row));
  if (wants_logprobs) sampled.logprob = static_cast<float>(logits[static_cast<size_t>(sampled.token)] - log_total);
  return sampled;
}

}  // namespace headwater::ops
