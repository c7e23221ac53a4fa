// headwater: wiring of the commands. What they do is in their own files.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "apps/commands.h"
#include "apps/foreign_flags.h"
#include "apps/usage_error.h"
#include "core/shown.h"
#include "model/file_signals.h"

// A message may quote a file or a prompt, which is not to steer a terminal.
static std::string printable(std::string_view message) {
  const size_t end = std::min(message.find('\n'), message.size());
  std::string line = headwater::shown(message.substr(0, end), end);
  return end == message.size() ? line : line + '\n' + printable(message.substr(end + 1));
}

// Options with their kind and default alone, so that a command's help fits a screen.
class Help : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";  // a flag
    const std::string kind = option->get_type_name();
    const std::string preset = option->get_default_str();
    std::string text = " " + kind.substr(0, kind.find(':'));
    if (!preset.empty() && preset != "[]" && preset != "{}") text += "=" + preset;
    return text;
  }
};

int main(int argc, char** argv) {
  headwater::model::explain_lost_pages();
  CLI::App app("headwater: LLM inference that attends a shared prefix once", "headwater");
  app.set_version_flag("--version", HEADWATER_VERSION);
  app.require_subcommand(1);
  const auto help = std::make_shared<Help>();
  help->column_width(42);
  app.formatter(help);
  std::function<headwater::Status()> run;
  headwater::apps::add_serve(app, run);
  headwater::apps::add_demo(app, run);
  headwater::apps::add_generate(app, run);
  headwater::apps::add_chat(app, run);
  headwater::apps::add_inspect(app, run);
  headwater::apps::add_quantize(app, run);
  headwater::apps::add_bench(app, run);
  headwater::apps::add_tune(app, run);
  for (CLI::App* command : app.get_subcommands({})) {
    command->footer(
        "Flags have twins in the environment: --max-num-seqs is HEADWATER_MAX_NUM_SEQS. A flag beats its twin.");
  }
  if (const auto answer =
          headwater::apps::answer_foreign_flag({argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)})) {
    std::fprintf(stderr, "headwater: %s\n", answer->c_str());
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) return app.exit(problem);  // --help, --version
    std::fprintf(stderr, "headwater: %s\n", printable(headwater::apps::explain_usage_error(app, problem)).c_str());
    return 2;
  }
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
