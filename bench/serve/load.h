// One level of load on one server: closed loop (a number of clients, each asks again when its answer is complete) or open
// loop (requests arrive at random, whether or not the others are answered). One thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bench/serve/answer.h"
#include "bench/serve/client.h"

namespace headwater::bench::serve {

struct LoadShape {
  uint32_t concurrency = 1;    // clients of the closed loop
  double request_rate = 0;     // arrivals a second, exponential gaps (Poisson); 0: the closed loop
  double cancel_fraction = 0;  // of the clients that vanish at a random point
  uint32_t slow_readers = 0;   // more clients, that read one piece of text and then stop reading until the level ends
  uint32_t tokens_max = 1;     // of an answer: where a client may vanish
  uint64_t seed = 1;           // of arrivals and vanishing
  std::chrono::milliseconds timeout{600'000};  // of a request
};

using Progress = std::function<void(size_t ended, size_t requests, uint64_t chunks)>;  // five times a second

// Request i has bodies[i]. progress may be null.
LevelResult run_load(const Target& target, const std::string& path, const std::vector<std::string>& bodies,
                     const LoadShape& shape, const Progress& progress);

}  // namespace headwater::bench::serve
