// Any text as config.json, tokenizer.json and tokenizer_config.json: an error, or metadata that the GGUF reader takes.
#include <cstddef>
#include <cstdint>

#include "model/gguf_metadata.h"

using namespace headwater;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = json::parse(text, "config.json");
  if (!value) return 0;
  (void)json::repeated_name(text);
  model::GgufHeader header;
  const auto shape = model::write_config(*value, "fuzzed", header);
  const Status tokenizer = model::write_tokenizer({text, text, ""}, 64, header);
  if (shape && tokenizer) check(model::GgufFile::parse(header.bytes()).is_ok(), "metadata that cannot be read back");
  return 0;
}
