// What `bench attention` writes, and what is said of it in the end: for each cell one line an arm or, where it was left
// out, one line that says why; then a summary. Parts of a record (shards, cells measured again) merge into one.
#pragma once

#include <boost/json.hpp>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "core/core.h"

namespace headwater::bench {

class AttentionRecord {
 public:
  struct Totals {
    uint32_t cells = 0;    // measured
    uint32_t skipped = 0;  // and not measured elsewhere
    uint32_t failed = 0;   // auto / off above the gate
    double worst = 0;      // auto / off, of one cell
    std::string worst_cell;
    double geomean = 0;          // of off / auto
    double predicted_error = 0;  // median over cells and arms of |predicted_us - us| / us
  };

  // facts: what holds for every line (commit, device, costs, gate); they go into the summary.
  explicit AttentionRecord(boost::json::object facts) : facts_(std::move(facts)) {}

  // The lines of one cell: of the arms `auto` and `off` at least, or the one of a skipped cell. Takes the place of what
  // is known of the cell, unless that was measured and this is not.
  void set(std::vector<boost::json::object> lines);
  Totals totals() const;
  boost::json::object summary() const;
  void write(std::ostream& out) const;  // all lines and the summary
  double gate() const;

 private:
  boost::json::object facts_;
  std::map<std::string, size_t> places_;
  std::vector<std::vector<boost::json::object>> cells_;
};

// One record of several files; where they have a cell twice, the later file's. kCorrupt for a file that does not end in
// its summary: it lacks cells that nothing names. kInvalidArgument where the facts differ or a shard is missing.
Result<AttentionRecord> merge_records(const std::vector<std::string>& paths);

// kInternal when the gate does not hold: a cell above it, or one that was not measured.
Status gate_holds(const AttentionRecord& record);

}  // namespace headwater::bench
