#include "simulation/schedule.h"

#include <algorithm>
#include <map>
#include <memory>

#include "engine/engine.h"
#include "simulation/late_device.h"

namespace headwater::testing {
namespace {

constexpr uint32_t kVocabulary = 40;
constexpr uint32_t kContextMax = 400;

// A request on its way, and what came back.
struct Client {
  engine::Request request;
  uint64_t arrives = 0;           // step
  uint64_t cancels = ~0ull;       // step
  uint64_t stops_choice = ~0ull;  // step, of choice 0
  engine::RequestId id = 0;       // 0: not submitted
  bool cancelled = false;
  bool choice_stopped = false;
  std::vector<std::vector<TokenId>> tokens;    // [n]
  std::vector<engine::FinishReason> finished;  // [n]
};

// Mostly one kind of layer without a window.
std::vector<uint32_t> random_windows(Random& random) {
  const uint32_t wide = random.between(20, 60), narrow = random.between(1, 20);
  const std::vector<uint32_t> choices[] = {{0}, {0}, {0}, {0}, {narrow}, {0, narrow}, {narrow, 0}, {wide, narrow}};
  return choices[random.below(8)];
}

class Schedule {
 public:
  Schedule(uint64_t seed, bool runs_ahead, Fault fault)
      : random_(seed),
        late_backend_(kVocabulary, random_.between(1, 8), fault),
        late_decoder_(late_backend_, kVocabulary, kContextMax, random_windows(random_)),
        host_backend_(kVocabulary, late_backend_.info().workers, fault),
        host_decoder_(host_backend_, kVocabulary, kContextMax, late_decoder_.shape().windows),
        runs_ahead_(runs_ahead) {}

  ScheduleReport run();

 private:
  bool one_in(uint32_t times) { return random_.below(times) == 0; }
  std::vector<TokenId> random_tokens(uint32_t count);
  std::vector<TokenId> random_prompt();
  Client random_client();
  engine::EngineConfig random_config();
  std::string create();
  std::string act(uint64_t now);
  void break_the_device();
  std::string poll();
  std::string check_client(const Client& client) const;
  std::string check_end();
  void count_events();

  Random random_;
  LateBackend late_backend_;
  LateDecoder late_decoder_;
  ScriptedBackend host_backend_;
  ScriptedDecoder host_decoder_;
  const bool runs_ahead_;
  ScriptedBackend& backend_ = runs_ahead_ ? late_backend_ : host_backend_;
  ScriptedDecoder& decoder_ = runs_ahead_ ? late_decoder_ : host_decoder_;
  ManualClock clock_;
  uint32_t page_size_ = 0;
  std::vector<TokenId> root_;
  std::vector<std::vector<TokenId>> branches_;  // each begins with root_
  std::vector<Client> clients_;
  std::map<engine::RequestId, Client*> by_id_;
  std::unique_ptr<engine::Engine> engine_;
  bool polls_rarely_ = false;
  bool device_breaks_ = false;
  uint64_t paused_steps_ = 0, failed_steps_ = 0;
  ScheduleReport report_;
};

std::vector<TokenId> Schedule::random_tokens(uint32_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random_.below(kVocabulary));
  return tokens;
}

// A stranger, or the root or one of the branches above it, cut anywhere or nowhere, with a tail of its own or none.
std::vector<TokenId> Schedule::random_prompt() {
  if (one_in(8)) return random_tokens(random_.between(1, 3 * page_size_));
  std::vector<TokenId> prompt = one_in(4) ? root_ : branches_[random_.below(static_cast<uint32_t>(branches_.size()))];
  if (one_in(6)) prompt.resize(random_.between(1, static_cast<uint32_t>(prompt.size())));
  if (!one_in(4)) {
    const std::vector<TokenId> tail = random_tokens(random_.between(1, page_size_ + 3));
    prompt.insert(prompt.end(), tail.begin(), tail.end());
  }
  return prompt;
}

Client Schedule::random_client() {
  Client client;
  client.request.prompt = random_prompt();
  engine::SamplingParams& sampling = client.request.sampling;
  sampling.tokens_max = random_.between(1, 2 * page_size_ + 12);
  sampling.temperature = one_in(2) ? 0.0f : 1.0f;
  sampling.seed = random_();
  sampling.want_logprobs = one_in(8);
  if (one_in(4)) sampling.stop_ids = random_tokens(2);
  if (one_in(4)) sampling.tokens_min = random_.between(0, sampling.tokens_max);
  if (one_in(8)) sampling.frequency_penalty = 0.5f;
  client.request.n = one_in(3) ? random_.between(2, 5) : 1;
  if (one_in(4)) client.request.priority = static_cast<int32_t>(random_.below(3));
  if (one_in(8)) client.request.cache_salt = "another tenant";
  client.arrives = one_in(3) ? 0 : random_.below(60);
  if (one_in(6)) client.cancels = client.arrives + random_.below(40);
  if (one_in(12)) client.stops_choice = client.arrives + random_.below(40);
  client.tokens.resize(client.request.n);
  client.finished.resize(client.request.n, engine::FinishReason::kNone);
  return client;
}

engine::EngineConfig Schedule::random_config() {
  uint32_t tokens_longest = 0;
  uint64_t tokens_all = 0;
  for (const Client& client : clients_) {
    const auto tokens = static_cast<uint32_t>(client.request.prompt.size()) + client.request.sampling.tokens_max;
    tokens_longest = std::max(tokens_longest, tokens);
    tokens_all += uint64_t{tokens} * client.request.n;
  }
  const uint32_t pages_least = (tokens_longest + page_size_ - 1) / page_size_;
  const auto pages_most = static_cast<uint32_t>(tokens_all / page_size_ + clients_.size());
  const uint32_t pages = one_in(3) ? random_.between(pages_least, std::max(pages_least, pages_most))
                                   : random_.between(pages_least, 3 * pages_least);
  engine::EngineConfig config;
  config.context_max = kContextMax;
  config.sequences_max = random_.between(1, 12);
  config.step_tokens_max = one_in(3) ? random_.between(1, 16) : random_.between(8, 200);
  config.queue_requests_max = one_in(6) ? random_.between(1, 3) : 64;
  config.page_size = page_size_;
  config.kv_dtype = DType::kF32;
  config.kv_bytes = decoder_.kv_bytes(pages, page_size_);
  config.prefix_cache = !one_in(6);
  if (polls_rarely_) config.outbox_emissions_max = random_.between(5, 8);
  config.attention.sharing = std::array{attention::Sharing::kAuto, attention::Sharing::kAlways,
                                        attention::Sharing::kAlways, attention::Sharing::kOff}[random_.below(4)];
  config.attention.invariant = one_in(2);
  config.attention.cut = page_size_ * (one_in(2) ? 1 : random_.between(1, 4));
  config.attention.inject_failure = one_in(12);
  return config;
}

std::string Schedule::create() {
  page_size_ = one_in(3) ? random_.between(1, 32) : random_.between(1, 8);
  polls_rarely_ = one_in(4);
  device_breaks_ = one_in(5);
  root_ = random_tokens(page_size_ * random_.between(1, 3) + (one_in(2) ? 0 : random_.below(page_size_)));
  branches_.assign(random_.between(1, 3), root_);
  for (auto& branch : branches_) {
    const std::vector<TokenId> more =
        random_tokens(page_size_ * random_.between(1, 2) + (one_in(2) ? 0 : random_.below(page_size_)));
    branch.insert(branch.end(), more.begin(), more.end());
  }
  clients_.resize(random_.between(4, 14));
  for (Client& client : clients_) client = random_client();
  auto engine = engine::Engine::create(random_config(), decoder_, backend_, &clock_);
  if (!engine) return engine.status().message();
  engine_ = std::move(*engine);
  return "";
}

// Submits, cancels and stops what is due. A full queue is asked again in the next step.
std::string Schedule::act(uint64_t now) {
  for (Client& client : clients_) {
    if (client.id == 0 && client.arrives <= now) {
      Result<engine::RequestId> id = engine_->submit(client.request);
      if (!id && id.status().code() != ErrorCode::kExhausted) return id.status().message();
      if (!id) continue;
      client.id = *id;
      by_id_[*id] = &client;
    }
    if (client.id == 0) continue;
    if (client.cancels <= now && !client.cancelled) {
      engine_->cancel(client.id);
      client.cancelled = true;
    }
    if (client.stops_choice <= now && !client.choice_stopped) {
      engine_->finish_choice(client.id, 0);
      client.choice_stopped = true;
    }
  }
  return "";
}

// Sometimes: the next step fails when its work is enqueued, or when it runs.
void Schedule::break_the_device() {
  if (!device_breaks_ || !one_in(25)) return;
  if (runs_ahead_ && one_in(2)) return late_decoder_.fail_next_launch();
  decoder_.fail_next(1);
}

std::string Schedule::poll() {
  std::array<engine::Emission, 7> emissions;
  for (size_t count; (count = engine_->poll_any(emissions)) > 0;) {
    for (const engine::Emission& emission : std::span(emissions).first(count)) {
      Client& client = *by_id_.at(emission.request);
      if (client.finished[emission.choice] != engine::FinishReason::kNone) return "an emission after the last one";
      if (emission.token >= 0) client.tokens[emission.choice].push_back(emission.token);
      client.finished[emission.choice] = emission.finish;
      report_.tokens += emission.token >= 0;
    }
  }
  return "";
}

std::string Schedule::check_client(const Client& client) const {
  for (uint32_t choice = 0; choice < client.request.n; ++choice) {
    const std::vector<TokenId> expected =
        expected_tokens(client.request, choice, kVocabulary, decoder_.shape().windows);
    const std::vector<TokenId>& got = client.tokens[choice];
    const bool ended_early =
        client.finished[choice] == engine::FinishReason::kCancelled ||
        (client.finished[choice] == engine::FinishReason::kFailed && failed_steps_ > 0) ||
        (client.choice_stopped && choice == 0 && client.finished[choice] == engine::FinishReason::kStop);
    const std::string who = fmt::format("request {} choice {}", client.id, choice);
    if (got.size() > expected.size() || !std::equal(got.begin(), got.end(), expected.begin())) {
      return fmt::format("{}: tokens {}, expected {}", who, fmt::join(got, " "), fmt::join(expected, " "));
    }
    if (ended_early) continue;
    const bool stopped = std::ranges::count(client.request.sampling.stop_ids, expected.back()) > 0;
    const auto reason = stopped ? engine::FinishReason::kStop : engine::FinishReason::kLength;
    if (got.size() != expected.size() || client.finished[choice] != reason) {
      return fmt::format("{}: ended with {} after {} of {} tokens", who, to_string(client.finished[choice]), got.size(),
                         expected.size());
    }
  }
  return "";
}

std::string Schedule::check_end() {
  const kv::PagedCache& cache = engine_->cache();
  if (cache.pages_held() != 0 || cache.pages_free() + cache.pages_cached() != cache.config().pages) {
    return fmt::format("{} pages held, {} free and {} cached of {} after the last request", cache.pages_held(),
                       cache.pages_free(), cache.pages_cached(), cache.config().pages);
  }
  for (const Client& client : clients_) {
    if (std::string failure = check_client(client); !failure.empty()) return failure;
  }
  return "";
}

void Schedule::count_events() {
  const engine::EngineMetrics& metrics = engine_->metrics();
  report_.steps = metrics.steps.value();
  report_.events = {metrics.preemptions.value(),
                    metrics.forks.value(),
                    metrics.copies_on_write.value(),
                    metrics.evictions.value(),
                    metrics.nested_group_steps.value(),
                    metrics.waits_for_prefix.value(),
                    metrics.pages_merged.value(),
                    paused_steps_,
                    failed_steps_,
                    late_backend_.steps_begun_ahead()};
}

ScheduleReport Schedule::run() {
  report_.failure = create();
  constexpr uint64_t kStepsMax = 20'000;  // far beyond what the longest schedule needs
  for (uint64_t now = 0; report_.failure.empty(); ++now) {
    report_.failure = act(now);
    if (!report_.failure.empty()) break;
    clock_.advance_ns(1'000'000);
    break_the_device();
    const Result<bool> stepped = engine_->step();
    if (!stepped && device_breaks_ && stepped.status().message().ends_with("(injected)")) {
      ++failed_steps_;
    } else if (!stepped) {
      report_.failure = stepped.status().message();
    }
    if (const Status audit = engine_->audit(); !audit) report_.failure = audit.message();
    const bool idle = stepped && !*stepped;
    if (!polls_rarely_ || one_in(6)) {
      if (const std::string failure = poll(); !failure.empty()) report_.failure = failure;
      const bool all_finished = std::ranges::all_of(clients_, [](const Client& client) {
        return std::ranges::none_of(client.finished, [](auto reason) { return reason == engine::FinishReason::kNone; });
      });
      if (all_finished && report_.failure.empty()) {
        report_.failure = check_end();
        break;
      }
    } else {
      paused_steps_ += idle && by_id_.size() == clients_.size();
    }
    if (now == kStepsMax) report_.failure = fmt::format("not finished after {} steps", kStepsMax);
  }
  if (engine_ != nullptr) count_events();
  return report_;
}

}  // namespace

ScheduleReport run_schedule(uint64_t seed, bool runs_ahead, Fault fault) {
  return Schedule(seed, runs_ahead, fault).run();
}

}  // namespace headwater::testing
