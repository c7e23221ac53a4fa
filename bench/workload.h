// Attention workloads: a prefix forest as nodes and tokens per level, and the page table, keys and queries made from
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attention/plan.h"
#include "bench/matrices.h"
#include "core/core.h"
#include "ops/backend.h"

namespace headwater::bench {

// One cell of a grid. Level i has nodes[i] nodes of tokens[i] tokens each; the nodes of the last level are the
// sequences, and each node's children are spread evenly. Two levels {1, B} / {S, U} are B sequences behind one prefix
// of S tokens.
struct Cell {
  std::string name;
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> tokens;
  uint32_t q_heads = 9;
  uint32_t kv_heads = 3;
  uint32_t head_dim = 64;
  uint32_t page = 32;
  uint32_t q_len = 1;
  uint32_t tail_min = 0;  // > 0: the tails of the sequences differ, drawn from [tail_min, the last level's tokens]
  uint32_t padded = 0;    // rows of length 0 behind the sequences
  DType dtype = DType::kBF16;
  uint32_t window = 0;
  float softcap = 0;
  bool sinks = false;

  uint32_t batch() const { return nodes.back(); }
  uint32_t tail() const { return tokens.back(); }
  uint32_t shared() const;  // tokens of a sequence above its last level
  uint32_t length() const { return shared() + tail(); }
  uint64_t unique_tokens() const;
};

Cell prefix_cell(uint32_t batch, uint32_t shared, uint32_t tail, uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim,
                 uint32_t page = 32);

// Grids by name: seed, wide, blog, relay, hydragen, trees, fork, small-models, none, spec, odd. `cpu`: the head
// geometries and sizes that a CPU serves where a grid differs. kInvalidArgument lists the names.
Result<std::vector<Cell>> grid_cells(std::string_view name, bool cpu);

// The page table of a cell: a full page is shared by the sequences whose path agrees up to its last token.
struct Workload {
  Cell cell;
  std::vector<uint32_t> page_indptr, kv_len, q_indptr;
  std::vector<PageId> page_ids;
  uint32_t pages = 0;

  static Workload create(const Cell& cell);
  attention::PageTable table() const { return {cell.page, page_indptr, page_ids, kv_len, q_indptr, {}}; }
  double token_keys() const;  // (query token, visible key) pairs
  ops::StepLimits limits(uint32_t workers = 1) const;
  ops::KvShape kv_shape() const {
    return {1, cell.kv_heads, cell.head_dim, cell.head_dim, cell.page, pages, cell.dtype};
  }
};

// Writes random keys and values into every page of the workload, through the back end's own append: the same few hundred
// over and over, each time rotated to its position.
Status fill_pool(ops::Backend& backend, Matrices& matrices, ops::KvPool& pool, const Workload& workload, uint64_t seed);

}  // namespace headwater::bench
