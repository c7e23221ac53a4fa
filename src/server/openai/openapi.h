// The OpenAPI 3.1 description, made from the table of fields that decode.h checks with, so it cannot fall behind.
#pragma once

#include <string>

#include "server/openai/decode.h"

namespace headwater::server::openai {

// Every route (also /health, /ping, /version, /metrics, /v1/cache, /openapi.json), every field with type, limits,
// default and one sentence, the answers and the errors. version: of the program. needs_key: describes the bearer key. Rules
// between two fields (top_logprobs needs logprobs true, ...) stand in the sentences only.
std::string openapi_json(const ServedModel& served, const std::string& version, bool needs_key);

}  // namespace headwater::server::openai
