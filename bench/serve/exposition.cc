#include "bench/serve/exposition.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace headwater::bench::serve {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

// Takes `{name="value",...}` off the front of `line`; nothing when it is not closed.
std::optional<Labels> take_labels(std::string_view& line) {
  Labels labels;
  if (line.empty() || line[0] != '{') return labels;
  size_t at = 1;
  while (at < line.size() && line[at] != '}') {
    const size_t equals = line.find("=\"", at);
    if (equals == std::string_view::npos) return {};
    auto& [name, value] = labels.emplace_back(std::string(line.substr(at, equals - at)), "");
    for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
      const bool escaped = line[at] == '\\' && at + 1 < line.size();
      if (escaped) ++at;
      value += escaped && line[at] == 'n' ? '\n' : line[at];
    }
    ++at;
    while (at < line.size() && (line[at] == ',' || line[at] == ' ')) ++at;
  }
  if (at >= line.size()) return {};
  line.remove_prefix(at + 1);
  return labels;
}

}  // namespace

Exposition Exposition::parse(std::string_view text) {
  Exposition exposition;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t name_end = std::min(line.find_first_of("{ \t"), line.size());
    if (line.empty() || line[0] == '#' || name_end == 0) continue;
    Sample sample;
    sample.name = line.substr(0, name_end);
    line.remove_prefix(name_end);
    auto labels = take_labels(line);
    if (!labels) continue;
    sample.labels = std::move(*labels);
    const std::string number(line);
    char* number_end = nullptr;
    sample.value = std::strtod(number.c_str(), &number_end);
    if (number_end != number.c_str()) exposition.samples_.push_back(std::move(sample));
  }
  return exposition;
}

bool Exposition::has(std::string_view name) const {
  return std::ranges::any_of(samples_, [&](const Sample& sample) { return sample.name == name; });
}

double Exposition::sum(std::string_view name, std::string_view label, std::string_view value) const {
  double sum = 0;
  for (const Sample& sample : samples_) {
    if (sample.name != name) continue;
    const bool wanted = label.empty() || std::ranges::any_of(sample.labels, [&](const auto& entry) {
                          return entry.first == label && entry.second == value;
                        });
    if (wanted) sum += sample.value;
  }
  return sum;
}

}  // namespace headwater::bench::serve
