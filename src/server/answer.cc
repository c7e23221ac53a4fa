#include "server/answer.h"

#include <algorithm>
#include <array>

#include "text/utf8.h"

namespace headwater::server {
namespace {

constexpr size_t kEventBytesMax = 1 << 16;  // in one write

void append(openai::Delta& to, openai::Delta& from) {
  to.content += from.content;
  to.reasoning += from.reasoning;
  to.logprobs.insert(to.logprobs.end(), std::make_move_iterator(from.logprobs.begin()),
                     std::make_move_iterator(from.logprobs.end()));
  if (from.finished) {
    to.finished = true;
    to.finish = from.finish;
  }
}

openai::ApiError refused(const Status& status) {
  if (status.code() == ErrorCode::kExhausted) {
    return {.status = 429,
            .message = "The server is full: " + status.message(),
            .type = "rate_limit_error",
            .code = "server_full"};
  }
  return {.message = status.message()};
}

}  // namespace

Answer::Answer(const openai::ServedModel& model, EngineService& service, ServerMetrics& metrics,
               http::Exchange& exchange, openai::Generation generation, std::string request_id,
               const boost::asio::any_io_executor& executor)
    : model_(model),
      service_(service),
      metrics_(metrics),
      exchange_(exchange),
      generation_(std::move(generation)),
      request_id_(std::move(request_id)),
      wakeup_(executor) {
  const bool chat = generation_.endpoint == openai::Endpoint::kChat;
  head_ = {
      .id = (chat ? "chatcmpl-" : "cmpl-") + request_id_,
      .created =
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .model = generation_.model,
      .endpoint = generation_.endpoint};
  openai::Choice::Settings settings{.stops = text::StopStrings(generation_.stops),
                                    .want_logprobs = generation_.sampling.want_logprobs,
                                    .split_reasoning = chat && model_.reasoning,
                                    .in_reasoning = generation_.in_reasoning,
                                    .tokens_min = generation_.sampling.tokens_min};
  for (size_t i = 0; i < generation_.prompts.size() * generation_.n; ++i) {
    openai::Delta& delta = deltas_.emplace_back();
    if (generation_.echo) delta.content = generation_.prompt_texts[i / generation_.n];
    settings.text_offset = static_cast<uint32_t>(text::count_characters(delta.content));
    pieces_.push_back({openai::Choice(*model_.tokenizer, settings)});
  }
  exchange_.on_client_gone([this] { wakeup_.notify(); });
}

Answer::~Answer() {
  exchange_.on_client_gone({});
  abandon();
}

void Answer::abandon() {
  for (Part& part : parts_) {
    if (part.open) service_.abandon(part.request);
    part.open = false;
  }
}

bool Answer::running() const {
  return std::ranges::any_of(parts_, &Part::open);
}

// Several prompts are queued together: what no empty queue could take is the request's fault.
std::optional<openai::ApiError> Answer::never_fits() const {
  const engine::EngineConfig& limits = service_.engine().config();
  uint64_t tokens = 0;
  for (const auto& prompt : generation_.prompts) tokens += prompt.size();
  if (generation_.prompts.size() <= limits.queue_requests_max && tokens <= limits.queue_tokens_max) return std::nullopt;
  return openai::ApiError{
      .message =
          fmt::format("\"prompt\" has {} prompts of {} tokens together; the queue takes {} prompts and {} tokens: "
                      "send fewer at once",
                      generation_.prompts.size(), tokens, limits.queue_requests_max, limits.queue_tokens_max),
      .param = "prompt"};
}

std::optional<openai::ApiError> Answer::submit() {
  if (generation_.sampling.tokens_max == 0) {  // nothing to generate: the echo, if any, is the answer
    for (openai::Delta& delta : deltas_) {
      delta.finished = true;
      delta.finish = engine::FinishReason::kLength;
    }
    return std::nullopt;
  }
  if (auto error = never_fits()) return error;
  for (size_t i = 0; i < generation_.prompts.size(); ++i) {
    engine::Request request{.prompt = generation_.prompts[i],
                            .sampling = generation_.sampling,
                            .n = generation_.n,
                            .cache_salt = generation_.cache_salt,
                            .priority = generation_.priority};
    auto id = service_.submit(std::move(request), [this] { wakeup_.notify(); });
    if (!id) {
      abandon();
      return refused(id.status());
    }
    parts_.push_back({.request = *id, .open = true, .choice_first = i * generation_.n});
  }
  return std::nullopt;
}

bool Answer::collect() {
  for (Part& part : parts_) {
    if (part.open && !collect(part)) return false;
  }
  return true;
}

bool Answer::collect(Part& part) {
  std::array<engine::Emission, 16> emissions;
  while (events_.size() < kEventBytesMax) {
    const size_t count = service_.poll(part.request, emissions);
    for (const engine::Emission& emission : std::span(emissions).first(count)) {
      if (emission.finish == engine::FinishReason::kFailed || emission.finish == engine::FinishReason::kCancelled) {
        if (!pieces_[part.choice_first + emission.choice].choice.finished()) return false;
      }
      take(part.choice_first + emission.choice, emission, part);
    }
    const auto own = std::span(pieces_).subspan(part.choice_first, generation_.n);
    if (std::ranges::all_of(own, [](const Piece& piece) { return piece.choice.finished(); })) {
      // Of choices that ended at a stop string the engine still has something to say, which nobody needs.
      service_.release(part.request);
      part.open = false;
      return true;
    }
    if (count == 0) return true;
  }
  wakeup_.notify();  // the rest after this much has been written
  return true;
}

void Answer::take(size_t index, const engine::Emission& emission, Part& part) {
  Piece& piece = pieces_[index];
  if (piece.choice.finished()) return;
  openai::Delta delta;
  if (piece.choice.take(emission, delta)) service_.finish_choice(part.request, emission.choice);
  if (delta.empty()) return;
  if (!generation_.stream) return append(deltas_[index], delta);
  if (token_ns_ == 0) token_ns_ = emission.made_ns;
  add_event(index, delta);
}

void Answer::add_event(size_t index, openai::Delta& delta) {
  Piece& piece = pieces_[index];
  if (!piece.begun && generation_.endpoint == openai::Endpoint::kChat) {
    events_ += openai::role_event(head_, static_cast<uint32_t>(index));
  }
  piece.begun = true;
  openai::Usage so_far;
  if (generation_.continuous_usage) so_far = usage();
  events_ += openai::delta_event(head_, static_cast<uint32_t>(index), delta, *model_.tokenizer,
                                 generation_.continuous_usage ? &so_far : nullptr);
}

openai::Usage Answer::usage() const {
  openai::Usage usage;
  for (size_t i = 0; i < generation_.prompts.size(); ++i) {
    usage.prompt_tokens += generation_.prompts[i].size();
    uint32_t cached = 0;
    for (const Piece& piece : std::span(pieces_).subspan(i * generation_.n, generation_.n)) {
      usage.completion_tokens += piece.choice.tokens();
      cached = std::max(cached, piece.choice.cached_tokens());
    }
    usage.cached_tokens += cached;
  }
  return usage;
}

boost::asio::awaitable<unsigned> Answer::run(std::chrono::milliseconds keep_alive) {
  const std::optional<openai::ApiError> error = submit();
  if (error) {
    http::Response response = error_response(*error);
    const bool sent = co_await exchange_.respond(std::move(response));
    co_return sent ? error->status : kClientGone;
  }
  if (generation_.stream) co_return co_await stream(keep_alive);
  co_return co_await whole();
}

boost::asio::awaitable<bool> Answer::flush() {
  const bool sent = co_await exchange_.write(events_);
  events_.clear();
  if (sent && token_ns_ != 0) metrics_.chunk_delay.observe(1e-9 * static_cast<double>(clock_.now_ns() - token_ns_));
  token_ns_ = 0;
  co_return sent;
}

boost::asio::awaitable<unsigned> Answer::stream(std::chrono::milliseconds keep_alive) {
  http::Response head{.content_type = "text/event-stream; charset=utf-8",
                      .headers = {{"Cache-Control", "no-cache"}, {"X-Request-Id", request_id_}}};
  bool sent = co_await exchange_.begin_stream(std::move(head));
  for (size_t i = 0; i < deltas_.size(); ++i) {  // the echo, and what ended without the engine
    if (!deltas_[i].empty()) add_event(i, deltas_[i]);
  }
  bool good = true;
  const std::chrono::nanoseconds pause = keep_alive;
  int64_t written_ns = clock_.now_ns();
  while (sent && good && (running() || !events_.empty())) {
    if (events_.empty()) {
      const std::chrono::nanoseconds left(written_ns + pause.count() - clock_.now_ns());
      const bool news = co_await wakeup_.wait(std::max(left, std::chrono::nanoseconds(0)));
      if (exchange_.client_gone()) co_return kClientGone;
      if (news) {
        good = collect();
      } else {
        events_ += openai::kKeepAliveEvent;
      }
    }
    if (events_.empty()) continue;
    sent = co_await flush();
    written_ns = clock_.now_ns();
  }
  if (!sent) co_return kClientGone;
  if (good) {
    if (generation_.include_usage) events_ += openai::usage_event(head_, usage());
    events_ += openai::kDoneEvent;
  } else {
    abandon();
    events_ += openai::error_event(internal_error(request_id_));
  }
  sent = co_await exchange_.end_stream(events_);
  co_return !sent ? kClientGone : good ? 200 : 500;
}

boost::asio::awaitable<unsigned> Answer::whole() {
  bool good = true;
  while (good && running()) {
    co_await wakeup_.wait(std::chrono::hours(1));
    if (exchange_.client_gone()) co_return kClientGone;
    good = collect();
  }
  http::Response response;
  if (good) {
    response.body = openai::answer_json(head_, deltas_, usage(), *model_.tokenizer);
    deltas_.clear();
  } else {
    response = error_response(internal_error(request_id_));
  }
  response.headers.emplace_back("X-Request-Id", request_id_);
  const unsigned status = response.status;
  const bool sent = co_await exchange_.respond(std::move(response));
  co_return sent ? status : kClientGone;
}

}  // namespace headwater::server
