#include "golden/json_lines.h"

#include <fstream>
#include <stdexcept>

namespace headwater::testing {

std::vector<boost::json::object> read_json_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<boost::json::object> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(boost::json::parse(line).as_object());
  return lines;
}

}  // namespace headwater::testing
