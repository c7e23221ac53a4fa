// Draws against a slow oracle: every step of sampling.h over the whole vocabulary, everything sorted, sums in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/sampling.h"

namespace headwater::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Entry {
  size_t token;
  float logit;
  float weight;
};

std::vector<Entry> kept_of(const std::vector<float>& logits, const SampleRow& row) {
  const float peak = *std::max_element(logits.begin(), logits.end());
  std::vector<Entry> kept;
  for (size_t token = 0; token < logits.size(); ++token) {
    const float relative = (logits[token] - peak) / row.temperature;
    const bool is_out = row.min_p > 0 && relative < std::min(std::log(row.min_p), 0.0f);
    if (relative > -kInfinity && !is_out)
      kept.push_back({token, logits[token], static_cast<float>(std::exp(double{relative}))});
  }
  std::ranges::stable_sort(kept, std::greater(), &Entry::logit);
  if (row.top_k > 0 && row.top_k < kept.size()) kept.resize(row.top_k);
  std::ranges::sort(kept, std::less(), &Entry::token);
  double total = 0;
  for (const Entry& entry : kept) total += entry.weight;
  if (row.top_p < 1) {
    std::ranges::stable_sort(kept, std::greater(), &Entry::logit);
    double sum = 0;
    size_t count = 0;
    while (count < kept.size() && (count == 0 || sum < double{row.top_p} * total)) sum += kept[count++].weight;
    kept.resize(count);
    std::ranges::sort(kept, std::less(), &Entry::token);
  }
  return kept;
}

TokenId slow_token(std::vector<float> logits, const SampleRow& row) {
  for (const TokenId token : row.banned) logits[static_cast<size_t>(token)] = -kInfinity;
  if (row.temperature == 0) {
    return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const std::vector<Entry> kept = kept_of(logits, row);
  const auto bits = philox4x32({row.position, row.choice, 0, 0},
                               {static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)});
  double total = 0;
  for (const Entry& entry : kept) total += entry.weight;
  const double target = static_cast<double>(uint64_t{bits[0]} << 21 | bits[1] >> 11) * 0x1p-53 * total;
  double sum = 0;
  size_t last = 0;
  for (const Entry& entry : kept) {
    if (entry.weight == 0) continue;
    last = entry.token;
    sum += entry.weight;
    if (sum > target) break;
  }
  return static_cast<TokenId>(last);
}

// One of several shapes: flat, peaked, on a coarse grid (equal logits), all equal, mostly -inf, two levels 60 apart.
std::vector<float> logits_of(uint32_t size, uint32_t shape, Random& random) {
  std::vector<float> logits(size);
  for (float& logit : logits) {
    const float normal = random.normal();
    switch (shape) {
      case 0:
        logit = normal;
        break;
      case 1:
        logit = 12 * normal;
        break;
      case 2:
        logit = std::round(2 * normal) / 2;
        break;
      case 3:
        logit = 1.5f;
        break;
      case 4:
        logit = random.below(10) == 0 ? normal : -kInfinity;
        break;
      default:
        logit = random.below(3) == 0 ? 0.0f : -60.0f;
        break;
    }
  }
  if (shape == 4) logits[random.below(size)] = 0;
  return logits;
}

TEST(SamplingOracle, EveryDrawIsTheOneOfTheFullySortedVocabulary) {
  constexpr uint32_t kSizes[] = {1, 2, 3, 63, 64, 65, 200, 1000, 5000};
  constexpr float kTemperatures[] = {0, 0.1f, 0.8f, 1, 1, 3, 1e20f};
  constexpr float kTopP[] = {1, 1, 0.9f, 0.95f, 0.5f, 0.1f, 1e-7f, 0, 0.999f, 0.99999994f};
  constexpr float kMinP[] = {0, 0, 0, 0.05f, 1e-6f, 1};
  Random random(7);
  const auto any = [&](const auto& values) { return values[random.below(static_cast<uint32_t>(std::size(values)))]; };
  SampleScratch scratch = SampleScratch::create(5000).value();
  for (uint32_t i = 0; i < 20000; ++i) {
    const uint32_t size = any(kSizes);
    const uint32_t shape = random.below(6);
    const std::vector<float> logits = logits_of(size, shape, random);
    const uint32_t top_k[] = {0, 0, 1, 2, 5, 50, 700, size - 1, size, size + 1};
    const std::vector<TokenId> banned(size > 2 && shape != 4 ? 2 : 0, static_cast<TokenId>(random.below(size)));
    const SampleRow row{.temperature = any(kTemperatures),
                        .top_k = any(top_k),
                        .top_p = any(kTopP),
                        .min_p = any(kMinP),
                        .seed = random(),
                        .position = i,
                        .banned = banned};
    const Result<Sampled> sampled = sample_row(logits, row, scratch);
    ASSERT_TRUE(sampled) << sampled.status().message();
    ASSERT_EQ(sampled->token, slow_token(logits, row))
        << "row " << i << ": size " << size << ", shape " << shape << ", temperature " << row.temperature << ", top_k "
        << row.top_k << ", top_p " << row.top_p << ", min_p " << row.min_p;
  }
}

}  // namespace
}  // namespace headwater::ops
