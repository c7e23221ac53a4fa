#include "engine/inbox.h"

#include <chrono>
#include <utility>

namespace headwater::engine {

Inbox::Inbox(uint32_t requests_max, uint32_t tokens_max) : requests_max_(requests_max), tokens_max_(tokens_max) {
  waiting_.reserve(requests_max);
}

Status Inbox::enter(uint32_t prompt_tokens) {
  std::lock_guard lock(mutex_);
  if (requests_ >= requests_max_) {
    return error(ErrorCode::kExhausted, "{} requests wait, of at most {}; try again later", requests_, requests_max_);
  }
  if (tokens_ + prompt_tokens > tokens_max_) {
    return error(ErrorCode::kExhausted,
                 "{} prompt tokens wait and {} more would be too many, of at most {}; try again later", tokens_,
                 prompt_tokens, tokens_max_);
  }
  ++requests_;
  tokens_ += prompt_tokens;
  return {};
}

void Inbox::push(std::shared_ptr<Ticket> ticket) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(ticket));
    rung_ = true;
  }
  changed_.notify_one();
}

void Inbox::leave(uint32_t prompt_tokens) {
  std::lock_guard lock(mutex_);
  --requests_;
  tokens_ -= prompt_tokens;
}

void Inbox::ring() {
  {
    std::lock_guard lock(mutex_);
    rung_ = true;
  }
  changed_.notify_one();
}

void Inbox::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

void Inbox::take(std::vector<std::shared_ptr<Ticket>>& to) {
  std::lock_guard lock(mutex_);
  rung_ = false;
  for (auto& ticket : waiting_) to.push_back(std::move(ticket));
  waiting_.clear();
}

bool Inbox::wait(int64_t nanoseconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::nanoseconds(nanoseconds), [&] { return rung_ || stopped_; });
  return rung_;
}

}  // namespace headwater::engine
