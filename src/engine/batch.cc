// Sequences -> one step block: tokens, positions, where their keys and values go, page table, and the rows to sample.
#include "engine/core_engine.h"

namespace headwater::engine {

bool CoreEngine::fill_batch() {
  batch_.clear();
  batch_sampled_.clear();
  sample_rows_.clear();
  uint32_t tokens = 0;
  uint32_t pages = 0;
  for (Sequence* sequence : running_) {
    if (sequence->chunk == 0) continue;
    batch_.push_back(sequence);
    tokens += sequence->chunk;
    pages += static_cast<uint32_t>(cache_.pages(sequence->slot).size());
    if (sequence->chunk < sequence->tokens_left()) continue;
    batch_sampled_.push_back(sequence);
    sample_rows_.push_back(sample_row(*sequence));
  }
  copies_from_.clear();
  copies_to_.clear();
  for (const kv::PageCopy& copy : copies_) {
    copies_from_.push_back(copy.from);
    copies_to_.push_back(copy.to);
  }
  if (batch_.empty()) return false;

  block_.layout(static_cast<uint32_t>(batch_.size()), tokens, static_cast<uint32_t>(batch_sampled_.size()), pages);
  block_.q_indptr()[0] = 0;
  block_.page_indptr()[0] = 0;
  uint32_t logits = 0;
  for (uint32_t row = 0; row < batch_.size(); ++row) {
    const uint32_t token_first = block_.q_indptr()[row];
    fill_sequence(*batch_[row], row, token_first);
    const uint32_t token_end = block_.q_indptr()[row + 1];
    if (batch_[row]->chunk == batch_[row]->tokens_left()) block_.logits_tokens()[logits++] = token_end - 1;
  }
  return true;
}

void CoreEngine::fill_sequence(const Sequence& sequence, uint32_t row, uint32_t token_first) {
  const uint32_t page_size = sizing_.config.page_size;
  const std::span<const PageId> pages = cache_.pages(sequence.slot);
  const std::span<const TokenId> tokens = sequence.tokens();
  for (uint32_t i = 0; i < sequence.chunk; ++i) {
    const uint32_t position = sequence.computed + i;
    block_.token_ids()[token_first + i] = tokens[position];
    block_.positions()[token_first + i] = position;
    block_.append_pages()[token_first + i] = pages[position / page_size];
    block_.append_slots()[token_first + i] = position % page_size;
  }
  const uint32_t page_first = block_.page_indptr()[row];
  std::copy(pages.begin(), pages.end(), block_.page_ids().begin() + page_first);
  block_.page_indptr()[row + 1] = page_first + static_cast<uint32_t>(pages.size());
  block_.q_indptr()[row + 1] = token_first + sequence.chunk;
  block_.kv_len()[row] = sequence.computed + sequence.chunk;
  block_.versions()[row] = cache_.version(sequence.slot);
  if (sizing_.config.inject_page_fault && row == 0 && pages.size() > 1) {
    block_.page_ids()[page_first] = pages[1];  // its first page is read as its second
    block_.versions()[row] = 0;
  }
}

ops::SampleRow CoreEngine::sample_row(const Sequence& sequence) const {
  const SamplingParams& sampling = sequence.request->ticket->request.sampling;
  const auto position = static_cast<uint32_t>(sequence.generated().size());
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
