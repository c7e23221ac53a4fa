// mix_experts of every back end, the reference too, against its formula in double; and what it promises beside: the bits of
// a token depend on the token alone, and a step allocates nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "conformance/matrices.h"
#include "conformance/targets.h"
#include "support/allocation_counter.h"
#include "support/compare.h"
#include "support/quantize.h"

namespace headwater::testing {
namespace {

struct Setting {
  uint32_t tokens = 5;
  uint32_t columns = 64, hidden = 96;
  uint32_t experts = 8, experts_used = 2;
  DType dtype = DType::kF32;
  ops::Activation activation = ops::Activation::kSilu;
  bool renormalize = true;
  bool has_biases = false;
  uint64_t seed = 1;

  ops::ExpertsShape shape() const { return {tokens, columns, hidden, experts, experts_used}; }
  std::string name() const {
    return fmt::format("{} tokens, {} x {}, {} of {} experts, {}", tokens, columns, hidden, experts_used, experts,
                       to_string(dtype));
  }
};

// One weight of every expert: as stored, and its values.
struct StoredWeight {
  std::vector<std::byte> data;
  std::vector<float> values;  // [rows, columns] dequantised
  std::vector<float> bias;    // [rows] or empty

  StoredWeight(const Setting& setting, uint32_t rows, uint32_t columns, Random& random)
      : values(uint64_t{rows} * columns), bias(setting.has_biases ? rows : 0) {
    for (float& value : values) value = random.normal() / std::sqrt(static_cast<float>(columns));
    for (float& value : bias) value = random.normal();
    data = quantize(setting.dtype, values);
    dequantize_row(setting.dtype, data.data(), values.size(), values.data());
  }
  std::vector<double> times(const std::vector<double>& x) const {
    std::vector<double> out(values.size() / x.size());
    for (size_t row = 0; row < out.size(); ++row) {
      out[row] = std::inner_product(x.begin(), x.end(), values.begin() + static_cast<ptrdiff_t>(row * x.size()),
                                    bias.empty() ? 0.0 : bias[row]);
    }
    return out;
  }
};

double activated(ops::Activation activation, double gate, double up) {
  switch (activation) {
    case ops::Activation::kSilu:
      return gate / (1 + std::exp(-gate)) * up;
    case ops::Activation::kGeluTanh:
      return 0.5 * gate * (1 + std::tanh(std::sqrt(2 / std::acos(-1)) * (gate + 0.044715 * std::pow(gate, 3)))) * up;
    case ops::Activation::kSwigluClamped:
      gate = std::min(gate, 7.0);
      return gate / (1 + std::exp(-1.702 * gate)) * (std::clamp(up, -7.0, 7.0) + 1);
  }
  return 0;
}

// Inputs and weights of a setting, and what must come out.
class ExpertsCase {
 public:
  explicit ExpertsCase(const Setting& setting)
      : setting_(setting),
        random_(setting.seed),
        x_(setting.tokens, setting.columns, 3),
        router_logits_(setting.tokens, setting.experts, 2) {
    x_.fill(random_);
    router_logits_.fill(random_, 2);
    for (uint32_t e = 0; e < setting.experts; ++e) {
      weights_.emplace_back(setting, setting.hidden, setting.columns, random_);
      weights_.emplace_back(setting, setting.hidden, setting.columns, random_);
      weights_.emplace_back(setting, setting.columns, setting.hidden, random_);
    }
  }
  const Setting& setting() const { return setting_; }
  HostMatrix& x() { return x_; }
  HostMatrix& router_logits() { return router_logits_; }
  const StoredWeight& gate(size_t expert) const { return weights_[3 * expert]; }
  const StoredWeight& up(size_t expert) const { return weights_[3 * expert + 1]; }
  const StoredWeight& down(size_t expert) const { return weights_[3 * expert + 2]; }

  std::vector<double> expected() {
    std::vector<double> all;
    for (uint32_t token = 0; token < setting_.tokens; ++token) {
      const std::vector<double> row = expected_row(token);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

 private:
  Setting setting_;
  Random random_;
  HostMatrix x_, router_logits_;
  std::vector<StoredWeight> weights_;

  std::vector<double> expected_row(uint32_t token) {
    const float* logits = router_logits_.row(token);
    std::vector<uint32_t> order(setting_.experts);
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    const uint32_t in_sum = setting_.renormalize ? setting_.experts_used : setting_.experts;
    double sum = 0;
    for (uint32_t i = 0; i < in_sum; ++i) sum += std::exp(double{logits[order[i]]} - logits[order[0]]);
    const std::vector<double> input(x_.row(token), x_.row(token) + setting_.columns);
    std::vector<double> out(setting_.columns);
    for (uint32_t i = 0; i < setting_.experts_used; ++i) {
      const uint32_t e = order[i];
      std::vector<double> inner = gate(e).times(input);
      const std::vector<double> ups = up(e).times(input);
      for (size_t k = 0; k < inner.size(); ++k) inner[k] = activated(setting_.activation, inner[k], ups[k]);
      const std::vector<double> outer = down(e).times(inner);
      for (size_t k = 0; k < out.size(); ++k) out[k] += std::exp(double{logits[e]} - logits[order[0]]) / sum * outer[k];
    }
    return out;
  }
};

// The weights of a case on a back end.
class ExpertsRig {
 public:
  ExpertsRig(ops::Backend& backend, const ExpertsCase& data) : backend_(backend), memory_(backend) {
    const Setting& s = data.setting();
    const ops::StepLimits limits{s.tokens, s.tokens, 1, 16, s.tokens};
    check(backend.reserve_scratch(limits, {1, 1, 64, 64, 16, 1, DType::kF32}, 1, 64).is_ok(), "reserve_scratch");
    for (uint32_t e = 0; e < s.experts; ++e) {
      experts_.push_back({prepare(data.gate(e), s.hidden, s.columns, s.dtype),
                          prepare(data.up(e), s.hidden, s.columns, s.dtype),
                          prepare(data.down(e), s.columns, s.hidden, s.dtype), bias(data.gate(e)), bias(data.up(e)),
                          bias(data.down(e))});
    }
    check(backend.reserve_experts(s.shape()).is_ok(), "reserve_experts");
  }

  // The rows [begin, begin + count).
  HostMatrix run(ExpertsCase& data, uint32_t begin, uint32_t count) {
    const Setting& s = data.setting();
    memory_.clear();
    HostMatrix out(s.tokens, s.columns, 4);
    const ops::Matrix x = memory_.put(data.x()), logits = memory_.put(data.router_logits()), to = memory_.put(out);
    const ops::MixExpertsParams params{
        rows_of(x, begin, count), rows_of(logits, begin, count), experts_, s.experts_used, s.renormalize, s.activation,
        rows_of(to, begin, count)};
    const uint64_t before = allocations();
    backend_.mix_experts(params);
    allocated_ += allocations() - before;
    EXPECT_TRUE(backend_.finish());
    memory_.get(out, to);
    EXPECT_TRUE(out.is_padding_untouched());
    return out;
  }
  uint64_t allocated() const { return allocated_; }

 private:
  const ops::Weight* prepare(const StoredWeight& weight, uint32_t rows, uint32_t columns, DType dtype) {
    Result<std::unique_ptr<ops::Weight>> made = backend_.prepare({weight.data.data(), dtype, rows, columns});
    check(made.is_ok(), "prepare");
    weights_.push_back(std::move(made).value());
    return weights_.back().get();
  }
  const float* bias(const StoredWeight& weight) { return weight.bias.empty() ? nullptr : memory_.put(weight.bias); }

  ops::Backend& backend_;
  BackendMemory memory_;
  std::vector<std::unique_ptr<ops::Weight>> weights_;
  std::vector<ops::Expert> experts_;
  uint64_t allocated_ = 0;
};

std::vector<float> row_of(HostMatrix& matrix, uint32_t row) {
  return {matrix.row(row), matrix.row(row) + matrix.columns()};
}

class Experts : public TargetTest {
 protected:
  void expect_conforms(ExpertsCase& data) {
    const Setting& s = data.setting();
    ExpertsRig rig(*backend_, data);
    const std::vector<float> got = rig.run(data, 0, s.tokens).values();
    // Two products one behind the other.
    const Tolerance tolerance = product_tolerance(s.dtype, s.columns + s.hidden).scaled(2);
    EXPECT_TRUE(near(got, std::span<const double>(data.expected()), tolerance, s.seed, s.name()));
  }
  void expect_conforms(const Setting& setting) {
    ExpertsCase data(setting);
    expect_conforms(data);
  }
};

TEST_P(Experts, EveryWeightTypeActivationAndWayToWeigh) {
  uint64_t seed = 0;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_1, DType::kQ4_0}) {
    for (const ops::Activation activation :
         {ops::Activation::kSilu, ops::Activation::kGeluTanh, ops::Activation::kSwigluClamped}) {
      expect_conforms({.tokens = 9,
                       .dtype = dtype,
                       .activation = activation,
                       .renormalize = seed % 2 == 0,
                       .has_biases = seed % 4 < 2,
                       .seed = ++seed});
    }
  }
}

TEST_P(Experts, OneTokenAllExpertsOneExpertAndOddShapes) {
  uint64_t seed = 100;
  for (Setting setting :
       {Setting{.tokens = 1}, Setting{.tokens = 1, .experts = 1, .experts_used = 1},
        Setting{.tokens = 7, .experts = 6, .experts_used = 6}, Setting{.tokens = 33, .experts = 3, .experts_used = 1},
        Setting{.tokens = 3, .columns = 13, .hidden = 7, .experts = 5, .experts_used = 3},
        Setting{.tokens = 2, .columns = 1, .hidden = 1, .experts = 40, .experts_used = 17}}) {
    setting.seed = ++seed;
    expect_conforms(setting);
    setting.renormalize = false;
    expect_conforms(setting);
  }
}

TEST_P(Experts, AmongEqualRouterLogitsTheLowerIdGoesFirst) {
  ExpertsCase data({.tokens = 4, .experts = 6, .experts_used = 3});
  for (uint32_t t = 0; t < 4; ++t) {
    for (uint32_t e = 0; e < 6; ++e) data.router_logits().row(t)[e] = t == 0 ? 0.5f : static_cast<float>(e % (t + 1));
  }
  expect_conforms(data);
}

TEST_P(Experts, SomeExpertsWithoutATokenAndOneWithAll) {
  ExpertsCase data({.tokens = 12, .experts = 7, .experts_used = 2});
  for (uint32_t t = 0; t < 12; ++t) {
    data.router_logits().row(t)[0] = data.router_logits().row(t)[6] = -50;
    data.router_logits().row(t)[3] = 50;
  }
  expect_conforms(data);
}

TEST_P(Experts, ATokenHasTheSameBitsInEveryBatch) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    ExpertsCase data({.tokens = 19, .dtype = dtype, .has_biases = true});
    ExpertsRig rig(*backend_, data);
    HostMatrix whole = rig.run(data, 0, 19);
    for (const uint32_t rows : {1u, 2u, 5u, 16u}) {
      for (uint32_t begin = 0; begin < 19; begin += rows) {
        const uint32_t count = std::min(rows, 19 - begin);
        HostMatrix part = rig.run(data, begin, count);
        for (uint32_t t = begin; t < begin + count; ++t) {
          EXPECT_TRUE(same_bits(row_of(part, t), row_of(whole, t), 1,
                                fmt::format("{}, token {} among {}", to_string(dtype), t, rows)));
        }
      }
    }
  }
}

TEST_P(Experts, NotANumberStaysInItsToken) {
  ExpertsCase data({.tokens = 6, .dtype = DType::kQ8_0});
  ExpertsRig rig(*backend_, data);
  HostMatrix clean = rig.run(data, 0, 6);
  data.router_logits().row(2)[5] = std::numeric_limits<float>::quiet_NaN();
  data.x().row(4)[7] = std::numeric_limits<float>::quiet_NaN();
  HostMatrix got = rig.run(data, 0, 6);
  for (uint32_t t = 0; t < 6; ++t) {
    if (t == 2 || t == 4) {
      EXPECT_TRUE(std::ranges::all_of(row_of(got, t), [](float value) { return std::isnan(value); })) << t;
    } else {
      EXPECT_TRUE(same_bits(row_of(got, t), row_of(clean, t), 1));
    }
  }
}

TEST_P(Experts, AStepAllocatesNothing) {
  if (is_reference()) GTEST_SKIP() << "the reference keeps no promise of speed";
  if (!counts_allocations()) GTEST_SKIP() << "the sanitizer owns the allocator";
  ExpertsCase data({.tokens = 19, .dtype = DType::kQ8_0});
  ExpertsRig rig(*backend_, data);
  for (const uint32_t rows : {19u, 1u, 7u}) rig.run(data, 0, rows);
  EXPECT_EQ(rig.allocated(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Targets, Experts, ::testing::ValuesIn(all_targets()), target_name);

}  // namespace
}  // namespace headwater::testing
