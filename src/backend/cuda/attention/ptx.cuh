// The few instructions that CUDA C++ has no name for. Source: PTX ISA 9.0, sections "mbarrier", "cp.async.bulk.tensor",
// "setmaxnreg", "ldmatrix", "movmatrix", "mma" and "atom".
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace headwater::backend::cuda::ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// What computes a sum of weights, which is never negative, stands before what follows. Nothing weaker keeps the assembler
// from moving arithmetic behind a wait.
__device__ __forceinline__ void hold(float sum) {
  asm volatile("{\n.reg .pred p;\nsetp.lt.f32 p, %0, 0f00000000;\n@p trap;\n}" ::"f"(sum) : "memory");
}

// ---- barriers in shared memory

__device__ __forceinline__ void init_barrier(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(uint64_t* barrier, uint32_t count = 1) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

__device__ __forceinline__ void arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ bool is_complete(uint64_t* barrier, uint32_t phase) {  // waits a while for it
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(phase)
      : "memory");
  return done != 0;
}

__device__ __forceinline__ void wait(uint64_t* barrier, uint32_t phase) {
  while (!is_complete(barrier, phase)) {
  }
}

// A barrier among `threads` threads of the block.
__device__ __forceinline__ void sync_named(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Ordinary stores to shared memory become visible to copies and matrix instructions.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// True in one lane of a warp, and known to be: where the assembler cannot see that, it wraps each copy into a loop over lanes.
__device__ __forceinline__ bool is_elected() {
  uint32_t is;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(is));
  return is != 0;
}

// ---- copies

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}

struct Corner {  // of a box in [layer][page][kv head][slot][column]
  uint32_t column, slot, head, page, layer;
};

__device__ __forceinline__ void copy_box(void* to, const CUtensorMap* map, const Corner& at, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(at.column), "r"(at.slot), "r"(at.head),
      "r"(at.page), "r"(at.layer)
      : "memory");
}

// A box at (column, row) of a matrix.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap* map, uint32_t column, uint32_t row,
                                         uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          shared_address(to)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(column), "r"(row)
      : "memory");
}

// Bytes in a row: a multiple of 16, from and to multiples of 16.
__device__ __forceinline__ void copy_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// 16 bytes by ordinary means: to shared memory, or zeros.
__device__ __forceinline__ void copy_piece(void* to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void wait_pieces() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
// What this thread has copied since the last call is one group; waits until no more than kLeft groups are under way.
__device__ __forceinline__ void end_pieces() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <uint32_t kLeft>
__device__ __forceinline__ void wait_pieces_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// ---- global memory

// Adds, after all writes that this thread knows of; who reads the sum in order sees them too.
__device__ __forceinline__ void add_in_order(uint32_t* to, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t load_in_order(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// Not in the order of other reads and writes.
__device__ __forceinline__ uint32_t fetch_and_add(uint32_t* at, uint32_t value) {
  uint32_t before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(value) : "memory");
  return before;
}

// Here and now, not where the compiler finds a use for it.
__device__ __forceinline__ uint32_t load_now(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(from));
  return value;
}

// In one piece, which the compiler does not always see to.
__device__ __forceinline__ void store(float4* to, const float4& values) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(values.x), "f"(values.y), "f"(values.z),
               "f"(values.w)
               : "memory");
}
__device__ __forceinline__ void store(uint2* to, const uint2& values) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(values.x), "r"(values.y) : "memory");
}

__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// ---- registers between warpgroups

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- arithmetic

__device__ __forceinline__ float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float log2(float x) {  // to 2^-21 between 0.5 and 2, elsewhere to 2 units in the last place
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float tanh(float x) {  // to 2^-21: 1 - 2 / (e^2x + 1)
  return 1.0f - __fdividef(2.0f, exp2(x * 2.885390082f) + 1.0f);
}

// ---- matrices of a warp: 8 x 8 elements of 16 bits a register. Lane l holds elements (l / 4, 2 (l % 4)) and the next of
// each; of float sums (16 x 8), those of rows l / 4 and l / 4 + 8.

// Four matrices; lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i, 16 bytes each.
__device__ __forceinline__ void load_matrices(uint32_t (&a)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&a)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ uint32_t transpose(uint32_t a) {
  uint32_t t;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(a));
  return t;
}

// sums [16 x 8] += a [16 x 16] * b [16 x 8]: the matrices of a are (rows, columns) 0 0, 8 0, 0 8, 8 8; those of b, held
// transposed, 0 and 8.
template <typename Element>
__device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
#define HEADWATER_MULTIPLY(Element, type)                                                                \
  template <>                                                                                            \
  __device__ __forceinline__ void multiply<Element>(float(&sums)[4], const uint32_t(&a)[4], uint32_t b0, \
                                                    uint32_t b1) {                                       \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                  \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                  \
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                        \
  }
HEADWATER_MULTIPLY(__nv_bfloat16, "bf16")
HEADWATER_MULTIPLY(__half, "f16")
#undef HEADWATER_MULTIPLY

}  // namespace headwater::backend::cuda::ptx
