// Any bytes as the body of each kind of request: they are refused with an error that can be sent, or what comes out keeps
// the promises of decode.h.
#include <boost/json.hpp>
#include <cstdlib>

#include "engine/request.h"
#include "server/openai/served_test_kit.h"
#include "text/utf8.h"

using namespace headwater;
using namespace headwater::server::openai;

namespace {

void require(bool promise) {
  if (!promise) std::abort();
}

bool inside(const std::vector<TokenId>& ids, const ServedModel& served) {
  for (const TokenId id : ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= served.vocabulary) return false;
  }
  return true;
}

void check_error(const ApiError& error) {
  require(error.status == 400 || error.status == 404);
  require(!error.message.empty() && !error.type.empty() && error.message.size() < 4096);
  const std::string body = error_json(error);
  require(text::is_valid_utf8(body));
  boost::system::error_code failed;
  const boost::json::value parsed = boost::json::parse(body, failed);
  require(!failed && parsed.at("error").at("message").is_string());
}

void check_sampling(const engine::SamplingParams& sampling, const ServedModel& served) {
  require(sampling.temperature >= 0 && sampling.temperature <= 2 && sampling.top_p > 0 && sampling.top_p <= 1);
  require(sampling.min_p >= 0 && sampling.min_p <= 1 && sampling.tokens_min <= sampling.tokens_max);
  require(sampling.repetition_penalty >= 0.01f && sampling.repetition_penalty <= 10);
  require(sampling.frequency_penalty >= -2 && sampling.frequency_penalty <= 2);
  require(sampling.presence_penalty >= -2 && sampling.presence_penalty <= 2);
  require(sampling.top_logprobs <= ops::kLogprobsMax && (sampling.top_logprobs == 0 || sampling.want_logprobs));
  require(inside(sampling.stop_ids, served));
  for (const ops::LogitBias& bias : sampling.logit_bias) {
    require(inside({bias.token}, served) && bias.bias >= -100 && bias.bias <= 100);
  }
}

void check_generation(const Generation& out, const ServedModel& served) {
  require(std::ranges::count(served.names, out.model) == 1);
  require(!out.prompts.empty() && out.n >= 1 && out.prompts.size() * out.n <= kChoicesMax);
  require(out.endpoint == Endpoint::kCompletions || out.prompts.size() == 1);
  require(out.prompt_texts.size() == (out.echo ? out.prompts.size() : 0));
  for (const std::vector<TokenId>& prompt : out.prompts) {
    require(!prompt.empty() && inside(prompt, served));
    require(prompt.size() + out.sampling.tokens_max <= served.context_max);
  }
  for (const std::string& prompt : out.prompt_texts) require(text::is_valid_utf8(prompt));
  require(out.stops.size() <= kStopsMax);
  for (const std::string& stop : out.stops) require(!stop.empty() && stop.size() <= kStopBytesMax);
  require((!out.include_usage || out.stream) && !(out.echo && out.sampling.want_logprobs));
  check_sampling(out.sampling, served);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TestModel model;
  static const ServedModel served = model.served();
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChat}) {
    Generation out;
    if (const auto failed = decode_generation(endpoint, body, served, out)) {
      check_error(*failed);
    } else {
      check_generation(out, served);
    }
  }
  Tokenize tokens;
  if (const auto failed = decode_tokenize(body, served, tokens)) {
    check_error(*failed);
  } else {
    require(inside(tokens.ids, served));
  }
  std::vector<TokenId> ids;
  if (const auto failed = decode_detokenize(body, served, ids)) {
    check_error(*failed);
  } else {
    require(inside(ids, served));
  }
  return 0;
}
