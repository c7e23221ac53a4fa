// docs/dashboards/headwater.json against docs/metrics.md: it asks for nothing that the server does not have.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "operations/metrics_table.h"

namespace headwater::testing {
namespace {

namespace json = boost::json;

json::value read_dashboard() {
  std::ifstream in(HEADWATER_SOURCE_DIR "/docs/dashboards/headwater.json");
  std::ostringstream text;
  text << in.rdbuf();
  return json::parse(text.str());
}

// All strings under keys that hold PromQL.
void collect_queries(const json::value& value, std::vector<std::string>& out) {
  if (value.is_array()) {
    for (const json::value& item : value.get_array()) collect_queries(item, out);
  }
  if (!value.is_object()) return;
  for (const auto& [key, item] : value.get_object()) {
    if (item.is_string() && (key == "expr" || key == "query" || key == "definition")) {
      out.emplace_back(item.get_string());
    } else {
      collect_queries(item, out);
    }
  }
}

// What is wrong with the metrics and the fixed label values of a query.
std::vector<std::string> faults(const std::string& query, const std::vector<MetricRow>& rows) {
  static const std::regex metric(R"(\b((?:(?:vllm|headwater):|process_)[a-z0-9_]+)(\{[^}]*\})?)");
  static const std::regex matcher(R"re(([a-z_]+)="([^"]*)")re");
  std::vector<std::string> found;
  for (std::sregex_iterator at(query.begin(), query.end(), metric), end; at != end; ++at) {
    const std::string name = at->str(1);
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const MetricRow& candidate) {
      if (candidate.type != "histogram") return candidate.name == name;
      return candidate.name + "_bucket" == name || candidate.name + "_sum" == name || candidate.name + "_count" == name;
    });
    if (row == rows.end() || row->section == "Old names") {
      found.push_back(name);
      continue;
    }
    const std::string labels = at->str(2);
    for (std::sregex_iterator part(labels.begin(), labels.end(), matcher); part != end; ++part) {
      const auto allowed = row->labels.find(part->str(1));
      if (allowed == row->labels.end() || std::ranges::find(allowed->second, part->str(2)) == allowed->second.end()) {
        found.push_back(name + " " + part->str());
      }
    }
  }
  return found;
}

TEST(Dashboard, AsksOnlyForMetricsThatTheServerHas) {
  const std::vector<MetricRow> rows = read_metrics_table();
  std::vector<std::string> queries;
  collect_queries(read_dashboard(), queries);
  EXPECT_GT(queries.size(), 30u);
  for (const std::string& query : queries) {
    for (const std::string& fault : faults(query, rows)) ADD_FAILURE() << fault << " in " << query;
  }
}

TEST(Dashboard, AFaultInAQueryIsFound) {
  const std::vector<MetricRow> rows = read_metrics_table();
  EXPECT_EQ(faults("rate(vllm:nonsense_total[1m])", rows).size(), 1u);
  EXPECT_EQ(faults("vllm:gpu_cache_usage_perc", rows).size(), 1u);
  EXPECT_EQ(faults("rate(headwater:plan_seconds[1m])", rows).size(), 1u);  // a histogram has _bucket, _sum and _count
  EXPECT_EQ(faults("headwater:kv_bytes_read_total{arm=\"other\"}", rows).size(), 1u);
  EXPECT_TRUE(faults("headwater:kv_bytes_read_total{arm=\"flat\"} / headwater:plan_seconds_sum", rows).empty());
}

TEST(Dashboard, CanBeImportedWithAnyDataSource) {
  const json::value dashboard = read_dashboard();
  EXPECT_GE(dashboard.at("schemaVersion").as_int64(), 38);  // Grafana 10
  EXPECT_EQ(dashboard.at("templating").at("list").at(0).at("type").as_string(), "datasource");
  std::set<int64_t> ids;
  for (const json::value& panel : dashboard.at("panels").as_array()) {
    EXPECT_TRUE(ids.insert(panel.at("id").as_int64()).second) << panel.at("title");
    const json::value& place = panel.at("gridPos");
    EXPECT_LE(place.at("x").as_int64() + place.at("w").as_int64(), 24) << panel.at("title");
    if (panel.at("type").as_string() == "row") continue;
    for (const json::value& target : panel.at("targets").as_array()) {
      EXPECT_EQ(target.at("datasource").at("uid").as_string(), "${datasource}") << panel.at("title");
    }
  }
  EXPECT_GT(ids.size(), 15u);
}

}  // namespace
}  // namespace headwater::testing
