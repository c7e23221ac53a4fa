// --config file.yaml: flags by their long names, below what was typed or set in the environment.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "core/core.h"

namespace headwater::apps {

// Adds --config to `command`. The file is read once all flags and HEADWATER_* variables are: it fills in only what neither
// named. A mapping of flag to value; lists give a flag several times; true and false switch flags without a value.
// Errors name the file, the line and the flag.
void add_config_option(CLI::App& command);

Status apply_config_file(CLI::App& command, const std::string& path);

}  // namespace headwater::apps
