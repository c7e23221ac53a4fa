// headwater: wiring of the commands. What they do is in their own files.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/commands.h"

int main(int argc, char** argv) {
  CLI::App app("headwater: LLM inference that attends a shared prefix once", "headwater");
  app.set_version_flag("--version", HEADWATER_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  std::function<headwater::Status()> run;
  headwater::apps::add_demo(app, run);
  headwater::apps::add_generate(app, run);
  headwater::apps::add_chat(app, run);
  headwater::apps::add_inspect(app, run);
  headwater::apps::add_bench(app, run);
  CLI11_PARSE(app, argc, argv);
  if (const headwater::Status status = run(); !status) {
    std::fprintf(stderr, "headwater: %s\n", status.message().c_str());
    return status.code() == headwater::ErrorCode::kInvalidArgument ? 2 : 1;
  }
  return 0;
}
