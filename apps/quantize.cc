#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "apps/commands.h"
#include "apps/options.h"
#include "model/file_signals.h"
#include "model/model.h"
#include "model/write_gguf.h"
#include "text/text.h"
#include "text/tokenizer_gguf.h"
#include "text/write_tokenizer.h"

namespace headwater::apps {
namespace {

struct QuantizeOptions {
  std::string folder;
  std::string file;
  std::string type = "q8_0";
};

// Not over what is read.
Status check_output(const QuantizeOptions& options) {
  const std::filesystem::path file = options.file;
  std::error_code none;
  const std::filesystem::path beside = file.has_parent_path() ? file.parent_path() : ".";
  if (!file.has_filename()) {
    return error(ErrorCode::kInvalidArgument, "'{}' is no name of a file; give one, such as model.gguf", options.file);
  }
  if (file.extension() != ".gguf" && std::filesystem::exists(file, none) &&
      std::filesystem::equivalent(beside, options.folder, none)) {
    return error(ErrorCode::kInvalidArgument, "'{}' is a file of the folder that is read; write elsewhere",
                 options.file);
  }
  return {};
}

Status quantize(const QuantizeOptions& options) {
  HEADWATER_ASSIGN_OR_RETURN(const DType dtype, parse_weight_type(options.type));
  HEADWATER_RETURN_IF_ERROR(check_output(options));
  model::remove_unfinished_file_on_signals();
  HEADWATER_ASSIGN_OR_RETURN(const model::Checkpoint folder, model::Checkpoint::open(options.folder));
  HEADWATER_RETURN_IF_ERROR(text::Tokenizer::create(folder).status());  // one that no command would load is not written
  const std::string model_name = std::filesystem::weakly_canonical(options.folder).filename().string();
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  const auto show = [&](double part) {
    if (is_terminal) fmt::print(stderr, "\rwriting {} {:3.0f}%{}", options.file, 100 * part, part < 1 ? "" : "\n");
  };
  HEADWATER_RETURN_IF_ERROR(model::write_gguf(folder, model_name, dtype, options.file, text::write_tokenizer, show));
  HEADWATER_ASSIGN_OR_RETURN(const model::GgufFile file, model::GgufFile::open(options.file));
  if (file.has(text::kWholeTokenizerKey)) {
    fmt::print(stderr,
               "{}: GGUF's own keys have no place for something in tokenizer.json, so all of it is there too, as {}; "
               "programs that do not read that may give other tokens\n",
               options.file, text::kWholeTokenizerKey);
  }
  fmt::print("{}: {} tensors, {:.1f} MiB from {:.1f} MiB\n", options.file, file.tensors().size(),
             static_cast<double>(file.file_bytes()) / (1 << 20), static_cast<double>(folder.file_bytes()) / (1 << 20));
  return {};
}

}  // namespace

void add_quantize(CLI::App& app, std::function<Status()>& run) {
  auto options = std::make_shared<QuantizeOptions>();
  CLI::App* command = app.add_subcommand("quantize", "a GGUF file from a folder of safetensors");
  command->add_option("folder", options->folder, "folder with config.json, safetensors and tokenizer.json")->required();
  command->add_option("file", options->file, "the GGUF file to write")->required();
  command->add_option("--type", options->type, "q8_0, q4_0, q4_1 or bf16")
      ->check(CLI::IsMember({"q8_0", "q4_0", "q4_1", "bf16"}))
      ->capture_default_str();
  command->callback([options, &run] { run = [options] { return quantize(*options); }; });
}

}  // namespace headwater::apps
