#include <fmt/ranges.h>

#include "bench/workload.h"

namespace headwater::bench {
namespace {

using Cells = std::vector<Cell>;
struct Heads {
  uint32_t q, kv, dim;
};

Cells seed(bool) {
  Cells cells;
  for (uint32_t shared : {2048u, 8192u}) {
    for (uint32_t batch : {4u, 8u}) cells.push_back(prefix_cell(batch, shared, 256, 32, 8, 128));
    for (uint32_t batch : {4u, 8u}) cells.push_back(prefix_cell(batch, 0, shared + 256, 32, 8, 128));
  }
  return cells;
}

Cells wide(bool) {
  Cells cells;
  for (uint32_t batch : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 256u}) {
    for (uint32_t shared : {64u, 128u, 256u, 512u, 1024u, 2048u, 8192u, 32768u}) {
      cells.push_back(prefix_cell(batch, shared, 256, 32, 8, 128));
    }
  }
  return cells;
}

Cells blog(bool) {
  Cells cells;
  for (uint32_t batch : {8u, 16u, 64u, 128u, 256u}) {
    for (uint32_t shared : {1024u, 2048u, 8192u, 32768u}) {
      for (uint32_t tail : {128u, 256u, 512u, 1024u, 2048u}) {
        Cell cell = prefix_cell(batch, shared, tail, 32, 32, 128, 16);
        cell.dtype = DType::kF16;
        cells.push_back(cell);
      }
    }
  }
  return cells;
}

Cells relay(bool) {
  Cells cells;
  for (uint32_t batch : {1u, 4u, 8u, 16u, 32u, 64u, 128u}) {
    for (uint32_t tail : {128u, 256u}) {
      for (uint32_t shared = 64; shared <= 16384; shared *= 2) {
        Cell cell = prefix_cell(batch, shared, tail, 52, 52, 128, 16);
        cell.dtype = DType::kF16;
        cells.push_back(cell);
      }
    }
  }
  return cells;
}

Cells hydragen(bool) {
  Cells cells;
  for (const auto& [batch, shared] : {std::pair{512u, 1024u}, {1024u, 2048u}, {2048u, 4096u}, {4096u, 8192u}}) {
    for (uint32_t tail : {16u, 128u, 512u}) cells.push_back(prefix_cell(batch, shared, tail, 8, 1, 128));
  }
  return cells;
}

Cells trees(bool cpu) {
  const std::pair<std::vector<uint32_t>, std::vector<uint32_t>> kTrees[] = {
      {{1, 10}, {4000, 400}},
      {{1, 256}, {256, 32}},
      {{1, 1024}, {2048, 32}},
      {{1, 2, 64}, {8, 256, 32}},
      {{1, 4, 256}, {8, 256, 32}},
      {{1, 16, 64}, {1024, 256, 32}},
      {{1, 4, 8, 256}, {8, 256, 256, 32}},
      {{1, 4, 16, 512}, {1024, 256, 128, 32}},
      {{1, 4, 16, 64, 256, 1024}, {256, 8, 256, 64, 32, 256}},
      {{2, 8, 16, 256}, {256, 256, 256, 256}},
      {{4, 16, 256, 512}, {256, 256, 256, 256}},
      {{8, 16, 32, 256}, {256, 256, 256, 256}},
  };
  const std::vector<Heads> heads = cpu ? std::vector<Heads>{{9, 3, 64}}
                                       : std::vector<Heads>{{16, 1, 128}, {32, 8, 128}, {32, 32, 128}, {64, 8, 128}};
  Cells cells;
  for (const auto& [nodes, tokens] : kTrees) {
    for (const Heads& h : heads) {
      Cell cell = prefix_cell(nodes.back(), 0, 0, h.q, h.kv, h.dim);
      cell.nodes = nodes;
      cell.tokens = tokens;
      cell.name = fmt::format("tree {}/{} {}/{} D{}", fmt::join(nodes, ","), fmt::join(tokens, ","), h.q, h.kv, h.dim);
      cells.push_back(cell);
    }
  }
  return cells;
}

Cells fork(bool) {
  Cells cells;
  for (uint32_t batch : {2u, 4u, 8u, 16u}) {
    for (uint32_t shared : {1024u, 8192u, 32768u, 65536u}) {
      for (uint32_t tail : {128u, 1024u}) cells.push_back(prefix_cell(batch, shared, tail, 16, 4, 256, 128));
    }
  }
  return cells;
}

Cells small_models(bool) {
  Cells cells;
  for (const Heads& h : {Heads{9, 3, 64}, {14, 2, 64}, {16, 8, 128}, {4, 1, 256}}) {
    for (uint32_t batch : {1u, 4u, 8u, 16u, 32u, 64u}) {
      for (uint32_t shared : {0u, 512u, 2048u, 8000u})
        cells.push_back(prefix_cell(batch, shared, 128, h.q, h.kv, h.dim));
    }
  }
  return cells;
}

Cells none(bool cpu) {
  Cells cells;
  const std::vector<Heads> heads = cpu ? std::vector<Heads>{{9, 3, 64}} : std::vector<Heads>{{32, 8, 128}, {9, 3, 64}};
  const std::vector<uint32_t> batches = cpu ? std::vector<uint32_t>{1, 8, 32} : std::vector<uint32_t>{1, 8, 64, 256};
  for (const Heads& h : heads) {
    for (uint32_t batch : batches) {
      for (uint32_t length : {256u, 2048u, 8192u}) cells.push_back(prefix_cell(batch, 0, length, h.q, h.kv, h.dim));
    }
  }
  return cells;
}

Cells spec(bool cpu) {
  Cells cells = seed(cpu);
  for (uint32_t batch : {16u, 64u}) {
    for (uint32_t shared : {2048u, 8192u}) cells.push_back(prefix_cell(batch, shared, 256, 32, 8, 128));
  }
  for (Cell& cell : cells) {
    cell.q_len = 4;
    cell.name += " q4";
  }
  return cells;
}

Cells odd(bool) {
  Cells cells;
  for (const Heads& h : {Heads{28, 4, 128}, {40, 8, 128}, {96, 96, 128}, {97, 97, 64}, {128, 8, 128}}) {
    for (uint32_t page : {16u, 32u, 64u, 128u}) cells.push_back(prefix_cell(8, 1024, page + 1, h.q, h.kv, h.dim, page));
  }
  for (uint32_t page : {16u, 32u, 64u, 128u}) {
    for (uint32_t tail : {1u, page - 1, page, page + 1}) {
      cells.push_back(prefix_cell(8, 0, tail, 9, 3, 64, page));
      cells.push_back(prefix_cell(8, 512, tail, 9, 3, 64, page));
    }
  }
  Cell padded = prefix_cell(24, 1024, 100, 9, 3, 64);
  padded.padded = 8;
  padded.name += " padded to 32";
  cells.push_back(padded);
  return cells;
}

constexpr struct {
  std::string_view name;
  Cells (*cells)(bool cpu);
} kGrids[] = {{"seed", seed},         {"wide", wide},   {"blog", blog}, {"relay", relay},
              {"hydragen", hydragen}, {"trees", trees}, {"fork", fork}, {"small-models", small_models},
              {"none", none},         {"spec", spec},   {"odd", odd}};

}  // namespace

Result<std::vector<Cell>> grid_cells(std::string_view name, bool cpu) {
  std::vector<std::string_view> names;
  for (const auto& grid : kGrids) {
    if (grid.name == name) return grid.cells(cpu);
    names.push_back(grid.name);
  }
  return error(ErrorCode::kInvalidArgument, "unknown grid '{}'; use {}", name, fmt::join(names, ", "));
}

}  // namespace headwater::bench
