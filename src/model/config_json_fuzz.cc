// Any text as tokenizer.json and tokenizer_config.json: an error, or metadata that the GGUF reader takes. As config.json it
// is families_fuzz.cc's.
#include <cstddef>
#include <cstdint>

#include "core/json.h"
#include "model/gguf_tokenizer.h"

using namespace headwater;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!json::parse(text, "tokenizer.json")) return 0;
  (void)json::repeated_name(text);
  model::GgufHeader header;
  if (!model::write_tokenizer({text, text, ""}, 64, header)) return 0;
  check(model::GgufFile::parse(header.bytes()).is_ok(), "metadata that cannot be read back");
  return 0;
}
