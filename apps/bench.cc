#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <iostream>
#include <limits>

#include "apps/commands.h"
#include "apps/costs_file.h"
#include "apps/json_output.h"
#include "apps/options.h"
#include "apps/text_file.h"
#include "backend/registry/registry.h"
#include "bench/attention_bench.h"
#include "bench/attention_record.h"
#include "bench/compare.h"
#include "bench/plan_bench.h"

namespace headwater::apps {
namespace {

namespace json = boost::json;

struct AttentionOptions {
  bench::AttentionBenchOptions bench;
  std::vector<std::string> grids;
  std::string grid_file, tail = "128", dtype, shard, json, backend = "auto", costs = "auto";
  std::vector<uint32_t> nodes, tokens;
  uint32_t shared = 2048, batch = 0, threads = 0;
  bool sharing_invariant = false;
  bench::Cell cell;
};

Result<std::vector<bench::Cell>> cells_of_file(const std::string& path) {
  constexpr size_t kBytesMax = 1 << 20;
  HEADWATER_ASSIGN_OR_RETURN(const std::string text,
                             read_text("--grid-file", path, "a JSON array of cells", kBytesMax));
  boost::system::error_code failed;
  const json::value value = json::parse(text, failed);
  if (failed || !value.is_array())
    return error(ErrorCode::kInvalidArgument, "--grid-file {}: not a JSON array of cells", path);
  std::vector<bench::Cell> cells;
  for (const json::value& entry : value.as_array()) {
    const json::object* object = entry.if_object();
    const auto field = [&](const char* name) {
      boost::system::error_code bad;
      const json::value* number = object == nullptr ? nullptr : object->if_contains(name);
      const auto result = number == nullptr ? 0 : number->to_number<uint32_t>(bad);
      return bad ? 0 : result;
    };
    bench::Cell cell = bench::prefix_cell(field("batch"), field("shared"), field("tail"), field("q_heads"),
                                          field("kv_heads"), field("head_dim"), field("page"));
    if (cell.batch() == 0 || cell.tail() == 0 || cell.kv_heads == 0 || cell.q_heads % cell.kv_heads != 0 ||
        cell.head_dim == 0 || cell.page == 0) {
      return error(ErrorCode::kInvalidArgument,
                   "--grid-file {}: {} needs batch, tail, q_heads, kv_heads, head_dim and page above 0", path,
                   json::serialize(entry).substr(0, 120));
    }
    if (const json::value* name = object->if_contains("name"); name != nullptr && name->is_string())
      cell.name = name->as_string();
    if (const json::value* dtype = object->if_contains("dtype"); dtype != nullptr && dtype->is_string()) {
      HEADWATER_ASSIGN_OR_RETURN(cell.dtype, parse_kv_dtype(std::string(dtype->as_string())));
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

// The one cell that --batch or --nodes describes.
Result<bench::Cell> cell_of_flags(const AttentionOptions& options) {
  bench::Cell cell = options.cell;
  if (!options.nodes.empty()) {
    if (options.nodes.size() != options.tokens.size()) {
      return error(ErrorCode::kInvalidArgument,
                   "--nodes has {} levels and --tokens {}; give one number a level to both", options.nodes.size(),
                   options.tokens.size());
    }
    cell.nodes = options.nodes;
    cell.tokens = options.tokens;
  } else {
    const size_t dots = options.tail.find("..");
    const auto number = [](const std::string& text) {
      return static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 10));
    };
    const uint32_t low = number(options.tail.substr(0, dots));
    const uint32_t high = dots == std::string::npos ? low : number(options.tail.substr(dots + 2));
    if (low == 0 || high < low)
      return error(ErrorCode::kInvalidArgument, "--tail '{}': write tokens as 128 or 64..256", options.tail);
    cell.nodes = {1, options.batch};
    cell.tokens = {options.shared, high};
    if (low != high) cell.tail_min = low;
  }
  cell.name = fmt::format("B{} S{} U{} {}/{} D{} p{} q{}", cell.batch(), cell.shared(), options.tail, cell.q_heads,
                          cell.kv_heads, cell.head_dim, cell.page, cell.q_len);
  if (cell.q_heads % cell.kv_heads != 0) {
    return error(ErrorCode::kInvalidArgument, "--heads {} is not a multiple of --kv-heads {}", cell.q_heads,
                 cell.kv_heads);
  }
  return cell;
}

Status parse_shard(const std::string& text, uint32_t& shard, uint32_t& shards) {
  if (text.empty()) return {};
  unsigned index = 0, count = 0;
  if (std::sscanf(text.c_str(), "%u/%u", &index, &count) != 2 || count == 0 || index >= count) {
    return error(ErrorCode::kInvalidArgument, "--shard '{}': write i/n with 0 <= i < n", text);
  }
  shard = index;
  shards = count;
  return {};
}

// All cells of the options.
Status add_cells(AttentionOptions& options, bool cpu) {
  for (const std::string& grid : options.grids) {
    HEADWATER_ASSIGN_OR_RETURN(const std::vector<bench::Cell> cells, bench::grid_cells(grid, cpu));
    options.bench.cells.insert(options.bench.cells.end(), cells.begin(), cells.end());
  }
  if (!options.grid_file.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(const std::vector<bench::Cell> cells, cells_of_file(options.grid_file));
    options.bench.cells.insert(options.bench.cells.end(), cells.begin(), cells.end());
  }
  if (options.batch > 0 || !options.nodes.empty() || options.bench.cells.empty()) {
    if (options.batch == 0) options.batch = 16;
    HEADWATER_ASSIGN_OR_RETURN(bench::Cell cell, cell_of_flags(options));
    options.bench.cells.push_back(std::move(cell));
  }
  if (options.dtype.empty()) return {};
  HEADWATER_ASSIGN_OR_RETURN(const DType dtype, parse_kv_dtype(options.dtype));
  for (bench::Cell& cell : options.bench.cells) cell.dtype = dtype;
  return {};
}

Status bench_attention(AttentionOptions options) {
  HEADWATER_RETURN_IF_ERROR(parse_shard(options.shard, options.bench.shard, options.bench.shards));
  HEADWATER_ASSIGN_OR_RETURN(
      auto backend,
      backend::create_backend(options.backend, {.threads = options.threads, .invariant = options.sharing_invariant}));
  options.bench.costs = use_costs(options.costs, *backend);
  const bool cpu = backend->info().name != "cuda";
  if (cpu && options.bench.warm) {
    return error(ErrorCode::kInvalidArgument, "--warm: the {} back end is always timed with warm caches; leave it out",
                 backend->info().name);
  }
  if (!cpu && options.bench.steps != 1) {
    return error(ErrorCode::kInvalidArgument, "--steps {}: on cuda a timing repeats by itself; leave it at 1",
                 options.bench.steps);
  }
  if (!cpu) options.bench.pool_bytes_max = std::numeric_limits<uint64_t>::max();  // the device says what it holds
  HEADWATER_RETURN_IF_ERROR(add_cells(options, cpu));
  options.bench.grid = fmt::format("{}", fmt::join(options.grids, ","));
  JsonOutput output;
  HEADWATER_RETURN_IF_ERROR(output.open(options.json));
  return bench::run_attention_bench(*backend, options.bench, output.table, output.json);
}

void add_bench_attention(CLI::App& bench, std::function<Status()>& run) {
  auto o = std::make_shared<AttentionOptions>();
  CLI::App* c =
      bench.add_subcommand("attention", "attend + merge of one layer: sharing auto against off, cell by cell");
  c->add_option("--grid", o->grids, "seed,wide,blog,relay,hydragen,trees,fork,small-models,none,spec,odd")
      ->delimiter(',');
  c->add_option("--grid-file", o->grid_file, "JSON array of cells");
  c->add_option("--batch", o->batch, "one cell: sequences (with --shared and --tail)");
  c->add_option("--shared", o->shared, "tokens of the shared prefix")->capture_default_str();
  c->add_option("--tail", o->tail, "private tokens, 128 or a range 64..256")->capture_default_str();
  c->add_option("--nodes", o->nodes, "one cell: nodes a level, as 1,4,64")->delimiter(',');
  c->add_option("--tokens", o->tokens, "tokens a level, as 2048,256,32")->delimiter(',');
  c->add_option("--heads", o->cell.q_heads, "query heads")->check(CLI::Range(1, 1024))->capture_default_str();
  c->add_option("--kv-heads", o->cell.kv_heads, "KV heads")->check(CLI::Range(1, 1024))->capture_default_str();
  c->add_option("--head-dim", o->cell.head_dim, "head size")->check(CLI::Range(16, 256))->capture_default_str();
  c->add_option("--page", o->cell.page, "tokens of a page")->check(CLI::Range(1, 1024))->capture_default_str();
  c->add_option("--dtype", o->dtype, "KV pages, for all cells: as --kv-cache-dtype (the grid's own)");
  c->add_option("--q-len", o->cell.q_len, "query tokens a sequence")->check(CLI::Range(1, 512))->capture_default_str();
  c->add_option("--window", o->cell.window, "sliding window in tokens (0: none)");
  c->add_option("--softcap", o->cell.softcap, "logit soft-cap (0: none)");
  c->add_flag("--sinks", o->cell.sinks, "one learned sink per query head");
  c->add_option("--layers", o->bench.layers, "layers that share one plan")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  c->add_option("--reps", o->bench.reps, "pairs of timings, at least")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  c->add_option("--steps", o->bench.steps, "calls of one timing")->check(CLI::Range(1, 100000))->capture_default_str();
  c->add_option("--warmup", o->bench.warmup, "untimed pairs")->capture_default_str();
  c->add_option("--max-seconds", o->bench.seconds_max, "of the whole run (0: no limit)");
  c->add_option("--shard", o->shard, "only part i of n, as 0/4");
  c->add_option("--gate", o->bench.gate, "fail when auto / off is above this in a cell");
  c->add_flag("--expect-shared", o->bench.expect_shared,
              "fail when auto is flat with >= 4 sequences behind >= 2,048 tokens");
  c->add_flag("--always", o->bench.always, "a third arm: every legal node shared");
  c->add_flag("!--adaptive", o->bench.invariant, "cuts at page multiples, chosen freely: bits may differ");
  c->add_flag("--invariant", o->sharing_invariant, "cuda: the same bits whatever is shared (others always are)");
  c->add_flag("--warm", o->bench.warm, "cuda: also with warm caches, in a column of its own");
  c->add_flag("--inject-fault", o->bench.inject_fault, "swap a page of the arm auto: must fail");
  c->add_flag("--mislabel", o->bench.mislabel, "run the arm off as always: must fail");
  c->add_option("--backend", o->backend, "auto, cpu, reference or cuda")
      ->envname("HEADWATER_BACKEND")
      ->capture_default_str();
  c->add_option("-t,--threads", o->threads, "worker threads (0: all cores)")->envname("HEADWATER_THREADS");
  add_costs_option(*c, o->costs);
  c->add_option("--commit", o->bench.commit, "written into the summary");
  c->add_option("--json", o->json, "JSON lines to this file; - for stdout");
  c->callback([o, &run] { run = [o] { return bench_attention(*o); }; });
}

Status bench_plan(const bench::PlanBenchOptions& options, const std::string& path) {
  JsonOutput output;
  HEADWATER_RETURN_IF_ERROR(output.open(path));
  return bench::run_plan_bench(options, output.json == nullptr ? std::cout : *output.json);
}

void add_bench_plan(CLI::App& bench, std::function<Status()>& run) {
  auto options = std::make_shared<bench::PlanBenchOptions>();
  auto path = std::make_shared<std::string>();
  CLI::App* c = bench.add_subcommand("plan", "what planning a step costs on the host, from scratch and incrementally");
  c->add_option("--reps", options->repeats, "plans of each kind and case")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  c->add_flag("--gate", options->gate, "fail when a case is over its budget");
  c->add_option("--json", *path, "JSON lines to this file; - for stdout (the default)");
  c->callback([options, path, &run] { run = [options, path] { return bench_plan(*options, *path); }; });
}

Status merge(const std::string& out, const std::vector<std::string>& parts) {
  HEADWATER_ASSIGN_OR_RETURN(const bench::AttentionRecord record, bench::merge_records(parts));
  JsonOutput output;
  HEADWATER_RETURN_IF_ERROR(output.open(out));
  record.write(*output.json);
  HEADWATER_RETURN_IF_ERROR(output.close(out));
  if (output.table != nullptr) *output.table << json::serialize(record.summary()) << '\n';
  return bench::gate_holds(record);
}

void add_bench_merge(CLI::App& bench, std::function<Status()>& run) {
  auto out = std::make_shared<std::string>();
  auto parts = std::make_shared<std::vector<std::string>>();
  CLI::App* c = bench.add_subcommand("merge", "one record of several of bench attention: its shards, cells run again");
  c->add_option("out", *out, "JSON lines to this file; - for stdout")->required();
  c->add_option("parts", *parts, "records, each with its summary; of a cell in two of them the later one's counts")
      ->required();
  c->callback([out, parts, &run] { run = [out, parts] { return merge(*out, *parts); }; });
}

void add_bench_compare(CLI::App& bench, std::function<Status()>& run) {
  auto o = std::make_shared<bench::CompareOptions>();
  CLI::App* c = bench.add_subcommand("compare", "two JSON files of bench attention: the ratio of each cell and arm");
  c->add_option("base", o->base, "JSON lines of the base")->required();
  c->add_option("head", o->head, "JSON lines of the head")->required();
  c->add_option("--threshold", o->threshold, "fail when head / base is above this")->capture_default_str();
  c->callback([o, &run] { run = [o] { return bench::compare(*o, std::cout); }; });
}

}  // namespace

void add_bench(CLI::App& app, std::function<Status()>& run) {
  CLI::App* bench = app.add_subcommand("bench", "measurements that check what they measure");
  bench->require_subcommand(1);
  add_bench_attention(*bench, run);
  add_bench_plan(*bench, run);
  add_bench_step(*bench, run);
  add_bench_serve(*bench, run);
  add_bench_merge(*bench, run);
  add_bench_compare(*bench, run);
}

}  // namespace headwater::apps
