#include "conformance/random_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headwater::testing {
namespace {

using attention::PageTable;

uint32_t pages_of(uint32_t keys, uint32_t page_size) {
  return (keys + page_size - 1) / page_size;
}

template <typename T>
void shuffle(std::vector<T>& values, Random& random) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(static_cast<uint32_t>(i))]);
}

std::vector<uint32_t> depth_first_order(const PageTable& table, Random& random) {
  std::vector<uint32_t> sequences(table.sequences());
  std::iota(sequences.begin(), sequences.end(), 0u);
  shuffle(sequences, random);
  const auto pages = [&](uint32_t sequence) {
    return table.page_ids.subspan(table.page_indptr[sequence], pages_of(table.kv_len[sequence], table.page_size));
  };
  std::stable_sort(sequences.begin(), sequences.end(), [&](uint32_t a, uint32_t b) {
    const auto x = pages(a), y = pages(b);
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  });
  std::vector<uint32_t> order;
  for (const uint32_t sequence : sequences) {
    for (uint32_t token = table.q_indptr[sequence]; token < table.q_indptr[sequence + 1]; ++token)
      order.push_back(token);
  }
  return order;
}

class Cutter {
 public:
  Cutter(const PageTable& table, const RandomPlanOptions& options, PlanBuilder& builder, Random& random)
      : table_(table), options_(options), builder_(builder), random_(random) {}

  // Covers plan positions [begin, end) from `page` on; `is_first`: nothing of them is covered yet.
  void cover(uint32_t begin, uint32_t end, uint32_t page, bool is_first) {
    while (begin < end && is_done(begin, page)) ++begin;
    uint32_t live = begin;
    while (live < end && !is_done(live, page)) ++live;
    if (live < end) cover(live, end, page, is_first);
    if (begin < live) cover_live(begin, live, page, is_first);
  }

 private:
  uint32_t pages_needed(uint32_t at) const {
    return builder_.is_empty(at) ? 0 : pages_of(builder_.position_of(at) + 1, table_.page_size);
  }
  bool is_done(uint32_t at, uint32_t page) const { return pages_needed(at) <= page; }
  PageId page_id(uint32_t at, uint32_t page) const {
    return table_.page_ids[table_.page_indptr[builder_.sequence_of(at)] + page];
  }
  uint32_t first_visible_page(uint32_t at) const {
    const uint32_t position = builder_.position_of(at);
    return options_.window == 0 || position < options_.window ? 0 : (position - options_.window + 1) / table_.page_size;
  }

  // Pages from `page` on that every token of the range has, whole and under the same ids.
  uint32_t common_pages(uint32_t begin, uint32_t end, uint32_t page) const {
    uint32_t limit = 0xffffffffu;
    for (uint32_t at = begin; at < end; ++at) {
      limit = std::min(limit, table_.kv_len[builder_.sequence_of(at)] / table_.page_size);
    }
    uint32_t common = 0;
    for (; page + common < limit; ++common) {
      for (uint32_t at = begin + 1; at < end; ++at) {
        if (page_id(at, page + common) != page_id(begin, page + common)) return common;
      }
    }
    return common;
  }

  void cover_live(uint32_t begin, uint32_t end, uint32_t page, bool is_first) {
    if (is_first && random_.below(2) == 0) {
      uint32_t first = 0xffffffffu;
      for (uint32_t at = begin; at < end; ++at) first = std::min(first, first_visible_page(at));
      const uint32_t step = options_.whole_cuts ? options_.cut / table_.page_size : 1;
      page = std::max(page, first / step * step);
    }
    const bool is_one_sequence = builder_.sequence_of(begin) == builder_.sequence_of(end - 1);
    uint32_t last_position = 0, needed = 0;
    for (uint32_t at = begin; at < end; ++at) {
      last_position = std::max(last_position, builder_.position_of(at));
      needed = std::max(needed, pages_needed(at));
    }
    uint32_t common = is_one_sequence ? needed - page : common_pages(begin, end, page);
    if (options_.whole_cuts && !is_one_sequence) {
      const uint32_t step = options_.cut / table_.page_size;
      common = (page + common) / step * step - std::min(page, (page + common) / step * step);
    }
    const bool must_split = common == 0 || end - begin > options_.tokens_item_max;
    if (end - begin > 1 && (must_split || random_.below(3) == 0)) {
      const uint32_t middle = split_point(begin, end);
      cover(begin, middle, page, is_first);
      cover(middle, end, page, is_first);
      return;
    }
    const uint32_t pages = piece_of(page, common);
    const bool is_last = is_one_sequence && page + pages >= needed;
    const uint32_t keys = is_last ? last_position + 1 - page * table_.page_size : pages * table_.page_size;
    uint32_t flags = is_first ? attention::kFold : 0;
    if (is_first && is_last && random_.below(4) != 0) flags |= attention::kDirect;
    builder_.add_item(begin, end - begin, page, keys, flags);
    cover(begin, end, page + pages, false);
  }

  uint32_t split_point(uint32_t begin, uint32_t end) {
    const uint32_t at = random_.between(begin + 1, end - 1);
    if (random_.below(2) == 0) return at;
    uint32_t boundary = at;  // rather where sequences meet, so that ranges become single sequences
    while (boundary > begin && builder_.sequence_of(boundary) == builder_.sequence_of(boundary - 1)) --boundary;
    return boundary > begin ? boundary : at;
  }

  uint32_t piece_of(uint32_t page, uint32_t common) {
    const uint32_t pages = random_.below(2) == 0 ? common : random_.between(1, common);
    if (!options_.whole_cuts || pages == common) return pages;
    const uint32_t step = options_.cut / table_.page_size;
    return std::min(common, (page + pages + step - 1) / step * step - page);
  }

  const PageTable& table_;
  const RandomPlanOptions& options_;
  PlanBuilder& builder_;
  Random& random_;
};

}  // namespace

PlanBuilder::PlanBuilder(const PageTable& table, std::vector<uint32_t> token_order, uint32_t cut, uint32_t window)
    : table_(table), cut_(cut), window_(window), order_(std::move(token_order)), slots_(order_.size()) {
  std::vector<uint32_t> sequence_of_token(order_.size());
  for (uint32_t sequence = 0; sequence < table.sequences(); ++sequence) {
    for (uint32_t t = table.q_indptr[sequence]; t < table.q_indptr[sequence + 1]; ++t) sequence_of_token[t] = sequence;
  }
  for (const uint32_t token : order_) {
    const uint32_t sequence = sequence_of_token[token], length = table.kv_len[sequence];
    sequences_.push_back(sequence);
    empty_.push_back(length == 0);
    positions_.push_back(length == 0 ? 0 : length - (table.q_indptr[sequence + 1] - token));
  }
}

void PlanBuilder::add_item(uint32_t token_begin, uint32_t token_count, uint32_t first_page, uint32_t key_count,
                           uint32_t flags) {
  if ((flags & attention::kDirect) != 0) flags |= attention::kFold;
  const uint32_t key_begin = first_page * table_.page_size;
  const uint32_t page_begin = table_.page_indptr[sequences_[token_begin]] + first_page;
  items_.push_back({token_begin, token_count, page_begin, key_begin, key_count, partials_, flags});
  if ((flags & attention::kDirect) != 0) return;
  const uint32_t cuts = (flags & attention::kFold) != 0 ? 1 : (key_begin + key_count - 1) / cut_ - key_begin / cut_ + 1;
  for (uint32_t c = 0; c < cuts; ++c) {
    for (uint32_t j = 0; j < token_count; ++j) slots_[token_begin + j].push_back(partials_++);
  }
}

void PlanBuilder::shuffle_items(Random& random) {
  shuffle(items_, random);
}

attention::Plan PlanBuilder::plan() {
  merge_indptr_.assign(1, 0);
  merge_slots_.clear();
  for (const std::vector<uint32_t>& slots : slots_) {
    merge_slots_.insert(merge_slots_.end(), slots.begin(), slots.end());
    merge_indptr_.push_back(static_cast<uint32_t>(merge_slots_.size()));
  }
  return {items_, order_, positions_, merge_indptr_, merge_slots_, empty_, partials_, cut_, window_, {}};
}

PlanBuilder random_plan(const PageTable& table, const RandomPlanOptions& options, Random& random) {
  PlanBuilder builder(table, depth_first_order(table, random), options.cut, options.window);
  Cutter(table, options, builder, random).cover(0, builder.tokens(), 0, true);
  builder.shuffle_items(random);
  return builder;
}

}  // namespace headwater::testing
