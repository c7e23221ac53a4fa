// From a choice to items of the right size: drafts (one run, one block of tokens), and how many pieces along the keys
// each draft becomes so that all workers finish together. Internal to the room.
//
// The makespan of jobs c0 >= c1 >= ... (an item is one job a KV head) on W workers is estimated by its classic lower
// bounds: the mean load, the longest job, and, since k + 1 of the first k * W + 1 jobs meet on one worker, the sums of
// the k + 1 shortest of those; all but the mean load at what they cost alone (CostModel::key_alone), the sums at the
// least that any of so many costs. Longest-first scheduling comes close to them (Graham, "Bounds on multiprocessing timing
// anomalies", 1969). Cutting costs an item, its rows, and a partial for every cut that is no longer folded locally; it
// happens only when the estimate says that it pays and the plan's arrays hold it.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "attention/decide.h"
#include "attention/forest.h"
#include "attention/rules.h"

namespace headwater::attention {

struct Draft {
  Block block;
  uint32_t sequence;  // whose page list the item walks
  bool folds;         // first item of its tokens
  bool leaf;          // ends at its last token; grows with the sequence
  uint32_t parts;     // of a worker
  // Uncut.
  uint32_t states;  // partials a token
  double keys_cost;
  double cost;
  double alone;  // the share of keys_cost that is left without others that read
};

struct Piece {
  uint32_t key_begin, key_end;
  uint32_t states;
  double share;  // of the draft's keys
  double cost;
};

struct Balance {
  double makespan_ns = 0;
  double piece_ns = std::numeric_limits<double>::infinity();  // drafts that cost more are cut
  uint64_t items = 0;
  uint64_t partials = 0;
};

uint32_t pieces_of(const Rules& rules, const Draft& draft, double piece_ns);
Piece piece_of(const Rules& rules, const Draft& draft, uint32_t pieces, uint32_t index);

class Cutter {
 public:
  explicit Cutter(const Rules& rules);

  // One draft a token block of each attended node, depth first: for any token, in key order. False: more than
  // items_max.
  bool draft(const PrefixForest& forest, const Decider& choice, std::vector<Draft>& drafts) const;
  Balance balance(std::span<const Draft> drafts);
  bool fits(const Balance& balance) const;

 private:
  struct Load {          // the jobs as the estimate sees them: pieces of cut drafts, then uncut drafts, longest first
    double total = 0;    // times parts
    double longest = 0;  // alone, as cut_alone
    double cut_alone = 0;
    uint64_t cut_pieces = 0;                      // times parts
    size_t uncut_begin = 0;                       // into sorted_
    uint32_t pieces_leaf = 1, pieces_shared = 1;  // of one draft, at most
  };
  void sort(std::span<const Draft> drafts);
  void cut(std::span<const Draft> drafts, Load& load, Balance& balance) const;
  double makespan(const Load& load) const;

  const Rules& rules_;
  std::vector<uint64_t> sorted_;  // longest_first_key of each draft
  // In that order, of what drafts cost alone: the most from a draft on, the least up to it.
  std::vector<double> alone_most_, alone_least_;
};

// Sorting these ascending puts the highest cost first, ties in order of index.
uint64_t longest_first_key(double cost, uint32_t index);
inline uint32_t index_of(uint64_t key) {
  return static_cast<uint32_t>(key);
}

}  // namespace headwater::attention
