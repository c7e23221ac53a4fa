#include "apps/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/answers.h"
#include "apps/options.h"
#include "support/safetensors_writer.h"
#include "support/tiny_model.h"

namespace headwater::apps {
namespace {

using headwater::testing::GgufWriter;
using headwater::testing::TestFolder;
using headwater::testing::TinyModel;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::SizeIs;

// A model of `rows` embeddings beside a tokenizer of four tokens.
Result<Runtime> load_with_four_tokens(uint32_t rows, const std::string& chat_template = "",
                                      const std::string& other_template = "") {
  GgufWriter tokenizer;
  tokenizer.value("tokenizer.ggml.model", std::string("gpt2")).value("tokenizer.ggml.pre", std::string("gpt-2"));
  tokenizer.array("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<|end|>"});
  tokenizer.array("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 1, 3});
  tokenizer.array("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  if (!chat_template.empty()) tokenizer.value("tokenizer.chat_template", chat_template);
  TestFolder folder;
  folder.write("tiny.gguf", TinyModel({.vocabulary = rows}, DType::kF32).image(1, tokenizer));
  RuntimeOptions options{.model = folder.file("tiny.gguf"), .backend = "cpu", .threads = 1, .costs = "none"};
  if (!other_template.empty()) {
    folder.write("other.jinja", other_template);
    options.chat_template = folder.file("other.jinja");
  }
  return Runtime::load(options);
}

// Published embeddings are often padded to a round number of rows, and nothing ever learned to choose those.
TEST(Runtime, ATokenThatOnlyTheEmbeddingHasAddsNoText) {
  Result<Runtime> runtime = load_with_four_tokens(8);
  ASSERT_TRUE(runtime) << runtime.status().message();
  const Result<engine::EngineConfig> config = engine_config({.max_model_len = 64, .kv_cache_memory = "1M"});
  ASSERT_TRUE(config) << config.status().message();
  const Result<EngineHandle> handle = create_engine(*runtime, *config);
  ASSERT_TRUE(handle) << handle.status().message();
  std::vector<PromptRequest> prompts(2);
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompts[i].request.prompt = {2, 7};
    prompts[i].request.sampling.tokens_max = 5;
    prompts[i].request.sampling.logit_bias = {{i == 0 ? 7 : 2, 100.0f}};
  }
  const Result<std::vector<Answer>> answers = run_to_end(*runtime->tokenizer, *handle->engine, prompts);
  ASSERT_TRUE(answers) << answers.status().message();
  EXPECT_THAT((*answers)[0].token_ids, AllOf(SizeIs(5), Each(7)));
  EXPECT_EQ((*answers)[0].text, "");
  EXPECT_EQ((*answers)[1].text, "ababababab");
}

TEST(Runtime, AFileStandsInForATemplateThatIsNotKnown) {
  const Status status = load_with_four_tokens(4, "\n{{ messages|groupby('role') }}").status();
  EXPECT_EQ(
      status.message(),
      "chat template, line 2, column 13: the filter \"groupby\" is not known here; a template that works is given "
      "by --chat-template FILE");
  const Result<Runtime> runtime =
      load_with_four_tokens(4, "{{ messages|groupby('role') }}", "{{ messages[0].content }}");
  ASSERT_TRUE(runtime) << runtime.status().message();
  EXPECT_EQ(runtime->chat_template->render_text(std::vector<text::Message>{{"user", "ab"}}, {}).value(), "ab");
  EXPECT_THAT(load_with_four_tokens(4, "", "{{").status().message(),
              ::testing::HasSubstr("other.jinja: chat template"));
}

TEST(Runtime, ATokenWithoutAnEmbeddingIsRefused) {
  const Status status = load_with_four_tokens(3).status();
  EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
  EXPECT_EQ(status.message(),
            "the tokenizer has 4 tokens, the model's embedding only 3 rows: take the tokenizer that was published with "
            "these weights");
}

}  // namespace
}  // namespace headwater::apps
