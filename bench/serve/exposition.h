// What a bench reads from /metrics: the samples of the Prometheus text format, version 0.0.4. Comments, time stamps and
// lines that are no samples are left out.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headwater::bench::serve {

class Exposition {
 public:
  static Exposition parse(std::string_view text);

  bool has(std::string_view name) const;
  // The sum of the samples of this name, of all label values or of those whose `label` is `value`; 0 without any.
  double sum(std::string_view name, std::string_view label = {}, std::string_view value = {}) const;

 private:
  struct Sample {
    std::string name;
    std::vector<std::pair<std::string, std::string>> labels;
    double value = 0;
  };
  std::vector<Sample> samples_;
};

}  // namespace headwater::bench::serve
