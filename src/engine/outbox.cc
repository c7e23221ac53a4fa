#include "engine/outbox.h"

#include <algorithm>

namespace headwater::engine {

void EmissionRing::resize(uint32_t capacity, uint32_t top) {
  const uint32_t used = size();
  check(used <= capacity && top >= top_, "a ring cannot become smaller than what it holds");
  std::vector<Record> records(capacity);
  std::vector<ops::TokenLogprob> tops(size_t{capacity} * top);
  for (uint32_t i = 0; i < used; ++i) {
    const size_t index = (begin_ + i) % records_.size();
    records[i] = records_[index];
    std::copy_n(tops_.data() + index * top_, top_, tops.data() + size_t{i} * top);
  }
  records_.swap(records);
  tops_.swap(tops);
  top_ = top;
  begin_ = 0;
}

void EmissionRing::push(const Emission& emission, uint64_t serial) {
  const uint32_t used = size();
  check(used < records_.size(), "more emissions than the ring of the request was sized for");
  check(emission.top_count <= top_, "more log probabilities than the request asked for");
  const size_t index = (begin_ + used) % records_.size();
  records_[index] = {.serial = serial,
                     .request = emission.request,
                     .choice = emission.choice,
                     .token = emission.token,
                     .cached_tokens = emission.cached_tokens,
                     .made_ns = emission.made_ns,
                     .logprob = emission.logprob,
                     .top_count = static_cast<uint8_t>(emission.top_count),
                     .finish = emission.finish};
  std::copy_n(emission.top, emission.top_count, tops_.data() + index * top_);
  size_.store(used + 1, std::memory_order_relaxed);
}

Emission EmissionRing::pop() {
  const Record& record = records_[begin_];
  Emission emission{.request = record.request,
                    .choice = record.choice,
                    .token = record.token,
                    .finish = record.finish,
                    .cached_tokens = record.cached_tokens,
                    .made_ns = record.made_ns,
                    .logprob = record.logprob,
                    .top_count = record.top_count};
  std::copy_n(tops_.data() + size_t{begin_} * top_, record.top_count, emission.top);
  begin_ = (begin_ + 1) % static_cast<uint32_t>(records_.size());
  size_.store(size() - 1, std::memory_order_relaxed);
  return emission;
}

Outbox::Outbox(uint32_t requests_max) : requests_max_(requests_max) {
  tickets_.reserve(requests_max);
  ready_.reserve(requests_max);
}

Status Outbox::open(std::shared_ptr<Ticket> ticket) {
  ticket->ring.resize(ticket->request.n, 0);  // enough to say how each choice ended
  std::lock_guard lock(mutex_);
  if (tickets_.size() >= requests_max_) {
    return error(ErrorCode::kExhausted,
                 "{} requests are queued, running or not polled to their end, of at most {}; poll "
                 "them and try again",
                 tickets_.size(), requests_max_);
  }
  tickets_.emplace(ticket->id, std::move(ticket));
  return {};
}

std::shared_ptr<Ticket> Outbox::find(RequestId request) const {
  std::lock_guard lock(mutex_);
  const auto found = tickets_.find(request);
  return found == tickets_.end() ? nullptr : found->second;
}

void Outbox::pop_into(Ticket& ticket, Emission& out) {
  out = ticket.ring.pop();
  if (!ticket.ring.empty()) return;
  std::erase(ready_, &ticket);
  if (ticket.closed) tickets_.erase(ticket.id);
}

size_t Outbox::poll(RequestId request, std::span<Emission> out) {
  std::lock_guard lock(mutex_);
  const auto found = tickets_.find(request);
  if (found == tickets_.end()) return 0;
  Ticket& ticket = *found->second;
  const size_t count = std::min<size_t>(out.size(), ticket.ring.size());
  for (size_t i = 0; i < count; ++i) pop_into(ticket, out[i]);
  return count;
}

size_t Outbox::poll_any(std::span<Emission> out) {
  std::lock_guard lock(mutex_);
  size_t count = 0;
  for (; count < out.size() && !ready_.empty(); ++count) {
    const auto serial = [](const Ticket* ticket) { return ticket->ring.front_serial(); };
    pop_into(**std::ranges::min_element(ready_, {}, serial), out[count]);
  }
  return count;
}

void Outbox::ready(std::vector<RequestId>& out) const {
  out.clear();
  std::lock_guard lock(mutex_);
  for (const Ticket* ticket : ready_) out.push_back(ticket->id);
}

void Outbox::reserve(Ticket& ticket, uint32_t emissions) {
  std::lock_guard lock(mutex_);
  ticket.ring.resize(emissions, ticket.request.sampling.top_logprobs);
}

void Outbox::push(std::span<const Entry> entries) {
  std::lock_guard lock(mutex_);
  for (const Entry& entry : entries) {
    if (entry.ticket->ring.empty()) ready_.push_back(entry.ticket);
    entry.ticket->ring.push(entry.emission, serial_++);
    if (entry.closes) entry.ticket->closed = true;
  }
}

}  // namespace headwater::engine
