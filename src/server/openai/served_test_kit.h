// A small model's side of a request, for tests and the fuzzer: the test vocabulary and a ChatML template.
#pragma once

#include "server/openai/decode.h"
#include "text/test_vocabulary.h"

namespace headwater::server::openai {

// Ends with the opening of an answer; refuses the role "robot"; only the first message may be the system's.
inline constexpr std::string_view kChatMl =
    "{% for message in messages %}"
    "{% if message.role == 'robot' %}{{ raise_exception('no role robot here') }}{% endif %}"
    "{% if message.role == 'system' and not loop.first %}{{ raise_exception('system goes first') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class TestModel {
 public:
  explicit TestModel(bool add_bos = false, std::string_view chat_template = kChatMl)
      : vocabulary_("llama-bpe"),
        tokenizer_(create_tokenizer(vocabulary_, add_bos)),
        template_(text::ChatTemplate::parse(chat_template, "<s>", "<|im_end|>").value()) {}

  ServedModel served(uint32_t context_max = 256) const {
    return {.names = {"small", "alias"},
            .tokenizer = &tokenizer_,
            .chat_template = &template_,
            .vocabulary = tokenizer_.vocabulary_size(),
            .context_max = context_max};
  }
  const text::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  static text::Tokenizer create_tokenizer(text::TestVocabulary& vocabulary, bool add_bos) {
    if (add_bos) vocabulary.spec().prompt_prefix = {vocabulary.spec().bos};
    return vocabulary.tokenizer();
  }

  text::TestVocabulary vocabulary_;
  text::Tokenizer tokenizer_;
  text::ChatTemplate template_;
};

}  // namespace headwater::server::openai
