#include "bench/serve/serve_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <ostream>

#include "bench/serve/level.h"
#include "bench/statistics.h"

namespace headwater::bench::serve {
namespace {

namespace json = boost::json;

struct Spread {
  double median = 0, low = 0, high = 0;
};

Spread spread_of(const std::vector<double>& values) {
  return {bench::median(values), *std::ranges::min_element(values), *std::ranges::max_element(values)};
}

json::object object_of(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.low}, {"max", spread.high}};
}

class ServeBench {
 public:
  ServeBench(const ServeBenchOptions& options, std::span<const std::unique_ptr<Arm>> arms, std::ostream* table,
             std::ostream* json)
      : options_(options), arms_(arms), table_(table), json_(json) {}

  Status run() {
    HEADWATER_RETURN_IF_ERROR(warm_up());
    std::vector<uint32_t> levels = options_.concurrency;
    if (options_.load.request_rate > 0) levels = {0};
    for (const uint32_t concurrency : levels) {
      for (uint32_t repetition = 1; repetition <= options_.repetitions; ++repetition) {
        HEADWATER_RETURN_IF_ERROR(run_turn(concurrency, repetition));
      }
    }
    write_summary();
    return verdict();
  }

 private:
  Status warm_up() {
    if (options_.warm_up == 0) return {};
    const std::vector<Prompt> prompts = make_prompts(options_.workload, next_level_++, options_.warm_up);
    LoadShape load;
    load.concurrency = options_.warm_up;
    for (const auto& arm : arms_) {
      HEADWATER_ASSIGN_OR_RETURN(const LevelResult result, arm->run(options_.workload, prompts, load, nullptr));
      for (const Answer& answer : result.answers) {
        if (answer.end == Answer::End::kComplete) continue;
        return error(ErrorCode::kInternal, "arm '{}' did not answer the warm-up: {} {}", arm->name(),
                     answer.end == Answer::End::kRejected ? "429" : answer.failure, answer.message);
      }
    }
    return {};
  }

  uint32_t requests_of(uint32_t concurrency) const {
    constexpr uint32_t kRequestsOpenLoop = 64, kRequestsPerClient = 4;
    if (options_.requests > 0) return std::max(options_.requests, concurrency);
    return concurrency == 0 ? kRequestsOpenLoop : kRequestsPerClient * concurrency;
  }

  // One level on every arm, with the same prompts.
  Status run_turn(uint32_t concurrency, uint32_t repetition) {
    const uint32_t level = next_level_++;
    const std::vector<Prompt> prompts = make_prompts(options_.workload, level, requests_of(concurrency));
    LoadShape load = options_.load;
    load.concurrency = concurrency;
    load.seed = options_.workload.seed + level;
    std::vector<LevelResult> results;
    for (const auto& arm : arms_) {
      std::optional<Exposition> before;
      if (options_.metrics) {
        HEADWATER_ASSIGN_OR_RETURN(before, arm->counters());
      }
      HEADWATER_ASSIGN_OR_RETURN(LevelResult result,
                                 arm->run(options_.workload, prompts, load, progress(arm->name(), load, repetition)));
      if (options_.progress) fmt::print(stderr, "\r{:78}\r", "");
      LevelFigures figures = figures_of(result);
      figures.arm = arm->name();
      figures.concurrency = concurrency;
      figures.request_rate = load.request_rate;
      figures.repetition = repetition;
      if (before) {
        HEADWATER_ASSIGN_OR_RETURN(const std::optional<Exposition> after, arm->counters());
        if (after) figures.deltas = CounterDeltas::between(*before, *after);
      }
      if (table_ != nullptr) print_level(figures, *table_);
      if (table_ != nullptr) table_->flush();
      if (json_ != nullptr) *json_ << json::serialize(level_line(figures)) << std::endl;
      figures_.push_back(std::move(figures));
      results.push_back(std::move(result));
    }
    compare_texts(results, concurrency);
    return {};
  }

  Progress progress(const std::string& arm, const LoadShape& load, uint32_t repetition) const {
    if (!options_.progress) return nullptr;
    return [=, this](size_t ended, size_t requests, uint64_t chunks) {
      fmt::print(stderr, "\r{}, {} at once, repetition {}/{}: {}/{} requests, {} pieces of text ", arm,
                 load.concurrency, repetition, options_.repetitions, ended, requests, chunks);
    };
  }

  void compare_texts(const std::vector<LevelResult>& results, uint32_t concurrency) {
    for (size_t arm = 1; arm < results.size(); ++arm) {
      for (size_t i = 0; i < results[0].answers.size(); ++i) {
        const Answer &one = results[0].answers[i], &other = results[arm].answers[i];
        if (one.end != Answer::End::kComplete || other.end != Answer::End::kComplete) continue;
        ++texts_compared_;
        if (one.text == other.text) continue;
        if (texts_different_++ == 0) {
          first_difference_ = fmt::format("request {} of {} at once, arms {} and {}", i, concurrency, arms_[0]->name(),
                                          arms_[arm]->name());
        }
      }
    }
  }

  // The first arm over another, pair by pair.
  Spread ratio(uint32_t concurrency, const std::string& other, double (*value)(const LevelFigures&)) const {
    std::vector<double> first, second, ratios;
    for (const LevelFigures& figures : figures_) {
      if (figures.concurrency != concurrency) continue;
      if (figures.arm == arms_[0]->name()) first.push_back(value(figures));
      if (figures.arm == other) second.push_back(value(figures));
    }
    for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
      if (second[i] > 0) ratios.push_back(first[i] / second[i]);
    }
    return ratios.empty() ? Spread() : spread_of(ratios);
  }

  void write_summary() {
    std::vector<uint32_t> levels;
    for (const LevelFigures& figures : figures_) {
      if (std::ranges::find(levels, figures.concurrency) == levels.end()) levels.push_back(figures.concurrency);
    }
    json::array ratios;
    for (const uint32_t concurrency : levels) {
      for (const auto& arm : arms_.subspan(1)) {
        const Spread rate =
            ratio(concurrency, arm->name(), [](const LevelFigures& f) { return f.output_tokens_per_s; });
        const Spread ttft = ratio(concurrency, arm->name(), [](const LevelFigures& f) { return f.ttft_ms.p50; });
        const Spread tpot = ratio(concurrency, arm->name(), [](const LevelFigures& f) { return f.tpot_ms.p50; });
        ratios.push_back(json::object{{"concurrency", concurrency},
                                      {"arm", arms_[0]->name()},
                                      {"over", arm->name()},
                                      {"output_tokens_per_s", object_of(rate)},
                                      {"ttft_p50", object_of(ttft)},
                                      {"tpot_p50", object_of(tpot)}});
        if (table_ == nullptr) continue;
        *table_ << fmt::format(
            "\n{} / {}, {} at once: tokens/s {:.3f} ({:.3f}..{:.3f}), ttft p50 {:.3f} ({:.3f}..{:.3f}), tpot p50 "
            "{:.3f} "
            "({:.3f}..{:.3f})",
            arms_[0]->name(), arm->name(), concurrency, rate.median, rate.low, rate.high, ttft.median, ttft.low,
            ttft.high, tpot.median, tpot.low, tpot.high);
      }
    }
    if (table_ != nullptr) print_conclusion();
    if (json_ != nullptr) write_summary_line(std::move(ratios));
  }

  double client_share_max() const {
    double share = 0;
    for (const LevelFigures& figures : figures_) share = std::max(share, figures.client_cpu_share);
    return share;
  }

  void print_conclusion() const {
    *table_ << fmt::format("\nclient used {:.1f}% of a core at most", 100 * client_share_max());
    if (arms_.size() > 1) {
      *table_ << fmt::format("; texts of the arms {}", texts_different_ > 0  ? "DIFFERENT"
                                                       : texts_compared_ > 0 ? "equal"
                                                                             : "not compared");
    }
    *table_ << '\n';
  }

  void write_summary_line(json::array ratios) const {
    const WorkloadShape& shape = options_.workload;
    char date[16];
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    std::strftime(date, sizeof(date), "%F", gmtime_r(&now, &utc));
    json::object summary{{"endpoint", shape.endpoint == Endpoint::kChat ? "chat" : "completions"},
                         {"shared_prefix_tokens", shape.shared_tokens},
                         {"groups", shape.groups},
                         {"prompt_tokens", shape.prompt_tokens},
                         {"max_tokens", shape.tokens_max},
                         {"seed", shape.seed},
                         {"cold", shape.cold},
                         {"repetitions", options_.repetitions},
                         {"ratios", std::move(ratios)},
                         {"texts_equal", texts_compared_ > 0 ? json::value(texts_different_ == 0) : json::value()},
                         {"client_cpu_share", client_share_max()},
                         {"date", date}};
    summary["summary"] = true;
    *json_ << json::serialize(summary) << '\n';
  }

  Status verdict() const {
    for (const LevelFigures& figures : figures_) {
      if (figures.arm == "off" && figures.deltas && figures.deltas->shared()) {
        return error(ErrorCode::kInternal, "the arm 'off' took {:.0f} shared-prefix steps at {} at once",
                     figures.deltas->shared_steps + figures.deltas->mixed_steps, figures.concurrency);
      }
      if (figures.failed() > 0) {
        return error(ErrorCode::kInternal, "arm '{}', {} at once: {} of {} requests failed; the first: {} {}",
                     figures.arm, figures.concurrency, figures.failed(), figures.requests,
                     figures.failures.begin()->first, figures.first_message);
      }
      if (figures.completed + figures.vanished == 0) {
        return error(ErrorCode::kInternal, "arm '{}', {} at once: all {} requests were rejected", figures.arm,
                     figures.concurrency, figures.requests);
      }
    }
    if (texts_different_ > 0) {
      return error(ErrorCode::kInternal, "the texts of the arms differ in {} of {} answers; the first: {}",
                   texts_different_, texts_compared_, first_difference_);
    }
    return {};
  }

  const ServeBenchOptions& options_;
  std::span<const std::unique_ptr<Arm>> arms_;
  std::ostream* table_;
  std::ostream* json_;
  uint32_t next_level_ = 0;
  std::vector<LevelFigures> figures_;
  uint64_t texts_compared_ = 0, texts_different_ = 0;
  std::string first_difference_;
};

}  // namespace

Status run_serve_bench(const ServeBenchOptions& options, std::span<const std::unique_ptr<Arm>> arms,
                       std::ostream* table, std::ostream* json) {
  return ServeBench(options, arms, table, json).run();
}

}  // namespace headwater::bench::serve
