#include "bench/compare.h"

#include <boost/json.hpp>
#include <fstream>
#include <map>

namespace headwater::bench {
namespace {

using Record = std::map<std::string, double>;  // "cell / arm" -> microseconds

Result<Record> read_record(const std::string& path) {
  std::ifstream in(path);
  if (!in) return error(ErrorCode::kNotFound, "{}: cannot be read", path);
  Record record;
  for (std::string line; std::getline(in, line);) {
    boost::system::error_code failed;
    const boost::json::value value = boost::json::parse(line, failed);
    if (failed || !value.is_object())
      return error(ErrorCode::kCorrupt, "{}: not JSON lines: {}", path, line.substr(0, 60));
    const boost::json::object& object = value.as_object();
    const auto *cell = object.if_contains("cell"), *arm = object.if_contains("arm"), *us = object.if_contains("us");
    if (cell == nullptr || arm == nullptr || us == nullptr || !cell->is_string() || !arm->is_string() ||
        !us->is_number())
      continue;
    record[std::string(cell->as_string()) + " / " + std::string(arm->as_string())] = us->to_number<double>();
  }
  if (record.empty()) return error(ErrorCode::kCorrupt, "{} holds no measurement", path);
  return record;
}

}  // namespace

Status compare(const CompareOptions& options, std::ostream& out) {
  HEADWATER_ASSIGN_OR_RETURN(const Record base, read_record(options.base));
  HEADWATER_ASSIGN_OR_RETURN(const Record head, read_record(options.head));
  uint32_t worse = 0, missing = 0;
  for (const auto& [name, base_us] : base) {
    const auto entry = head.find(name);
    if (entry == head.end()) {
      ++missing;
      out << fmt::format("{:<60} missing\n", name);
      continue;
    }
    const double ratio = entry->second / base_us;
    worse += ratio > options.threshold;
    out << fmt::format("{:<60} {:>10.1f} {:>10.1f} {:>7.3f}{}\n", name, base_us, entry->second, ratio,
                       ratio > options.threshold ? "  WORSE" : "");
  }
  if (worse + missing > 0) {
    return error(ErrorCode::kInternal, "{} measurements are worse than {} x the base, {} are missing", worse,
                 options.threshold, missing);
  }
  return {};
}

}  // namespace headwater::bench
