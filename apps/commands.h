// The commands of the program. Each add_ function adds its subcommand and, when it is the one typed, sets `run`.
#pragma once

#include <CLI/App.hpp>
#include <functional>

#include "core/core.h"

namespace headwater::apps {

void add_demo(CLI::App& app, std::function<Status()>& run);
void add_generate(CLI::App& app, std::function<Status()>& run);
void add_chat(CLI::App& app, std::function<Status()>& run);
void add_serve(CLI::App& app, std::function<Status()>& run);
void add_inspect(CLI::App& app, std::function<Status()>& run);
void add_quantize(CLI::App& app, std::function<Status()>& run);
void add_bench(CLI::App& app, std::function<Status()>& run);
void add_bench_step(CLI::App& bench, std::function<Status()>& run);   // under bench
void add_bench_serve(CLI::App& bench, std::function<Status()>& run);  // under bench
void add_tune(CLI::App& app, std::function<Status()>& run);

}  // namespace headwater::apps
