#include "server/cache_page.h"

#include <boost/json.hpp>

namespace headwater::server {

std::string cache_page(const engine::Snapshot& snapshot, const std::optional<Status>& audit) {
  namespace json = boost::json;
  json::array sequences;
  for (const engine::SnapshotSequence& sequence : snapshot.sequences) {
    sequences.push_back({{"request", sequence.request},
                         {"choice", sequence.choice},
                         {"state", sequence.running ? "running" : "waiting"},
                         {"prompt_tokens", sequence.prompt_tokens},
                         {"generated_tokens", sequence.generated_tokens},
                         {"computed_tokens", sequence.computed_tokens},
                         {"pages", sequence.pages},
                         {"run", sequence.run < 0 ? json::value(nullptr) : json::value(sequence.run)}});
  }
  json::array runs;
  for (const engine::SnapshotRun& run : snapshot.runs) {
    runs.push_back({{"parent", run.parent < 0 ? json::value(nullptr) : json::value(run.parent)},
                    {"pages", run.pages},
                    {"tokens", run.tokens},
                    {"sequences", run.members}});
  }
  const attention::Outcome& last = snapshot.last_step;
  json::object page{{"page_size", snapshot.page_size},
                    {"pages",
                     {{"total", snapshot.pages_total},
                      {"free", snapshot.pages_free},
                      {"cached", snapshot.pages_cached},
                      {"held", snapshot.pages_held}}},
                    {"sequences_waiting", snapshot.sequences_waiting},
                    {"sequences", std::move(sequences)},
                    {"shared_runs", std::move(runs)},
                    {"last_step",
                     {{"path", attention::to_string(last.path)},
                      {"groups", last.groups},
                      {"depth", last.depth},
                      {"members", last.members_total},
                      {"shared_pages", last.shared_pages},
                      {"tokens_not_read_again", last.tokens_saved}}}};
  if (audit) page["audit"] = *audit ? "ok" : audit->message();
  return json::serialize(page);
}

}  // namespace headwater::server
