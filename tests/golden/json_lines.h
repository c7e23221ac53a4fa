// Files of one JSON object a line.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

namespace headwater::testing {

// Throws where the file is missing or a line is not an object.
std::vector<boost::json::object> read_json_lines(const std::string& path);

}  // namespace headwater::testing
