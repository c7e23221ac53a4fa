#include "apps/costs_file.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "model/output_file.h"
#include "observe/log.h"

namespace headwater::apps {
namespace {

namespace json = boost::json;
constexpr size_t kBytesMax = 1u << 20;
constexpr size_t kTextMax = 100;
constexpr size_t kTargetsMax = 16;
constexpr size_t kCostsMax = 1000;

template <typename... Args>
Status corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return error(ErrorCode::kCorrupt, format, std::forward<Args>(args)...);
}

bool is_line(std::string_view text) {
  return text.size() <= kTextMax && std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 0x7f; });
}

Result<std::string> text_of(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_string() || !is_line(value->as_string())) {
    return corrupt("\"{}\" is not a short text", name);
  }
  return std::string(value->as_string());
}

Result<uint32_t> number_of(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  boost::system::error_code failed;
  const auto number = value == nullptr ? 0 : value->to_number<uint32_t>(failed);
  if (value == nullptr || failed) return corrupt("\"{}\" is not a whole number", name);
  return number;
}

Result<ops::Costs> entry_of(std::string_view target, const json::value& value) {
  const json::object* object = value.if_object();
  if (!is_line(target) || object == nullptr || object->size() > kCostsMax) {
    return corrupt("a target is not an object of at most {} costs", kCostsMax);
  }
  ops::Costs costs;
  for (const auto& [name, cost] : *object) {
    if (!is_line(name) || !cost.is_number()) return corrupt("a cost of {} is not a number", target);
    costs[std::string(name)] = cost.to_number<double>();
  }
  return costs;
}

}  // namespace

std::string default_costs_path() {
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    const std::filesystem::path path(value == nullptr ? "" : value);
    return path.is_absolute() ? path : std::filesystem::path();
  };
  std::filesystem::path cache = folder("XDG_CACHE_HOME");
  if (cache.empty() && !folder("HOME").empty()) cache = folder("HOME") / ".cache";
  return cache.empty() ? "" : (cache / "headwater" / "costs.json").string();
}

std::string costs_json(const CostsFile& file) {
  std::string text = fmt::format(
      "{{\"version\": {},\n \"date\": {},\n \"backend\": {},\n \"device\": {},\n \"workers\": {},\n \"targets\": {{",
      file.version, json::serialize(json::string(file.date)), json::serialize(json::string(file.backend)),
      json::serialize(json::string(file.device)), file.workers);
  const char* separator = "\n  ";
  for (const auto& [target, costs] : file.targets) {
    text += fmt::format("{}{}: {{", separator, json::serialize(json::string(target)));
    separator = ",\n  ";
    const char* inner = "\n   ";
    for (const auto& [name, ns] : costs) {
      text += fmt::format("{}{}: {:.3f}", inner, json::serialize(json::string(name)), ns);
      inner = ",\n   ";
    }
    text += "}";
  }
  return text + "}}\n";
}

Result<CostsFile> parse_costs(std::string_view text) {
  boost::system::error_code failed;
  const json::value value = json::parse(text, failed);
  const json::object* object = value.if_object();
  if (failed || object == nullptr) {
    return corrupt("not a JSON object{}{}", failed ? ": " : "", failed ? failed.message() : "");
  }
  CostsFile file;
  HEADWATER_ASSIGN_OR_RETURN(file.version, number_of(*object, "version"));
  HEADWATER_ASSIGN_OR_RETURN(file.date, text_of(*object, "date"));
  HEADWATER_ASSIGN_OR_RETURN(file.backend, text_of(*object, "backend"));
  HEADWATER_ASSIGN_OR_RETURN(file.device, text_of(*object, "device"));
  HEADWATER_ASSIGN_OR_RETURN(file.workers, number_of(*object, "workers"));
  const json::value* targets = object->if_contains("targets");
  if (targets == nullptr || !targets->is_object() || targets->as_object().size() > kTargetsMax) {
    return corrupt("\"targets\" is not an object of at most {} targets", kTargetsMax);
  }
  for (const auto& [target, entry] : targets->as_object()) {
    HEADWATER_ASSIGN_OR_RETURN(file.targets[std::string(target)], entry_of(target, entry));
  }
  return file;
}

Result<CostsFile> read_costs(const std::string& path) {
  std::error_code failed;
  const auto type = std::filesystem::status(path, failed).type();
  if (type == std::filesystem::file_type::not_found) return error(ErrorCode::kNotFound, "there is no such file");
  if (type != std::filesystem::file_type::regular) return corrupt("not a regular file, or not readable");
  std::ifstream in(path, std::ios::binary);
  std::string text(kBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (in.gcount() == 0 && !in.eof())) return corrupt("not readable");
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kBytesMax) return corrupt("larger than {} bytes", kBytesMax);
  return parse_costs(text);
}

namespace {

// Makes its folder. A link is followed: what it names is written.
Result<model::OutputFile> create_costs_file(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  const std::filesystem::path target = std::filesystem::read_symlink(path, failed);
  return model::OutputFile::create(failed ? path : (folder / target).string());
}

}  // namespace

Status check_costs_place(const std::string& path) {
  const Status status = create_costs_file(path).status();
  return status ? status : error(status.code(), "{}; name another place with --output", status.message());
}

Status write_costs(const std::string& path, const CostsFile& file) {
  const auto written = [&]() -> Status {
    HEADWATER_ASSIGN_OR_RETURN(model::OutputFile out, create_costs_file(path));
    HEADWATER_RETURN_IF_ERROR(out.write(std::as_bytes(std::span<const char>(costs_json(file)))));
    return out.commit();
  }();
  if (written) return {};
  return error(written.code(), "{}; name another place with --output", written.message());
}

Result<ops::Costs> costs_for(const CostsFile& file, const ops::BackendInfo& info) {
  const auto differs = [](const char* what, const auto& theirs, const auto& ours) {
    return error(ErrorCode::kUnsupported, "its {} is {}, here it is {}", what, theirs, ours);
  };
  if (file.backend != info.name) return differs("back end", file.backend, info.name);
  if (file.device != info.device) return differs("processor", file.device, info.device);
  if (file.version != info.costs_version) return differs("costs version", file.version, info.costs_version);
  if (file.workers != info.workers) return differs("number of threads", file.workers, info.workers);
  const auto entry = file.targets.find(info.target);
  if (entry != file.targets.end()) return entry->second;
  return error(ErrorCode::kUnsupported, "it has no costs of the target {}", info.target);
}

std::string use_costs(const std::string& setting, ops::Backend& backend) {
  const std::string built_in = "built in";
  if (setting == "none" || backend.info().costs_version == 0) return built_in;
  const bool is_default = setting == "auto";
  const std::string path = is_default ? default_costs_path() : setting;
  if (path.empty()) return built_in;
  const Result<CostsFile> file = read_costs(path);
  if (is_default && file.status().code() == ErrorCode::kNotFound) return built_in;
  Status status = file.status();
  if (status) {
    const Result<ops::Costs> costs = costs_for(*file, backend.info());
    status = costs ? backend.use_costs(*costs) : costs.status();
  }
  if (status) return fmt::format("from {}, {}", path, file->date);
  observe::logger().warn("the attention costs in {} are not used: {}; measure them with `headwater tune`", path,
                         status.message());
  return built_in;
}

}  // namespace headwater::apps
