#include "attention/plan.h"

#include <algorithm>

#include "attention/cut.h"
#include "attention/decide.h"
#include "attention/emit.h"
#include "attention/forest.h"
#include "attention/rules.h"
#include "attention/update.h"
#include "attention/validate.h"

namespace headwater::attention {

// Flat and uncut, a block of tokens is one item that writes its output itself: at most an item a token, and no partial.
// The rest is room for shared nodes and for pieces.
uint32_t PlanLimits::items_max() const {
  return tokens_max + 2 * sequences_max + 1024;
}

// A decode token behind a shared prefix has one state of its first item and one for every cut of the others: at most
// one a cut of its context, and a cut is a page or more. 64 are 16,384 tokens at the usual cut of 256; a longer private
// tail behind a prefix stays flat. Many workers want a few sequences in as many pieces.
uint32_t PlanLimits::partials_max() const {
  constexpr uint32_t kStatesMax = 64, kTokensOfAPiece = 16;
  return 2 * tokens_max + sequences_max * std::min(pages_per_sequence_max + 2, kStatesMax) +
         kTokensOfAPiece * (workers - 1);
}

struct Planner::Impl {
  explicit Impl(const Rules& from)
      : rules(from), forest(rules), decider(rules), cutter(rules), emitter(rules), previous(rules) {
    flat_drafts.reserve(rules.limits.items_max());
    shared_drafts.reserve(rules.limits.items_max());
  }
  Impl(const Impl&) = delete;  // the members refer to `rules`

  void arrange(const PageTable& table);
  bool share(const Balance& flat, Balance& shared, Outcome& outcome);
  void patch(const PageTable& table);

  const Rules rules;
  PrefixForest forest;
  Decider decider;
  Cutter cutter;
  Emitter emitter;
  PreviousStep previous;
  std::vector<Draft> flat_drafts, shared_drafts;
  Plan plan;
};

// True when the decider's choice is taken; else says in the outcome why not.
bool Planner::Impl::share(const Balance& flat, Balance& shared, Outcome& outcome) {
  decider.decide(forest);
  if (decider.attended_shared() > 0) {
    const bool drafted = cutter.draft(forest, decider, shared_drafts);
    if (drafted) shared = cutter.balance(shared_drafts);
    const bool fits = drafted && cutter.fits(shared);
    if (rules.settings.sharing == Sharing::kAuto && fits &&
        rules.step + shared.makespan_ns >= (1 - rules.gain_min) * (rules.step + flat.makespan_ns)) {
      decider.push_all(forest);  // cheaper in sum, but the workers would not finish sooner
    } else if (rules.settings.inject_failure || !fits) {
      Outcome rest;
      decider.describe(forest, rest);
      for (size_t i = 0; i < kNotSharedKinds; ++i) outcome.not_shared[i] += rest.not_shared[i];
      const NotShared reason = rules.settings.inject_failure ? NotShared::kFailed : NotShared::kPlanCapacity;
      ++outcome.not_shared[static_cast<size_t>(reason)];
      return false;
    }
  }
  decider.describe(forest, outcome);
  return outcome.groups > 0;
}

void Planner::Impl::arrange(const PageTable& table) {
  forest.measure(table);
  Outcome outcome;
  outcome.not_shared = forest.not_shared();

  decider.push_all(forest);
  check(cutter.draft(forest, decider, flat_drafts), "a flat plan exceeds the plan's arrays");
  const Balance flat = cutter.balance(flat_drafts);
  Balance shared;
  const bool sharing = share(flat, shared, outcome);
  const std::vector<Draft>& drafts = sharing ? shared_drafts : flat_drafts;
  const Balance& balance = sharing ? shared : flat;
  emitter.emit(table, forest, drafts, balance, plan);

  const auto bytes = [&](const std::vector<Draft>& read) {
    uint64_t keys = 0;
    for (const Draft& draft : read) keys += draft.block.key_end - draft.block.key_begin;
    return keys * rules.device.kv_bytes_token;
  };
  if (sharing) outcome.path = outcome.members_total == forest.order().size() ? Path::kShared : Path::kMixed;
  outcome.items = static_cast<uint32_t>(balance.items);
  outcome.splits = static_cast<uint32_t>(balance.items - drafts.size());
  outcome.bytes_read = bytes(drafts);
  outcome.bytes_flat = bytes(flat_drafts);
  outcome.bytes_unique = forest.keys_unique(table) * rules.device.kv_bytes_token;
  outcome.predicted_ns = rules.step + balance.makespan_ns;
  plan.outcome = outcome;
  plan.keys_new = 0;
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    plan.keys_new = std::max(plan.keys_new, table.q_indptr[r + 1] - table.q_indptr[r]);
  }
}

void Planner::Impl::patch(const PageTable& table) {
  const uint64_t keys_read = emitter.grow(table, forest, previous.growth());
  uint64_t keys_unique = 0;
  for (uint32_t s : forest.order()) keys_unique += previous.growth()[s];
  // Only tails grow, and every plan reads them alike.
  plan.outcome.bytes_read += keys_read * rules.device.kv_bytes_token;
  plan.outcome.bytes_flat += keys_read * rules.device.kv_bytes_token;
  plan.outcome.bytes_unique += keys_unique * rules.device.kv_bytes_token;
}

Result<Planner> Planner::create(const PlanLimits& limits, const PlanSettings& settings, const CostModel& cost,
                                const DeviceShape& device) {
  HEADWATER_RETURN_IF_ERROR(check_planner(limits, settings, cost, device));
  return Planner(std::make_unique<Impl>(Rules::create(settings, cost, device, limits)));
}

Planner::Planner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->plan.cut = impl_->rules.settings.cut;
  impl_->plan.window = impl_->rules.settings.window;
}
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;
Planner::~Planner() = default;

Result<const Plan*> Planner::plan(const PageTable& table) {
  HEADWATER_RETURN_IF_ERROR(check_page_table(table, impl_->rules.limits));
  const Reuse reuse = impl_->previous.reusable(table);
  if (reuse == Reuse::kNothing) return plan_from_scratch(table);
  if (reuse == Reuse::kPlan) {
    impl_->patch(table);
    impl_->previous.advance(table);
  } else {
    impl_->arrange(table);
    impl_->previous.remember(table, false);
  }
  impl_->plan.outcome.incremental = true;
  return &impl_->plan;
}

Result<const Plan*> Planner::plan_from_scratch(const PageTable& table) {
  HEADWATER_RETURN_IF_ERROR(check_page_table(table, impl_->rules.limits));
  impl_->forest.build(table);
  impl_->arrange(table);
  impl_->previous.remember(table, !impl_->forest.overlaps().empty());
  return &impl_->plan;
}

const PlanSettings& Planner::settings() const {
  return impl_->rules.settings;
}
const PlanLimits& Planner::limits() const {
  return impl_->rules.limits;
}

}  // namespace headwater::attention
