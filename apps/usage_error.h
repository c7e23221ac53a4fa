// What is wrong with a command line, and what to type instead. CLI11 tells what it did not expect; what was meant is found
// here among the names that there are.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace headwater::apps {

std::string explain_usage_error(const CLI::App& app, const CLI::ParseError& problem);

}  // namespace headwater::apps
