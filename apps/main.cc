// headwater: wiring of the commands. What they do is in their own files.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "apps/commands.h"
#include "apps/foreign_flags.h"

// A message may quote a file or a prompt: what could steer a terminal is shown as '?'.
static std::string printable(std::string message) {
  for (char& c : message) {
    if ((c >= 0 && c < ' ' && c != '\n') || c == 0x7f) c = '?';
  }
  return message;
}

int main(int argc, char** argv) {
  CLI::App app("headwater: LLM inference that attends a shared prefix once", "headwater");
  app.set_version_flag("--version", HEADWATER_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(42);
  std::function<headwater::Status()> run;
  headwater::apps::add_serve(app, run);
  headwater::apps::add_demo(app, run);
  headwater::apps::add_generate(app, run);
  headwater::apps::add_chat(app, run);
  headwater::apps::add_inspect(app, run);
  headwater::apps::add_bench(app, run);
  headwater::apps::add_tune(app, run);
  if (const auto answer =
          headwater::apps::answer_foreign_flag({argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)})) {
    std::fprintf(stderr, "headwater: %s\n", answer->c_str());
    return 2;
  }
  CLI11_PARSE(app, argc, argv);
  headwater::Status status = run();
  std::cout.flush();
  if (status && (!std::cout || std::fflush(stdout) != 0)) {
    status = {headwater::ErrorCode::kNotFound, "the output could not be written; is the disk full?"};
  }
  if (!status) {
    std::fprintf(stderr, "headwater: %s\n", printable(status.message()).c_str());
    return status.code() == headwater::ErrorCode::kInvalidArgument ? 2 : 1;
  }
  return 0;
}
