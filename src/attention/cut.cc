#include "attention/cut.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

namespace headwater::attention {
namespace {

constexpr double kGoodEnough = 1.05;  // of the mean load: no search for a better cut
constexpr double kWorthCutting = 0.98;
constexpr double kPieces[] = {1, 0.5, 0.25};  // of the mean load: what a piece may cost
// Where workers are many, whether the last round of pieces is full decides: more sizes are tried.
constexpr double kPiecesOfMany[] = {1, 1.06, 1.15, 1.3, 1.5, 1.75, 2.1, 2.6, 3.4, 4.5, 6, 0.75, 0.5, 0.35, 0.25};
constexpr uint32_t kManyWorkers = 32;

uint32_t units_of(const Rules& rules, const Block& block) {
  return ceil_div(block.key_end - block.key_begin, rules.quantum);
}

struct PieceSums {
  double cost = 0;
  double longest = 0;  // alone
  uint64_t states = 0;
};

// Of a part of a draft that takes the share `keys` of its keys.
double alone_cost(const Rules& rules, const Draft& draft, double keys, uint32_t states) {
  const Rates& rates = rules.rates(draft.block.token_count);
  return rates.fixed + draft.keys_cost * draft.alone * keys + Rules::states_cost(rates, states);
}

// Of all pieces of a draft. Where the states of a piece follow from its length, without looking at each: when no cut ends
// inside the draft, or when the units are the cuts.
PieceSums sums_of(const Rules& rules, const Draft& draft, uint32_t pieces) {
  const Block& block = draft.block;
  const bool is_one_cut = rules.cuts(block.key_begin, block.key_end) == 1;
  PieceSums sums;
  if (pieces == 1 || (!is_one_cut && rules.quantum != rules.settings.cut)) {
    for (uint32_t p = 0; p < pieces; ++p) {
      const Piece piece = piece_of(rules, draft, pieces, p);
      sums.cost += piece.cost;
      sums.states += piece.states;
      sums.longest = std::max(sums.longest, alone_cost(rules, draft, piece.share, piece.states));
    }
    return sums;
  }
  const Rates& rates = rules.rates(block.token_count);
  const uint32_t units = units_of(rules, block), units_most = ceil_div(units, pieces), units_first = units / pieces;
  sums.states = is_one_cut ? pieces : units - (draft.folds ? units_first - 1 : 0);
  sums.cost =
      pieces * (rates.fixed + rates.unsettled) + draft.keys_cost + rates.state * static_cast<double>(sums.states);
  sums.longest = alone_cost(rules, draft, static_cast<double>(units_most) / units, is_one_cut ? 1 : units_most);
  return sums;
}

}  // namespace

uint64_t longest_first_key(double cost, uint32_t index) {
  // The bits of a positive float grow with its value.
  return uint64_t{~std::bit_cast<uint32_t>(static_cast<float>(cost))} << 32 | index;
}

uint32_t pieces_of(const Rules& rules, const Draft& draft, double piece_ns) {
  if (draft.cost <= piece_ns) return 1;
  const double pieces = std::ceil(draft.cost / piece_ns);
  return static_cast<uint32_t>(std::min<double>(units_of(rules, draft.block), pieces));
}

Piece piece_of(const Rules& rules, const Draft& draft, uint32_t pieces, uint32_t index) {
  const Block& block = draft.block;
  if (pieces == 1) return {block.key_begin, block.key_end, draft.states, 1, draft.cost};
  const uint64_t units = units_of(rules, block);
  const auto unit_at = [&](uint32_t p) { return static_cast<uint32_t>(units * p / pieces); };
  const uint32_t begin = unit_at(index);
  const uint32_t end = unit_at(index + 1);
  Piece piece{.key_begin = block.key_begin + begin * rules.quantum,
              .key_end = std::min(block.key_begin + end * rules.quantum, block.key_end),
              .states = 1,
              .share = (end - begin) / static_cast<double>(units)};
  if (!draft.folds || index > 0) piece.states = rules.cuts(piece.key_begin, piece.key_end);
  const Rates& rates = rules.rates(block.token_count);
  piece.cost = rates.fixed + draft.keys_cost * piece.share + Rules::states_cost(rates, piece.states);
  return piece;
}

Cutter::Cutter(const Rules& rules) : rules_(rules) {
  sorted_.reserve(rules.limits.items_max());
  alone_most_.reserve(rules.limits.items_max());
  alone_least_.reserve(rules.limits.items_max());
}

bool Cutter::draft(const PrefixForest& forest, const Decider& choice, std::vector<Draft>& drafts) const {
  drafts.clear();
  for (uint32_t n = 0; n < forest.nodes().size(); ++n) {
    if (!choice.attended(n)) continue;
    const Node& node = forest.nodes()[n];
    const uint32_t blocks = rules_.blocks(node.token_count);
    if (drafts.size() + blocks > rules_.limits.items_max()) return false;
    const bool folds = choice.anchor(n) == kNone;
    const uint32_t run_begin = choice.run_begin(forest, n);
    for (uint32_t index = 0; index < blocks; ++index) {
      Draft& draft = drafts.emplace_back();
      draft.block = block_of(rules_, node, run_begin, index);
      draft.sequence = forest.order()[node.member_begin];
      draft.folds = folds;
      draft.leaf = node.is_leaf();
      const Rates& rates = rules_.rates(draft.block.token_count);
      draft.parts = rates.parts;
      draft.keys_cost = block_keys_cost(rules_, node, draft.block, index);
      draft.states = block_states(rules_, node, draft.block, folds);
      draft.cost = rates.fixed + draft.keys_cost + Rules::states_cost(rates, draft.states);
      const double keys_alone = block_keys(rules_, node, draft.block) * rates.key_alone;
      draft.alone = keys_alone > 0 && keys_alone < draft.keys_cost ? keys_alone / draft.keys_cost : 1;
    }
  }
  return true;
}

bool Cutter::fits(const Balance& balance) const {
  return balance.items <= rules_.limits.items_max() && balance.partials <= rules_.limits.partials_max();
}

void Cutter::sort(std::span<const Draft> drafts) {
  sorted_.clear();
  for (uint32_t d = 0; d < drafts.size(); ++d) sorted_.push_back(longest_first_key(drafts[d].cost, d));
  std::sort(sorted_.begin(), sorted_.end());
  const size_t count = drafts.size();
  alone_most_.resize(count);
  alone_least_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Draft& draft = drafts[index_of(sorted_[i])];
    const double alone = alone_cost(rules_, draft, 1, draft.states);
    alone_most_[i] = alone;
    alone_least_[i] = i > 0 ? std::min(alone_least_[i - 1], alone) : alone;
  }
  for (size_t i = count; i-- > 1;) alone_most_[i - 1] = std::max(alone_most_[i - 1], alone_most_[i]);
}

Balance Cutter::balance(std::span<const Draft> drafts) {
  if (drafts.empty()) return {};
  sort(drafts);
  Load uncut;
  Balance best{.items = drafts.size()};
  for (const Draft& draft : drafts) {
    uncut.total += draft.cost * draft.parts;
    best.partials += uint64_t{draft.block.token_count} * draft.states;
  }
  uncut.longest = alone_most_[0];
  const auto merging = [&](const Load& load) {
    return rules_.merge + rules_.merge_state * (load.pieces_leaf + load.pieces_shared);
  };
  const double merge_ns = best.partials > 0 ? merging(uncut) : 0;
  best.makespan_ns = makespan(uncut) + merge_ns;
  const double mean = uncut.total * rules_.device.kv_heads / (rules_.device.workers * rules_.parts());
  if (best.makespan_ns <= mean * kGoodEnough + merge_ns) return best;
  const Balance whole = best;
  const bool are_many = rules_.device.workers >= kManyWorkers;
  for (const double part : are_many ? std::span<const double>(kPiecesOfMany) : std::span<const double>(kPieces)) {
    Balance candidate = whole;
    candidate.piece_ns = mean * part;
    Load load = uncut;
    cut(drafts, load, candidate);
    candidate.makespan_ns = makespan(load) + merging(load);
    if (fits(candidate) && candidate.makespan_ns < best.makespan_ns * kWorthCutting) best = candidate;
  }
  return best;
}

// Cuts every draft that costs more than balance.piece_ns; the two arguments hold the uncut figures before.
void Cutter::cut(std::span<const Draft> drafts, Load& load, Balance& balance) const {
  load.longest = 0;
  for (; load.uncut_begin < sorted_.size(); ++load.uncut_begin) {
    const Draft& draft = drafts[index_of(sorted_[load.uncut_begin])];
    const uint32_t pieces = pieces_of(rules_, draft, balance.piece_ns);
    if (draft.cost <= balance.piece_ns) break;
    const PieceSums sums = sums_of(rules_, draft, pieces);
    load.longest = std::max(load.longest, sums.longest);
    load.total += (sums.cost - draft.cost) * draft.parts;
    load.cut_alone += (sums.cost - (1 - draft.alone) * draft.keys_cost) * draft.parts;
    load.cut_pieces += uint64_t{pieces} * draft.parts;
    uint32_t& pieces_most = draft.leaf ? load.pieces_leaf : load.pieces_shared;
    pieces_most = std::max(pieces_most, pieces);
    balance.items += pieces - 1;
    balance.partials += (sums.states - draft.states) * draft.block.token_count;
  }
  if (load.uncut_begin < sorted_.size()) load.longest = std::max(load.longest, alone_most_[load.uncut_begin]);
}

double Cutter::makespan(const Load& load) const {
  constexpr uint64_t kRounds = 8;  // beyond so many jobs a worker the mean load is close
  const uint64_t heads = rules_.device.kv_heads;
  const uint64_t workers = uint64_t{rules_.device.workers} * rules_.parts();
  const auto job = [&](uint64_t j) {
    const uint64_t item = j / heads;
    if (item < load.cut_pieces) return load.cut_alone / static_cast<double>(load.cut_pieces);
    return alone_least_[load.uncut_begin + item - load.cut_pieces];
  };
  const uint64_t jobs = (load.cut_pieces + sorted_.size() - load.uncut_begin) * heads;
  double bound = std::max(load.longest, load.total * static_cast<double>(heads) / static_cast<double>(workers));
  for (uint64_t k = 1; workers > 1 && k <= kRounds && k * workers < jobs; ++k) {
    double together = 0;
    for (uint64_t i = 0; i <= k; ++i) together += job(k * workers - i);
    bound = std::max(bound, together);
  }
  return bound;
}

}  // namespace headwater::attention
