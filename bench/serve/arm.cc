#include "bench/serve/arm.h"

#include <boost/json.hpp>

namespace headwater::bench::serve {
namespace {

namespace json = boost::json;
constexpr std::chrono::seconds kFetchTimeout{30};

// "data"[0]."id" of /v1/models.
std::optional<std::string> first_model(const std::string& body) {
  boost::system::error_code failed;
  const json::value models = json::parse(body, failed);
  const json::value* data = failed || !models.is_object() ? nullptr : models.get_object().if_contains("data");
  if (data == nullptr || !data->is_array() || data->get_array().empty()) return {};
  const json::object* first = data->get_array()[0].if_object();
  const json::value* id = first == nullptr ? nullptr : first->if_contains("id");
  if (id == nullptr || !id->is_string()) return {};
  return std::string(id->get_string());
}

}  // namespace

Result<std::unique_ptr<ServerArm>> ServerArm::create(std::string name, Target target, std::string model,
                                                     std::unique_ptr<ServerProcess> process) {
  std::unique_ptr<ServerArm> arm(new ServerArm(std::move(name), std::move(target), std::move(process)));
  arm->model_ = std::move(model);
  if (!arm->model_.empty()) return arm;
  HEADWATER_ASSIGN_OR_RETURN(const Fetched models, fetch(arm->target_, "/v1/models", kFetchTimeout));
  const std::optional<std::string> first = first_model(models.body);
  if (models.status != 200 || !first) {
    return error(ErrorCode::kNotFound, "{}/v1/models answered {} and names no model; give --model (and --api-key)",
                 arm->target_.host, models.status);
  }
  arm->model_ = *first;
  return arm;
}

Result<LevelResult> ServerArm::run(const WorkloadShape& workload, const std::vector<Prompt>& prompts,
                                   const LoadShape& load, const Progress& progress) {
  std::vector<std::string> bodies;
  for (const Prompt& prompt : prompts) bodies.push_back(request_body(workload, model_, prompt));
  const bool chat = workload.endpoint == Endpoint::kChat;
  LevelResult result = run_load(target_, chat ? "/v1/chat/completions" : "/v1/completions", bodies, load, progress);
  if (process_ != nullptr && !process_->running()) {
    return error(ErrorCode::kInternal, "the server of arm '{}' died in this level", name_);
  }
  return result;
}

Result<std::optional<Exposition>> ServerArm::counters() {
  HEADWATER_ASSIGN_OR_RETURN(const Fetched page, fetch(target_, "/metrics", kFetchTimeout));
  if (page.status != 200) return std::optional<Exposition>();
  return std::optional(Exposition::parse(page.body));
}

std::optional<double> ServerArm::tokens_per_word() const {
  // llama-server reads "content", vLLM "prompt".
  for (const char* field : {"content", "prompt"}) {
    const json::object body{{"model", model_}, {field, sizing_text()}};
    const auto answer = fetch_post(target_, "/tokenize", json::serialize(body), kFetchTimeout);
    if (!answer || answer->status != 200) continue;
    boost::system::error_code failed;
    const json::value value = json::parse(answer->body, failed);
    const json::value* tokens = failed || !value.is_object() ? nullptr : value.get_object().if_contains("tokens");
    if (tokens == nullptr || !tokens->is_array() || tokens->get_array().empty()) continue;
    return static_cast<double>(tokens->get_array().size()) / sizing_words();
  }
  return {};
}

}  // namespace headwater::bench::serve
