#include "bench/step_profile.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

namespace headwater::bench {
namespace {

// In the order of the table, products come after the norms.
constexpr std::pair<Kind, const char*> kKindNames[] = {
    {Kind::kEmbed, "embed"},     {Kind::kNorm, "norm"},     {Kind::kRopeAppend, "rope+append"},
    {Kind::kAttend, "attend"},   {Kind::kMerge, "merge"},   {Kind::kGateMul, "gate"},
    {Kind::kGather, "gather"},   {Kind::kSample, "sample"}, {Kind::kCopy, "copy"},
    {Kind::kExperts, "experts"}, {Kind::kCap, "cap"}};
static_assert(std::size(kKindNames) == kKinds);

double seconds_at(uint64_t amount, double rate) {
  return rate > 0 ? static_cast<double>(amount) / rate : 0;
}

std::string bound_columns(double ms, double bound_ms, const char* bound) {
  if (bound_ms <= 0) return fmt::format("{:>10}  -", "-");
  return fmt::format("{:>10.3f}  {:<10} {:>6.0f}%", bound_ms, bound, 100 * bound_ms / ms);
}

}  // namespace

const char* to_string(StepPhase phase) {
  return phase == StepPhase::kDecode ? "decode" : "prefill";
}

void StepProfile::add_step(const WorkTotals& work, int64_t nanoseconds, const attention::Outcome& outcome) {
  ++steps_;
  nanoseconds_ += nanoseconds;
  for (size_t i = 0; i < kKinds; ++i) work_.kinds[i] += work.kinds[i];
  for (size_t i = 0; i < kProductShapesMax; ++i) {
    work_.products[i].columns = work.products[i].columns;
    work_.products[i].rows = work.products[i].rows;
    work_.products[i].work += work.products[i].work;
  }
  if (peaks_.multiply_adds_per_s <= 0 && peaks_.tensor_multiply_adds_per_s <= 0) return;
  const auto keys = static_cast<double>(work.token_keys);
  const AttentionWork attention = phase_ == StepPhase::kDecode
                                      ? planned_work(outcome, keys, kv_.page_size, 1)
                                      : AttentionWork{keys, keys, outcome.bytes_unique, outcome.bytes_read};
  const AttentionBound bound = bound_of(attention);
  attention_.arithmetic_s += bound.arithmetic_s * kv_.layers;
  attention_.reading_s += bound.reading_s * kv_.layers;
}

AttentionBound StepProfile::bound_of(const AttentionWork& work) const {
  if (peaks_.tensor_multiply_adds_per_s <= 0) return attention_bound(work, kv_, q_heads_, peaks_);
  const ops::Peaks device{.multiply_adds_per_s = peaks_.tensor_multiply_adds_per_s};
  return device_bound(work, kv_, q_heads_, device, 1e6 * seconds_at(work.bytes_unique, peaks_.memory_bytes_per_s));
}

void StepProfile::set_kinds(const WorkTotals& step) {
  kinds_timed_alone_ = true;
  work_ = step;
  for (size_t place = 0; place < kPlaces; ++place) work_.at(place) = work_.at(place) * steps_;
}

double StepProfile::ms() const {
  return steps_ == 0 ? 0 : per_step_ms(static_cast<double>(nanoseconds_));
}

ProfileRow StepProfile::row(std::string kind, const Work& work, double memory_s, double arithmetic_s) const {
  ProfileRow row{.kind = std::move(kind)};
  row.ms = per_step_ms(static_cast<double>(work.nanoseconds));
  row.share = static_cast<double>(work.nanoseconds) / static_cast<double>(nanoseconds_);
  row.bound_ms = per_step_ms(1e9 * std::max(memory_s, arithmetic_s));
  if (row.bound_ms > 0) row.bound = arithmetic_s > memory_s ? "arithmetic" : "memory";
  return row;
}

std::vector<ProfileRow> StepProfile::rows() const {
  std::vector<ProfileRow> rows;
  if (steps_ == 0) return rows;
  Work host{.nanoseconds = nanoseconds_};
  const auto add = [&](std::string kind, const Work& work, double memory_s, double arithmetic_s) {
    host.nanoseconds -= work.nanoseconds;
    if (work.nanoseconds > 0) rows.push_back(row(std::move(kind), work, memory_s, arithmetic_s));
  };
  for (const auto& [kind, name] : kKindNames) {
    if (kind == Kind::kRopeAppend) {
      for (const auto& [columns, rows_out, work] : work_.products) {
        add(columns == 0 ? "other products" : fmt::format("product {} -> {}", columns, rows_out), work,
            seconds_at(work.bytes, peaks_.memory_bytes_per_s),
            std::max(seconds_at(work.byte_multiply_adds, peaks_.byte_multiply_adds_per_s),
                     seconds_at(work.multiply_adds, peaks_.tensor_multiply_adds_per_s)));
      }
    }
    if (kind == Kind::kAttend) {
      add(name, work_.of(kind), attention_.reading_s, attention_.arithmetic_s);
    } else {
      add(name, work_.of(kind), seconds_at(work_.of(kind).bytes, peaks_.cache_bytes_per_s), 0);
    }
  }
  rows.push_back(row(kinds_timed_alone_ ? "rest" : "host", host, 0, 0));
  return rows;
}

void print_profile(const StepProfile& profile, std::ostream& table) {
  constexpr double kBarWidth = 30;
  table << fmt::format("{:<24}{:>9}{:>8}  {:<30}{:>10}  {:<10} {:>7}\n",
                       fmt::format("{} ({} steps)", to_string(profile.phase()), profile.steps()), "ms/step", "share",
                       "", "bound ms", "bound", "reached");
  double bound_ms = 0;
  for (const ProfileRow& row : profile.rows()) {
    const std::string bar(static_cast<size_t>(std::lround(std::max(0.0, row.share) * kBarWidth)), '#');
    table << fmt::format("{:<24}{:>9.3f}{:>7.1f}%  {:<30}{}\n", row.kind, row.ms, 100 * row.share, bar,
                         bound_columns(row.ms, row.bound_ms, row.bound));
    bound_ms += row.bound_ms;
  }
  table << fmt::format("{:<24}{:>9.3f}{:>7.1f}%  {:<30}{}\n", "step", profile.ms(), 100.0, "",
                       bound_columns(profile.ms(), bound_ms, "sum"));
  if (profile.are_kinds_timed_alone()) {
    table << "Each kind was timed alone: the launch of its recording and rows that pad the step count. rest: the step "
             "less all of them.\n";
  }
}

void write_profile(const StepProfile& profile, std::string_view arm, std::ostream& json) {
  for (const ProfileRow& row : profile.rows()) {
    json << boost::json::serialize(boost::json::object{{"kind", row.kind},
                                                       {"ms", row.ms},
                                                       {"share", row.share},
                                                       {"bound_ms", row.bound_ms},
                                                       {"bound", row.bound},
                                                       {"arm", arm},
                                                       {"phase", to_string(profile.phase())}})
         << '\n';
  }
}

}  // namespace headwater::bench
