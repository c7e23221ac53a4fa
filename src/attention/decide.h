// Which nodes of the forest are attended once for all members, and which push their keys down. Internal to the room.
//
// A node that is not attended leaves its keys to its children, so an item's run begins where the nearest attended
// ancestor ends. With k standing for that ancestor (0: none, k: the k-th above the node), the cheapest plan below a
// node is
//
//   best(node, k) = min( cost(node, run from k's end) + sum over children best(child, 1),
//                        sum over children best(child, k == 0 ? 0 : k + 1) )              leaves: cost(leaf, run from
//                        k's end)
//
// exact for any cost that is additive over items, in O(nodes * depth). An ancestor more than 16 above counts as the
// 16th. Keys that several items read cost key_first for the first of them in plan order and key_repeat for the others:
// a node reads first what lies behind Node::page_unread. Of several token blocks over one run, the first reads first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/forest.h"
#include "attention/rules.h"

namespace headwater::attention {

// The tokens and keys of one item before it is cut along the keys.
struct Block {
  uint32_t token_begin, token_count;  // plan order
  uint32_t key_begin, key_end;
};
Block block_of(const Rules& rules, const Node& node, uint32_t run_begin, uint32_t index);

// Its keys, a tail's last quantum half full; and what they cost.
uint32_t block_keys(const Rules& rules, const Node& node, const Block& block);
double block_keys_cost(const Rules& rules, const Node& node, const Block& block, uint32_t index);
// `folds`: no ancestor of the node is attended, so the item is the first of its tokens.
uint32_t block_states(const Rules& rules, const Node& node, const Block& block, bool folds);

class Decider {
 public:
  explicit Decider(const Rules& rules);

  void decide(const PrefixForest& forest);
  void push_all(const PrefixForest& forest);                      // the flat choice
  bool attended(uint32_t node) const { return attended_[node]; }  // leaves always are
  uint32_t anchor(uint32_t node) const { return anchor_[node]; }  // nearest attended ancestor; kNone
  uint32_t attended_shared() const { return attended_shared_; }   // nodes, leaves not counted
  uint32_t run_begin(const PrefixForest& forest, uint32_t node) const {
    return anchor_[node] == kNone ? 0 : forest.nodes()[anchor_[node]].key_end;
  }

  // Adds what was attended once (groups to tokens_saved) and why the other nodes were not.
  void describe(const PrefixForest& forest, Outcome& outcome);

 private:
  static constexpr uint32_t kAncestorsMax = 16;
  using ByAnchor = std::array<double, kAncestorsMax + 1>;

  bool legal(const Node& node, uint32_t run_begin) const;
  NotShared reason(const Node& node, uint32_t run_begin) const;
  double cost(const Node& node, uint32_t run_begin, bool folds) const;
  void weigh(const PrefixForest& forest);
  void walk(const PrefixForest& forest);
  static uint32_t below_pushed(uint32_t k) { return k == 0 || k == kAncestorsMax ? k : k + 1; }

  const Rules& rules_;
  std::vector<ByAnchor> below_;   // [node][k] sum of best(child, k)
  std::vector<uint32_t> wanted_;  // [node] bit k: attending beats pushing when the nearest attended ancestor is k
  std::vector<uint8_t> attended_;
  std::vector<uint32_t> anchor_;
  std::vector<uint32_t> distance_;  // k of the anchor
  std::vector<uint32_t> chain_;     // scratch of describe(): attended nodes on the way down, this one included
  uint32_t attended_shared_ = 0;
};

}  // namespace headwater::attention
