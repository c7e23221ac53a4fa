#include "bench/serve/level.h"

#include <fmt/format.h>

#include <ostream>

namespace headwater::bench::serve {
namespace {

namespace json = boost::json;

constexpr const char* kNote = "no shared-prefix step in this level";

json::object object_of(const Distribution& ms) {
  return {{"mean", ms.mean}, {"p50", ms.p50}, {"p90", ms.p90}, {"p99", ms.p99}};
}

int64_t whole(double counter) {
  return static_cast<int64_t>(counter);
}

void print_row(const char* name, const Distribution& ms, std::ostream& out) {
  out << fmt::format("  {:<8} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f}\n", name, ms.mean, ms.p50, ms.p90, ms.p99);
}

void print_deltas(const CounterDeltas& deltas, std::ostream& out) {
  out << fmt::format("  prefix cache: {:.0f} of {:.0f} prompt tokens hit\n", deltas.prefix_hits, deltas.prefix_queries);
  if (!deltas.attention) {
    out << "  /metrics has no headwater:attention_steps_total\n";
    return;
  }
  out << fmt::format("  attention steps: flat {:.0f}, shared {:.0f}, mixed {:.0f}; shared-prefix tokens {:.0f}\n",
                     deltas.flat_steps, deltas.shared_steps, deltas.mixed_steps, deltas.shared_prefix_tokens);
  out << fmt::format("  kv read: {:.3f} GB, without sharing {:.3f} GB\n", deltas.kv_bytes_actual / 1e9,
                     deltas.kv_bytes_flat / 1e9);
  if (!deltas.shared()) out << "  NOTE: " << kNote << '\n';
}

}  // namespace

CounterDeltas CounterDeltas::between(const Exposition& before, const Exposition& after) {
  const auto moved = [&](const char* name, const char* label = "", const char* value = "") {
    return after.sum(name, label, value) - before.sum(name, label, value);
  };
  constexpr const char* kSteps = "headwater:attention_steps_total";
  constexpr const char* kBytes = "headwater:kv_bytes_read_total";
  CounterDeltas deltas;
  deltas.attention = after.has(kSteps);
  deltas.flat_steps = moved(kSteps, "path", "flat");
  deltas.shared_steps = moved(kSteps, "path", "shared");
  deltas.mixed_steps = moved(kSteps, "path", "mixed");
  deltas.shared_prefix_tokens = moved("headwater:shared_prefix_tokens_total");
  deltas.kv_bytes_actual = moved(kBytes, "arm", "actual");
  deltas.kv_bytes_flat = moved(kBytes, "arm", "flat");
  deltas.prefix_queries = moved("vllm:prefix_cache_queries_total");
  deltas.prefix_hits = moved("vllm:prefix_cache_hits_total");
  return deltas;
}

uint64_t LevelFigures::failed() const {
  uint64_t count = 0;
  for (const auto& [kind, times] : failures) count += times;
  return count;
}

LevelFigures figures_of(const LevelResult& result) {
  LevelFigures figures;
  figures.requests = result.answers.size();
  figures.seconds = result.seconds;
  std::vector<double> ttft, itl, tpot, rejected;
  for (const Answer& answer : result.answers) {
    if (answer.end == Answer::End::kRejected) {
      ++figures.rejected;
      figures.retry_after += answer.retry_after;
      rejected.push_back(1e3 * answer.seconds);
    }
    if (answer.end == Answer::End::kVanished) ++figures.vanished;
    if (answer.end == Answer::End::kFailed) {
      if (figures.failures.empty()) figures.first_message = answer.message;
      ++figures.failures[answer.failure];
    }
    if (answer.end != Answer::End::kComplete) continue;
    ++figures.completed;
    figures.prompt_tokens += answer.prompt_tokens;
    figures.cached_tokens += answer.cached_tokens;
    figures.output_tokens += answer.completion_tokens;
    const std::vector<double>& chunks = answer.chunk_s;
    if (chunks.empty()) continue;
    ttft.push_back(1e3 * chunks.front());
    for (size_t i = 1; i < chunks.size(); ++i) itl.push_back(1e3 * (chunks[i] - chunks[i - 1]));
    if (answer.completion_tokens > 1) {
      tpot.push_back(1e3 * (chunks.back() - chunks.front()) / static_cast<double>(answer.completion_tokens - 1));
    }
  }
  if (result.seconds > 0) {
    figures.requests_per_s = static_cast<double>(figures.completed) / result.seconds;
    figures.output_tokens_per_s = static_cast<double>(figures.output_tokens) / result.seconds;
    figures.client_cpu_share = result.client_cpu_seconds / result.seconds;
  }
  figures.ttft_ms = distribution(std::move(ttft));
  figures.itl_ms = distribution(std::move(itl));
  figures.tpot_ms = distribution(std::move(tpot));
  figures.rejected_ms = distribution(std::move(rejected));
  return figures;
}

void print_level(const LevelFigures& figures, std::ostream& out) {
  const std::string load = figures.request_rate > 0 ? fmt::format("{:g} requests/s arriving", figures.request_rate)
                                                    : fmt::format("{} at once", figures.concurrency);
  out << fmt::format("\n{}, {}, repetition {}: {} of {} requests in {:.2f} s, {:.2f} requests/s, {:.1f} tokens/s\n",
                     figures.arm, load, figures.repetition, figures.completed, figures.requests, figures.seconds,
                     figures.requests_per_s, figures.output_tokens_per_s);
  out << fmt::format("  {} prompt tokens, {} of them cached; {} output tokens; client used {:.1f}% of a core\n",
                     figures.prompt_tokens, figures.cached_tokens, figures.output_tokens,
                     100 * figures.client_cpu_share);
  out << fmt::format("  {:<8} {:>10} {:>10} {:>10} {:>10}\n", "ms", "mean", "p50", "p90", "p99");
  print_row("ttft", figures.ttft_ms, out);
  print_row("itl", figures.itl_ms, out);
  print_row("tpot", figures.tpot_ms, out);
  if (figures.rejected > 0) {
    print_row("429", figures.rejected_ms, out);
    out << fmt::format("  rejected with 429: {}, {} of them with Retry-After\n", figures.rejected, figures.retry_after);
  }
  if (figures.vanished > 0) out << fmt::format("  clients that vanished: {}\n", figures.vanished);
  for (const auto& [kind, count] : figures.failures) out << fmt::format("  error {}: {} times\n", kind, count);
  if (!figures.first_message.empty()) out << "  the first: " << figures.first_message << '\n';
  if (figures.deltas) print_deltas(*figures.deltas, out);
}

json::object level_line(const LevelFigures& figures) {
  json::object paths, line{{"arm", figures.arm},
                           {"concurrency", figures.concurrency},
                           {"repetition", figures.repetition},
                           {"requests", figures.requests},
                           {"completed", figures.completed},
                           {"seconds", figures.seconds},
                           {"requests_per_s", figures.requests_per_s},
                           {"output_tokens", figures.output_tokens},
                           {"output_tokens_per_s", figures.output_tokens_per_s},
                           {"prompt_tokens", figures.prompt_tokens},
                           {"cached_tokens", figures.cached_tokens},
                           {"ttft_ms", object_of(figures.ttft_ms)},
                           {"itl_ms", object_of(figures.itl_ms)},
                           {"tpot_ms", object_of(figures.tpot_ms)},
                           {"errors", figures.failed()},
                           {"errors_by_status", json::object()},
                           {"rejected", figures.rejected},
                           {"client_cpu_share", figures.client_cpu_share}};
  if (figures.request_rate > 0) line["request_rate"] = figures.request_rate;
  if (figures.vanished > 0) line["vanished"] = figures.vanished;
  if (figures.rejected > 0) {
    line["retry_after"] = figures.retry_after;
    line["rejected_ms"] = object_of(figures.rejected_ms);
  }
  for (const auto& [kind, count] : figures.failures) line["errors_by_status"].get_object()[kind] = count;
  if (figures.deltas) {
    const CounterDeltas& deltas = *figures.deltas;
    if (deltas.attention) {
      paths = {{"flat", whole(deltas.flat_steps)},
               {"shared", whole(deltas.shared_steps)},
               {"mixed", whole(deltas.mixed_steps)}};
      line["shared_prefix_tokens"] = whole(deltas.shared_prefix_tokens);
      line["kv_bytes_read"] =
          json::object{{"actual", whole(deltas.kv_bytes_actual)}, {"flat", whole(deltas.kv_bytes_flat)}};
      if (!deltas.shared()) line["note"] = kNote;
    }
    line["prefix_cache_queries"] = whole(deltas.prefix_queries);
    line["prefix_cache_hits"] = whole(deltas.prefix_hits);
  }
  line["path_deltas"] = std::move(paths);
  return line;
}

}  // namespace headwater::bench::serve
