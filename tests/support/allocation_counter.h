// Counts what the process takes from the heap, on all threads: allocation_counter.cc stands in for the C library's
// allocator (which operator new calls) and for mmap, so a test that links it sees every allocation from then on.
#pragma once

#include <cstdint>

namespace headwater::testing {

bool counts_allocations();  // false under a sanitizer, which owns the allocator
uint64_t allocations();     // since the process began

}  // namespace headwater::testing
