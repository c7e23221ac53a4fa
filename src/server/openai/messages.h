// The conversation of a request through the model's chat template.
#pragma once

#include <optional>
#include <vector>

#include "server/openai/body.h"
#include "server/openai/decode.h"

namespace headwater::server::openai {

// Messages, tools, documents and chat_template_kwargs reach the template as the client wrote them, but for this: fields
// that are null are absent; content that is null is an empty text, but stays null beside calls of tools; content of text
// parts is one text, of a line each, where the template does not read lists; arguments of calls, which are JSON text, are
// objects where the template can read them. tool_choice "none" hides the tools.
// in_reasoning: the text ends inside a think block.
std::optional<ApiError> read_messages(const Body& body, const ServedModel& served, std::vector<TokenId>& ids,
                                      bool& in_reasoning);

}  // namespace headwater::server::openai
