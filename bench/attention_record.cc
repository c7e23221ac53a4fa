#include "bench/attention_record.h"

#include <cmath>
#include <fstream>
#include <optional>
#include <set>

#include "bench/statistics.h"

namespace headwater::bench {
namespace {

namespace json = boost::json;

constexpr const char* kPart[] = {"grid", "shard", "shards"};  // of a summary: which part of a record it ends

bool is_skipped(const json::object& line) {
  return line.contains("skipped");
}

double number(const json::object& line, const char* name) {
  const json::value* value = line.if_contains(name);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

std::string text(const json::object& line, const char* name) {
  const json::value* value = line.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

// Two runs of one cell measure the same thing when all of these agree.
std::string key_of(const json::object& line) {
  std::string key;
  for (const char* name : {"cell", "dtype", "backend", "target"}) key += text(line, name) + '\n';
  const json::value* invariant = line.if_contains("invariant");
  return key + (invariant == nullptr ? "" : json::serialize(*invariant));
}

struct Part {
  std::vector<std::vector<json::object>> cells;
  json::object summary;
};

Result<Part> read_part(const std::string& path) {
  std::ifstream in(path);
  if (!in) return error(ErrorCode::kNotFound, "{}: cannot be read", path);
  Part part;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    boost::system::error_code failed;
    json::value value = json::parse(line, failed);
    if (failed || !value.is_object())
      return error(ErrorCode::kCorrupt, "{}: not JSON lines: {}", path, line.substr(0, 60));
    json::object& object = value.as_object();
    if (object.contains("summary")) {
      part.summary = object;
    } else if (part.cells.empty() || key_of(part.cells.back()[0]) != key_of(object) ||
               text(part.cells.back()[0], "arm") == text(object, "arm")) {
      part.cells.push_back({object});
    } else {
      part.cells.back().push_back(object);
    }
  }
  if (part.summary.empty()) {
    return error(ErrorCode::kCorrupt,
                 "{} ends without its summary, so cells may be missing; run it again (--max-seconds ends in time)",
                 path);
  }
  return part;
}

json::object facts_of(json::object summary) {
  json::object facts;
  for (const char* name : {"backend", "device", "commit", "costs", "gate"}) {
    if (const json::value* value = summary.if_contains(name); value != nullptr) facts[name] = *value;
  }
  return facts;
}

// Which shards of each grid there are: all of them, or none is missed.
Status shards_complete(const std::vector<Part>& parts) {
  std::map<std::pair<std::string, uint32_t>, std::set<uint32_t>> found;
  for (const Part& part : parts) {
    const auto shards = static_cast<uint32_t>(number(part.summary, kPart[2]));
    found[{text(part.summary, kPart[0]), shards}].insert(static_cast<uint32_t>(number(part.summary, kPart[1])));
  }
  for (const auto& [grid, shards] : found) {
    for (uint32_t i = 0; i < grid.second; ++i) {
      if (!shards.contains(i))
        return error(ErrorCode::kInvalidArgument, "shard {}/{} of grid '{}' is missing", i, grid.second, grid.first);
    }
  }
  return {};
}

}  // namespace

void AttentionRecord::set(std::vector<json::object> lines) {
  const auto [entry, is_fresh] = places_.try_emplace(key_of(lines[0]), cells_.size());
  if (is_fresh) {
    cells_.push_back(std::move(lines));
  } else if (std::vector<json::object>& known = cells_[entry->second]; !is_skipped(lines[0]) || is_skipped(known[0])) {
    known = std::move(lines);
  }
}

double AttentionRecord::gate() const {
  return number(facts_, "gate");
}

AttentionRecord::Totals AttentionRecord::totals() const {
  Totals totals;
  double log_sum = 0;
  std::vector<double> predicted_errors;
  for (const std::vector<json::object>& lines : cells_) {
    if (is_skipped(lines[0])) {
      ++totals.skipped;
      continue;
    }
    ++totals.cells;
    for (const json::object& line : lines) {
      const double us = number(line, "us");
      predicted_errors.push_back(std::abs(number(line, "predicted_us") / us - 1));
      if (text(line, "arm") == "auto") log_sum -= std::log(us);
      if (text(line, "arm") == "off") log_sum += std::log(us);
    }
    const double ratio = number(lines[0], "auto_over_off");
    totals.failed += gate() > 0 && ratio > gate();
    if (ratio > totals.worst) {
      totals.worst = ratio;
      totals.worst_cell = text(lines[0], "cell");
    }
  }
  if (totals.cells == 0) return totals;
  totals.geomean = std::exp(log_sum / totals.cells);
  totals.predicted_error = median(predicted_errors);
  return totals;
}

json::object AttentionRecord::summary() const {
  const Totals t = totals();
  json::object summary{{"cells", t.cells},
                       {"skipped", t.skipped},
                       {"worst_auto_over_off", t.worst},
                       {"worst_cell", t.worst_cell},
                       {"geomean_off_over_auto", t.geomean},
                       {"predicted_error_median", t.predicted_error},
                       {"failed", t.failed}};
  for (const auto& [name, value] : facts_) summary[name] = value;
  summary["summary"] = true;
  return summary;
}

void AttentionRecord::write(std::ostream& out) const {
  for (const std::vector<json::object>& lines : cells_) {
    for (const json::object& line : lines) out << json::serialize(line) << '\n';
  }
  out << json::serialize(summary()) << std::endl;
}

Result<AttentionRecord> merge_records(const std::vector<std::string>& paths) {
  std::vector<Part> parts;
  for (const std::string& path : paths) {
    HEADWATER_ASSIGN_OR_RETURN(Part part, read_part(path));
    parts.push_back(std::move(part));
    const json::object first = facts_of(parts[0].summary), here = facts_of(parts.back().summary);
    if (first != here) {
      return error(ErrorCode::kInvalidArgument, "{} was measured with {}, {} with {}; one record has one of each",
                   paths[0], json::serialize(first), path, json::serialize(here));
    }
  }
  HEADWATER_RETURN_IF_ERROR(shards_complete(parts));
  AttentionRecord record(parts.empty() ? json::object() : facts_of(parts[0].summary));
  for (Part& part : parts) {
    for (std::vector<json::object>& lines : part.cells) record.set(std::move(lines));
  }
  return record;
}

Status gate_holds(const AttentionRecord& record) {
  const AttentionRecord::Totals totals = record.totals();
  if (record.gate() == 0) return {};
  if (totals.failed > 0)
    return error(ErrorCode::kInternal, "{} cells are above the gate {}", totals.failed, record.gate());
  if (totals.skipped > 0) {
    return error(ErrorCode::kInternal,
                 "{} cells were skipped; a gate needs all of them (raise --max-seconds or use --shard)",
                 totals.skipped);
  }
  return {};
}

}  // namespace headwater::bench
