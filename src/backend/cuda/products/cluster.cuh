// Blocks of a cluster, which read each other's shared memory. Source: PTX ISA 9.0, sections "mapa" and "barrier.cluster".
#pragma once

#include "backend/cuda/attention/ptx.cuh"

namespace headwater::backend::cuda {

// By all threads of the cluster; what they wrote to shared memory before it, all see behind it.
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// `place`, an address of the own shared memory, in that of block `rank`.
__device__ __forceinline__ float4 load_of_block(const float4* place, uint32_t rank) {
  float4 value;
  asm volatile(
      "{\n.reg .u32 at;\n"
      "mapa.shared::cluster.u32 at, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [at];\n}\n"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "r"(ptx::shared_address(place)), "r"(rank)
      : "memory");
  return value;
}

}  // namespace headwater::backend::cuda
