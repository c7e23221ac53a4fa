// docs/metrics.md as data.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace headwater::testing {

struct MetricRow {
  std::string section;  // heading that it stands under
  std::string name;
  std::string type;                                        // gauge, counter, histogram
  std::map<std::string, std::vector<std::string>> labels;  // beyond model_name and engine; no values: any one
  std::vector<double> bounds;                              // of a histogram, +Inf left out
};

// Fails the test where a row is not of the form that the document describes.
std::vector<MetricRow> read_metrics_table();

}  // namespace headwater::testing
