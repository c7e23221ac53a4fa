// The prefix forest of one step: which sequences begin with the same pages. Internal to the room.
//
//   page table              forest (pages)                  order = depth first
//   s0: A A A B B x         [0,3) s0 s2 s1                  s0 s2 s1
//   s1: A A A y              +- [3,5) s0 s2
//   s2: A A A B B z          |   +- tail s0  +- tail s2
//                            +- tail s1
//
// Two sequences share page i iff their ids are equal at every index 0..i. A group of sequences that agree up to some
// page is matched against one representative (the member with most shareable pages); a member changes its
// representative only where it left the old one, so each id of the table is compared once, by wide compares that stop
// at the first difference.
//
// 1. Only full pages before a member's first query token are shareable: floor((kv_len - q_len) / page_size) of them,
// which
//    leaves every sequence its last page.
// 2. A *common run* is what the table holds in common, at page granularity. A *node* is what may be attended once:
// common
//    runs whose ends are rounded down to whole quanta; the rest belongs to the children, a run of no quantum has no
//    node.
// 3. Members of a node are contiguous in order(); children are ordered by their smallest sequence. Nodes are in
// depth-first
//    order, parents before children.
// 4. Without overlaps() the forest depends on page ids alone: it stays the same while sequences grow.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/rules.h"

namespace headwater::attention {

struct Node {
  uint32_t parent;        // kNone at the top
  uint32_t depth;         // number of ancestors
  uint32_t member_begin;  // into order()
  uint32_t member_count;  // 1: a leaf, the private tail of one sequence
  uint32_t token_begin;   // plan order
  uint32_t token_count;
  uint32_t page_end;     // of a shared node; [parent's page_end, page_end) is its run
  uint32_t page_unread;  // pages from here on are not read by any item before this node's in plan order
  // Of the current step, set by measure().
  uint32_t position;     // leaf: absolute position of its first query token
  uint32_t key_visible;  // start of the quantum that holds the first key any member sees
  uint32_t key_end;

  bool is_leaf() const { return member_count == 1; }
};

struct CommonRun {
  uint32_t member_begin, member_count;  // into order()
  uint32_t page_begin, page_end;
};

// Pages that two sequences have in common but may not share: a last page, or pages not computed yet.
struct Overlap {
  uint32_t sequence, other;
  uint32_t key_begin, key_end;
};

class PrefixForest {
 public:
  explicit PrefixForest(const Rules& rules);

  void build(const PageTable& table);                  // groups, nodes, order
  void measure(const PageTable& table);                // lengths and windows of this step, for the forest as built
  uint64_t keys_unique(const PageTable& table) const;  // visible keys, each physical page once

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const uint32_t> order() const { return order_; }  // sequences that have tokens and keys
  uint32_t tokens() const { return tokens_; }                 // of those sequences
  std::span<const Overlap> overlaps() const { return overlaps_; }
  const std::array<uint32_t, kNotSharedKinds>& not_shared() const { return not_shared_; }  // what no choice could share

 private:
  struct Member {
    const PageId* pages;
    uint32_t kv_len;
    uint32_t pages_used;
    uint32_t pages_shareable;
    uint32_t pages_matched;  // with the group's representative
    uint32_t leader;         // smallest sequence of the subgroup it goes to
    bool alone;              // its own tokens fill an item
  };
  struct Group {
    uint32_t begin, count;    // into order_
    uint32_t pages;           // all members agree on [0, pages)
    uint32_t parent;          // node
    uint32_t representative;  // sequence the members are matched with; kNone: not matched yet
  };

  void collect(const PageTable& table);
  void match(Group& group);
  uint32_t add_common_run(const Group& group, uint32_t pages);
  uint32_t add_node(const Group& group, uint32_t page_end);
  void split(const Group& group, uint32_t pages, uint32_t parent);
  bool find_leaders(const Group& group, uint32_t pages);
  bool lead_equal_pages(std::span<const uint64_t> equal, const Group& group, uint32_t pages);
  void note_overlaps(std::span<const uint64_t> equal, const Group* staying, uint32_t pages);
  void regroup(const Group& group);

  const Rules& rules_;
  std::vector<Member> members_;  // by sequence
  std::vector<uint32_t> order_;
  std::vector<uint64_t> keys_;  // scratch: what is sorted in the high half, sequence in the low half
  std::vector<Group> groups_;   // stack
  std::vector<Node> nodes_;
  std::vector<CommonRun> runs_;
  std::vector<Overlap> overlaps_;
  uint32_t tokens_ = 0;
  std::array<uint32_t, kNotSharedKinds> not_shared_{};
};

// Length of the longest common prefix of a[0, count) and b[0, count).
uint32_t common_prefix(const PageId* a, const PageId* b, uint32_t count);

}  // namespace headwater::attention
