#include <fmt/ranges.h>

#include <boost/json/serialize.hpp>
#include <map>

#include "apps/commands.h"
#include "apps/options.h"
#include "apps/runtime.h"
#include "core/shown.h"
#include "core/system.h"
#include "model/model.h"
#include "text/text.h"

namespace headwater::apps {
namespace {

struct InspectOptions {
  std::string file;
  std::string kv_cache_dtype = "bf16";
  uint32_t block_size = kv::kPageSizeDefault;
  bool tensors = false;
};

double mib(uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

void print_metadata(const model::GgufFile& file) {
  fmt::print("metadata\n");
  for (const auto& entry : file.entries()) fmt::print("  {:<44} {}\n", shown(entry.key), file.describe(entry.key, 70));
}

// What config.json says at its outermost level; nested objects are cut.
void print_config(const model::SafetensorsFolder& folder) {
  fmt::print("config.json\n");
  for (const auto& [name, value] : folder.config().get_object()) {
    fmt::print("  {:<44} {}\n", shown(name), shown(boost::json::serialize(value), 70));
  }
}

void print_quantisation(std::span<const model::Tensor> tensors) {
  struct Total {
    uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<DType, Total> totals;
  for (const model::Tensor& tensor : tensors) {
    Total& total = totals[tensor.dtype];
    ++total.tensors;
    total.elements += tensor.rows() * tensor.columns();
    total.bytes += tensor.data.size();
  }
  fmt::print("\nquantisation\n");
  for (const auto& [dtype, total] : totals) {
    fmt::print("  {:<7} {:4} tensors {:8.1f} M weights {:8.1f} MiB {:5.2f} bits a weight\n", to_string(dtype),
               total.tensors, static_cast<double>(total.elements) / 1e6, mib(total.bytes),
               8.0 * static_cast<double>(total.bytes) / static_cast<double>(std::max<uint64_t>(1, total.elements)));
  }
}

void print_tensors(std::span<const model::Tensor> tensors) {
  fmt::print("\ntensors\n");
  for (const model::Tensor& tensor : tensors) {
    fmt::print("  {:<32} {:<7} [{} x {}] at byte {}\n", tensor.name, to_string(tensor.dtype), tensor.rows(),
               tensor.columns(), tensor.file_offset);
  }
}

void print_memory_plan(const model::ModelShape& shape, uint32_t block_size, DType kv_dtype) {
  const ops::KvShape kv = shape.kv_shape(block_size, 1, kv_dtype);
  const uint64_t token_bytes = kv.bytes_token_layer() * shape.layers;
  const auto pool = static_cast<uint64_t>(ops::kHostPoolShare * static_cast<double>(memory_available_bytes()));
  fmt::print("\nmodel    {} '{}': {} layers, width {}, feed-forward {}, {}/{} heads x {}, vocabulary {}, context {}\n",
             shape.family, shape.name, shape.layers, shape.embedding, shape.feed_forward, shape.q_heads, shape.kv_heads,
             shape.head_dim, shape.vocabulary, shape.context_max);
  fmt::print("\nmemory plan\n");
  fmt::print("  weights            {:8.1f} MiB\n", mib(shape.weight_bytes));
  fmt::print("  KV a token         {:8.1f} KiB ({}, all layers)\n", static_cast<double>(token_bytes) / 1024,
             to_string(kv_dtype));
  fmt::print("  KV a full context  {:8.1f} MiB ({} tokens)\n", mib(token_bytes * shape.context_max), shape.context_max);
  fmt::print("  KV pool by default {:8.1f} MiB ({:.0f}% of free memory) = {} tokens, {} pages of {}\n", mib(pool),
             100 * ops::kHostPoolShare, pool / token_bytes, pool / (token_bytes * block_size), block_size);
}

// What makes tokens of text. A refusal is told in its place, so that the rest is told too, and returned.
Status print_text_side(const model::Checkpoint& checkpoint) {
  const auto print = [](std::string_view title, std::string_view line) {
    fmt::print("\n{}\n  {}\n", title, shown(line, line.size()));
  };
  const auto tokenizer = text::Tokenizer::create(checkpoint);
  print("tokenizer", tokenizer ? tokenizer->description() : tokenizer.status().message());
  if (!tokenizer) return error(tokenizer.status().code(), "no tokenizer, so no text: {}", tokenizer.status().message());
  const auto chat_template = text::ChatTemplate::create(checkpoint, *tokenizer);
  const Status status = chat_template.status();
  print("chat template", chat_template ? fmt::format("{} bytes", chat_template->source_bytes()) : status.message());
  if (!chat_template && status.code() != ErrorCode::kNotFound) {
    return error(status.code(), "no chat template: {}", status.message());
  }
  const auto shape = model::read_shape(checkpoint);
  return shape ? check_vocabulary(*tokenizer, *shape) : Status();
}

// What is beside weights that are refused is told all the same.
void print_without_weights(const std::string& path) {
  auto folder = model::SafetensorsFolder::open_without_weights(path);
  if (!folder) return;
  print_config(*folder);
  (void)print_text_side(model::Checkpoint(std::move(*folder))).is_ok();
}

// Opens a model, or says what was found, where, and what would be read.
Result<model::Checkpoint> open_explained(const std::string& path) {
  auto checkpoint = model::Checkpoint::open(path);
  if (!checkpoint) print_without_weights(path);
  const ErrorCode code = checkpoint.status().code();
  if (code != ErrorCode::kCorrupt && code != ErrorCode::kUnsupported) return checkpoint;
  std::vector<const char*> types;
  for (size_t i = 0; i < kDTypeCount; ++i) {
    if (is_weight_type(static_cast<DType>(i))) types.push_back(to_string(static_cast<DType>(i)));
  }
  return error(
      checkpoint.status().code(),
      "{}\nsupported are GGUF files of version 3, whole or split, with tensors of {};\nand folders with config.json "
      "and safetensors files of F32, F16, BF16 or F8_E4M3",
      checkpoint.status().message(), fmt::join(types, ", "));
}

Status inspect(const InspectOptions& options) {
  HEADWATER_ASSIGN_OR_RETURN(const DType kv_dtype, parse_kv_dtype(options.kv_cache_dtype));
  HEADWATER_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, open_explained(options.file));
  const model::GgufFile* gguf = checkpoint.gguf();
  const std::string format =
      gguf == nullptr
          ? "safetensors folder"
          : fmt::format("GGUF version 3{}", gguf->parts() > 1 ? fmt::format(" in {} parts", gguf->parts()) : "");
  fmt::print("{}: {}, {:.1f} MiB, {} tensors\n\n", options.file, format, mib(checkpoint.file_bytes()),
             checkpoint.tensors().size());
  if (gguf != nullptr) print_metadata(*gguf);
  if (checkpoint.folder() != nullptr) print_config(*checkpoint.folder());
  print_quantisation(checkpoint.tensors());
  if (options.tensors) print_tensors(checkpoint.tensors());
  const Status text_side = print_text_side(checkpoint);
  HEADWATER_ASSIGN_OR_RETURN(const model::ModelShape shape, model::read_shape(checkpoint));
  HEADWATER_RETURN_IF_ERROR(model::check_tensors(checkpoint));
  print_memory_plan(shape, options.block_size, kv_dtype);
  return text_side;
}

}  // namespace

void add_inspect(CLI::App& app, std::function<Status()>& run) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "what a model holds, and the memory it will need");
  command->add_option("file", options->file, "GGUF file, or folder of safetensors")->required();
  command->add_flag("--tensors", options->tensors, "list every tensor");
  command->add_option("--kv-cache-dtype", options->kv_cache_dtype, "bf16, f16, f32 or fp8")->capture_default_str();
  command->add_option("--block-size", options->block_size, "tokens of a KV page")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->callback([options, &run] { run = [options] { return inspect(*options); }; });
}

}  // namespace headwater::apps
