// Compares two records of `bench attention`, taken interleaved on one machine: microseconds per cell and arm.
#pragma once

#include <ostream>
#include <string>

#include "core/core.h"

namespace headwater::bench {

struct CompareOptions {
  std::string base, head;   // JSON lines
  double threshold = 1.05;  // head / base above it is a regression
};

// Prints a line per cell and arm; fails (kInternal) on a regression or when a cell of the base is missing from the
// head.
Status compare(const CompareOptions& options, std::ostream& out);

}  // namespace headwater::bench
