#include "attention/decide.h"

#include <algorithm>
#include <limits>

namespace headwater::attention {

Block block_of(const Rules& rules, const Node& node, uint32_t run_begin, uint32_t index) {
  const uint32_t first = index * rules.device.tokens_item_max;
  Block block{node.token_begin + first, std::min(rules.device.tokens_item_max, node.token_count - first),
              std::max(run_begin, node.key_visible), node.key_end};
  if (node.is_leaf() && node.token_count > 1) {  // each block has its own window and causal edge
    block.key_begin = std::max(run_begin, rules.visible_from(node.position + first));
    block.key_end = node.position + first + block.token_count;
  }
  return block;
}

uint32_t block_keys(const Rules& rules, const Node& node, const Block& block) {
  return rules.round_up(block.key_end) - (node.is_leaf() ? rules.quantum / 2 : 0) - block.key_begin;
}

double block_keys_cost(const Rules& rules, const Node& node, const Block& block, uint32_t index) {
  const uint32_t keys = block_keys(rules, node, block), end = block.key_begin + keys;
  const uint32_t unread = std::max(block.key_begin, node.page_unread * rules.page_size());
  const uint32_t first = index == 0 && end > unread ? end - unread : 0;
  const Rates& rates = rules.rates(block.token_count);
  return first * rates.key_first + (keys - first) * rules.key_again(rates, keys);
}

uint32_t block_states(const Rules& rules, const Node& node, const Block& block, bool folds) {
  if (folds) return node.is_leaf() ? 0 : 1;
  return rules.cuts(block.key_begin, block.key_end);
}

Decider::Decider(const Rules& rules) : rules_(rules) {
  const size_t nodes = 2 * size_t{rules.limits.sequences_max};
  below_.resize(nodes);
  wanted_.resize(nodes);
  attended_.resize(nodes);
  anchor_.resize(nodes);
  distance_.resize(nodes);
  chain_.resize(nodes);
}

void Decider::decide(const PrefixForest& forest) {
  if (rules_.settings.sharing == Sharing::kOff) return push_all(forest);
  if (rules_.settings.sharing == Sharing::kAlways) {
    std::fill_n(wanted_.begin(), forest.nodes().size(), ~0u);
  } else {
    weigh(forest);
  }
  walk(forest);
}

void Decider::push_all(const PrefixForest& forest) {
  std::fill_n(wanted_.begin(), forest.nodes().size(), 0u);
  walk(forest);
}

NotShared Decider::reason(const Node& node, uint32_t run_begin) const {
  if (rules_.settings.sharing == Sharing::kOff) return NotShared::kOff;
  const uint32_t begin = std::max(run_begin, node.key_visible);
  if (begin >= node.key_end) return NotShared::kWindow;
  if (node.member_count < rules_.settings.shared_members_min) return NotShared::kOneMember;
  if ((node.key_end - begin) / rules_.page_size() < rules_.settings.shared_pages_min) return NotShared::kBelowMinimum;
  return NotShared::kBelowCost;
}

bool Decider::legal(const Node& node, uint32_t run_begin) const {
  return !node.is_leaf() && reason(node, run_begin) == NotShared::kBelowCost;
}

double Decider::cost(const Node& node, uint32_t run_begin, bool folds) const {
  double sum = 0;
  const uint32_t blocks = rules_.blocks(node.token_count);
  for (uint32_t index = 0; index < blocks; ++index) {
    const Block block = block_of(rules_, node, run_begin, index);
    const Rates& rates = rules_.rates(block.token_count);
    sum += rates.parts * (rates.fixed + block_keys_cost(rules_, node, block, index) +
                          Rules::states_cost(rates, block_states(rules_, node, block, folds)));
  }
  return sum;
}

void Decider::weigh(const PrefixForest& forest) {
  const std::span<const Node> nodes = forest.nodes();
  for (size_t n = 0; n < nodes.size(); ++n) below_[n].fill(0);
  for (size_t n = nodes.size(); n-- > 0;) {
    const Node& node = nodes[n];
    wanted_[n] = 0;
    uint32_t ancestor = kNone;
    const uint32_t depth = std::min(node.depth, kAncestorsMax);
    for (uint32_t k = 0; k <= depth; ++k) {
      if (k > 0) ancestor = k == 1 ? node.parent : nodes[ancestor].parent;
      const uint32_t run_begin = k == 0 ? 0 : nodes[ancestor].key_end;
      double best = node.is_leaf() ? std::numeric_limits<double>::infinity() : below_[n][below_pushed(k)];
      if (node.is_leaf() || legal(node, run_begin)) {
        const double attend = cost(node, run_begin, k == 0) + (node.is_leaf() ? 0.0 : below_[n][1]);
        if (attend < best) {
          best = attend;
          wanted_[n] |= 1u << k;
        }
      }
      if (node.parent != kNone) below_[node.parent][k] += best;
    }
  }
}

void Decider::walk(const PrefixForest& forest) {
  attended_shared_ = 0;
  const std::span<const Node> nodes = forest.nodes();
  for (uint32_t n = 0; n < nodes.size(); ++n) {
    const Node& node = nodes[n];
    if (node.parent == kNone) {
      anchor_[n] = kNone;
      distance_[n] = 0;
    } else if (attended_[node.parent]) {
      anchor_[n] = node.parent;
      distance_[n] = 1;
    } else {
      anchor_[n] = anchor_[node.parent];
      distance_[n] = below_pushed(distance_[node.parent]);
    }
    const bool shared = (wanted_[n] >> distance_[n] & 1) != 0 && legal(node, run_begin(forest, n));
    attended_[n] = shared || node.is_leaf();
    attended_shared_ += shared;
  }
}

void Decider::describe(const PrefixForest& forest, Outcome& outcome) {
  const std::span<const Node> nodes = forest.nodes();
  for (uint32_t n = 0; n < nodes.size(); ++n) {
    const Node& node = nodes[n];
    if (node.is_leaf()) continue;
    const uint32_t begin = std::max(run_begin(forest, n), node.key_visible);
    if (!attended_[n]) {
      ++outcome.not_shared[static_cast<size_t>(reason(node, run_begin(forest, n)))];
      continue;
    }
    const bool outermost = anchor_[n] == kNone;
    chain_[n] = outermost ? 1 : chain_[anchor_[n]] + 1;
    ++outcome.groups;
    outcome.depth = std::max(outcome.depth, chain_[n]);
    outcome.shared_pages += (node.key_end - begin) / rules_.page_size();
    outcome.tokens_saved += uint64_t{node.key_end - begin} * (node.member_count - 1);
    if (!outermost) continue;
    ++outcome.roots;
    outcome.members = std::max(outcome.members, node.member_count);
    outcome.members_total += node.member_count;
  }
}

}  // namespace headwater::attention
