// One random schedule: a pool, a stream of requests, and everything that can happen to them, all from one seed.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "simulation/scripted_model.h"

namespace headwater::testing {

// What happened, by kind. A run of many schedules must have seen each of them often.
enum Event : size_t {
  kPreempted,
  kForked,
  kCopiedOnWrite,
  kEvicted,
  kNested,
  kWaited,
  kMerged,
  kPaused,
  kFailed,
  kAhead,
  kEvents
};
inline constexpr std::array<const char*, kEvents> kEventNames = {
    "preemptions",        "forks",        "copies on write",         "evictions",    "nested groups",
    "waits for a prefix", "merged pages", "paused by a full outbox", "failed steps", "steps begun ahead"};

struct ScheduleReport {
  std::string failure;  // empty: every text was as expected and every page came home
  std::array<uint64_t, kEvents> events{};
  uint64_t steps = 0;
  uint64_t tokens = 0;
};

// runs_ahead: on the late device.
ScheduleReport run_schedule(uint64_t seed, bool runs_ahead, Fault fault = Fault::kNone);

}  // namespace headwater::testing
