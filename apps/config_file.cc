#include "apps/config_file.h"

#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/foreign_flags.h"
#include "apps/text_file.h"

namespace headwater::apps {
namespace {

Status wrong(const std::string& path, const YAML::Mark& mark, const std::string& what) {
  return error(ErrorCode::kInvalidArgument, "--config {}, line {}: {}", path, mark.line + 1, what);
}

Status apply(CLI::App& command, const std::string& path, const YAML::Node& key, const YAML::Node& value) {
  auto name = key.as<std::string>();
  std::ranges::replace(name, '_', '-');
  CLI::Option* option = command.get_option_no_throw("--" + name);
  if (option == nullptr || name == "config" || name == "help") {
    const std::string flag = "--" + name;
    const char* const typed = flag.c_str();
    if (const auto answer = answer_foreign_flag({&typed, 1})) return wrong(path, key.Mark(), *answer);
    return wrong(path, key.Mark(), fmt::format("'{}' is no flag of headwater {}", name, command.get_name()));
  }
  if (option->count() > 0) return {};  // typed, or set in the environment
  try {
    if (value.IsSequence()) {
      for (const YAML::Node& entry : value) option->add_result(entry.as<std::string>());
    } else {
      option->add_result(value.as<std::string>());
    }
    option->run_callback();
  } catch (const CLI::Error& problem) {
    return wrong(path, value.Mark(), problem.what());
  } catch (const YAML::Exception&) {
    return wrong(path, key.Mark(), fmt::format("'{}' needs a value or a list of values", name));
  }
  return {};
}

}  // namespace

Status apply_config_file(CLI::App& command, const std::string& path) {
  constexpr size_t kBytesMax = 1 << 20;
  HEADWATER_ASSIGN_OR_RETURN(const std::string text, read_text("--config", path, "a YAML file", kBytesMax));
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return {};
    if (!root.IsMap())
      return wrong(path, root.Mark(), "a mapping of flags to values is expected, such as 'port: 8000'");
    for (const auto& entry : root) HEADWATER_RETURN_IF_ERROR(apply(command, path, entry.first, entry.second));
  } catch (const YAML::Exception& problem) {
    return wrong(path, problem.mark, problem.msg);
  }
  return {};
}

void add_config_option(CLI::App& command) {
  CLI::Option* option = command.add_option("--config", "YAML file of flags by their long names")
                            ->type_name("FILE")
                            ->envname("HEADWATER_CONFIG");
  command.parse_complete_callback([&command, option] {
    if (option->count() == 0) return;
    const Status status = apply_config_file(command, option->as<std::string>());
    if (!status) throw CLI::ValidationError(status.message());
  });
}

}  // namespace headwater::apps
