// Where --json writes: a file, or standard output ("-") with nothing else on it.
#pragma once

#include <fstream>
#include <iostream>
#include <string>

#include "core/core.h"

namespace headwater::apps {

struct JsonOutput {
  std::ofstream file;
  std::ostream* json = nullptr;      // null: not asked for
  std::ostream* table = &std::cout;  // for readers; null when standard output is the JSON's

  Status open(const std::string& path) {
    if (path.empty()) return {};
    json = &std::cout;
    if (path == "-") {
      table = nullptr;
      return {};
    }
    file.open(path);
    json = &file;
    return file ? Status() : error(ErrorCode::kNotFound, "--json {}: cannot be written", path);
  }
  // After the last line.
  Status close(const std::string& path) {
    if (json == nullptr) return {};
    json->flush();
    return *json ? Status() : error(ErrorCode::kNotFound, "--json {}: cannot be written", path);
  }
};

}  // namespace headwater::apps
