#include "backend/cuda/sampling/sampler.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/step/step.h"
#include "ops/logit_blocks.h"

namespace headwater::backend::cuda {

using namespace sampling;

namespace {

static_assert(kBlockTokens == ops::kLogitBlock);
static_assert(kTopMax == ops::kLogprobsMax);

constexpr uint64_t groups_of(uint64_t blocks) {
  return (blocks + kGroupBlocks - 1) / kGroupBlocks;
}

RowCall row_call(const ops::SampleRow& row, uint32_t vocabulary) {
  const auto size = [](const auto& list, bool is_read) { return is_read ? static_cast<uint32_t>(list.size()) : 0; };
  return {.temperature = row.temperature,
          .min_p_floor = ops::min_p_floor(row),
          .top_p = row.top_p,
          .top_k = row.top_k < vocabulary ? row.top_k : 0,
          .repetition_penalty = row.repetition_penalty,
          .frequency_penalty = row.frequency_penalty,
          .presence_penalty = row.presence_penalty,
          .top_logprobs = std::min(row.top_logprobs, vocabulary),
          .draw = row.temperature == 0 ? 0 : ops::draw_bits(row),
          .biases = size(row.bias, true),
          .banned = size(row.banned, true),
          .prompt = size(row.prompt, row.repetition_penalty != 1.0f),
          .generated = size(row.generated, ops::counts_tokens(row)),
          .has_min_p = row.min_p > 0,
          .wants_logprobs = row.want_logprob || row.top_logprobs > 0,
          .changes_logits = ops::changes_logits(row)};
}

// Copies a list of token ids; returns what follows them.
uint32_t* put(std::span<const TokenId> ids, uint32_t count, uint32_t vocabulary, uint32_t* to) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < count; ++i) {
    to[i] = static_cast<uint32_t>(ids[i]);
    largest = std::max(largest, to[i]);
  }
  check(count == 0 || largest < vocabulary, "a token id outside the vocabulary");
  return to + count;
}

void put_lists(const ops::SampleRow& row, const RowCall& call, uint32_t vocabulary, uint32_t* to) {
  for (const ops::LogitBias& bias : row.bias) to = put({&bias.token, 1}, 1, vocabulary, to);
  to = put(row.banned, call.banned, vocabulary, to);
  to = put(row.prompt, call.prompt, vocabulary, to);
  to = put(row.generated, call.generated, vocabulary, to);
  for (const ops::LogitBias& bias : row.bias) *to++ = std::bit_cast<uint32_t>(bias.bias);
}

// The logarithm is the host's: the same bits as those of ops::sample_row().
void add_logprobs(const LogprobParts& parts, const RowCall& row, ops::Sampled& sampled) {
  const double log_total = ops::log_sum(parts.peak, parts.total);
  const auto logprob = [&](float logit) { return static_cast<float>(logit - log_total); };
  sampled.logprob = logprob(parts.chosen);
  sampled.top_count = row.top_logprobs;
  for (uint32_t i = 0; i < row.top_logprobs; ++i) {
    sampled.top[i] = {parts.top[i].token, logprob(parts.top[i].logit)};
  }
}

}  // namespace

Status Sampler::reserve(uint32_t rows_max, uint32_t vocabulary) {
  if (vocabulary > ops::kVocabularyMax) {
    return error(ErrorCode::kUnsupported, "a vocabulary of {} tokens; sampling takes up to {}", vocabulary,
                 ops::kVocabularyMax);
  }
  if (rows_max <= rows_max_ && vocabulary <= vocabulary_max_) return {};
  rows_max_ = std::max(rows_max_, rows_max);
  vocabulary_max_ = std::max(vocabulary_max_, vocabulary);
  Status status = allocate();
  if (!status) rows_max_ = vocabulary_max_ = 0;
  return status;
}

Status Sampler::allocate() {
  memory_.clear();
  counts_ = {};
  const uint64_t rows = rows_max_, blocks = ops::logit_blocks(vocabulary_max_), groups = groups_of(blocks);
  const auto give = [&]<typename T>(T*& to, uint64_t count) -> Status {
    HEADWATER_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::create(count * sizeof(T)));
    to = buffer.as<T>();
    memory_.push_back(std::move(buffer));
    return {};
  };
  HEADWATER_RETURN_IF_ERROR(give(call_.peaks, rows));
  HEADWATER_RETURN_IF_ERROR(give(call_.arrived, rows));
  HEADWATER_RETURN_IF_ERROR(give(call_.tokens, rows));
  HEADWATER_RETURN_IF_ERROR(give(call_.logprobs, rows));
  HEADWATER_RETURN_IF_ERROR(give(call_.maxima, rows * blocks));
  HEADWATER_RETURN_IF_ERROR(give(call_.sums, rows * blocks));
  HEADWATER_RETURN_IF_ERROR(give(call_.live, rows * blocks));
  HEADWATER_RETURN_IF_ERROR(give(call_.group_maxima, rows * groups));
  HEADWATER_RETURN_IF_ERROR(give(call_.group_sums, rows * groups));
  sampled_.resize(rows);
  for (Staging& staging : staging_) {
    HEADWATER_ASSIGN_OR_RETURN(staging.tokens, create_pinned(rows * sizeof(TokenId)));
    HEADWATER_ASSIGN_OR_RETURN(staging.logprobs, create_pinned(rows * sizeof(LogprobParts)));
    HEADWATER_ASSIGN_OR_RETURN(staging.done, Event::create());
    staging.row_calls.resize(rows);
    HEADWATER_RETURN_IF_ERROR(reserve_lists(staging, 0, 0, nullptr));
  }
  return {};
}

// Twice what there was, or more. counts: rows that count tokens.
Status Sampler::reserve_lists(Staging& staging, uint64_t words, uint64_t counts, cudaStream_t stream) {
  const uint64_t bytes = rows_max_ * sizeof(RowCall) + words * sizeof(uint32_t) + kUploadPiece;
  const uint64_t row_bytes = uint64_t{vocabulary_max_} * sizeof(uint32_t);
  if (staging.packed.size() < bytes) {
    HEADWATER_ASSIGN_OR_RETURN(staging.packed, create_pinned(std::max<uint64_t>(bytes, 2 * staging.packed.size())));
  }
  const bool moves =
      packed_on_device_.size() < bytes || saved_.size() < words * sizeof(float) || counts_.size() < counts * row_bytes;
  if (moves) HEADWATER_RETURN_IF_ERROR(checked(cudaStreamSynchronize(stream), "the sampling before"));
  if (packed_on_device_.size() < bytes) {
    HEADWATER_ASSIGN_OR_RETURN(packed_on_device_,
                               DeviceBuffer::create(std::max<uint64_t>(bytes, 2 * packed_on_device_.size())));
  }
  if (saved_.size() < words * sizeof(float)) {
    HEADWATER_ASSIGN_OR_RETURN(saved_, DeviceBuffer::create(std::max(words * sizeof(float), 2 * saved_.size())));
  }
  if (counts_.size() < counts * row_bytes) {
    const uint64_t grown = std::min<uint64_t>(std::max(counts * row_bytes, 2 * counts_.size()), rows_max_ * row_bytes);
    counts_ = {};
    HEADWATER_ASSIGN_OR_RETURN(counts_, DeviceBuffer::create(grown));
  }
  call_.saved = saved_.as<float>();
  call_.counts = counts_.as<uint32_t>();
  return {};
}

// Writes the rows' calls and the lists behind them into pinned memory.
Status Sampler::pack(Staging& staging, std::span<const ops::SampleRow> rows, cudaStream_t stream) {
  staging.any_draws = staging.any_changes = staging.any_logprobs = false;
  uint64_t words = 0;
  uint32_t counts = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    RowCall& call = staging.row_calls[i] = row_call(rows[i], call_.vocabulary);
    check(call.top_logprobs <= kTopMax, "more top logprobs than a row can hold");
    call.first_word = static_cast<uint32_t>(words);
    call.counts = counts;
    words += uint64_t{call.ids()} + call.biases;
    counts += call.biases + call.prompt + call.generated > 0 ? 1 : 0;
    staging.any_draws |= call.draws();
    staging.any_changes |= call.changes_logits;
    staging.any_logprobs |= call.wants_logprobs;
  }
  check(words < uint64_t{1} << 32, "more than 4 billion listed tokens");
  HEADWATER_RETURN_IF_ERROR(reserve_lists(staging, words, counts, stream));
  std::copy_n(staging.row_calls.begin(), rows.size(), staging.packed.as<RowCall>().begin());
  const uint64_t row_bytes = rows.size() * sizeof(RowCall);
  const auto lists = reinterpret_cast<uint32_t*>(staging.packed.data() + row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    put_lists(rows[i], staging.row_calls[i], call_.vocabulary, lists + staging.row_calls[i].first_word);
  }
  staging.packed_bytes = row_bytes + words * sizeof(uint32_t);  // up to 15 more are uploaded
  call_.row_calls = packed_on_device_.as<RowCall>();
  call_.words = reinterpret_cast<const uint32_t*>(packed_on_device_.data() + row_bytes);
  return {};
}

Status Sampler::sample(const ops::Matrix& logits, std::span<const ops::SampleRow> rows, cudaStream_t stream) {
  check(rows.size() <= rows_max_ && rows.size() <= logits.rows && logits.columns <= vocabulary_max_,
        "sample: more rows than logits, or than reserve() was told");
  check(waiting() < staging_.size(), "sample: two calls before wait to be collected");
  Staging& staging = staging_[calls_ % staging_.size()];
  staging.rows = call_.rows = static_cast<uint32_t>(rows.size());
  if (!rows.empty()) HEADWATER_RETURN_IF_ERROR(enqueue(staging, logits, rows, stream));
  ++calls_;
  return {};
}

Status Sampler::enqueue(Staging& staging, const ops::Matrix& logits, std::span<const ops::SampleRow> rows,
                        cudaStream_t stream) {
  call_.logits = logits.data;
  call_.stride = logits.stride;
  call_.vocabulary = logits.columns;
  call_.blocks = static_cast<uint32_t>(ops::logit_blocks(logits.columns));
  call_.groups = static_cast<uint32_t>(groups_of(call_.blocks));
  call_.has_fours =
      reinterpret_cast<uintptr_t>(logits.data) % 16 == 0 && logits.stride % 4 == 0 && logits.columns % 4 == 0;
  call_.tokens_sent = staging.tokens.as<TokenId>().data();
  HEADWATER_RETURN_IF_ERROR(pack(staging, rows, stream));
  HEADWATER_RETURN_IF_ERROR(launch(staging, stream));
  HEADWATER_RETURN_IF_ERROR(download(staging, stream));
  return checked(cudaEventRecord(staging.done.get(), stream), "an event");
}

Status Sampler::launch(const Staging& staging, cudaStream_t stream) const {
  HEADWATER_RETURN_IF_ERROR(
      checked(launch_upload(packed_on_device_.data(), staging.packed.data(), staging.packed_bytes, stream),
              "upload of sampling parameters"));
  HEADWATER_RETURN_IF_ERROR(checked(launch_scan(call_, stream), "launch of scan"));
  if (staging.any_logprobs) HEADWATER_RETURN_IF_ERROR(checked(launch_logprobs(call_, stream), "launch of logprobs"));
  if (staging.any_changes) HEADWATER_RETURN_IF_ERROR(checked(launch_edit(call_, stream), "launch of edit"));
  if (staging.any_draws) HEADWATER_RETURN_IF_ERROR(checked(launch_draw(call_, stream), "launch of draw"));
  return {};
}

// Tokens are written to the host's memory where they are chosen.
Status Sampler::download(const Staging& staging, cudaStream_t stream) const {
  if (!staging.any_logprobs) return {};
  return checked(cudaMemcpyAsync(staging.logprobs.data(), call_.logprobs, staging.rows * sizeof(LogprobParts),
                                 cudaMemcpyDeviceToHost, stream),
                 "download of logprobs");
}

Result<std::span<const ops::Sampled>> Sampler::collect() {
  check(waiting() > 0, "collect: no sample() waits for it");
  const Staging& staging = staging_[calls_collected_++ % staging_.size()];
  if (staging.rows > 0) HEADWATER_RETURN_IF_ERROR(checked(cudaEventSynchronize(staging.done.get()), "sampling"));
  for (uint32_t i = 0; i < staging.rows; ++i) {
    const TokenId token = staging.tokens.as<TokenId>()[i];
    sampled_[i] = {};
    if (token < 0) {
      sampled_[i].error = token == kBrokenLogits ? ErrorCode::kInternal : ErrorCode::kInvalidArgument;
    } else {
      sampled_[i].token = token;
      const RowCall& call = staging.row_calls[i];
      if (call.wants_logprobs) add_logprobs(staging.logprobs.as<LogprobParts>()[i], call, sampled_[i]);
    }
  }
  return std::span<const ops::Sampled>(sampled_.data(), staging.rows);
}

}  // namespace headwater::backend::cuda
