// The page of a running engine against docs/metrics.md.
#include "server/metrics_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "operations/metrics_table.h"
#include "simulation/engine_under_test.h"

namespace headwater::testing {
namespace {

using Labels = std::map<std::string, std::string>;

struct Sample {
  std::string name;
  Labels labels;
  double value;
};

struct Family {
  std::string type;
  std::vector<Sample> samples;
};

constexpr const char* kModelName = "a \"model\" \\ of\nmine";

// The text format, read strictly: a line that is not of it fails the test.
std::map<std::string, Family> parse(const std::string& page) {
  static const std::regex help(R"(# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) \S.*)");
  static const std::regex type(R"(# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (gauge|counter|histogram))");
  static const std::regex sample(R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?[0-9.]+(?:e[-+]?[0-9]+)?))");
  static const std::regex label("([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\\\\n]|\\\\[\\\\\"n])*)\",?");
  std::map<std::string, Family> families;
  std::string helped, current;
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      helped = match[1];
    } else if (std::regex_match(line, match, type)) {
      current = match[1];
      EXPECT_EQ(current, helped) << "TYPE without its HELP";
      EXPECT_TRUE(families.emplace(current, Family{match[2], {}}).second) << current << " comes twice";
    } else if (std::regex_match(line, match, sample)) {
      EXPECT_TRUE(match.str(1).starts_with(current)) << line;
      Sample read{match[1], {}, std::stod(match[3])};
      std::string rest = match[2];
      for (std::smatch part; std::regex_search(rest, part, label, std::regex_constants::match_continuous);) {
        EXPECT_TRUE(read.labels.emplace(part[1], part[2]).second) << line;
        rest = part.suffix();
      }
      EXPECT_EQ(rest, "") << line;
      families[current].samples.push_back(std::move(read));
    } else {
      ADD_FAILURE() << "not of the text format: " << line;
    }
  }
  return families;
}

void expect_histogram(const MetricRow& row, const std::vector<Sample>& samples, double bound_max) {
  std::vector<double> bounds;
  double below = 0, count = -1, sum = NAN;
  for (const Sample& sample : samples) {
    if (sample.name == row.name + "_bucket") {
      const std::string& le = sample.labels.at("le");
      bounds.push_back(le == "+Inf" ? std::numeric_limits<double>::infinity() : std::stod(le));
      EXPECT_GE(sample.value, below) << row.name << ": buckets are cumulative";
      below = sample.value;
    } else if (sample.name == row.name + "_count") {
      count = sample.value;
    } else if (sample.name == row.name + "_sum") {
      sum = sample.value;
    } else {
      ADD_FAILURE() << sample.name;
    }
  }
  std::vector<double> expected;
  for (const double bound : row.bounds) {
    if (!row.name.starts_with("vllm:request_") || !row.name.ends_with("_tokens") || bound <= bound_max) {
      expected.push_back(bound);
    }
  }
  expected.push_back(std::numeric_limits<double>::infinity());
  EXPECT_EQ(bounds, expected) << row.name;
  EXPECT_EQ(below, count) << row.name << ": +Inf is the count";
  EXPECT_FALSE(std::isnan(sum)) << row.name;
}

void expect_labels(const MetricRow& row, const std::vector<Sample>& samples) {
  std::set<std::string> values;
  for (const Sample& sample : samples) {
    Labels rest = sample.labels;
    rest.erase("le");
    if (row.section != "Process") {
      EXPECT_EQ(rest["model_name"], R"(a \"model\" \\ of\nmine)") << row.name;
      EXPECT_EQ(rest["engine"], "0") << row.name;
      rest.erase("model_name");
      rest.erase("engine");
    }
    EXPECT_EQ(rest.size(), row.labels.size()) << row.name;
    for (const auto& [name, allowed] : row.labels) {
      EXPECT_TRUE(rest.contains(name)) << row.name << " " << name;
      if (!allowed.empty()) values.insert(rest[name]);
    }
  }
  for (const auto& [name, allowed] : row.labels) {
    if (allowed.empty()) continue;
    EXPECT_EQ(values, std::set(allowed.begin(), allowed.end())) << row.name;
  }
}

class MetricsPageTest : public ::testing::Test {
 protected:
  MetricsPageTest() {
    test_.submit(make_request(random_tokens(9, 1), 5));
    test_.run();
    test_.submit(make_request(random_tokens(9, 1), 3));  // its first two pages are cached
    engine::Request cancelled = make_request(random_tokens(30, 2), 50);
    const engine::RequestId id = test_.submit(cancelled);
    test_.steps(3);
    test_.engine->cancel(id);
    test_.run();
    server_.connections.set(3);
    server_.requests.add(7);
    server_.chunk_delay.observe(0.0003);
  }

  std::map<std::string, Family> page(bool old_aliases = false) {
    return parse(server::metrics_page({kModelName, old_aliases}, test_.engine.get(), server_));
  }

  EngineUnderTest test_{small_config(), 128};
  server::ServerMetrics server_;
};

TEST_F(MetricsPageTest, IsTheTableInTheDocuments) {
  const auto families = page(true);
  std::set<std::string> listed;
  for (const MetricRow& row : read_metrics_table()) {
    listed.insert(row.name);
    const auto family = families.find(row.name);
    ASSERT_NE(family, families.end()) << row.name << " is not on the page";
    EXPECT_EQ(family->second.type, row.type) << row.name;
    ASSERT_FALSE(family->second.samples.empty()) << row.name;
    expect_labels(row, family->second.samples);
    if (row.type == "histogram") expect_histogram(row, family->second.samples, test_.engine->config().context_max);
  }
  for (const auto& [name, family] : families)
    EXPECT_TRUE(listed.contains(name)) << name << " is not in docs/metrics.md";
}

TEST_F(MetricsPageTest, HasOldNamesOnlyWhenAsked) {
  const auto families = page(false);
  int old_names = 0;
  for (const MetricRow& row : read_metrics_table()) {
    old_names += row.section == "Old names";
    EXPECT_EQ(families.contains(row.name), row.section != "Old names") << row.name;
  }
  EXPECT_EQ(old_names, 4);
}

TEST_F(MetricsPageTest, ShowsWhatTheEngineCounted) {
  const auto families = page();
  const auto value = [&](const std::string& family, const std::string& name, const Labels& labels = {}) {
    for (const Sample& sample : families.at(family).samples) {
      bool matches = sample.name == name;
      for (const auto& [label, wanted] : labels) matches = matches && sample.labels.at(label) == wanted;
      if (matches) return sample.value;
    }
    ADD_FAILURE() << name;
    return -1.0;
  };
  const auto plain = [&](const std::string& name) { return value(name, name); };
  EXPECT_EQ(plain("vllm:prompt_tokens_total"), 9 + 9 + 30);
  EXPECT_EQ(plain("vllm:prefix_cache_hits_total"), 8);
  EXPECT_EQ(plain("vllm:num_requests_running"), 0);
  const std::string success = "vllm:request_success_total";
  EXPECT_EQ(value(success, success, {{"finished_reason", "length"}}), 2);
  EXPECT_EQ(value(success, success, {{"finished_reason", "abort"}}), 1);
  EXPECT_EQ(value(success, success, {{"finished_reason", "stop"}}), 0);
  const std::string info = "vllm:cache_config_info";
  EXPECT_EQ(value(info, info, {{"block_size", "4"}, {"num_gpu_blocks", "128"}, {"enable_prefix_caching", "True"}}), 1);
  const std::string first = "vllm:time_to_first_token_seconds";
  EXPECT_EQ(value(first, first + "_count"), 3);
  EXPECT_EQ(plain("headwater:http_connections"), 3);
  EXPECT_EQ(plain("headwater:http_requests_total"), 7);
  const std::string delay = "headwater:chunk_delay_seconds";
  EXPECT_EQ(value(delay, delay + "_bucket", {{"le", "0.0002"}}), 0);
  EXPECT_EQ(value(delay, delay + "_bucket", {{"le", "0.0005"}}), 1);
  EXPECT_DOUBLE_EQ(value(delay, delay + "_sum"), 0.0003);
  const std::string steps = "headwater:attention_steps_total";
  EXPECT_GT(value(steps, steps, {{"path", "flat"}}) + value(steps, steps, {{"path", "shared"}}), 0);
  EXPECT_GT(plain("process_resident_memory_bytes"), 1e6);
  EXPECT_GE(plain("process_open_fds"), 3);
  EXPECT_GT(plain("process_cpu_seconds_total"), -1);
  EXPECT_GT(plain("process_start_time_seconds"), 1.5e9);
}

TEST_F(MetricsPageTest, CountsTokensAboveTheLastBoundInTheOpenBucket) {
  test_.submit(make_request(random_tokens(300, 3), 1));
  test_.run();
  const auto families = page();
  double last_bound = 0, within = 0, count = 0;
  for (const Sample& sample : families.at("vllm:request_prompt_tokens").samples) {
    if (sample.name.ends_with("_count")) count = sample.value;
    if (!sample.name.ends_with("_bucket") || sample.labels.at("le") == "+Inf") continue;
    last_bound = std::stod(sample.labels.at("le"));
    within = sample.value;
  }
  EXPECT_EQ(last_bound, 200);  // of a context of 400
  EXPECT_EQ(within, 3);
  EXPECT_EQ(count, 4);
}

}  // namespace
}  // namespace headwater::testing
