#include "backend/cpu/attention_costs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/attention_kernels.h"

namespace headwater::backend::cpu {
namespace {

constexpr double kNsMax = 1e9;
constexpr double kErrorMax = 0.9;   // a share; sharing has to save it
constexpr uint32_t kFarKib = 4096;  // beyond a worker's private cache
constexpr double kGainMin = 0.03;
constexpr size_t kTerms = 7;
using Terms = std::array<double, kTerms>;

// f(name, value) for every term, in one order for reading, writing and fitting.
template <typename Costs, typename F>
void for_each_term(Costs& costs, F&& f) {
  f("item", costs.item);
  f("row", costs.row);
  f("row_width", costs.row_width);
  f("pass", costs.pass);
  f("pass_width", costs.pass_width);
  f("weight", costs.weight);
  f("weight_width", costs.weight_width);
}

template <typename Costs, typename F>
void for_each(Costs& costs, F&& f) {
  f(std::string("step"), costs.step);
  const auto element = [&](const std::string& prefix, auto& element_costs) {
    const auto named = [&](const char* name, auto& value) { f(prefix + name, value); };
    for_each_term(element_costs, named);
    named("partial", element_costs.partial);
    named("partial_width", element_costs.partial_width);
    named("error", element_costs.error);
    for (size_t i = 0; i < kReadKib.size(); ++i) {
      f(fmt::format("{}read_{}k", prefix, kReadKib[i]), element_costs.read[i]);
    }
  };
  element("bf16.", costs.bf16);
  element("f16.", costs.f16);
  element("f32.", costs.f32);
  element("f8.", costs.f8);
}

Terms terms_of(const TimedItem& item) {
  return {1,
          item.rows,
          item.rows * item.width,
          item.keys * item.passes,
          item.keys * item.passes * item.width,
          item.keys * item.rows,
          item.keys * item.rows * item.width};
}

// Solves the normal equations over the terms in `use`; the others are 0. Gaussian elimination with pivots on the
// diagonal (the matrix is positive definite but for terms that the items do not tell apart, which become 0).
Terms solve(const std::array<Terms, kTerms>& matrix, const Terms& right, const std::array<bool, kTerms>& use) {
  std::array<Terms, kTerms> a = matrix;
  Terms b = right;
  std::array<bool, kTerms> live = use;
  for (size_t i = 0; i < kTerms; ++i) {
    if (!live[i]) continue;
    if (a[i][i] <= 1e-12 * matrix[i][i]) {
      live[i] = false;
      continue;
    }
    for (size_t j = i + 1; j < kTerms; ++j) {
      if (!live[j]) continue;
      const double factor = a[j][i] / a[i][i];
      for (size_t k = i; k < kTerms; ++k) a[j][k] -= factor * a[i][k];
      b[j] -= factor * b[i];
    }
  }
  Terms x{};
  for (size_t i = kTerms; i-- > 0;) {
    if (!live[i]) continue;
    double sum = b[i];
    for (size_t k = i + 1; k < kTerms; ++k) sum -= live[k] ? a[i][k] * x[k] : 0;
    x[i] = sum / a[i][i];
  }
  return x;
}

}  // namespace

double ElementCosts::read_ns_kib(double distance_kib) const {
  double near_kib = kWarmKib;
  double near = 0;
  if (distance_kib <= near_kib) return 0;
  for (size_t i = 0; i < kReadKib.size(); ++i) {
    if (distance_kib < kReadKib[i]) {
      return near + (read[i] - near) * std::log(distance_kib / near_kib) / std::log(kReadKib[i] / near_kib);
    }
    near_kib = kReadKib[i];
    near = read[i];
  }
  return near;
}

double ElementCosts::distance_kib(double share) const {
  double kib = kWarmKib;
  while (kib < kFarKib && read_ns_kib(kib) <= share * read_ns_kib(kFarKib)) kib *= 1.0625;
  return kib;
}

const ElementCosts& AttentionCosts::of(DType dtype) const {
  switch (dtype) {
    case DType::kF32:
      return f32;
    case DType::kF16:
      return f16;
    case DType::kF8E4M3:
      return f8;
    default:
      return bf16;
  }
}

uint32_t rows_tile(Target target, DType dtype) {
  const AttentionKernels& kernels = attention_kernels(target);
  return dtype == DType::kBF16 || dtype == DType::kF8E4M3 ? kernels.rows_bf16 : kernels.rows_other;
}

ops::Costs to_named(const AttentionCosts& costs) {
  ops::Costs named;
  for_each(costs, [&](const std::string& name, double value) { named[name] = value; });
  return named;
}

Result<AttentionCosts> from_named(const ops::Costs& named) {
  AttentionCosts costs;
  Status status;
  for_each(costs, [&](const std::string& name, double& value) {
    const auto found = named.find(name);
    if (found == named.end()) {
      status = error(ErrorCode::kCorrupt, "the cost {} is missing", name);
    } else if (const double limit = name.ends_with(".error") ? kErrorMax : kNsMax;
               !(found->second >= 0 && found->second <= limit)) {
      status = error(ErrorCode::kCorrupt, "the cost {} is {}; it must be 0 to {:g}", name, found->second, limit);
    } else {
      value = found->second;
    }
  });
  if (!status) return status;
  return costs;
}

void fit_items(std::span<const TimedItem> items, ElementCosts& costs) {
  std::array<Terms, kTerms> matrix{};
  Terms right{};
  for (const TimedItem& item : items) {
    const Terms terms = terms_of(item);
    for (size_t i = 0; i < kTerms; ++i) {
      for (size_t j = 0; j < kTerms; ++j) matrix[i][j] += terms[i] * terms[j] / (item.ns * item.ns);
      right[i] += terms[i] / item.ns;
    }
  }
  std::array<bool, kTerms> use;
  use.fill(true);
  Terms fitted = solve(matrix, right, use);
  for (size_t round = 0; round < kTerms; ++round) {  // a term below 0 is dropped, the lowest in its share first
    size_t lowest = 0;
    const auto share = [&](size_t i) { return fitted[i] * std::sqrt(matrix[i][i]); };
    for (size_t i = 1; i < kTerms; ++i) lowest = share(i) < share(lowest) ? i : lowest;
    if (fitted[lowest] >= 0) break;
    use[lowest] = false;
    fitted = solve(matrix, right, use);
  }
  size_t next = 0;
  for_each_term(costs, [&](const char*, double& value) { value = std::max(0.0, fitted[next++]); });
  std::vector<double> errors;
  for (const TimedItem& item : items) {
    const Terms terms = terms_of(item);
    errors.push_back(std::abs(std::inner_product(terms.begin(), terms.end(), fitted.begin(), 0.0) / item.ns - 1));
  }
  std::sort(errors.begin(), errors.end());
  costs.error = errors.empty() ? 0 : errors[errors.size() * 9 / 10];
}

attention::CostModel cost_model(const AttentionCosts& costs, Target target, uint32_t workers, const ops::KvShape& shape,
                                uint32_t q_heads) {
  check(q_heads % shape.kv_heads == 0, "query heads are a multiple of the KV heads");
  const ElementCosts& element = costs.of(shape.dtype);
  const double width = (shape.head_dim + shape.v_head_dim) / 128.0;
  const double key_kib = (shape.head_dim + shape.v_head_dim) * block_bytes(shape.dtype) / 1024.0;
  const auto key_ns = [&](double distance_kib) { return key_kib * element.read_ns_kib(distance_kib); };
  attention::CostModel cost;
  cost.step = costs.step;
  cost.gain_min = std::max(kGainMin, element.error);
  cost.item = element.item;
  cost.rows_tile = rows_tile(target, shape.dtype);
  cost.key_tile = element.pass + element.pass_width * width;
  cost.key_row = element.weight + element.weight_width * width;
  cost.row = element.row + element.row_width * width;
  cost.partial = element.partial + element.partial_width * width;
  cost.overlap = 0;
  // Since the step before, a worker has read its share of the pool; within a step, at most the item before.
  cost.key_first = key_ns(static_cast<double>(shape.bytes()) / 1024 / workers);
  cost.key_repeat = 0;
  cost.key_far = key_ns(kFarKib);
  cost.near_keys = static_cast<uint32_t>(element.distance_kib(0.1) / key_kib);
  cost.far_keys = static_cast<uint32_t>(element.distance_kib(0.9) / key_kib);
  return cost;
}

}  // namespace headwater::backend::cpu
