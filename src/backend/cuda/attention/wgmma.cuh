// Matrix products of a warpgroup: d[64 x N] += a[64 x 16] * b[16 x N], asynchronous. Source: PTX ISA 9.0, "wgmma".
//
// Accumulators: thread t of the warpgroup holds, for row r = 16 * (t / 32) + (t % 32) / 4 and column c = 2 * (t % 4),
//   d[4 j + 0, 1] = (r, 8 j + c, + 1)      d[4 j + 2, 3] = (r + 8, 8 j + c, + 1)
// An operand in registers has the same arrangement, two 16-bit elements a register: so the scores of one product, rounded
// and packed, are the left operand of the next.
//
// Operands in shared memory are panels of 64 columns (128 bytes a row) in the 128-byte swizzle, described by 64 bits.
#pragma once

#include <cstdint>

#include "backend/cuda/attention/elements.cuh"
#include "backend/cuda/attention/ptx.cuh"

namespace headwater::backend::cuda {

namespace descriptor {

inline constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
inline constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;  // from 8 rows to the next 8

// `panel` is an address in shared memory, the same in all lanes and known to be (uniform()).
// Rows are rows of the operand (queries, keys): 16 columns at a time, the next ones 32 bytes further on.
__device__ __forceinline__ uint64_t by_rows(uint32_t panel, uint32_t offset) {
  return kSwizzle128 | kEightRows | ((panel >> 4) + (offset >> 4) + (1u << 16));
}
// Rows are what is summed over (values): 16 rows at a time, the next ones 2,048 bytes further on.
__device__ __forceinline__ uint64_t by_columns(uint32_t panel, uint32_t offset, uint32_t panel_bytes) {
  return kSwizzle128 | kEightRows | ((panel >> 4) + (offset >> 4) + (panel_bytes >> 4 << 16));
}

}  // namespace descriptor

// Before the first product that touches registers which ordinary instructions wrote.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending of the committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// scores: rows by rows, the left operand in shared memory or in registers. add: 0 forgets what d held.
// values: the left operand in registers, the right one summed over its rows.
template <typename Element, int kN>
struct Product;

// An instruction names each of its registers, so its text exists once for every N; the lists double from one to the next.
// clang-format off
#define HEADWATER_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define HEADWATER_NAMES_16 HEADWATER_NAMES_8 ", " "%8, %9, %10, %11, %12, %13, %14, %15"
#define HEADWATER_NAMES_32 HEADWATER_NAMES_16 \
  ", " "%16, %17, %18, %19, %20, %21, %22, %23" ", " "%24, %25, %26, %27, %28, %29, %30, %31"
#define HEADWATER_NAMES_64 HEADWATER_NAMES_32 \
  ", " "%32, %33, %34, %35, %36, %37, %38, %39" ", " "%40, %41, %42, %43, %44, %45, %46, %47" \
  ", " "%48, %49, %50, %51, %52, %53, %54, %55" ", " "%56, %57, %58, %59, %60, %61, %62, %63"
#define HEADWATER_NAMES_128 HEADWATER_NAMES_64 \
  ", " "%64, %65, %66, %67, %68, %69, %70, %71" ", " "%72, %73, %74, %75, %76, %77, %78, %79" \
  ", " "%80, %81, %82, %83, %84, %85, %86, %87" ", " "%88, %89, %90, %91, %92, %93, %94, %95" \
  ", " "%96, %97, %98, %99, %100, %101, %102, %103" ", " "%104, %105, %106, %107, %108, %109, %110, %111" \
  ", " "%112, %113, %114, %115, %116, %117, %118, %119" ", " "%120, %121, %122, %123, %124, %125, %126, %127"
#define HEADWATER_SUMS_8(i) \
  "+f"(d[(i) + 0]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), \
  "+f"(d[(i) + 4]), "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define HEADWATER_SUMS_16(i) HEADWATER_SUMS_8(i), HEADWATER_SUMS_8((i) + 8)
#define HEADWATER_SUMS_32(i) HEADWATER_SUMS_16(i), HEADWATER_SUMS_16((i) + 16)
#define HEADWATER_SUMS_64(i) HEADWATER_SUMS_32(i), HEADWATER_SUMS_32((i) + 32)
#define HEADWATER_SUMS_128(i) HEADWATER_SUMS_64(i), HEADWATER_SUMS_64((i) + 64)
#define HEADWATER_SCORES(type, n, registers, a_name, b_name, add_name)                                               \
  static __device__ __forceinline__ void scores(float (&d)[registers], uint64_t a, uint64_t b, int add) {            \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_name ", 0;\n"                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" HEADWATER_NAMES_##registers    \
                 "}, " a_name ", " b_name ", p, 1, 1, 0, 0;\n}\n"                                                    \
                 : HEADWATER_SUMS_##registers(0) : "l"(a), "l"(b), "r"(add));                                        \
  }
#define HEADWATER_SCORES_OF_REGISTERS(type, n, registers, a_names, b_name, add_name)                                 \
  static __device__ __forceinline__ void scores(float (&d)[registers], const uint32_t (&a)[4], uint64_t b, int add) {\
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_name ", 0;\n"                                               \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" HEADWATER_NAMES_##registers    \
                 "}, {" a_names "}, " b_name ", p, 1, 1, 0;\n}\n"                                                    \
                 : HEADWATER_SUMS_##registers(0)                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                    \
  }
#define HEADWATER_VALUES(type, n, registers, a_names, b_name)                                                        \
  static __device__ __forceinline__ void values(float (&d)[registers], const uint32_t* a, uint64_t b) {              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" HEADWATER_NAMES_##registers    \
                 "}, {" a_names "}, " b_name ", p, 1, 1, 1;\n}\n"                                                    \
                 : HEADWATER_SUMS_##registers(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));              \
  }
#define HEADWATER_PRODUCTS(Element, type)                                                                            \
  template <> struct Product<Element, 16> {                                                                          \
    HEADWATER_SCORES_OF_REGISTERS(type, 16, 8, "%8, %9, %10, %11", "%12", "%13")                                     \
  };                                                                                                                 \
  template <> struct Product<Element, 32> {                                                                          \
    HEADWATER_SCORES(type, 32, 16, "%16", "%17", "%18")                                                              \
    HEADWATER_SCORES_OF_REGISTERS(type, 32, 16, "%16, %17, %18, %19", "%20", "%21")                                  \
  };                                                                                                                 \
  template <> struct Product<Element, 64> {                                                                          \
    HEADWATER_SCORES(type, 64, 32, "%32", "%33", "%34")                                                              \
    HEADWATER_SCORES_OF_REGISTERS(type, 64, 32, "%32, %33, %34, %35", "%36", "%37")                                  \
    HEADWATER_VALUES(type, 64, 32, "%32, %33, %34, %35", "%36")                                                      \
  };                                                                                                                 \
  template <> struct Product<Element, 128> {                                                                         \
    HEADWATER_SCORES(type, 128, 64, "%64", "%65", "%66")                                                             \
    HEADWATER_VALUES(type, 128, 64, "%64, %65, %66, %67", "%68")                                                     \
  };                                                                                                                 \
  template <> struct Product<Element, 256> {                                                                         \
    HEADWATER_VALUES(type, 256, 128, "%128, %129, %130, %131", "%132")                                               \
  };
HEADWATER_PRODUCTS(__nv_bfloat16, "bf16")
HEADWATER_PRODUCTS(__half, "f16")
// clang-format on
#undef HEADWATER_PRODUCTS
#undef HEADWATER_VALUES
#undef HEADWATER_SCORES_OF_REGISTERS
#undef HEADWATER_SCORES
#undef HEADWATER_SUMS_128
#undef HEADWATER_SUMS_64
#undef HEADWATER_SUMS_32
#undef HEADWATER_SUMS_16
#undef HEADWATER_SUMS_8
#undef HEADWATER_NAMES_128
#undef HEADWATER_NAMES_64
#undef HEADWATER_NAMES_32
#undef HEADWATER_NAMES_16
#undef HEADWATER_NAMES_8

}  // namespace headwater::backend::cuda
