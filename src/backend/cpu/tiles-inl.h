// The configuration of a thread's AMX tiles, and what GCC 12 has to be told about the instructions.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

// Everything written before is in memory after it. GCC 12 declares 8 bytes of what _tile_loadconfig reads and nothing of
// what _tile_loadd reads: without this it drops or moves the stores.
static inline __attribute__((always_inline)) void see_memory() {
  asm volatile("" : : : "memory");
}

// Tile t has rows[t] rows of row_bytes[t] bytes. Loaded on construction, released at the end.
class Tiles {
 public:
  struct alignas(64) Config {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };

  explicit Tiles(const Config& config) {
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
