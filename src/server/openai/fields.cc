#include "server/openai/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "server/openai/decode.h"

namespace headwater::server::openai {
namespace {

constexpr Endpoints kInTemplate = kInChat | kInTokenize;
constexpr Endpoints kEverywhere = kInGeneration | kInTokenize | kInDetokenize;
constexpr double kInt32Max = std::numeric_limits<int32_t>::max();
constexpr double kIdsMax = 256;
constexpr double kNameBytesMax = 1024;

constexpr Field field(std::string_view name, Endpoints endpoints, FieldKind kind, std::string_view sentence) {
  return {.name = name, .endpoints = endpoints, .kind = kind, .sentence = sentence};
}

constexpr Field limited(std::string_view name, Endpoints endpoints, FieldKind kind, double min, double max,
                        std::string_view preset, std::string_view sentence) {
  Field made = field(name, endpoints, kind, sentence);
  made.min = min;
  made.max = max;
  made.preset = preset;
  return made;
}

constexpr Field flag(std::string_view name, Endpoints endpoints, std::string_view preset, std::string_view sentence) {
  Field made = field(name, endpoints, FieldKind::kBoolean, sentence);
  made.preset = preset;
  return made;
}

constexpr Field needed(Field made) {
  made.required = true;
  return made;
}

constexpr Field above_min(Field made) {
  made.above_min = true;
  return made;
}

constexpr Field without_effect(std::string_view name, FieldKind kind, std::string_view sentence) {
  Field made = field(name, kInGeneration, kind, sentence);
  made.support = Support::kNoEffect;
  return made;
}

constexpr Field neutral(std::string_view name, Endpoints endpoints, std::string_view values,
                        std::string_view sentence) {
  Field made = field(name, endpoints, FieldKind::kAny, sentence);
  made.support = Support::kNeutral;
  made.neutral = values;
  return made;
}

using enum FieldKind;

constexpr Field kFields[] = {
    // What is asked.
    field("model", kEverywhere, kText, "A served name; without it the served model answers."),
    needed(field("messages", kInChat, kMessages, "The conversation, rendered by the model's chat template.")),
    needed(field("prompt", kInCompletions, kPrompt,
                 "The text or token ids to continue; several prompts give several choices each.")),
    field("prompt", kInTokenize, kText,
          "The text of a plain completion; give exactly one of prompt, messages and content."),
    field("messages", kInTokenize, kMessages, "A conversation, rendered by the chat template before it is tokenised."),
    field("content", kInTokenize, kText, "The text to tokenise as it is."),
    needed(field("tokens", kInDetokenize, kTokenIds, "The token ids to turn into text.")),
    flag("add_special_tokens", kInCompletions | kInTokenize, "",
         "Whether a prompt gets the beginning and end tokens that the model asks for; true except for content."),
    flag("add_special", kInTokenize, "", "Another name of add_special_tokens."),
    flag("return_token_strs", kInTokenize, "false", "Also answer the text of each token."),
    flag("add_generation_prompt", kInTemplate, "",
         "End the rendered conversation with the opening of an assistant's message; true unless continue_final_message "
         "is."),
    flag("continue_final_message", kInTemplate, "false",
         "Leave the last message open, so that the answer continues it."),
    field("chat_template_kwargs", kInTemplate, kTemplateVariables,
          "Variables that the chat template reads, such as enable_thinking."),

    field("tools", kInTemplate, kObjects,
          "Functions that the model may call, shown by the chat template; answers are not searched for calls yet."),
    field("documents", kInTemplate, kObjects, "Texts that the chat template shows to the model, where it can."),

    // How much.
    limited("max_tokens", kInGeneration, kInteger, 0, kInt32Max, "",
            "Generated tokens of a choice, at most; without it, what fits the context."),
    limited("max_completion_tokens", kInGeneration, kInteger, 0, kInt32Max, "",
            "The newer name of max_tokens; it wins when both are given."),
    limited("n_predict", kInGeneration, kInteger, -1, kInt32Max, "",
            "What llama-server calls max_tokens, where that is not given; -1: what fits."),
    limited("min_tokens", kInGeneration, kInteger, 0, kInt32Max, "0",
            "Stop tokens are not chosen before this many tokens."),
    limited("n", kInGeneration, kInteger, 1, kChoicesMax, "1",
            "Choices for each prompt; prompts times n is at most 128."),
    limited("best_of", kInGeneration, kInteger, 1, kChoicesMax, "", "Only as many as n: nothing is ranked."),
    limited("stop", kInGeneration, kStops, 1, kStopsMax, "", "The answer ends before the first of these texts."),
    limited("stop_token_ids", kInGeneration, kTokenIds, 0, kIdsMax, "", "The answer ends with one of these tokens."),
    flag("ignore_eos", kInGeneration, "false", "The model's own end tokens do not end the answer."),

    // How tokens are chosen.
    limited("temperature", kInGeneration, kNumber, 0, 2, "1", "0 always takes the likeliest token."),
    above_min(limited("top_p", kInGeneration, kNumber, 0, 1, "1",
                      "Draw from the likeliest tokens whose probabilities reach this sum.")),
    limited("top_k", kInGeneration, kInteger, -1, kInt32Max, "0",
            "Draw from this many likeliest tokens; 0 or -1 for all."),
    limited("min_p", kInGeneration, kNumber, 0, 1, "0", "Drop tokens less likely than this share of the likeliest."),
    field("seed", kInGeneration, kInteger, "Makes the draws repeatable; -1 is no seed."),
    limited("presence_penalty", kInGeneration, kNumber, -2, 2, "0",
            "Taken from the logit of every token generated before."),
    limited("frequency_penalty", kInGeneration, kNumber, -2, 2, "0",
            "Taken from a token's logit once for each time it was generated."),
    limited("repetition_penalty", kInGeneration, kNumber, 0.01, 10, "1",
            "Divides positive and multiplies negative logits of tokens in the prompt or the answer."),
    limited("logit_bias", kInGeneration, kLogitBias, -100, 100, "", "Added to the logits of these token ids."),

    // What the answer holds.
    limited("logprobs", kInCompletions, kLogprobs, 0, ops::kLogprobsMax, "",
            "Log probabilities: of the chosen tokens and this many alternatives; true takes their number from "
            "top_logprobs."),
    flag("logprobs", kInChat, "false", "Answer the log probabilities of the chosen tokens."),
    limited("top_logprobs", kInGeneration, kInteger, 0, ops::kLogprobsMax, "0",
            "This many likeliest alternatives of each token; needs logprobs true."),
    flag("echo", kInCompletions, "false", "Put the prompt in front of the answer; not together with logprobs."),
    flag("stream", kInGeneration, "false", "Answer by server-sent events while the text is made."),
    field("stream_options", kInGeneration, kStreamOptions,
          "With stream: include_usage adds a last event with token counts."),

    // Where and when it is computed.
    limited("cache_salt", kInGeneration, kString, 1, kNameBytesMax, "",
            "Prefix cache pages are shared only between requests of the same salt."),
    limited("priority", kInGeneration, kInteger, std::numeric_limits<int32_t>::min(), kInt32Max, "0",
            "Smaller is sooner; equal ones by arrival."),
    without_effect("user", kString, "A name for the end user; not used."),
    without_effect("safety_identifier", kString, "A name for the end user; not used."),
    without_effect("prompt_cache_key", kString,
                   "Not used: the prefix cache finds equal prompts by itself. To separate them use cache_salt."),
    without_effect("prompt_cache_retention", kString, "Not used: pages stay cached until their memory is needed."),
    without_effect("metadata", kObject, "Labels of stored answers; nothing is stored."),

    // Known, but not supported.
    neutral("response_format", kInGeneration, R"([{"type": "text"}])",
            "Structured output is not supported yet; ask for JSON in the prompt."),
    neutral("structured_outputs", kInGeneration, "[{}]", "Structured output is not supported yet."),
    neutral("guided_json", kInGeneration, "[]", "Structured output is not supported yet."),
    neutral("guided_regex", kInGeneration, "[]", "Structured output is not supported yet."),
    neutral("guided_choice", kInGeneration, "[]", "Structured output is not supported yet."),
    neutral("guided_grammar", kInGeneration, "[]", "Structured output is not supported yet."),
    neutral("guided_decoding_backend", kInGeneration, "[]", "Structured output is not supported yet."),
    neutral("guided_whitespace_pattern", kInGeneration, "[]", "Structured output is not supported yet."),
    neutral("grammar", kInGeneration, R"([""])", "Structured output is not supported yet."),
    neutral("json_schema", kInGeneration, "[{}]", "Structured output is not supported yet."),
    neutral("tool_choice", kInChat, R"(["none", "auto"])",
            "With none the chat template does not see the tools; a call cannot be forced yet."),
    neutral("functions", kInChat, "[[]]", "The old name of tools; use that."),
    neutral("function_call", kInChat, R"(["none", "auto"])", "The old name of tool_choice; use that."),
    neutral("parallel_tool_calls", kInChat, "[true, false]", "How many calls an answer makes is the model's choice."),
    neutral("chat_template", kInTemplate, "[]", "Templates come with the model, never from a client."),
    neutral("mm_processor_kwargs", kInGeneration, "[{}]", "The model reads text only."),
    neutral("modalities", kInChat, R"([["text"]])", "The model writes text only."),
    neutral("audio", kInChat, "[]", "The model writes text only."),
    neutral("prediction", kInChat, "[]", "Predicted outputs are not supported."),
    neutral("web_search_options", kInChat, "[]", "The server searches nothing."),
    neutral("store", kInGeneration, "[false]", "Nothing is stored."),
    neutral("service_tier", kInGeneration, R"(["auto", "default"])", "There is one tier; see priority."),
    neutral("reasoning_effort", kInChat, "[]",
            "Not supported; a template that can switch thinking reads chat_template_kwargs."),
    neutral("thinking", kInChat, "[]",
            R"(Not supported; use chat_template_kwargs {"enable_thinking": false} where the template reads it.)"),
    neutral("include_reasoning", kInChat, "[true]", "Reasoning is always answered."),
    neutral("verbosity", kInChat, R"(["medium"])", "Ask for shorter or longer answers in the prompt."),
    neutral("suffix", kInCompletions, R"([""])", "Filling in the middle is not supported."),
    neutral("echo", kInChat, "[false]", "Only completions can echo."),
    neutral("use_beam_search", kInGeneration, "[false]", "Beam search is not supported; use n."),
    neutral("length_penalty", kInGeneration, "[1]", "Beam search is not supported; use n."),
    neutral("prompt_logprobs", kInGeneration, "[]", "Log probabilities of the prompt are not supported."),
    neutral("prompt_embeds", kInCompletions, "[]", "Prompts are text or token ids."),
    neutral("truncate_prompt_tokens", kInGeneration, "[]", "Prompts are never cut."),
    neutral("allowed_token_ids", kInGeneration, "[]", "Not supported; use logit_bias."),
    neutral("bad_words", kInGeneration, "[[]]", "Not supported; use logit_bias."),
    neutral("logits_processors", kInGeneration, "[[]]", "Code from clients is never run."),
    neutral("skip_special_tokens", kInGeneration, "[true]", "Control tokens are never part of the text."),
    neutral("spaces_between_special_tokens", kInGeneration, "[true, false]",
            "Control tokens are never part of the text."),
    neutral("include_stop_str_in_output", kInGeneration, "[false]", "The text ends before a stop."),
    neutral("return_token_ids", kInGeneration, "[false]", "Not supported; the render routes answer the prompt's ids."),
    neutral("return_tokens_as_token_ids", kInGeneration, "[false]", "Not supported."),
    neutral("add_special_tokens", kInChat, "[false]", "The chat template writes the beginning token itself."),
    neutral("kv_transfer_params", kInGeneration, "[{}]", "Pages are not moved between servers."),
    neutral("vllm_xargs", kInGeneration, "[{}]", "Extensions are not supported."),
    neutral("parse_special", kInTokenize, "[false]", "Only the chat template may spell control tokens; give messages."),
    neutral("with_pieces", kInTokenize, "[false]", "Not supported; use return_token_strs."),
};

std::string limits_of(const Field& field) {
  if (std::isinf(field.max)) return "";
  if (field.above_min) return fmt::format(" above {}, at most {}", field.min, field.max);
  return fmt::format(" from {} to {}", field.min, field.max);
}

}  // namespace

std::span<const Field> fields() {
  return kFields;
}

const Field* find_field(std::string_view name, Endpoints endpoint) {
  const auto* found = std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& field) {
    return field.name == name && (field.endpoints & endpoint) != 0;
  });
  return found == std::end(kFields) ? nullptr : found;
}

// `["none", "auto"]` as `"none" or "auto"`.
static std::string neutral_values(const Field& field) {
  std::string values(field.neutral.substr(1, field.neutral.size() - 2));
  const size_t last = values.rfind(", ");
  if (last != std::string::npos && field.neutral[1] != '[') values.replace(last, 2, " or ");
  return values;
}

std::string allowed_values(const Field& field) {
  if (field.support == Support::kNeutral) {
    return field.neutral == "[]" ? "nothing" : fmt::format("nothing, or {}", neutral_values(field));
  }
  switch (field.kind) {
    case kBoolean:
      return "true or false";
    case kInteger:
      return std::isinf(field.max) ? "an integer of 64 bits" : "an integer" + limits_of(field);
    case kNumber:
      return "a number" + limits_of(field);
    case kString:
      return std::isinf(field.max) ? "a string" : fmt::format("a string of {} to {} bytes", field.min, field.max);
    case kObject:
      return "an object";
    case kAny:
      return "any value";
    case kLogprobs:
      return "a boolean or an integer" + limits_of(field);
    case kStops:
      return fmt::format("a string or at most {} strings, each of 1 to {} bytes", field.max, kStopBytesMax);
    case kTokenIds:
      return std::isinf(field.max) ? "token ids" : fmt::format("at most {} token ids", field.max);
    case kLogitBias:
      return "an object of token ids and biases" + limits_of(field);
    case kPrompt:
      return "a string, strings, token ids, or lists of token ids; none empty";
    case kText:
      return "a string";
    case kMessages:
      return "a list of at least one {role, content}";
    case kStreamOptions:
      return "an object {include_usage: true or false}";
    case kObjects:
      return "a list of objects";
    case kTemplateVariables:
      return fmt::format("an object of variables, but not {}", fmt::join(kTemplateOwnNames, ", "));
  }
  return "";
}

}  // namespace headwater::server::openai
