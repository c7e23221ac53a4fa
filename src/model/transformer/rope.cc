#include "model/transformer/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/shown.h"

namespace headwater::model {
namespace {

constexpr Key kType{"rope.scaling.type", "rope_scaling.rope_type"};
constexpr Key kFactor{"rope.scaling.factor", "rope_scaling.factor"};
constexpr Key kOriginal{"rope.scaling.original_context_length", "rope_scaling.original_max_position_embeddings"};
constexpr Key kOriginalOuter{kOriginal.gguf, "original_max_position_embeddings"};
constexpr double kFactorMax = 1e6;
constexpr uint64_t kContextMax = 1 << 24;

double plain_frequency(double base, uint32_t dims, uint32_t pair) {
  return std::pow(base, -2.0 * pair / dims);
}

// Frequencies divided by `factors`.
std::vector<float> divided(double base, uint32_t dims, const std::vector<double>& factors) {
  std::vector<float> frequencies(dims / 2);
  for (uint32_t i = 0; i < dims / 2; ++i) {
    frequencies[i] = static_cast<float>(plain_frequency(base, dims, i) / factors[i]);
  }
  return frequencies;
}

// Of a folder: GGUF keeps the factors that come of it.
Llama3Scaling read_llama3(Hyperparameters& h) {
  const double factor = h.number({"", kFactor.folder}, 1e-3, kFactorMax);
  const double low = h.number({"", "rope_scaling.low_freq_factor"}, 1e-3, 1e3, 1.0);
  const double high = h.number({"", "rope_scaling.high_freq_factor"}, 1e-3, 1e3, 4.0);
  if (high <= low) {
    h.fail(error(ErrorCode::kCorrupt, "rope_scaling.high_freq_factor {} is not above low_freq_factor {}", high, low));
  }
  return {factor, low, high, static_cast<double>(h.integer({"", kOriginal.folder}, 1, kContextMax, 8192))};
}

struct Yarn {
  std::vector<double> factors;
  double magnitude;
};

double yarn_magnitude(Hyperparameters& h, double factor) {
  const auto magnitude = [factor](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1; };
  const double numerator = h.number({"", "rope_scaling.mscale"}, 0, 100, 0.0);
  const double denominator = h.number({"", "rope_scaling.mscale_all_dim"}, 0, 100, 0.0);
  const double absent = numerator > 0 && denominator > 0 ? magnitude(numerator) / magnitude(denominator) : magnitude(1);
  constexpr Key kMagnitude{"rope.scaling.yarn_attn_factor", "rope_scaling.attention_factor"};
  return h.has(kMagnitude) ? h.number(kMagnitude, 1e-3, 1e3) : absent;
}

Yarn yarn(Hyperparameters& h, double base, uint32_t dims, double factor, double original, bool truncate) {
  const double fast = h.number({"rope.scaling.yarn_beta_fast", "rope_scaling.beta_fast"}, 1e-3, 1e6, 32.0);
  const double slow = h.number({"rope.scaling.yarn_beta_slow", "rope_scaling.beta_slow"}, 1e-3, 1e6, 1.0);
  h.expect_number({"rope.scaling.yarn_ext_factor", "rope_scaling.extrapolation_factor"}, 1);
  truncate = h.flag({"", "rope_scaling.truncate"}, truncate);
  const auto pair_of_turns = [&](double turns) {
    return dims * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = pair_of_turns(fast), high = pair_of_turns(slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1.0);
  const double width = high == low ? 0.001 : high - low;  // as the authors' code avoids the division by zero
  Yarn result{std::vector<double>(dims / 2), yarn_magnitude(h, factor)};
  for (uint32_t i = 0; i < dims / 2; ++i) {
    const double interpolated = std::clamp((i - low) / width, 0.0, 1.0);
    result.factors[i] = 1 / (interpolated / factor + (1 - interpolated));
  }
  return result;
}

void read_longrope(Hyperparameters& h, double base, uint32_t context_max, RopeTable& table) {
  const uint32_t pairs = table.dims / 2;
  const auto list = [&](std::string_view tensor, Key key) {
    return h.is_gguf() ? h.tensor(tensor, pairs, 1e-3, kFactorMax) : h.numbers(key, pairs, 1e-3, kFactorMax);
  };
  const std::vector<double> near = list("rope_factors_short.weight", {"", "rope_scaling.short_factor"});
  const std::vector<double> far = list("rope_factors_long.weight", {"", "rope_scaling.long_factor"});
  if (near.size() != pairs || far.size() != pairs) {
    h.fail(error(ErrorCode::kCorrupt, "longrope needs {} short and {} long factors of RoPE", pairs, pairs));
    return;
  }
  h.say_tensor("rope_factors_short.weight", near);
  h.say_tensor("rope_factors_long.weight", far);
  table.original_context = h.integer(h.has(kOriginal) ? kOriginal : kOriginalOuter, 1, kContextMax);
  h.ignore(kOriginalOuter);
  const double ratio =
      h.number({"", "rope_scaling.factor"}, 1e-3, kFactorMax, 1.0 * context_max / table.original_context);
  const double magnitude =
      ratio <= 1 || table.original_context == 1 ? 1 : std::sqrt(1 + std::log(ratio) / std::log(table.original_context));
  table.scale =
      static_cast<float>(h.number({"rope.scaling.attn_factor", "rope_scaling.attention_factor"}, 1e-3, 1e3, magnitude));
  table.frequencies = divided(base, table.dims, near);
  table.long_frequencies = divided(base, table.dims, far);
  table.description = fmt::format("longrope beyond {}", table.original_context);
}

// Files of GGUF do not name every kind.
std::string kind_of(Hyperparameters& h) {
  std::string kind = h.text(kType, "");
  if (kind.empty() && h.is_gguf()) {
    if (h.checkpoint().find("rope_factors_long.weight") != nullptr) return "longrope";
    if (h.has(kFactor)) return "linear";
  }
  if (kind == "su") return "longrope";  // its first name
  return kind.empty() || kind == "default" ? "none" : kind;
}

}  // namespace

std::vector<double> llama3_factors(const Llama3Scaling& s, double base, uint32_t dims) {
  std::vector<double> factors(dims / 2);
  for (uint32_t i = 0; i < dims / 2; ++i) {
    const double turns = s.original_context * plain_frequency(base, dims, i) / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
    factors[i] = 1 / (kept + (1 - kept) / s.factor);
  }
  return factors;
}

RopeTable plain_rope(float base, uint32_t dims) {
  RopeTable table;
  table.dims = dims;
  table.frequencies = divided(base, dims, std::vector<double>(dims / 2, 1.0));
  return table;
}

RopeTable read_rope(Hyperparameters& h, float base, uint32_t dims, uint32_t context_max, bool yarn_truncate) {
  RopeTable table = plain_rope(base, dims);
  const std::string kind = kind_of(h);
  const auto factor = [&] {
    h.say(kType.gguf, kind);
    return h.number(kFactor, 1e-3, kFactorMax);
  };
  if (kind == "none") {
    const std::vector<double> factors =
        h.is_gguf() ? h.tensor("rope_freqs.weight", dims / 2, 1e-3, kFactorMax) : std::vector<double>();
    h.ignore(kFactor);
    h.ignore(kOriginal);
    h.ignore(kOriginalOuter);
    if (factors.size() != dims / 2) return table;
    table.frequencies = divided(base, dims, factors);
    table.description = "llama3";
  } else if (kind == "linear") {
    const double by = factor();
    table.frequencies = divided(base, dims, std::vector<double>(dims / 2, by));
    table.description = fmt::format("linear x {}", by);
  } else if (kind == "llama3" && !h.is_gguf()) {
    const Llama3Scaling scaling = read_llama3(h);
    const std::vector<double> factors = llama3_factors(scaling, base, dims);
    h.say_tensor("rope_freqs.weight", factors);
    table.frequencies = divided(base, dims, factors);
    table.description = fmt::format("llama3 x {}", scaling.factor);
  } else if (kind == "yarn") {
    const double by = factor();
    const uint32_t original = h.integer(kOriginal, 1, kContextMax, context_max);
    const Yarn stretched = yarn(h, base, dims, by, original, yarn_truncate);
    table.frequencies = divided(base, dims, stretched.factors);
    table.scale = static_cast<float>(stretched.magnitude);
    table.description = fmt::format("yarn x {}", by);
  } else if (kind == "longrope") {
    read_longrope(h, base, context_max, table);
  } else {
    h.fail(error(ErrorCode::kUnsupported,
                 "RoPE scaling '{}' is not supported; known: none, linear, llama3, yarn, longrope", shown(kind)));
  }
  return table;
}

}  // namespace headwater::model
