#include "attention/forest.h"

#include <algorithm>
#include <cstring>

namespace headwater::attention {
namespace {

uint64_t sort_key(uint32_t what, uint32_t sequence) {
  return uint64_t{what} << 32 | sequence;
}
uint32_t sequence_of(uint64_t key) {
  return static_cast<uint32_t>(key);
}
uint32_t what_of(uint64_t key) {
  return static_cast<uint32_t>(key >> 32);
}

template <uint32_t kIds>
bool equal_block(const PageId* a, const PageId* b) {
  return std::memcmp(a, b, kIds * sizeof(PageId)) == 0;
}

uint32_t visible_overlap(uint32_t begin, uint32_t visible, uint32_t end) {
  begin = std::max(begin, visible);
  return end > begin ? end - begin : 0;
}

}  // namespace

uint32_t common_prefix(const PageId* a, const PageId* b, uint32_t count) {
  uint32_t i = 0;
  while (i + 128 <= count && equal_block<128>(a + i, b + i)) i += 128;
  while (i + 8 <= count && equal_block<8>(a + i, b + i)) i += 8;
  while (i < count && a[i] == b[i]) ++i;
  return i;
}

PrefixForest::PrefixForest(const Rules& rules) : rules_(rules) {
  const size_t sequences = rules.limits.sequences_max;
  members_.resize(sequences);
  keys_.reserve(sequences);
  order_.reserve(sequences);
  groups_.reserve(sequences + 1);
  nodes_.reserve(2 * sequences);
  runs_.reserve(sequences);
  overlaps_.reserve(sequences);
}

void PrefixForest::build(const PageTable& table) {
  collect(table);
  if (!order_.empty()) groups_.push_back({0, static_cast<uint32_t>(order_.size()), 0, kNone, kNone});
  while (!groups_.empty()) {
    Group group = groups_.back();
    groups_.pop_back();
    if (group.count == 1) {
      Node& leaf = nodes_[add_node(group, 0)];
      const uint32_t sequence = order_[group.begin];
      leaf.token_count = table.q_indptr[sequence + 1] - table.q_indptr[sequence];
      tokens_ += leaf.token_count;
      continue;
    }
    if (group.representative == kNone) match(group);
    uint32_t pages = kNone;
    for (uint32_t i = 0; i < group.count; ++i) pages = std::min(pages, members_[order_[group.begin + i]].pages_matched);
    const uint32_t parent = pages > group.pages ? add_common_run(group, pages) : group.parent;
    split(group, pages, parent);
  }
  for (size_t n = nodes_.size(); n-- > 0;) {
    if (nodes_[n].parent != kNone) nodes_[nodes_[n].parent].token_count += nodes_[n].token_count;
  }
  if (runs_.empty() && overlaps_.empty()) ++not_shared_[static_cast<size_t>(NotShared::kNothingShared)];
}

void PrefixForest::collect(const PageTable& table) {
  order_.clear();
  nodes_.clear();
  runs_.clear();
  overlaps_.clear();
  not_shared_.fill(0);
  tokens_ = 0;
  for (uint32_t r = 0; r < table.sequences(); ++r) {
    const uint32_t kv_len = table.kv_len[r];
    const uint32_t q_len = table.q_indptr[r + 1] - table.q_indptr[r];
    if (kv_len == 0 || q_len == 0) continue;
    // Alone, a sequence that fills an item gains nothing from company, and its partials would make the group pay.
    const bool alone = rules_.settings.sharing == Sharing::kAuto && q_len >= rules_.device.tokens_item_max && q_len > 1;
    const uint32_t shareable = alone ? 0 : (kv_len - q_len) / rules_.page_size();
    members_[r] = {.pages = table.page_ids.data() + table.page_indptr[r],
                   .kv_len = kv_len,
                   .pages_used = ceil_div(kv_len, rules_.page_size()),
                   .pages_shareable = shareable,
                   .pages_matched = shareable,
                   .leader = r,
                   .alone = alone};
    order_.push_back(r);
  }
}

// The representative has most shareable pages, so each member is matched over all that it may share.
void PrefixForest::match(Group& group) {
  const std::span<const uint32_t> sequences(order_.data() + group.begin, group.count);
  uint32_t widest = sequences[0];
  for (uint32_t s : sequences) {
    if (members_[s].pages_shareable > members_[widest].pages_shareable) widest = s;
  }
  group.representative = widest;
  const PageId* pages = members_[widest].pages + group.pages;
  for (uint32_t s : sequences) {
    Member& member = members_[s];
    member.pages_matched = member.pages_shareable;
    if (s == widest) continue;
    member.pages_matched =
        group.pages + common_prefix(member.pages + group.pages, pages, member.pages_shareable - group.pages);
  }
}

// Returns the node that the group's subgroups hang below.
uint32_t PrefixForest::add_common_run(const Group& group, uint32_t pages) {
  runs_.push_back({group.begin, group.count, group.pages, pages});
  const uint32_t whole = pages - pages % rules_.quantum_pages();
  if (whole < pages) ++not_shared_[static_cast<size_t>(NotShared::kPartialCut)];
  const uint32_t begin = group.parent == kNone ? 0 : nodes_[group.parent].page_end;
  return whole > begin ? add_node(group, whole) : group.parent;
}

uint32_t PrefixForest::add_node(const Group& group, uint32_t page_end) {
  Node& node = nodes_.emplace_back();
  node.parent = group.parent;
  node.member_begin = group.begin;
  node.member_count = group.count;
  node.token_begin = tokens_;
  node.page_end = page_end;
  if (group.parent != kNone) {
    const Node& parent = nodes_[group.parent];
    node.depth = parent.depth + 1;
    node.page_unread = parent.member_begin == group.begin ? parent.page_unread : parent.page_end;
  }
  return static_cast<uint32_t>(nodes_.size() - 1);
}

// Members still matched beyond `pages` stay with the representative; those that differ there go by the id of their next
// page; those that may share no more go alone.
void PrefixForest::split(const Group& group, uint32_t pages, uint32_t parent) {
  if (find_leaders(group, pages)) regroup(group);
  uint32_t end = group.begin + group.count;
  while (end > group.begin) {
    const Member& last = members_[order_[end - 1]];
    uint32_t begin = end - 1;
    while (begin > group.begin && members_[order_[begin - 1]].leader == last.leader) --begin;
    groups_.push_back({begin, end - begin, pages, parent, last.pages_matched > pages ? group.representative : kNone});
    end = begin;
  }
}

// Sets each member's leader; false when every member leads itself, so the order stands.
bool PrefixForest::find_leaders(const Group& group, uint32_t pages) {
  keys_.clear();
  uint32_t staying = 0;
  uint32_t staying_leader = kNone;
  for (uint32_t i = 0; i < group.count; ++i) {
    const uint32_t s = order_[group.begin + i];
    if (members_[s].pages_matched > pages) {
      if (staying++ == 0) staying_leader = s;
      members_[s].leader = staying_leader;
    } else {
      keys_.push_back(sort_key(members_[s].pages[pages], s));
    }
  }
  std::sort(keys_.begin(), keys_.end());
  bool grouped = staying > 1;
  for (size_t begin = 0; begin < keys_.size();) {
    size_t end = begin + 1;
    while (end < keys_.size() && what_of(keys_[end]) == what_of(keys_[begin])) ++end;
    grouped |= lead_equal_pages({keys_.data() + begin, end - begin}, group, pages);
    begin = end;
  }
  return grouped;
}

// `equal` left the representative and agree on the next page. True when two or more of them go on together.
bool PrefixForest::lead_equal_pages(std::span<const uint64_t> equal, const Group& group, uint32_t pages) {
  uint32_t first = kNone;
  uint32_t together = 0;
  for (uint64_t key : equal) {
    Member& member = members_[sequence_of(key)];
    const bool may_share = member.pages_shareable > pages;
    if (may_share && together++ == 0) first = sequence_of(key);
    member.leader = may_share ? first : sequence_of(key);
  }
  if (together == equal.size()) return together > 1;
  const Member& representative = members_[group.representative];
  const bool as_staying = representative.pages_matched > pages && representative.pages[pages] == what_of(equal[0]);
  if (as_staying || equal.size() > 1) note_overlaps(equal, as_staying ? &group : nullptr, pages);
  return together > 1;
}

// Each member that may share no more is compared with all that may, those in `staying` included, and with those of its
// own kind before it; what it has in common with the closest of them is no new page.
void PrefixForest::note_overlaps(std::span<const uint64_t> equal, const Group* staying, uint32_t pages) {
  bool last_page = false;
  bool alone = false;
  const size_t before = overlaps_.size();
  for (uint64_t key : equal) {
    const uint32_t s = sequence_of(key);
    const Member& member = members_[s];
    if (member.pages_shareable > pages) continue;
    last_page |= member.pages_used == pages + 1;
    alone |= member.alone;
    Overlap longest{s, s, pages * rules_.page_size(), 0};
    const auto consider = [&](uint32_t other) {
      const Member& m = members_[other];
      const uint32_t common = pages + common_prefix(member.pages + pages, m.pages + pages,
                                                    std::min(member.pages_used, m.pages_used) - pages);
      const uint32_t key_end = std::min({common * rules_.page_size(), member.kv_len, m.kv_len});
      if (key_end > longest.key_end) longest = {s, other, longest.key_begin, key_end};
    };
    for (uint64_t other : equal) {
      const bool may_share = members_[sequence_of(other)].pages_shareable > pages;
      if (may_share || sequence_of(other) < s) consider(sequence_of(other));
    }
    for (uint32_t i = 0; staying != nullptr && i < staying->count; ++i) {
      const uint32_t other = order_[staying->begin + i];
      if (members_[other].pages_matched > pages) consider(other);
    }
    if (longest.other != s) overlaps_.push_back(longest);
  }
  check(overlaps_.size() > before, "equal pages that overlap nowhere");
  const NotShared reason = alone ? NotShared::kBelowCost : last_page ? NotShared::kLastPage : NotShared::kUncomputed;
  ++not_shared_[static_cast<size_t>(reason)];
}

void PrefixForest::regroup(const Group& group) {
  keys_.clear();
  for (uint32_t i = 0; i < group.count; ++i) {
    const uint32_t s = order_[group.begin + i];
    keys_.push_back(sort_key(members_[s].leader, s));
  }
  std::sort(keys_.begin(), keys_.end());
  for (uint32_t i = 0; i < group.count; ++i) order_[group.begin + i] = sequence_of(keys_[i]);
}

void PrefixForest::measure(const PageTable& table) {
  for (Node& node : nodes_) {
    if (node.is_leaf()) {
      const uint32_t kv_len = table.kv_len[order_[node.member_begin]];
      node.position = kv_len - node.token_count;
      node.key_visible = rules_.visible_from(node.position);
      node.key_end = kv_len;
    } else {
      node.key_visible = kNone;
      node.key_end = node.page_end * rules_.page_size();
    }
  }
  for (size_t n = nodes_.size(); n-- > 0;) {
    if (nodes_[n].parent == kNone) continue;
    uint32_t& visible = nodes_[nodes_[n].parent].key_visible;
    visible = std::min(visible, nodes_[n].key_visible);
  }
}

uint64_t PrefixForest::keys_unique(const PageTable& table) const {
  const auto visible = [&](uint32_t s) {
    return rules_.visible_from(table.kv_len[s] - (table.q_indptr[s + 1] - table.q_indptr[s]));
  };
  uint64_t keys = 0;
  for (uint32_t s : order_) keys += table.kv_len[s] - visible(s);
  for (const CommonRun& run : runs_) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < run.member_count; ++i) {
      const uint32_t seen = visible_overlap(run.page_begin * rules_.page_size(), visible(order_[run.member_begin + i]),
                                            run.page_end * rules_.page_size());
      most = std::max(most, seen);
      keys -= seen;
    }
    keys += most;
  }
  for (const Overlap& overlap : overlaps_) {
    keys -= visible_overlap(overlap.key_begin, std::max(visible(overlap.sequence), visible(overlap.other)),
                            overlap.key_end);
  }
  return keys;
}

}  // namespace headwater::attention
