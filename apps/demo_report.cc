#include "apps/demo_report.h"

#include <algorithm>
#include <boost/json.hpp>

#include "apps/json_output.h"
#include "bench/attention_bound.h"

namespace headwater::apps {
namespace {

constexpr size_t kAnswersShown[] = {2, 4, 10, 17};

// The answer as a reader wants it: up to the token that ends it.
std::string shown_text(const Runtime& runtime, const Answer& answer) {
  const auto end = std::find_if(answer.token_ids.begin(), answer.token_ids.end(),
                                [&](TokenId id) { return runtime.tokenizer->is_end_of_generation(id); });
  return runtime.tokenizer->decode({answer.token_ids.begin(), end}, true);
}

double per_step(uint64_t sum, uint32_t steps) {
  return steps == 0 ? 0 : static_cast<double>(sum) / steps;
}

}  // namespace

void DemoArmReport::add_step(const attention::Outcome& outcome, int64_t step_ns, int64_t attention_ns, bool steady) {
  ++steps;
  nanoseconds += step_ns;
  ++steps_by_path[static_cast<size_t>(outcome.path)];
  if (outcome.groups > best.groups || (outcome.groups == best.groups && outcome.members > best.members)) best = outcome;
  if (!steady) return;
  ++steady_steps;
  steady_nested_steps += outcome.groups >= 2 && outcome.depth >= 2 && outcome.members >= 16;
  steady_nanoseconds += step_ns;
  steady_attention_nanoseconds += attention_ns;
  steady_bytes_read += outcome.bytes_read;
  steady_bytes_flat += outcome.bytes_flat;
  last_steady = outcome;
}

double DemoReport::tokens_per_s(const DemoArmReport& arm) const {
  if (arm.steady_nanoseconds == 0) return 0;
  return static_cast<double>(arm.steady_steps * chats) * 1e9 / static_cast<double>(arm.steady_nanoseconds);
}

double DemoReport::attention_ms_per_step(const DemoArmReport& arm) const {
  return per_step(static_cast<uint64_t>(arm.steady_attention_nanoseconds), arm.steady_steps) / 1e6;
}

DemoReport make_report(const Runtime& runtime, const ops::Peaks& peaks, const DemoArmReport& shared,
                       const DemoArmReport& flat, const std::vector<Answer>& shared_answers,
                       const std::vector<Answer>& flat_answers) {
  DemoReport report;
  report.shared = shared;
  report.flat = flat;
  report.chats = shared_answers.size();
  report.texts_equal = report.cached_equal = shared_answers.size() == flat_answers.size();
  for (size_t i = 0; i < std::min(shared_answers.size(), flat_answers.size()); ++i) {
    report.texts_equal &= shared_answers[i].token_ids == flat_answers[i].token_ids;
    report.cached_equal &= shared_answers[i].cached_tokens == flat_answers[i].cached_tokens;
  }
  const model::ModelShape& shape = runtime.model->shape();
  report.layers = shape.layers;
  report.target = runtime.backend->info().target;
  if (const double off = report.attention_ms_per_step(flat), on = report.attention_ms_per_step(shared); on > 0) {
    report.attention_ratio = off / on;
  }
  if (peaks.multiply_adds_per_s > 0 && shared.steady_steps > 0) {
    const ops::KvShape kv = shape.kv_shape(kv::kPageSizeDefault, 0, DType::kBF16);
    const attention::Outcome& outcome = shared.last_steady;
    const double keys = static_cast<double>(outcome.bytes_flat) / static_cast<double>(kv.bytes_token_layer());
    const auto bound = [&](const bench::AttentionWork& work) {
      return bench::attention_bound_s(work, kv, shape.q_heads, peaks);
    };
    report.bound_ratio =
        bound(bench::flat_work(outcome, keys)) / bound(bench::planned_work(outcome, keys, kv.page_size, 1));
  }
  return report;
}

void print_report(const Runtime& runtime, const DemoReport& report, const std::vector<Answer>& answers) {
  fmt::print("\n");
  for (size_t index : kAnswersShown) {
    if (index < answers.size()) fmt::print("> {}\n{}\n\n", answers[index].id, shown_text(runtime, answers[index]));
  }
  const double mib = report.layers / double{1 << 20};
  const auto row = [](const char* name, const std::string& on, const std::string& off) {
    fmt::print("{:<34}{:>14}{:>14}\n", name, on, off);
  };
  const DemoArmReport& on = report.shared;
  const DemoArmReport& off = report.flat;
  row("", "auto", "off");
  row("tokens/s (all chats decoding)", fmt::format("{:.1f}", report.tokens_per_s(on)),
      fmt::format("{:.1f}", report.tokens_per_s(off)));
  row("attention ms per step", fmt::format("{:.2f}", report.attention_ms_per_step(on)),
      fmt::format("{:.2f}", report.attention_ms_per_step(off)));
  row("KV MiB read per step", fmt::format("{:.1f}", per_step(on.steady_bytes_read, on.steady_steps) * mib),
      fmt::format("{:.1f}", per_step(off.steady_bytes_read, off.steady_steps) * mib));
  row("seconds, prompts included", fmt::format("{:.1f}", static_cast<double>(on.nanoseconds) / 1e9),
      fmt::format("{:.1f}", static_cast<double>(off.nanoseconds) / 1e9));
  row("groups, depth", fmt::format("{}, {}", on.best.groups, on.best.depth),
      fmt::format("{}, {}", off.best.groups, off.best.depth));
  row("members of the largest group", std::to_string(on.best.members), std::to_string(off.best.members));
  row("pages attended once", std::to_string(on.best.shared_pages), std::to_string(off.best.shared_pages));
  row("steps flat / shared / mixed",
      fmt::format("{}/{}/{}", on.steps_by_path[0], on.steps_by_path[1], on.steps_by_path[2]),
      fmt::format("{}/{}/{}", off.steps_by_path[0], off.steps_by_path[1], off.steps_by_path[2]));
  fmt::print("\nattention off / auto: {:.2f}", report.attention_ratio);
  if (report.bound_ratio > 0) {
    fmt::print("; this run's measured peaks allow {:.2f} ({:.0f}% reached)", report.bound_ratio,
               100 * report.attention_ratio / report.bound_ratio);
  }
  if (on.steady_nested_steps == 0) {
    const attention::NotShared reason = on.last_steady.reason();
    fmt::print("\nauto attended nothing once: {}", attention::to_string(reason));
    if (reason == attention::NotShared::kBelowCost) {
      fmt::print(", since by its costs that is not faster on this machine; headwater tune measures them");
    }
  }
  fmt::print("\ntexts of both arms, {} chats, token for token: {}\n", report.chats,
             report.texts_equal ? "equal" : "DIFFERENT");
}

Status write_report(const DemoReport& report, const std::string& path) {
  namespace json = boost::json;
  const json::object line{
      {"texts_equal", report.texts_equal},
      {"tokens_per_s", {{"auto", report.tokens_per_s(report.shared)}, {"off", report.tokens_per_s(report.flat)}}},
      {"attention_ms_per_step",
       {{"auto", report.attention_ms_per_step(report.shared)}, {"off", report.attention_ms_per_step(report.flat)}}},
      {"attention_off_over_auto", report.attention_ratio},
      {"bound_off_over_auto", report.bound_ratio},
      {"kv_bytes_read_per_step",
       {{"actual", per_step(report.shared.steady_bytes_read, report.shared.steady_steps) * report.layers},
        {"flat", per_step(report.shared.steady_bytes_flat, report.shared.steady_steps) * report.layers}}},
      {"groups", report.shared.best.groups},
      {"depth", report.shared.best.depth},
      {"members", report.shared.best.members},
      {"tokens", report.shared.tokens},
      {"target", report.target},
      {"reason", report.shared.last_steady.path == attention::Path::kFlat
                     ? attention::to_string(report.shared.last_steady.reason())
                     : ""},
      {"summary", true}};
  JsonOutput output;
  HEADWATER_RETURN_IF_ERROR(output.open(path));
  *output.json << json::serialize(line) << '\n';
  return output.close(path);
}

Status verdict(const DemoReport& report) {
  const auto flat_path = static_cast<size_t>(attention::Path::kFlat);
  if (!report.texts_equal) return error(ErrorCode::kInternal, "the texts of the arms differ");
  if (!report.cached_equal) return error(ErrorCode::kInternal, "the arms re-used different prompt tokens");
  if (report.flat.steps_by_path[flat_path] != report.flat.steps) {
    return error(ErrorCode::kInternal, "the arm 'off' took a shared path");
  }
  const bool pays = report.target == "avx512_amx";
  const attention::Outcome& last = report.shared.last_steady;
  const bool declined = last.path == attention::Path::kFlat && last.reason() == attention::NotShared::kBelowCost;
  if (report.shared.steady_nested_steps != report.shared.steady_steps && (pays || !declined)) {
    return error(ErrorCode::kInternal,
                 "the arm 'auto' shared {} groups, depth {}, {} members; expected 2, 2, 16 (reason: {})",
                 report.shared.best.groups, report.shared.best.depth, report.shared.best.members,
                 attention::to_string(report.shared.last_steady.reason()));
  }
  if (report.shared.steady_steps == 0 || report.flat.steady_steps == 0) {
    return error(ErrorCode::kInternal, "no step had all chats decoding; nothing was compared");
  }
  return {};
}

}  // namespace headwater::apps
