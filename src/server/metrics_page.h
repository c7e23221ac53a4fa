// /metrics: the engine's and the server's counters under vLLM's names (label model_name) and our own, in the text format of
// Prometheus, written by prometheus-cpp. docs/metrics.md lists them; a test reads the page against that list.
#pragma once

#include <array>
#include <string>

#include "engine/engine.h"
#include "observe/observe.h"

namespace headwater::server {

// Counted by the server itself. One writer, the network thread.
inline constexpr std::array kDelayBounds = {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005,
                                            0.01,   0.02,   0.05,   0.1,   0.5,   1.0};
struct ServerMetrics {
  observe::Gauge connections;
  observe::Counter requests;                                      // whose header was read
  observe::Counter bad_requests, unauthorized, rejected, failed;  // 400 to 431, 401, 429 and 503, 500
  observe::Counter clients_gone;                                  // before their answer was complete
  observe::Histogram<kDelayBounds.size()> chunk_delay{
      kDelayBounds};  // seconds from a token to the end of the write of its chunk
};

struct MetricsPageConfig {
  std::string model_name;
  bool old_aliases = false;  // vllm:gpu_cache_usage_perc and the other names of vLLM 0.x
};

// Any thread; reads relaxed atomics only. engine: null while the model loads; then its part is missing.
std::string metrics_page(const MetricsPageConfig& config, const engine::Engine* engine, const ServerMetrics& server);

}  // namespace headwater::server
