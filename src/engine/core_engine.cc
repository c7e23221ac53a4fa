#include "engine/core_engine.h"

#include <algorithm>
#include <random>

namespace headwater::engine {

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config, model::Decoder& decoder,
                                               ops::Backend& backend, const Clock* clock) {
  const model::ModelShape& model = decoder.shape();
  HEADWATER_ASSIGN_OR_RETURN(Sizing sizing, size_engine(config, model, backend.info(), backend.pool_memory()));
  // Activations and scratch come first: what they take is not the pool's.
  std::vector<ops::StepBlock> blocks;
  HEADWATER_ASSIGN_OR_RETURN(ops::StepBlock block, backend.create_step_block(sizing.limits));
  blocks.push_back(std::move(block));
  if (sizing.config.run_ahead) {
    HEADWATER_ASSIGN_OR_RETURN(ops::StepBlock twin, backend.create_twin(blocks.front()));
    blocks.push_back(std::move(twin));
  }
  HEADWATER_RETURN_IF_ERROR(decoder.prepare(sizing.limits, sizing.kv));
  HEADWATER_ASSIGN_OR_RETURN(const Sizing rest, size_engine(config, model, backend.info(), backend.pool_memory()));
  sizing.kv = rest.kv;
  sizing.config.kv_bytes = rest.config.kv_bytes;
  sizing.sequence_tokens_max = std::min(sizing.sequence_tokens_max, rest.sequence_tokens_max);
  std::random_device random;
  const auto word = [&random] { return uint64_t{random()} << 32 | random(); };
  HEADWATER_ASSIGN_OR_RETURN(kv::PagedCache cache,
                             kv::PagedCache::create({.pages = sizing.kv.pages,
                                                     .page_size = sizing.kv.page_size,
                                                     .sequences_max = sizing.limits.sequences_max,
                                                     .pages_per_sequence_max = sizing.limits.pages_per_sequence_max,
                                                     .prefix_cache = config.prefix_cache,
                                                     .hash_key = {word(), word()}}));
  std::vector<attention::Planner> planners;
  for (const uint32_t window : model.windows) {
    attention::PlanSettings settings = sizing.config.attention;
    settings.window = window;
    HEADWATER_ASSIGN_OR_RETURN(
        attention::Planner planner,
        attention::Planner::create(sizing.limits.plan_limits(), settings, backend.cost_model(sizing.kv, model.q_heads),
                                   backend.device_shape(sizing.kv, model.q_heads)));
    planners.push_back(std::move(planner));
  }
  sizing.config.attention = planners[model.widest_plan()].settings();
  HEADWATER_ASSIGN_OR_RETURN(std::unique_ptr<ops::KvPool> pool, backend.create_kv_pool(sizing.kv));
  CoreEngine::Parts parts{sizing, std::move(cache), std::move(planners), std::move(blocks), std::move(pool)};
  return std::unique_ptr<Engine>(std::make_unique<CoreEngine>(std::move(parts), decoder, backend, clock));
}

CoreEngine::CoreEngine(Parts parts, model::Decoder& decoder, ops::Backend& backend, const Clock* clock)
    : clock_(clock == nullptr ? system_clock_ : *clock),
      sizing_(parts.sizing),
      vocabulary_(decoder.shape().vocabulary),
      widest_plan_(decoder.shape().widest_plan()),
      inbox_(sizing_.config.queue_requests_max, sizing_.config.queue_tokens_max),
      outbox_(2 * (sizing_.config.queue_requests_max + sizing_.config.sequences_max)),
      decoder_(decoder),
      backend_(backend),
      pool_(std::move(parts.pool)),
      cache_(std::move(parts.cache)),
      planners_(std::move(parts.planners)),
      blocks_(std::move(parts.blocks)) {
  const uint32_t sequences = sizing_.config.sequences_max;
  requests_.reserve(sequences + sizing_.config.queue_requests_max);
  waiting_.reserve(sequences + sizing_.config.queue_requests_max);
  arrivals_.reserve(sizing_.config.queue_requests_max);
  running_.reserve(sequences);
  step_plan_.reserve(sequences, sequences);
  copies_.reserve(sequences);
  copies_from_.reserve(sequences);
  copies_to_.reserve(sequences);
  for (StepInFlight& step : steps_) step.rows.reserve(sequences);
  sample_rows_.reserve(sequences);
  entries_.reserve(sequences);
}

CoreEngine::~CoreEngine() {
  if (in_flight()) static_cast<void>(backend_.finish());  // the device is done with the pages and blocks before they go
}

Result<RequestId> CoreEngine::submit(Request request) {
  HEADWATER_RETURN_IF_ERROR(validate(request, sizing_, vocabulary_));
  const auto prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  HEADWATER_RETURN_IF_ERROR(inbox_.enter(prompt_tokens));
  const RequestId id = request_last_.fetch_add(1, std::memory_order_relaxed) + 1;
  auto ticket = std::make_shared<Ticket>(id, std::move(request), clock_.now_ns());
  if (Status status = outbox_.open(ticket); !status) {
    inbox_.leave(prompt_tokens);
    return status;
  }
  inbox_.push(std::move(ticket));
  return id;
}

void CoreEngine::cancel(RequestId request) {
  const std::shared_ptr<Ticket> ticket = outbox_.find(request);
  if (ticket == nullptr) return;
  ticket->cancelled.store(true, std::memory_order_relaxed);
  ticket->signalled.store(true, std::memory_order_release);
  inbox_.ring();
}

void CoreEngine::finish_choice(RequestId request, uint32_t choice) {
  const std::shared_ptr<Ticket> ticket = outbox_.find(request);
  if (ticket == nullptr || choice >= ticket->request.n) return;
  ticket->choices_stopped[choice].store(true, std::memory_order_relaxed);
  ticket->signalled.store(true, std::memory_order_release);
  inbox_.ring();
}

size_t CoreEngine::poll(RequestId request, std::span<Emission> out) {
  const size_t count = outbox_.poll(request, out);
  if (count > 0 && sizing_.config.outbox_emissions_max > 0) inbox_.ring();  // a paused request may go on
  return count;
}

size_t CoreEngine::poll_any(std::span<Emission> out) {
  const size_t count = outbox_.poll_any(out);
  if (count > 0 && sizing_.config.outbox_emissions_max > 0) inbox_.ring();
  return count;
}

bool CoreEngine::wait_for_work(int64_t nanoseconds) {
  return in_flight() || can_advance() || inbox_.wait(nanoseconds);
}

Status CoreEngine::audit() const {
  HEADWATER_RETURN_IF_ERROR(cache_.audit());
  size_t running = 0;
  size_t waiting = 0;
  size_t in_flight = 0;
  for (const auto& request : requests_) {
    uint32_t unfinished = 0;
    for (const Sequence& sequence : request->choices) {
      const bool runs = sequence.phase == Phase::kRunning;
      running += runs;
      waiting += sequence.phase == Phase::kWaiting;
      unfinished += sequence.phase != Phase::kFinished;
      if (runs != (sequence.slot != kNoSlot) ||
          (!runs && sequence.phase == Phase::kWaiting && sequence.computed != 0)) {
        return error(ErrorCode::kInternal, "request {} choice {}: its slot does not fit its phase", request->ticket->id,
                     sequence.choice);
      }
      if (!runs) continue;
      in_flight += sequence.in_flight;
      const size_t tokens_held = cache_.pages(sequence.slot).size() * sizing_.config.page_size;
      if (sequence.computed > tokens_held || sequence.tokens_left() == 0) {
        return error(ErrorCode::kInternal,
                     "request {} choice {}: {} tokens computed, {} known, {} in flight, pages for {}",
                     request->ticket->id, sequence.choice, sequence.computed, sequence.tokens().size(),
                     sequence.in_flight, tokens_held);
      }
    }
    if (unfinished != request->choices_left || unfinished == 0) {
      return error(ErrorCode::kInternal, "request {} counts {} choices left and has {}", request->ticket->id,
                   request->choices_left, unfinished);
    }
  }
  if (running != running_.size() || waiting != waiting_.size() || running != cache_.sequences_open() ||
      !std::ranges::is_sorted(running_, goes_before) || !std::ranges::is_sorted(waiting_, goes_before)) {
    return error(ErrorCode::kInternal,
                 "{} sequences run, {} are listed, {} slots are open; {} wait, {} are listed; or the "
                 "lists are out of order",
                 running, running_.size(), cache_.sequences_open(), waiting, waiting_.size());
  }
  size_t rows = 0;  // of steps in flight, whose sequences have not ended
  for (uint64_t i = steps_collected_; i < steps_launched_; ++i) {
    for (const StepInFlight::Row& row : steps_[i % steps_.size()].rows) {
      if (row.sequence == nullptr) continue;
      ++rows;
      if (std::ranges::find(running_, row.sequence) == running_.end() || row.sequence->in_flight != 1) {
        return error(ErrorCode::kInternal, "a step in flight has a row of a sequence that does not wait for it");
      }
    }
  }
  if (rows != in_flight) {
    return error(ErrorCode::kInternal, "{} tokens are in flight for sequences, {} in steps", in_flight, rows);
  }
  return {};
}

}  // namespace headwater::engine
