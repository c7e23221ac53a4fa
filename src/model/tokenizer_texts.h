// The files of a folder that say how text becomes tokens, and where an answer ends. Of what they hold this room knows nothing.
#pragma once

#include <string_view>

#include "core/core.h"
#include "model/safetensors.h"

namespace headwater::model {

// Views of the folder's files; all but the first may be empty.
struct TokenizerTexts {
  std::string_view tokenizer;           // tokenizer.json
  std::string_view config = {};         // tokenizer_config.json
  std::string_view chat_template = {};  // chat_template.jinja
  std::string_view generation = {};     // generation_config.json
  std::string_view model = {};          // config.json
};

Result<TokenizerTexts> tokenizer_texts(const SafetensorsFolder& folder);  // kNotFound: it has no tokenizer.json

}  // namespace headwater::model
