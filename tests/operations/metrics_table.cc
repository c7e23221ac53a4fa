#include "operations/metrics_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace headwater::testing {
namespace {

std::string trimmed(const std::string& text, const char* off = " `") {
  const size_t begin = text.find_first_not_of(off);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(off) + 1 - begin);
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(trimmed(part));
  return parts;
}

// "`path`: flat, shared" (one label and its values) or "`a`, `b`" (labels of any value).
std::map<std::string, std::vector<std::string>> read_labels(const std::string& cell) {
  const size_t colon = cell.find(':');
  if (colon != std::string::npos) return {{trimmed(cell.substr(0, colon)), split(cell.substr(colon + 1), ',')}};
  std::map<std::string, std::vector<std::string>> labels;
  for (const std::string& name : split(cell, ',')) {
    if (!name.empty()) labels[name] = {};
  }
  return labels;
}

}  // namespace

std::vector<MetricRow> read_metrics_table() {
  std::ifstream in(HEADWATER_SOURCE_DIR "/docs/metrics.md");
  std::vector<MetricRow> rows;
  std::vector<std::string> bounds_names;  // by row
  std::map<std::string, std::vector<double>> bounds;
  std::string section;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) section = line.substr(3);
    if (!line.starts_with("| ") || line.starts_with("| name") || line.starts_with("| buckets")) continue;
    std::vector<std::string> cells;  // as they are: a cell may hold names in backticks
    std::istringstream parts(line.substr(1));
    for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(trimmed(cell, " "));
    if (cells.size() == 2) {
      for (const std::string& bound : split(cells[1], ',')) bounds[cells[0]].push_back(std::stod(bound));
      continue;
    }
    EXPECT_EQ(cells.size(), 5u) << line;
    if (cells.size() != 5) continue;
    EXPECT_EQ(cells[1] == "histogram", !cells[3].empty()) << line;
    EXPECT_FALSE(cells[4].empty()) << line;
    rows.push_back({section, trimmed(cells[0]), cells[1], read_labels(cells[2]), {}});
    bounds_names.push_back(cells[3]);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (bounds_names[i].empty()) continue;
    EXPECT_TRUE(bounds.contains(bounds_names[i])) << rows[i].name << ": no bounds named " << bounds_names[i];
    rows[i].bounds = bounds[bounds_names[i]];
  }
  EXPECT_GT(rows.size(), 40u);
  return rows;
}

}  // namespace headwater::testing
