#include "engine/scheduler.h"

#include <algorithm>

namespace headwater::engine {
namespace {

uint32_t pages_for(size_t tokens, uint32_t page_size) {
  return static_cast<uint32_t>((tokens + page_size - 1) / page_size);
}

bool decodes(const Sequence& sequence) {
  return sequence.tokens_left() == 1 && sequence.generated_total() > 0;
}

// Gives the running sequences their chunks and returns what is left of the budget.
uint32_t schedule_running(std::span<Sequence* const> running, uint32_t budget, StepPlan& plan) {
  plan.chunks.assign(running.size(), 0);
  for (const bool decode : {true, false}) {
    for (size_t i = 0; i < running.size() && budget > 0; ++i) {
      const Sequence& sequence = *running[i];
      if (sequence.blocked || sequence.awaits_its_last() || decodes(sequence) != decode) continue;
      plan.chunks[i] = std::min(budget, sequence.tokens_left());
      budget -= plan.chunks[i];
    }
  }
  return budget;
}

// Pages that the running sequences will take: all their known tokens, and one page each to grow into.
uint32_t pages_promised(std::span<Sequence* const> running, const kv::PagedCache& cache) {
  uint32_t promised = 0;
  for (const Sequence* sequence : running) {
    const uint32_t pages_all = pages_for(sequence->tokens_total(), cache.config().page_size);
    const auto pages_now = static_cast<uint32_t>(cache.pages(sequence->slot).size());
    promised += 1 + (pages_all > pages_now ? pages_all - pages_now : 0);
  }
  return promised;
}

// Whether `other` will compute the page of `sequence` that ends at `page_end`.
bool computes(const Sequence& other, const Sequence& sequence, size_t page_end) {
  return !other.blocked && other.computed < page_end && other.tokens().size() >= page_end &&
         other.salt() == sequence.salt() &&
         std::ranges::equal(other.tokens().first(page_end), sequence.tokens().first(page_end));
}

// The walk over the waiting sequences, with what it has given away so far.
struct Walk {
  std::span<Sequence* const> running;
  const kv::PagedCache& cache;
  StepPlan& plan;
  uint32_t budget;
  uint32_t sequences_free;
  uint32_t pages_promised;

  enum class Verdict : uint8_t { kAdmitted, kPassedOver, kStarved };

  bool admitted_now(const Sequence& sequence) const {
    return std::ranges::any_of(plan.admissions, [&](const Admission& a) { return a.sequence == &sequence; });
  }

  bool page_is_being_computed(const Sequence& sequence, size_t page_end) const {
    return std::ranges::any_of(running, [&](const Sequence* other) { return computes(*other, sequence, page_end); }) ||
           std::ranges::any_of(plan.admissions,
                               [&](const Admission& a) { return computes(*a.sequence, sequence, page_end); });
  }

  Verdict admit(Sequence& sequence, Sequence* fork_from, uint32_t pages, uint32_t tokens_known) {
    if (sequences_free == 0 || pages_promised + pages > cache.pages_available()) return Verdict::kStarved;
    const uint32_t tokens = std::min(budget, static_cast<uint32_t>(sequence.tokens().size()) - tokens_known);
    plan.admissions.push_back({&sequence, fork_from, tokens});
    budget -= tokens;
    --sequences_free;
    pages_promised += pages + 1;
    return Verdict::kAdmitted;
  }

  Verdict consider(Sequence& sequence) {
    const auto prompt_tokens = static_cast<uint32_t>(sequence.prompt().size());
    if (sequence.generated().empty()) {
      for (Sequence& sibling : sequence.request->choices) {
        const bool ran = sibling.phase == Phase::kRunning;
        if (ran && sibling.computed >= prompt_tokens) return admit(sequence, &sibling, 1, prompt_tokens - 1);
        if ((ran && !sibling.blocked) || admitted_now(sibling)) return Verdict::kPassedOver;
      }
    }
    const uint32_t page_size = cache.config().page_size;
    const auto usable = sequence.tokens().first(sequence.tokens().size() - 1);  // the last token is always computed
    const kv::PrefixMatch match = cache.match(usable, sequence.salt());
    const size_t page_end = size_t{match.tokens} + page_size;
    if (cache.config().prefix_cache && page_end <= usable.size() && page_is_being_computed(sequence, page_end)) {
      plan.waits.push_back(&sequence);
      return Verdict::kPassedOver;
    }
    const uint32_t pages = pages_for(sequence.tokens().size(), page_size) - match.tokens / page_size;
    return admit(sequence, nullptr, pages + match.pages_evictable, match.tokens);
  }
};

}  // namespace

void StepPlan::reserve(uint32_t sequences_max, uint32_t lookahead_max) {
  chunks.reserve(sequences_max);
  admissions.reserve(sequences_max);
  waits.reserve(lookahead_max);
}

void schedule(std::span<Sequence* const> running, std::span<Sequence* const> waiting, const Capacity& capacity,
              const kv::PagedCache& cache, StepPlan& plan) {
  plan.admissions.clear();
  plan.waits.clear();
  plan.starved = false;
  Walk walk{.running = running,
            .cache = cache,
            .plan = plan,
            .budget = schedule_running(running, capacity.step_tokens_max, plan),
            .sequences_free = capacity.sequences_free,
            .pages_promised = waiting.empty() ? 0 : pages_promised(running, cache)};
  uint32_t looked_at = 0;
  for (Sequence* sequence : waiting) {
    if (sequence->blocked) continue;  // any number of them may stand in front
    if (walk.budget == 0 || looked_at++ == capacity.lookahead_max) return;
    if (walk.consider(*sequence) == Walk::Verdict::kStarved) {
      plan.starved = true;
      return;
    }
  }
}

Sequence* victim(std::span<Sequence* const> running) {
  Sequence* last = nullptr;
  for (Sequence* sequence : running) {
    if (sequence->phase != Phase::kRunning) continue;
    if (sequence->blocked) return sequence;
    last = sequence;
  }
  return last;
}

}  // namespace headwater::engine
