// For attention's tests and bench: random sequences in a pool, a plan built by hand, and the answer in plain double
// loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "backend/cpu/attention.h"
#include "support/kv_rows.h"

namespace headwater::backend::cpu {

struct KitShape {
  uint32_t q_heads = 9;
  uint32_t kv_heads = 3;
  uint32_t head_dim = 64;
  uint32_t v_head_dim = 64;
  uint32_t page_size = 32;
  DType dtype = DType::kBF16;
  uint32_t cut = 256;
  uint32_t window = 0;
  float softcap = 0.0f;
  bool sinks = false;
};

// `shared` leading tokens (whole pages) that all sequences have in common, then a private tail; the last q_len tokens
// are the step's queries.
struct KitSequence {
  uint32_t kv_len;
  uint32_t q_len = 1;
};

// One item to be; a plan lists the pieces of a token in key order. Tokens [token_begin, + token_count) in plan order
// against keys [key_begin, key_end).
struct Piece {
  uint32_t token_begin;
  uint32_t token_count;
  uint32_t key_begin;
  uint32_t key_end;
};

class AttentionKit {
 public:
  AttentionKit(Target target, const KitShape& shape, std::vector<KitSequence> sequences, uint32_t shared,
               uint32_t threads = 1, uint32_t first_page = 3)
      : shape_(shape),
        sequences_(std::move(sequences)),
        shared_(shared),
        pool_(ThreadPool::create(threads).value()),
        attention_(target, *pool_) {
    place_pages(first_page);
    fill();
    for (const KitSequence& sequence : sequences_) tokens_ += sequence.q_len;
    order_.resize(tokens_);
    for (uint32_t token = 0; token < tokens_; ++token) order_[token] = token;
    ops::StepLimits limits{.sequences_max = static_cast<uint32_t>(sequences_.size()),
                           .tokens_max = static_cast<uint32_t>(longest() + tokens_),
                           .pages_per_sequence_max = longest() / shape.page_size + 1,
                           .page_size = shape.page_size};
    check(attention_.reserve(limits, kv_->shape(), shape.q_heads).is_ok(), "reserve");
    append();
    q_.resize(uint64_t{tokens_} * shape.q_heads * shape.head_dim);
    for (float& value : q_) value = random() * 2;
    for (uint32_t head = 0; head < shape.q_heads; ++head) sinks_.push_back(random() * 3);
  }

  uint32_t tokens() const { return tokens_; }
  Attention& attention() { return attention_; }
  CpuKvPool& kv() { return static_cast<CpuKvPool&>(*kv_); }
  const std::vector<PageId>& pages_of(uint32_t sequence) const { return pages_[sequence]; }
  void set_order(std::vector<uint32_t> order) { order_ = std::move(order); }

  // Every sequence by itself, pieces of at most `keys` keys (a multiple of the cut; 0: whole).
  std::vector<Piece> flat(uint32_t keys = 0) const {
    std::vector<Piece> pieces;
    for (uint32_t token = 0; token < tokens_; ++token) {
      const uint32_t end = kv_len_of(order_[token]);
      const uint32_t step = keys == 0 ? end : keys;
      for (uint32_t key = 0; key < end; key += step) pieces.push_back({token, 1, key, std::min(end, key + step)});
    }
    return pieces;
  }
  // The same with all query tokens of a sequence in one piece.
  std::vector<Piece> flat_by_sequence() const {
    std::vector<Piece> pieces;
    uint32_t token = 0;
    for (const KitSequence& sequence : sequences_) {
      pieces.push_back({token, sequence.q_len, 0, sequence.kv_len});
      token += sequence.q_len;
    }
    return pieces;
  }
  // The shared run once for all tokens, then every tail; tokens of one sequence stay together.
  std::vector<Piece> shared() const {
    std::vector<Piece> pieces = {{0, tokens_, 0, shared_}};
    for (uint32_t token = 0; token < tokens_; ++token) pieces.push_back({token, 1, shared_, kv_len_of(order_[token])});
    return pieces;
  }

  // Makes the pieces the plan of the following attend() and merge().
  void plan(const std::vector<Piece>& pieces) {
    items_.clear();
    partials_ = 0;
    std::vector<std::vector<uint32_t>> slots(tokens_);
    page_ids_.clear();
    for (const Piece& piece : pieces) add_item(piece, pieces, slots);
    merge_indptr_.assign(1, 0);
    merge_slots_.clear();
    empty_.assign(tokens_, 0);
    position_.resize(tokens_);
    for (uint32_t token = 0; token < tokens_; ++token) {
      merge_slots_.insert(merge_slots_.end(), slots[token].begin(), slots[token].end());
      merge_indptr_.push_back(static_cast<uint32_t>(merge_slots_.size()));
      position_[token] = position_of(order_[token]);
      empty_[token] = kv_len_of(order_[token]) == 0;
    }
    batch_ = {};
    batch_.tokens = tokens_;
    batch_.page_ids = page_ids_;
    batch_.plans[0].items = items_;
    batch_.plans[0].token_order = order_;
    batch_.plans[0].token_position = position_;
    batch_.plans[0].merge_indptr = merge_indptr_;
    batch_.plans[0].merge_slots = merge_slots_;
    batch_.plans[0].token_empty = empty_;
    batch_.plans[0].partials = partials_;
    batch_.plans[0].cut = shape_.cut;
    batch_.plans[0].window = shape_.window;
    out_.assign(uint64_t{tokens_} * shape_.q_heads * shape_.v_head_dim, 77.0f);
    lse2_.assign(uint64_t{tokens_} * shape_.q_heads, 77.0f);
  }

  void run() {
    ops::AttentionParams params{};
    params.q = {q_.data(), tokens_, shape_.q_heads * shape_.head_dim, uint64_t{shape_.q_heads} * shape_.head_dim};
    params.out = {out_.data(), tokens_, shape_.q_heads * shape_.v_head_dim,
                  uint64_t{shape_.q_heads} * shape_.v_head_dim};
    params.lse2 = lse2_.data();
    params.batch = &batch_;
    params.pool = kv_.get();
    params.q_heads = shape_.q_heads;
    params.variant = {scale(), shape_.softcap, shape_.sinks ? sinks_.data() : nullptr};
    attention_.attend(params);
    attention_.merge(params);
  }
  void run(const std::vector<Piece>& pieces) {
    plan(pieces);
    run();
  }

  const std::vector<float>& out() const { return out_; }
  const std::vector<float>& lse2() const { return lse2_; }

  // Largest differences from plain double arithmetic on the stored keys and values.
  struct Difference {
    double out = 0;
    double lse2 = 0;
  };
  Difference difference() const {
    Difference most;
    for (uint32_t token = 0; token < tokens_; ++token) {
      for (uint32_t head = 0; head < shape_.q_heads; ++head) compare_row(token, head, most);
    }
    return most;
  }

 private:
  uint32_t longest() const {
    uint32_t most = 0;
    for (const KitSequence& sequence : sequences_) most = std::max(most, sequence.kv_len);
    return most;
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }
  float random() { return static_cast<float>(rng_.uniform() * 2 - 1); }

  uint32_t sequence_of(uint32_t token) const {
    uint32_t sequence = 0;
    while (token >= sequences_[sequence].q_len) token -= sequences_[sequence++].q_len;
    return sequence;
  }
  uint32_t position_of(uint32_t token) const {
    uint32_t sequence = 0;
    while (token >= sequences_[sequence].q_len) token -= sequences_[sequence++].q_len;
    return sequences_[sequence].kv_len - sequences_[sequence].q_len + token;
  }
  uint32_t kv_len_of(uint32_t token) const { return sequences_[sequence_of(token)].kv_len; }

  void place_pages(uint32_t first_page) {
    PageId next = first_page;
    std::vector<PageId> common(shared_ / shape_.page_size);
    for (PageId& page : common) page = next++;
    std::reverse(common.begin(), common.end());  // consecutive keys need not lie in consecutive pages
    for (const KitSequence& sequence : sequences_) {
      std::vector<PageId> pages = common;
      while (pages.size() * shape_.page_size < sequence.kv_len) pages.push_back(next++);
      pages_.push_back(std::move(pages));
    }
    const ops::KvShape shape{.layers = 1,
                             .kv_heads = shape_.kv_heads,
                             .head_dim = shape_.head_dim,
                             .v_head_dim = shape_.v_head_dim,
                             .page_size = shape_.page_size,
                             .pages = next,
                             .dtype = shape_.dtype};
    kv_ = CpuKvPool::create(shape).value();
    for (PageId page = first_page; page < next; ++page)
      std::memset(kv().page(0, page), 0xff, kv().page_bytes());  // NaN
  }

  void fill() {
    keys_.resize(sequences_.size());
    values_.resize(sequences_.size());
    const uint64_t key_row = uint64_t{shape_.kv_heads} * shape_.head_dim;
    const uint64_t value_row = uint64_t{shape_.kv_heads} * shape_.v_head_dim;
    for (size_t s = 0; s < sequences_.size(); ++s) {
      for (uint64_t i = 0; i < sequences_[s].kv_len * key_row; ++i) {
        keys_[s].push_back(s > 0 && i < shared_ * key_row ? keys_[0][i] : random() * 2);
      }
      for (uint64_t i = 0; i < sequences_[s].kv_len * value_row; ++i) {
        values_[s].push_back(s > 0 && i < shared_ * value_row ? values_[0][i] : random());
      }
      round_rows(keys_[s], shape_.head_dim);
      round_rows(values_[s], shape_.v_head_dim);
    }
  }

  void round_rows(std::vector<float>& rows, uint32_t width) const {
    for (size_t i = 0; i < rows.size(); i += width) testing::round_kv_row(shape_.dtype, {&rows[i], width});
  }

  void append() {
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const uint32_t tokens = sequences_[s].kv_len;
      std::vector<uint32_t> positions(tokens), slots(tokens);
      std::vector<PageId> pages(tokens);
      for (uint32_t i = 0; i < tokens; ++i) {
        positions[i] = i;
        slots[i] = i % shape_.page_size;
        pages[i] = pages_[s][i / shape_.page_size];
      }
      ops::DeviceBatch batch{};
      batch.tokens = tokens;
      batch.positions = positions;
      batch.append_pages = pages;
      batch.append_slots = slots;
      ops::RopeAppendParams params{};
      const uint32_t key_row = shape_.kv_heads * shape_.head_dim;
      const uint32_t value_row = shape_.kv_heads * shape_.v_head_dim;
      params.k = {keys_[s].data(), tokens, key_row, key_row};
      params.v = {values_[s].data(), tokens, value_row, value_row};
      params.batch = &batch;
      params.rope = {ops::RopeStyle::kHalves, 0, nullptr};
      params.pool = kv_.get();
      attention_.rope_append(params);
    }
  }

  void add_item(const Piece& piece, const std::vector<Piece>& pieces, std::vector<std::vector<uint32_t>>& slots) {
    if (piece.key_begin == piece.key_end) return;
    const auto touches = [&](const Piece& other) {
      return other.key_begin < other.key_end && other.token_begin < piece.token_begin + piece.token_count &&
             piece.token_begin < other.token_begin + other.token_count;
    };
    bool first = true;
    bool only = true;
    for (const Piece& other : pieces) {
      if (!touches(other)) continue;
      first = first && other.key_begin >= piece.key_begin;
      only = only && &other == &piece;
    }
    attention::WorkItem item{};
    item.token_begin = piece.token_begin;
    item.token_count = piece.token_count;
    item.page_begin = static_cast<uint32_t>(page_ids_.size());
    item.key_begin = piece.key_begin;
    item.key_count = piece.key_end - piece.key_begin;
    item.partial_begin = partials_;
    item.flags = (first ? attention::kFold : 0) | (only ? attention::kDirect : 0);
    const std::vector<PageId>& pages = pages_[sequence_of(order_[piece.token_begin])];
    for (uint32_t key = piece.key_begin; key < piece.key_end; key += shape_.page_size) {
      page_ids_.push_back(pages[key / shape_.page_size]);
    }
    items_.push_back(item);
    if (only) return;
    const uint32_t cuts = (piece.key_end + shape_.cut - 1) / shape_.cut - piece.key_begin / shape_.cut;
    for (uint32_t cut = 0; cut < (first ? 1 : cuts); ++cut) {
      for (uint32_t j = 0; j < piece.token_count; ++j) slots[piece.token_begin + j].push_back(partials_++);
    }
  }

  void compare_row(uint32_t token, uint32_t head, Difference& most) const {
    const uint32_t s = sequence_of(token);
    const uint32_t kv_head = head / (shape_.q_heads / shape_.kv_heads);
    const int64_t position = position_of(token);
    const float* q = q_.data() + (uint64_t{token} * shape_.q_heads + head) * shape_.head_dim;
    std::vector<double> sum(shape_.v_head_dim, 0.0);
    double total = shape_.sinks ? std::exp(sinks_[head]) : 0.0;
    for (int64_t key = 0; key < sequences_[s].kv_len && key <= position; ++key) {
      if (shape_.window != 0 && position - key >= shape_.window) continue;
      const float* k = keys_[s].data() + (key * shape_.kv_heads + kv_head) * shape_.head_dim;
      double score = 0;
      for (uint32_t i = 0; i < shape_.head_dim; ++i) score += static_cast<double>(q[i]) * k[i];
      score *= scale();
      if (shape_.softcap > 0) score = shape_.softcap * std::tanh(score / shape_.softcap);
      const double weight = std::exp(score);
      total += weight;
      const float* v = values_[s].data() + (key * shape_.kv_heads + kv_head) * shape_.v_head_dim;
      for (uint32_t i = 0; i < shape_.v_head_dim; ++i) sum[i] += weight * v[i];
    }
    const uint64_t row = uint64_t{token} * shape_.q_heads + head;
    const double lse2 = total > 0 ? std::log2(total) : -std::numeric_limits<double>::infinity();
    const double lse2_difference = lse2 == lse2_[row] ? 0 : std::abs(lse2 - lse2_[row]);
    most.lse2 = worse(most.lse2, lse2_difference);
    for (uint32_t i = 0; i < shape_.v_head_dim; ++i) {
      const double expected = total > 0 ? sum[i] / total : 0;
      most.out = worse(most.out, std::abs(expected - out_[row * shape_.v_head_dim + i]));
    }
  }
  static double worse(double a, double b) { return b <= a ? a : (std::isnan(b) ? 1e30 : b); }

  KitShape shape_;
  std::vector<KitSequence> sequences_;
  uint32_t shared_;
  std::unique_ptr<ThreadPool> pool_;
  Attention attention_;
  Random rng_{20240611};
  std::unique_ptr<ops::KvPool> kv_;
  std::vector<std::vector<PageId>> pages_;
  std::vector<std::vector<float>> keys_;
  std::vector<std::vector<float>> values_;
  uint32_t tokens_ = 0;
  std::vector<float> q_, sinks_, out_, lse2_;
  ops::DeviceBatch batch_;
  std::vector<attention::WorkItem> items_;
  std::vector<uint32_t> order_, position_, merge_indptr_, merge_slots_;
  std::vector<PageId> page_ids_;
  std::vector<uint8_t> empty_;
  uint32_t partials_ = 0;
};

}  // namespace headwater::backend::cpu
