#include "apps/usage_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

namespace headwater::apps {
namespace {

using Names = std::vector<std::string>;

// How many characters are put in, left out or replaced.
size_t edits(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// "; did you mean X?" where a name is near, otherwise ".".
std::string suggestion(std::string_view typed, const Names& names) {
  const auto nearest = std::ranges::min_element(names, {}, [&](const std::string& name) { return edits(typed, name); });
  if (nearest == names.end() || edits(typed, *nearest) > std::max<size_t>(1, (typed.size() + 1) / 3)) return ".";
  return fmt::format("; did you mean {}?", *nearest);
}

// The first command that has arguments left, or the innermost.
const CLI::App& where_it_ended(const CLI::App& app) {
  const CLI::App* command = &app;
  while (command->remaining().empty() && !command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
  }
  return *command;
}

std::string path_of(const CLI::App& command) {
  return command.get_parent() == nullptr ? command.get_name()
                                         : path_of(*command.get_parent()) + " " + command.get_name();
}

Names commands_of(const CLI::App& app) {
  Names names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

Names flags_of(const CLI::App& command) {
  Names names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string not_expected(const CLI::App& command, const Names& rest) {
  const auto is_flag = [](const std::string& argument) { return argument.size() > 1 && argument[0] == '-'; };
  const auto flag = std::ranges::find_if(rest, is_flag);
  const Names commands = commands_of(command);
  if (flag != rest.end()) {
    const std::string name = flag->substr(0, flag->find('='));
    return fmt::format("{} is no flag of \"{}\"{} See {} --help", name, path_of(command),
                       suggestion(name, flags_of(command)), path_of(command));
  }
  if (!commands.empty()) {
    return fmt::format("\"{}\" is no command of \"{}\"{} The commands are {}", rest.front(), path_of(command),
                       suggestion(rest.front(), commands), fmt::join(commands, ", "));
  }
  return fmt::format("\"{}\" is one argument too many for \"{}\"; put quotes around a text with blanks", rest.front(),
                     path_of(command));
}

}  // namespace

std::string explain_usage_error(const CLI::App& app, const CLI::ParseError& problem) {
  const CLI::App& command = where_it_ended(app);
  const Names rest = command.remaining();
  const Names commands = commands_of(command);
  const auto kind = static_cast<CLI::ExitCodes>(problem.get_exit_code());
  if (kind == CLI::ExitCodes::ExtrasError || (!commands.empty() && !rest.empty())) return not_expected(command, rest);
  if (!commands.empty() && kind == CLI::ExitCodes::RequiredError) {
    return fmt::format("\"{}\" needs a command: {}", path_of(command), fmt::join(commands, ", "));
  }
  return fmt::format("{}; see {} --help", problem.what(), path_of(command));
}

}  // namespace headwater::apps
