#include "server/metrics_page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <initializer_list>
#include <limits>
#include <span>
#include <utility>

#include "server/process_stats.h"

namespace headwater::server {
namespace {

using engine::EngineMetrics;
using engine::FinishReason;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Families in the order of their addition, each with the labels of the model.
class Page {
 public:
  explicit Page(const std::string& model_name) : labels_{{"model_name", model_name}, {"engine", "0"}} {}

  void family(MetricType type, std::string name, std::string help) {
    families_.push_back({std::move(name), std::move(help), type, {}});
  }
  // One more series of the last family.
  ClientMetric& series(std::initializer_list<ClientMetric::Label> more = {}) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = labels_;
    metric.label.insert(metric.label.end(), more);
    return metric;
  }

  void gauge(std::string name, std::string help, double value) {
    family(MetricType::Gauge, std::move(name), std::move(help));
    series().gauge.value = value;
  }
  void counter(std::string name, std::string help, const observe::Counter& counter) {
    family(MetricType::Counter, std::move(name), std::move(help));
    series().counter.value = static_cast<double>(counter.value());
  }
  struct Part {
    const char* label;
    const observe::Counter* counter;
  };
  // A counter that is cut up by one label.
  void counter(std::string name, std::string help, const char* label, std::span<const Part> parts) {
    family(MetricType::Counter, std::move(name), std::move(help));
    for (const Part& part : parts) {
      series({{label, part.label}}).counter.value = static_cast<double>(part.counter->value());
    }
  }
  template <size_t kBounds>
  void histogram(std::string name, std::string help, const observe::Histogram<kBounds>& values,
                 double bound_max = std::numeric_limits<double>::max()) {
    family(MetricType::Histogram, std::move(name), std::move(help));
    ClientMetric::Histogram& out = series().histogram;
    for (size_t i = 0; i <= kBounds; ++i) {
      out.sample_count += values.bucket(i);
      if (i < kBounds && values.bounds()[i] <= bound_max) out.bucket.push_back({out.sample_count, values.bounds()[i]});
    }
    out.bucket.push_back({out.sample_count, std::numeric_limits<double>::infinity()});
    out.sample_sum = values.sum();
  }

  // Of the process as a whole: without labels, under the names that every Prometheus client uses.
  void process(MetricType type, std::string name, std::string help, double value) {
    family(type, std::move(name), std::move(help));
    ClientMetric& metric = families_.back().metric.emplace_back();
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  }

  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  std::vector<ClientMetric::Label> labels_;
  std::vector<MetricFamily> families_;
};

void add_state(Page& page, const engine::Engine& engine) {
  const EngineMetrics& metrics = engine.metrics();
  page.gauge("vllm:num_requests_running", "Sequences in the running batch.", metrics.requests_running.value());
  page.gauge("vllm:num_requests_waiting", "Sequences that wait to run.", metrics.requests_waiting.value());
  page.gauge("vllm:kv_cache_usage_perc", "Share of the KV pages in use; 1 is all.", metrics.kv_cache_usage.value());
  const kv::CacheConfig& cache = engine.cache().config();
  page.family(MetricType::Gauge, "vllm:cache_config_info", "What the KV cache was set up with; always 1.");
  page.series({{"block_size", std::to_string(cache.page_size)},
               {"num_gpu_blocks", std::to_string(cache.pages)},
               {"cache_dtype", to_string(engine.config().kv_dtype)},
               {"enable_prefix_caching", cache.prefix_cache ? "True" : "False"}})
      .gauge.value = 1;
}

void add_counts(Page& page, const EngineMetrics& metrics) {
  page.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache, once per request.",
               metrics.prefix_cache_queries);
  page.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache, once per request.",
               metrics.prefix_cache_hits);
  page.counter("vllm:num_preemptions_total", "Sequences that gave up their pages to others.", metrics.preemptions);
  page.counter("vllm:prompt_tokens_total", "Prompt tokens.", metrics.prompt_tokens);
  page.counter("vllm:generation_tokens_total", "Generated tokens.", metrics.generation_tokens);
  const auto finished = [&](FinishReason reason) { return &metrics.finished[static_cast<size_t>(reason)]; };
  const Page::Part reasons[] = {{"stop", finished(FinishReason::kStop)},
                                {"length", finished(FinishReason::kLength)},
                                {"abort", finished(FinishReason::kCancelled)},
                                {"error", finished(FinishReason::kFailed)}};
  page.counter("vllm:request_success_total", "Answers that ended, by reason.", "finished_reason", reasons);
}

void add_distributions(Page& page, const EngineMetrics& metrics, double context_max) {
  page.histogram("vllm:time_to_first_token_seconds", "Seconds from arrival to the first token.",
                 metrics.time_to_first_token);
  page.histogram("vllm:inter_token_latency_seconds", "Seconds from one token to the next.",
                 metrics.inter_token_latency);
  page.histogram("vllm:request_time_per_output_token_seconds", "Seconds per token after the first, by answer.",
                 metrics.time_per_output_token);
  page.histogram("vllm:e2e_request_latency_seconds", "Seconds from arrival to the last token.", metrics.end_to_end);
  page.histogram("vllm:request_queue_time_seconds", "Seconds that an answer waited to run.", metrics.queue_time);
  page.histogram("vllm:request_prefill_time_seconds", "Seconds from running to the first token.", metrics.prefill_time);
  page.histogram("vllm:request_decode_time_seconds", "Seconds from the first token to the last.", metrics.decode_time);
  page.histogram("vllm:request_prompt_tokens", "Prompt tokens of an answer.", metrics.request_prompt_tokens,
                 context_max);
  page.histogram("vllm:request_generation_tokens", "Generated tokens of an answer.", metrics.request_generation_tokens,
                 context_max);
  page.histogram("vllm:iteration_tokens_total", "Tokens computed in a step.", metrics.step_tokens);
}

void add_old_aliases(Page& page, const EngineMetrics& metrics) {
  page.gauge("vllm:gpu_cache_usage_perc", "Old name of vllm:kv_cache_usage_perc.", metrics.kv_cache_usage.value());
  page.counter("vllm:gpu_prefix_cache_queries_total", "Old name of vllm:prefix_cache_queries_total.",
               metrics.prefix_cache_queries);
  page.counter("vllm:gpu_prefix_cache_hits_total", "Old name of vllm:prefix_cache_hits_total.",
               metrics.prefix_cache_hits);
  page.histogram("vllm:time_per_output_token_seconds", "Old name of vllm:inter_token_latency_seconds.",
                 metrics.inter_token_latency);
}

void add_sharing(Page& page, const EngineMetrics& metrics) {
  std::vector<Page::Part> steps, launches, reasons;
  for (size_t i = 0; i < metrics.attention_steps.size(); ++i) {
    const char* path = attention::to_string(static_cast<attention::Path>(i));
    steps.push_back({path, &metrics.attention_steps[i]});
    launches.push_back({path, &metrics.attention_launches[i]});
  }
  for (size_t i = 0; i < metrics.attention_not_shared.size(); ++i) {
    reasons.push_back({attention::to_string(static_cast<attention::NotShared>(i)), &metrics.attention_not_shared[i]});
  }
  page.counter("headwater:attention_steps_total", "Steps, by how their attention read the KV pages.", "path", steps);
  page.counter("headwater:attention_launches_total", "Attention calls (layers x steps), by path.", "path", launches);
  page.counter("headwater:attention_not_shared_total", "Common prefixes that were not attended once, by reason.",
               "reason", reasons);
  const Page::Part failures[] = {{"planning", &metrics.attention_failures}};
  page.counter("headwater:attention_failures_total", "Steps that ran flat because sharing failed.", "reason", failures);
  page.counter("headwater:shared_prefix_tokens_total",
               "Tokens that were not read again: length x (members - 1) of each shared prefix, summed over steps.",
               metrics.shared_prefix_tokens);
  page.counter("headwater:shared_prefix_member_sequences_total", "Sequences in a shared prefix, summed over steps.",
               metrics.shared_prefix_members);
  page.counter("headwater:nested_group_steps_total", "Steps with a shared prefix inside another.",
               metrics.nested_group_steps);
  page.gauge("headwater:shared_prefix_groups", "Shared prefixes of the last step.",
             metrics.shared_prefix_groups.value());
  page.gauge("headwater:shared_prefix_depth", "Nesting of the shared prefixes of the last step.",
             metrics.shared_prefix_depth.value());
  const Page::Part arms[] = {{"actual", &metrics.kv_bytes_read_actual}, {"flat", &metrics.kv_bytes_read_flat}};
  page.counter("headwater:kv_bytes_read_total", "KV bytes that attention read, and would have read without sharing.",
               "arm", arms);
  page.histogram("headwater:plan_seconds", "Seconds to plan the attention of a step.", metrics.plan_seconds);
}

void add_engine_work(Page& page, const EngineMetrics& metrics) {
  page.counter("headwater:steps_total", "Steps of the engine.", metrics.steps);
  page.counter("headwater:tokens_computed_total", "Tokens that went through the model.", metrics.tokens_computed);
  page.counter("headwater:forks_total", "Choices that were split off from a common prompt.", metrics.forks);
  page.counter("headwater:copies_on_write_total", "Shared KV pages that were copied to be written.",
               metrics.copies_on_write);
  page.counter("headwater:evictions_total", "Cached KV pages that were given up.", metrics.evictions);
  page.counter("headwater:pages_merged_total", "KV pages freed because an identical one was cached.",
               metrics.pages_merged);
  page.counter("headwater:waits_for_prefix_total", "Sequences that waited for another one to compute their prefix.",
               metrics.waits_for_prefix);
}

void add_server(Page& page, const ServerMetrics& server) {
  page.gauge("headwater:http_connections", "Open connections.", server.connections.value());
  page.counter("headwater:http_requests_total", "Requests whose header was read.", server.requests);
  page.counter("headwater:http_bad_requests_total", "Requests refused as wrong (400 to 431, 401 and 429 apart).",
               server.bad_requests);
  page.counter("headwater:http_unauthorized_total", "Requests without a valid key (401).", server.unauthorized);
  page.counter("headwater:http_rejected_total", "Requests refused because of load (429, 503).", server.rejected);
  page.counter("headwater:http_failed_total", "Requests that failed inside (500).", server.failed);
  page.counter("headwater:http_clients_gone_total", "Clients that left before their answer was complete.",
               server.clients_gone);
  page.histogram("headwater:chunk_delay_seconds", "Seconds from a token to the end of the write of its chunk.",
                 server.chunk_delay);
}

void add_process(Page& page) {
  const ProcessStats stats = read_process_stats();
  page.process(MetricType::Gauge, "process_resident_memory_bytes", "Resident memory size in bytes.",
               static_cast<double>(stats.resident_bytes));
  page.process(MetricType::Gauge, "process_open_fds", "Number of open file descriptors.",
               static_cast<double>(stats.open_files));
  page.process(MetricType::Counter, "process_cpu_seconds_total", "Total user and system CPU time spent in seconds.",
               stats.cpu_seconds);
  page.process(MetricType::Gauge, "process_start_time_seconds",
               "Start time of the process since unix epoch in seconds.", stats.start_time_seconds);
}

}  // namespace

std::string metrics_page(const MetricsPageConfig& config, const engine::Engine* engine, const ServerMetrics& server) {
  Page page(config.model_name);
  if (engine != nullptr) {
    const EngineMetrics& metrics = engine->metrics();
    add_state(page, *engine);
    add_counts(page, metrics);
    add_distributions(page, metrics, engine->config().context_max);
    if (config.old_aliases) add_old_aliases(page, metrics);
    add_sharing(page, metrics);
    add_engine_work(page, metrics);
  }
  add_server(page, server);
  add_process(page);
  return page.text();
}

}  // namespace headwater::server
