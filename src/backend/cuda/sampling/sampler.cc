#include "backend/cuda/sampling/sampler.h"

#include <algorithm>
#include <bit>

#include "ops/logit_blocks.h"

namespace headwater::backend::cuda {

using namespace sampling;

namespace {

static_assert(kBlockTokens == ops::kLogitBlock);
static_assert(kTopMax == ops::kLogprobsMax);

constexpr uint64_t groups_of(uint64_t blocks) {
  return (blocks + kGroupBlocks - 1) / kGroupBlocks;
}

bool counts_tokens(const ops::SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.frequency_penalty != 0 || row.presence_penalty != 0;
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
          .generated = size(row.generated, counts_tokens(row)),
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
  HEADWATER_ASSIGN_OR_RETURN(tokens_, create_pinned(rows * sizeof(TokenId)));
  HEADWATER_ASSIGN_OR_RETURN(logprobs_, create_pinned(rows * sizeof(LogprobParts)));
  HEADWATER_ASSIGN_OR_RETURN(done_, Event::create());
  row_calls_.resize(rows);
  sampled_.resize(rows);
  return reserve_lists(0, 0);
}

// Twice what there was, or more. counts: rows that count tokens.
Status Sampler::reserve_lists(uint64_t words, uint64_t counts) {
  const uint64_t bytes = rows_max_ * sizeof(RowCall) + words * sizeof(uint32_t);
  if (packed_.size() < bytes) {
    const uint64_t grown = std::max<uint64_t>(bytes, 2 * packed_.size());
    HEADWATER_ASSIGN_OR_RETURN(packed_on_device_, DeviceBuffer::create(grown));
    HEADWATER_ASSIGN_OR_RETURN(packed_, create_pinned(grown));
  }
  if (saved_.size() < words * sizeof(float)) {
    HEADWATER_ASSIGN_OR_RETURN(saved_, DeviceBuffer::create(std::max(words * sizeof(float), 2 * saved_.size())));
  }
  const uint64_t row_bytes = uint64_t{vocabulary_max_} * sizeof(uint32_t);
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
Status Sampler::pack(std::span<const ops::SampleRow> rows) {
  any_draws_ = any_changes_ = any_logprobs_ = false;
  uint64_t words = 0;
  uint32_t counts = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    RowCall& call = row_calls_[i] = row_call(rows[i], call_.vocabulary);
    check(call.top_logprobs <= kTopMax, "more top logprobs than a row can hold");
    call.first_word = static_cast<uint32_t>(words);
    call.counts = counts;
    words += uint64_t{call.ids()} + call.biases;
    counts += call.biases + call.prompt + call.generated > 0 ? 1 : 0;
    any_draws_ |= call.draws();
    any_changes_ |= call.changes_logits;
    any_logprobs_ |= call.wants_logprobs;
  }
  check(words < uint64_t{1} << 32, "more than 4 billion listed tokens");
  HEADWATER_RETURN_IF_ERROR(reserve_lists(words, counts));
  std::copy_n(row_calls_.begin(), rows.size(), packed_.as<RowCall>().begin());
  const uint64_t row_bytes = rows.size() * sizeof(RowCall);
  const auto lists = reinterpret_cast<uint32_t*>(packed_.data() + row_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    put_lists(rows[i], row_calls_[i], call_.vocabulary, lists + row_calls_[i].first_word);
  }
  packed_bytes_ = row_bytes + words * sizeof(uint32_t);
  call_.row_calls = packed_on_device_.as<RowCall>();
  call_.words = reinterpret_cast<const uint32_t*>(packed_on_device_.data() + row_bytes);
  return {};
}

Status Sampler::sample(const ops::Matrix& logits, std::span<const ops::SampleRow> rows, cudaStream_t stream) {
  check(rows.size() <= rows_max_ && rows.size() <= logits.rows && logits.columns <= vocabulary_max_,
        "sample: more rows than logits, or than reserve() was told");
  call_.rows = 0;
  if (rows.empty()) return {};
  HEADWATER_RETURN_IF_ERROR(checked(cudaEventSynchronize(done_.get()), "the sampling before"));
  call_.logits = logits.data;
  call_.stride = logits.stride;
  call_.vocabulary = logits.columns;
  call_.blocks = static_cast<uint32_t>(ops::logit_blocks(logits.columns));
  call_.groups = static_cast<uint32_t>(groups_of(call_.blocks));
  HEADWATER_RETURN_IF_ERROR(pack(rows));
  call_.rows = static_cast<uint32_t>(rows.size());
  HEADWATER_RETURN_IF_ERROR(launch(stream));
  HEADWATER_RETURN_IF_ERROR(download(stream));
  return checked(cudaEventRecord(done_.get(), stream), "an event");
}

Status Sampler::launch(cudaStream_t stream) const {
  HEADWATER_RETURN_IF_ERROR(
      checked(cudaMemcpyAsync(packed_on_device_.data(), packed_.data(), packed_bytes_, cudaMemcpyHostToDevice, stream),
              "upload of sampling parameters"));
  HEADWATER_RETURN_IF_ERROR(checked(launch_scan(call_, stream), "launch of scan"));
  if (any_logprobs_) HEADWATER_RETURN_IF_ERROR(checked(launch_logprobs(call_, stream), "launch of logprobs"));
  if (any_changes_) HEADWATER_RETURN_IF_ERROR(checked(launch_edit(call_, stream), "launch of edit"));
  if (any_draws_) HEADWATER_RETURN_IF_ERROR(checked(launch_draw(call_, stream), "launch of draw"));
  return {};
}

Status Sampler::download(cudaStream_t stream) const {
  const auto copy = [&](const Buffer& to, const void* from, size_t bytes) {
    return checked(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyDeviceToHost, stream), "download of tokens");
  };
  HEADWATER_RETURN_IF_ERROR(copy(tokens_, call_.tokens, call_.rows * sizeof(TokenId)));
  return any_logprobs_ ? copy(logprobs_, call_.logprobs, call_.rows * sizeof(LogprobParts)) : Status();
}

Result<std::span<const ops::Sampled>> Sampler::collect() {
  if (call_.rows > 0) HEADWATER_RETURN_IF_ERROR(checked(cudaEventSynchronize(done_.get()), "sampling"));
  for (uint32_t i = 0; i < call_.rows; ++i) {
    const TokenId token = tokens_.as<TokenId>()[i];
    sampled_[i] = {};
    if (token < 0) {
      sampled_[i].error = token == kBrokenLogits ? ErrorCode::kInternal : ErrorCode::kInvalidArgument;
    } else {
      sampled_[i].token = token;
      if (row_calls_[i].wants_logprobs) add_logprobs(logprobs_.as<LogprobParts>()[i], row_calls_[i], sampled_[i]);
    }
  }
  return std::span<const ops::Sampled>(sampled_.data(), call_.rows);
}

}  // namespace headwater::backend::cuda
