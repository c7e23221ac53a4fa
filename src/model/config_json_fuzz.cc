// Any text as JSON of a model's folder: an error, or a value, and the name that stands twice lies in the text. As
// config.json it is families_fuzz.cc's, as tokenizer.json and tokenizer_config.json the text room's.
#include <cstddef>
#include <cstdint>

#include "core/core.h"
#include "core/json.h"

using namespace headwater;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!json::parse(text, "config.json")) return 0;
  if (const auto name = json::repeated_name(text)) {
    check(name->data() >= text.data() && name->data() + name->size() <= text.data() + size, "a name from elsewhere");
  }
  return 0;
}
