#include "apps/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace headwater::apps {
namespace {

struct ForeignFlag {
  std::string_view spellings;  // separated by spaces
  const char* answer;
};

constexpr ForeignFlag kFlags[] = {
    {"-ngl --gpu-layers --n-gpu-layers", "the whole model lies on one device; choose it with --backend"},
    {"-np --parallel", "use --max-num-seqs"},
    {"-ctk --cache-type-k -ctv --cache-type-v", "use --kv-cache-dtype, for keys and values alike"},
    {"-fa --flash-attn", "attention is always computed that way; there is nothing to switch"},
    {"--jinja --no-jinja", "chat templates are always rendered; another one is given by --chat-template"},
    {"-hf -hfr --hf-repo --hf-file", "nothing is downloaded by the server; give a GGUF file with --model"},
    {"-cb --cont-batching --enable-chunked-prefill", "batching is always continuous and prompts are always chunked"},
    {"-b --batch-size -ub --ubatch-size", "use --max-num-batched-tokens"},
    {"--ctx-size", "use --max-model-len"},
    {"-a --alias", "use --served-model-name"},
    {"-tb --threads-batch --threads-http", "use --threads; the network has a thread of its own"},
    {"--metrics", "/metrics is always there"},
    {"--slots --no-slots", "GET /v1/cache shows the sequences"},
    {"--mlock --no-mmap", "weights are copied into memory of their own; the file is not kept mapped"},
    {"-kvu --kv-unified -sps --slot-prompt-similarity --cache-reuse",
     "all sequences share one paged cache; see --shared-prefix"},
    {"--enable-prefix-caching --no-enable-prefix-caching",
     "the prefix cache is always on; requests keep apart by cache_salt"},
    {"--swap-space", "use --kv-cache-memory, in bytes such as 2G"},
    {"--dtype --quantization", "weights are used as the file stores them"},
    {"--tensor-parallel-size -tp --pipeline-parallel-size", "one device serves the model; run one server for each"},
    {"--trust-remote-code", "code from model files is never run"},
    {"--disable-log-requests --enable-log-requests", "requests are logged at --log-level debug only"},
    {"--ssl-ca-certs --ssl-cert-reqs", "client certificates are not checked; see --ssl-certfile and --ssl-keyfile"},
};

bool lists(std::string_view spellings, std::string_view flag) {
  while (!spellings.empty()) {
    const size_t end = std::min(spellings.find(' '), spellings.size());
    if (spellings.substr(0, end) == flag) return true;
    spellings.remove_prefix(std::min(end + 1, spellings.size()));
  }
  return false;
}

}  // namespace

std::optional<std::string> answer_foreign_flag(std::span<const char* const> arguments) {
  // The benches have flags of those names: --metrics, --dtype.
  if (!arguments.empty() && arguments[0] == std::string_view("bench")) return std::nullopt;
  for (const std::string_view argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with('-')) continue;
    const std::string_view flag = argument.substr(0, argument.find('='));
    for (const ForeignFlag& foreign : kFlags) {
      if (lists(foreign.spellings, flag)) return fmt::format("{} is not a flag here: {}", flag, foreign.answer);
    }
  }
  return std::nullopt;
}

}  // namespace headwater::apps
