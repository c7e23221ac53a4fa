#include "ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace headwater::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kInPrompt = 0x80000000u;  // flag beside the count of generated occurrences

// Whether a token of weight or logit `a` and id `id_a` comes before the other: larger first, equal ones by lower id.
bool comes_before(float a, uint32_t id_a, float b, uint32_t id_b) {
  return a > b || (a == b && id_a < id_b);
}

struct Peak {
  uint32_t token = 0;
  float logit = -kInfinity;
};

Peak peak_of(std::span<const float> logits) {
  Peak peak;
  for (uint32_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > peak.logit) peak = {id, logits[id]};
  }
  return peak;
}

Status check_logits(std::span<const float> logits) {
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] < kInfinity)) {
      return error(
          ErrorCode::kInternal,
          "the logit of token {} is {}; logits must be finite or -inf: the model's weights or state are broken", id,
          logits[id]);
    }
  }
  return {};
}

size_t checked(TokenId token, size_t vocabulary) {
  check(token >= 0 && static_cast<size_t>(token) < vocabulary, "a token id outside the vocabulary");
  return static_cast<size_t>(token);
}

void apply_penalties(const SampleRow& row, std::span<float> logits, std::span<uint32_t> counts) {
  const bool repeats = row.repetition_penalty != 1.0f;
  if (!repeats && row.frequency_penalty == 0 && row.presence_penalty == 0) return;
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

// [0, 1) with 53 random bits, a function of the request's seed, its choice and the position alone.
double draw_of(const SampleRow& row) {
  const auto bits = philox4x32({row.position, row.choice, 0, 0},
                               {static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)});
  return static_cast<double>(uint64_t{bits[0]} << 21 | bits[1] >> 11) * 0x1p-53;
}

// Keeps the likeliest tokens whose weights together reach `share` of the total; at least one. Reorders `ids`.
std::span<uint32_t> keep_top_p(std::span<uint32_t> ids, std::span<const float> weights, double share) {
  double total = 0;
  for (const uint32_t id : ids) total += weights[id];
  const auto is_worse = [&](uint32_t a, uint32_t b) { return comes_before(weights[b], b, weights[a], a); };
  std::make_heap(ids.begin(), ids.end(), is_worse);  // only the kept ones are ever sorted
  double kept = 0;
  size_t rest = ids.size();
  do {
    std::pop_heap(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(rest), is_worse);
    kept += weights[ids[--rest]];
  } while (rest > 0 && kept < share * total);
  return ids.subspan(rest);
}

uint32_t draw(std::span<const uint32_t> ids, std::span<const float> weights, double uniform) {
  double total = 0;
  for (const uint32_t id : ids) total += weights[id];
  const double target = uniform * total;
  double sum = 0;
  uint32_t last = ids.front();
  for (const uint32_t id : ids) {
    if (weights[id] == 0) continue;
    sum += weights[id];
    last = id;
    if (sum > target) break;
  }
  return last;
}

// The modified logits become weights relative to the peak's; the draw walks the kept ids in ascending order.
uint32_t draw_token(const SampleRow& row, float peak, std::span<float> logits, std::span<uint32_t> order) {
  const float log_min_p = row.min_p > 0 ? std::min(std::log(row.min_p), 0.0f) : -kInfinity;
  size_t count = 0;
  for (uint32_t id = 0; id < logits.size(); ++id) {
    logits[id] = (logits[id] - peak) / row.temperature;
    if (logits[id] > -kInfinity && logits[id] >= log_min_p) order[count++] = id;
  }
  std::span<uint32_t> ids = order.first(count);
  const bool is_top_k = row.top_k > 0 && row.top_k < ids.size();
  if (is_top_k) {
    std::nth_element(ids.begin(), ids.begin() + row.top_k, ids.end(),
                     [&](uint32_t a, uint32_t b) { return comes_before(logits[a], a, logits[b], b); });
    ids = ids.first(row.top_k);
  }
  for (const uint32_t id : ids) logits[id] = std::exp(logits[id]);
  if (row.top_p < 1) ids = keep_top_p(ids, logits, row.top_p);
  if (is_top_k || row.top_p < 1) std::sort(ids.begin(), ids.end());
  return draw(ids, logits, draw_of(row));
}

void add_logprobs(std::span<const float> logits, const SampleRow& row, Sampled& sampled) {
  const float peak = peak_of(logits).logit;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - peak);
  const double log_total = peak + std::log(sum);
  const auto logprob_of = [&](TokenId token) {
    return static_cast<float>(logits[static_cast<size_t>(token)] - log_total);
  };
  sampled.logprob = logprob_of(sampled.token);
  const auto wanted = static_cast<uint32_t>(std::min<size_t>(row.top_logprobs, logits.size()));
  check(wanted <= kLogprobsMax, "more top logprobs than a row can hold");
  if (wanted == 0) return;
  for (uint32_t id = 0; id < logits.size(); ++id) {  // insertion into a short sorted list; equal ones stay by lower id
    if (sampled.top_count == wanted && !(logits[id] > sampled.top[wanted - 1].logprob)) continue;
    uint32_t at = sampled.top_count < wanted ? sampled.top_count++ : wanted - 1;
    for (; at > 0 && logits[id] > sampled.top[at - 1].logprob; --at) sampled.top[at] = sampled.top[at - 1];
    sampled.top[at] = {static_cast<TokenId>(id), logits[id]};
  }
  for (TokenLogprob& top : std::span(sampled.top, sampled.top_count)) top.logprob = logprob_of(top.token);
}

}  // namespace

Result<SampleScratch> SampleScratch::create(uint32_t vocabulary) {
  SampleScratch scratch;
  HEADWATER_ASSIGN_OR_RETURN(scratch.logits_, Buffer::create(uint64_t{vocabulary} * sizeof(float)));
  HEADWATER_ASSIGN_OR_RETURN(scratch.order_, Buffer::create(uint64_t{vocabulary} * sizeof(uint32_t)));
  HEADWATER_ASSIGN_OR_RETURN(scratch.counts_, Buffer::create(uint64_t{vocabulary} * sizeof(uint32_t)));
  return scratch;
}

Result<Sampled> sample_row(std::span<const float> logits, const SampleRow& row, SampleScratch& scratch) {
  check(logits.size() <= scratch.logits().size(), "a row of logits longer than the scratch");
  HEADWATER_RETURN_IF_ERROR(check_logits(logits));
  const std::span<float> modified = scratch.logits().first(logits.size());
  std::copy(logits.begin(), logits.end(), modified.begin());
  for (const LogitBias& bias : row.bias) modified[checked(bias.token, modified.size())] += bias.bias;
  for (const TokenId token : row.banned) modified[checked(token, modified.size())] = -kInfinity;
  apply_penalties(row, modified, scratch.counts());

  const Peak peak = peak_of(modified);
  if (!std::isfinite(peak.logit)) {
    return error(
        ErrorCode::kInvalidArgument,
        "none of {} tokens can be chosen: {} are banned and the largest logit left, after biases and penalties, "
        "is {}; ban fewer tokens or soften the penalties",
        logits.size(), row.banned.size(), peak.logit);
  }
  Sampled sampled;
  const bool is_greedy = row.temperature == 0;
  sampled.token = static_cast<TokenId>(is_greedy ? peak.token : draw_token(row, peak.logit, modified, scratch.order()));
  if (row.want_logprob || row.top_logprobs > 0) add_logprobs(logits, row, sampled);
  return sampled;
}

}  // namespace headwater::ops
