#include "model/tokenizer_texts.h"

namespace headwater::model {

Result<TokenizerTexts> tokenizer_texts(const SafetensorsFolder& folder) {
  TokenizerTexts texts;
  HEADWATER_ASSIGN_OR_RETURN(texts.tokenizer, folder.text("tokenizer.json"));
  HEADWATER_ASSIGN_OR_RETURN(texts.config, folder.text_or_nothing("tokenizer_config.json"));
  HEADWATER_ASSIGN_OR_RETURN(texts.chat_template, folder.text_or_nothing("chat_template.jinja"));
  HEADWATER_ASSIGN_OR_RETURN(texts.generation, folder.text_or_nothing("generation_config.json"));
  HEADWATER_ASSIGN_OR_RETURN(texts.model, folder.text_or_nothing("config.json"));
  return texts;
}

}  // namespace headwater::model
