// Measures attention's costs on this machine and keeps them where the other commands look for them.
#include <unistd.h>

#include <chrono>
#include <iostream>

#include "apps/commands.h"
#include "apps/costs_file.h"
#include "backend/registry/registry.h"

namespace headwater::apps {
namespace {

struct TuneOptions {
  std::string backend = "cpu";  // the one that has costs to measure
  uint32_t threads = 0;
  std::string output;
  double seconds = 13;
  bool dry_run = false, once = false;
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

// The chosen target first, then the others, the best first.
std::vector<std::string> targets_in_order(const ops::BackendInfo& info) {
  std::vector<std::string> targets = {info.target};
  for (auto it = info.targets.rbegin(); it != info.targets.rend(); ++it) {
    if (*it != info.target) targets.push_back(*it);
  }
  return targets;
}

// What the planner will reckon with for one layer of a 9/3 x 64 model, before and after.
void print_change(std::ostream& out, ops::Backend& backend, const ops::Costs& costs) {
  const ops::KvShape shape{30, 3, 64, 64, 32, 8192, DType::kBF16};
  const attention::CostModel before = backend.cost_model(shape, 9);
  if (!backend.use_costs(costs)) return;
  const attention::CostModel after = backend.cost_model(shape, 9);
  out << fmt::format("{:<44} {:>9} {:>9}\n", "ns, 9/3 heads x 64, bf16, " + backend.info().target, "built in",
                     "measured");
  const auto row = [&](const char* name, double a, double b) {
    out << fmt::format("  {:<42} {:>9.2f} {:>9.2f}\n", name, a, b);
  };
  row("a key, 1 sequence, from the near cache", attention::key_cost(before, 3, before.key_repeat),
      attention::key_cost(after, 3, after.key_repeat));
  row("a key, 1 sequence, from far", attention::key_cost(before, 3, before.key_first),
      attention::key_cost(after, 3, after.key_first));
  row("a key, 16 sequences at once, from far", attention::key_cost(before, 48, before.key_first),
      attention::key_cost(after, 48, after.key_first));
  row("an item", before.item, after.item);
  row("a merged state of a row", before.partial, after.partial);
}

// The date of the costs that the file has of this back end and machine; "" where it has none.
std::string date_known(const std::string& path, const ops::BackendInfo& info) {
  const Result<CostsFile> file = read_costs(path);
  return file && costs_for(*file, info) ? file->date : "";
}

Status tune(const TuneOptions& options) {
  const std::string path = options.output.empty() ? default_costs_path() : options.output;
  if (path.empty() && !options.dry_run) {
    return error(ErrorCode::kInvalidArgument, "there is no cache folder (HOME is not set); name a file with --output");
  }
  const SystemClock clock;
  const auto elapsed = [&clock, begin = clock.now_ns()] { return static_cast<double>(clock.now_ns() - begin) * 1e-9; };
  HEADWATER_ASSIGN_OR_RETURN(auto backend, backend::create_backend(options.backend, {options.threads, ""}));
  const ops::BackendInfo info = backend->info();
  if (const std::string date = options.once ? date_known(path, info) : ""; !date.empty()) {
    std::cout << fmt::format("{}: costs of this machine, measured {}\n", path, date);
    return {};
  }
  if (!options.dry_run) HEADWATER_RETURN_IF_ERROR(check_costs_place(path));
  CostsFile file{info.costs_version, today(), info.name, info.device, info.workers, {}};
  const std::vector<std::string> targets = targets_in_order(info);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (i > 0) {
      if (elapsed() > 0.95 * options.seconds) break;
      HEADWATER_ASSIGN_OR_RETURN(backend, backend::create_backend(info.name, {options.threads, targets[i]}));
    }
    fmt::print(stderr, "{}measuring {} ({} of {}) on {} threads{}", terminal ? "\r\033[K" : "", targets[i], i + 1,
               targets.size(), info.workers, terminal ? "" : "\n");
    std::fflush(stderr);
    const double seconds = (options.seconds - elapsed()) / static_cast<double>(targets.size() - i);
    HEADWATER_ASSIGN_OR_RETURN(file.targets[targets[i]], backend->measure_costs(std::max(0.0, seconds)));
  }
  fmt::print(stderr, "{}", terminal ? "\r\033[K" : "");
  if (options.dry_run) {
    std::cout << costs_json(file);
    return {};
  }
  HEADWATER_RETURN_IF_ERROR(write_costs(path, file));
  HEADWATER_ASSIGN_OR_RETURN(backend, backend::create_backend(info.name, {options.threads, info.target}));
  print_change(std::cout, *backend, file.targets[info.target]);
  std::cout << fmt::format("{}: costs of {} targets, measured in {:.1f} s on {} threads of {}\n", path,
                           file.targets.size(), elapsed(), info.workers, info.device);
  return {};
}

}  // namespace

void add_tune(CLI::App& app, std::function<Status()>& run) {
  auto o = std::make_shared<TuneOptions>();
  CLI::App* c = app.add_subcommand("tune", "measure what attention costs here, for the planner (13 seconds)");
  c->add_option("-o,--output", o->output, "the file (default: headwater/costs.json in the user's cache folder)");
  c->add_flag("--once", o->once, "do nothing where the file has this machine's costs");
  c->add_flag("--dry-run", o->dry_run, "print the costs as JSON and write no file")->excludes("--once");
  c->add_option("--seconds", o->seconds, "to measure for, about")->check(CLI::Range(0.5, 120.0))->capture_default_str();
  c->add_option("--backend", o->backend, "auto or cpu")->envname("HEADWATER_BACKEND")->capture_default_str();
  c->add_option("-t,--threads", o->threads, "worker threads (0: all cores)")
      ->envname("HEADWATER_THREADS")
      ->capture_default_str();
  c->callback([o, &run] { run = [o] { return tune(*o); }; });
}

}  // namespace headwater::apps
