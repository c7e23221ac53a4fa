// Sequences -> one step block: tokens, positions, where their keys and values go, page table, and the rows to sample.
#include <utility>

#include "engine/core_engine.h"

namespace headwater::engine {

bool CoreEngine::fill_batch() {
  StepInFlight& step = steps_[steps_launched_ % steps_.size()];
  step.rows.clear();
  step.tokens = 0;
  step.is_begun = false;
  sample_rows_.clear();
  uint32_t pages = 0;
  for (Sequence* sequence : running_) {
    if (sequence->chunk == 0) continue;
    const bool is_sampled = sequence->chunk == sequence->tokens_left();
    step.rows.push_back({sequence, sequence->computed + sequence->chunk, is_sampled});
    step.tokens += sequence->chunk;
    pages += static_cast<uint32_t>(cache_.pages(sequence->slot).size());
    if (is_sampled) sample_rows_.push_back(sample_row(*sequence));
  }
  step.rows_sampled = static_cast<uint32_t>(sample_rows_.size());
  copies_from_.clear();
  copies_to_.clear();
  for (const kv::PageCopy& copy : copies_) {
    copies_from_.push_back(copy.from);
    copies_to_.push_back(copy.to);
  }
  if (step.rows.empty()) return false;

  ++steps_launched_;
  ops::StepBlock& block = newest_block();
  block.layout(static_cast<uint32_t>(step.rows.size()), step.tokens, step.rows_sampled, pages);
  block.q_indptr()[0] = 0;
  block.page_indptr()[0] = 0;
  uint32_t logits = 0;
  for (uint32_t row = 0; row < step.rows.size(); ++row) {
    Sequence& sequence = *step.rows[row].sequence;
    fill_sequence(block, sequence, row, block.q_indptr()[row]);
    sequence.computed += std::exchange(sequence.chunk, 0);
    if (!step.rows[row].is_sampled) continue;
    ++sequence.in_flight;
    sequence.row = logits;
    block.logits_tokens()[logits++] = block.q_indptr()[row + 1] - 1;
  }
  return true;
}

void CoreEngine::fill_sequence(ops::StepBlock& block, const Sequence& sequence, uint32_t row, uint32_t token_first) {
  const uint32_t page_size = sizing_.config.page_size;
  const std::span<const PageId> pages = cache_.pages(sequence.slot);
  const std::span<const TokenId> tokens = sequence.tokens();
  for (uint32_t i = 0; i < sequence.chunk; ++i) {
    const uint32_t position = sequence.computed + i;
    block.token_ids()[token_first + i] = position < tokens.size() ? tokens[position] : ops::pending_token(sequence.row);
    block.positions()[token_first + i] = position;
    block.append_pages()[token_first + i] = pages[position / page_size];
    block.append_slots()[token_first + i] = position % page_size;
  }
  const uint32_t page_first = block.page_indptr()[row];
  std::copy(pages.begin(), pages.end(), block.page_ids().begin() + page_first);
  block.page_indptr()[row + 1] = page_first + static_cast<uint32_t>(pages.size());
  block.q_indptr()[row + 1] = token_first + sequence.chunk;
  block.kv_len()[row] = sequence.computed + sequence.chunk;
  block.versions()[row] = cache_.version(sequence.slot);
  if (sizing_.config.inject_page_fault && row == 0 && pages.size() > 1) {
    block.page_ids()[page_first] = pages[1];  // its first page is read as its second
    block.versions()[row] = 0;
  }
}

ops::SampleRow CoreEngine::sample_row(const Sequence& sequence) const {
  const SamplingParams& sampling = sequence.request->ticket->request.sampling;
  const uint32_t position = sequence.generated_total();
  const bool stop_banned = position < sampling.tokens_min && !sampling.ignore_stop_ids;
  return {.temperature = sampling.temperature,
          .top_k = sampling.top_k,
          .top_p = sampling.top_p,
          .min_p = sampling.min_p,
          .repetition_penalty = sampling.repetition_penalty,
          .frequency_penalty = sampling.frequency_penalty,
          .presence_penalty = sampling.presence_penalty,
          .seed = sampling.seed,
          .choice = sequence.choice,
          .position = position,
          .bias = sampling.logit_bias,
          .banned = stop_banned ? std::span<const TokenId>(sampling.stop_ids) : std::span<const TokenId>(),
          .prompt = sequence.prompt(),
          .generated = sequence.generated(),
          .want_logprob = sampling.want_logprobs,
          .top_logprobs = sampling.top_logprobs};
}

}  // namespace headwater::engine
