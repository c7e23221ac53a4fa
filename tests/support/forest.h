// Page tables for tests and benches: trees by nodes and tokens a level, and random forests from a seed.
//
//   TreeShape{.nodes = {1, 2, 4}, .tokens = {64, 32, 40}}, page size 32
//
//   level 0  [------------- 64 -------------]      sequence = one node of the last level and its ancestors
//   level 1  [------ 32 ----][------ 32 ----]      a page belongs to the node that holds its last token, so tokens that
//   level 2  [- 40 -][- 40 -][- 40 -][- 40 -]      do not fill a page are copied into the children, as a cache would
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "core/core.h"

namespace headwater::testing {

struct SequencePages {
  std::vector<PageId> pages;
  uint32_t kv_len = 0;
  uint32_t q_len = 1;
  uint64_t version = 0;
};

// Owns what an attention::PageTable views. The view is valid until the next change.
class PageTableStorage {
 public:
  explicit PageTableStorage(uint32_t page_size) : page_size_(page_size) {}
  PageTableStorage(uint32_t page_size, const std::vector<SequencePages>& sequences) : page_size_(page_size) {
    assign(sequences);
  }

  void assign(const std::vector<SequencePages>& sequences) {
    *this = PageTableStorage(page_size_);
    for (const SequencePages& sequence : sequences) append(sequence);
  }
  void append(const SequencePages& sequence) {
    page_ids_.insert(page_ids_.end(), sequence.pages.begin(), sequence.pages.end());
    page_indptr_.push_back(static_cast<uint32_t>(page_ids_.size()));
    kv_len_.push_back(sequence.kv_len);
    q_indptr_.push_back(q_indptr_.back() + sequence.q_len);
    versions_.push_back(sequence.version);
  }
  // Every sequence grows by `tokens`; the page lists must have room.
  void grow(uint32_t tokens) {
    for (uint32_t& kv_len : kv_len_) kv_len += tokens;
  }

  attention::PageTable view() const {
    return {.page_size = page_size_,
            .page_indptr = page_indptr_,
            .page_ids = page_ids_,
            .kv_len = kv_len_,
            .q_indptr = q_indptr_,
            .versions = versions_};
  }

 private:
  uint32_t page_size_;
  std::vector<uint32_t> page_indptr_{0};
  std::vector<PageId> page_ids_;
  std::vector<uint32_t> kv_len_;
  std::vector<uint32_t> q_indptr_{0};
  std::vector<uint64_t> versions_;
};

// Limits that hold every sequence of `sequences`, each able to grow by pages_spare.
inline attention::PlanLimits limits_for(const std::vector<SequencePages>& sequences, uint32_t page_size,
                                        uint32_t pages_spare = 0) {
  attention::PlanLimits limits{.sequences_max = std::max<uint32_t>(1, static_cast<uint32_t>(sequences.size())),
                               .page_size = page_size};
  for (const SequencePages& sequence : sequences) {
    limits.tokens_max += sequence.q_len;
    limits.pages_per_sequence_max =
        std::max(limits.pages_per_sequence_max, static_cast<uint32_t>(sequence.pages.size()) + pages_spare);
  }
  limits.tokens_max = std::max(limits.tokens_max, 1u);
  return limits;
}

struct TreeShape {
  std::vector<uint32_t> nodes;   // a level; each a multiple of the one before it, or spread as evenly as it goes
  std::vector<uint32_t> tokens;  // of each node of the level
  uint32_t page_size = 32;
  uint32_t q_len = 1;
  uint32_t pages_spare = 0;  // listed beyond kv_len, so that sequences can grow
  PageId first_page = 0;
};

// One sequence for each node of the last level, in order; versions 1, 2, ...
inline std::vector<SequencePages> make_tree(const TreeShape& shape) {
  const size_t levels = shape.nodes.size();
  PageId next = shape.first_page;
  std::vector<std::vector<std::vector<PageId>>> pages(levels);  // [level][node] its own pages
  std::vector<SequencePages> sequences;
  uint32_t begin = 0;
  for (size_t level = 0; level < levels; ++level) {
    const bool last = level + 1 == levels;
    const uint32_t end = begin + shape.tokens[level];
    const uint32_t own =
        (last ? (end + shape.page_size - 1) / shape.page_size + shape.pages_spare : end / shape.page_size) -
        begin / shape.page_size;
    pages[level].resize(shape.nodes[level]);
    for (auto& node : pages[level]) {
      for (uint32_t i = 0; i < own; ++i) node.push_back(next++);
    }
    begin = end;
  }
  const uint32_t leaves = shape.nodes.back();
  for (uint32_t leaf = 0; leaf < leaves; ++leaf) {
    SequencePages sequence{.kv_len = begin, .q_len = shape.q_len, .version = leaf + 1};
    for (size_t level = 0; level < levels; ++level) {
      const auto& own = pages[level][uint64_t{leaf} * shape.nodes[level] / leaves];
      sequence.pages.insert(sequence.pages.end(), own.begin(), own.end());
    }
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

struct RandomForestShape {
  uint32_t sequences = 8;
  uint32_t page_size = 4;
  uint32_t pages_max = 12;     // a sequence
  uint32_t q_len_max = 7;      // ragged, 1..q_len_max
  uint32_t fork_percent = 75;  // sequences that begin with pages of an earlier one; they may reach its last page
  uint32_t padded_percent = 5;
};

inline std::vector<SequencePages> make_random_forest(Random& random, const RandomForestShape& shape) {
  std::vector<SequencePages> sequences;
  PageId next = random.below(1000);
  for (uint32_t r = 0; r < shape.sequences; ++r) {
    SequencePages sequence{.version = r + 1};
    if (random.below(100) < shape.padded_percent) {
      sequence.q_len = random.below(2);
      sequences.push_back(sequence);
      continue;
    }
    const uint32_t pages = random.between(1, shape.pages_max);
    if (r > 0 && random.below(100) < shape.fork_percent) {
      const SequencePages& parent = sequences[random.below(r)];
      const uint32_t kept = random.below(std::min<uint32_t>(pages, static_cast<uint32_t>(parent.pages.size())) + 1);
      sequence.pages.assign(parent.pages.begin(), parent.pages.begin() + kept);
    }
    while (sequence.pages.size() < pages) sequence.pages.push_back(next++);
    sequence.kv_len = (pages - 1) * shape.page_size + random.between(1, shape.page_size);
    sequence.q_len = std::min(sequence.kv_len, random.between(1, shape.q_len_max));
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

}  // namespace headwater::testing
