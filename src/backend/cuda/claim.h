// Kernels whose blocks wait for each other (attention) must have all of them on the device in the end. Two such kernels of
// different streams can keep each other's last blocks out for ever. A cooperative launch rules that out, but it begins when
// all of its blocks fit, 3 us later than what is launched to overlap. One user of a device may do without: blocks of others then
// come all or none, and those of its own stream come in order. Two things it does not know of: contexts with fewer multiprocessors
// than the device has, and kernels of other libraries that wait for blocks of their own without a cooperative launch.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <utility>

namespace headwater::backend::cuda {

// That of the current device, if nobody in this process has it and no other process's kernels run beside ours (MPS).
class DeviceClaim {
 public:
  DeviceClaim() = default;
  static DeviceClaim try_take() {
    DeviceClaim claim;
    int device = 0;
    int is_shared = 1;  // by other processes
    if (cudaGetDevice(&device) != cudaSuccess || device >= static_cast<int>(taken_.size()) ||
        cudaDeviceGetAttribute(&is_shared, cudaDevAttrMpsEnabled, device) != cudaSuccess || is_shared != 0) {
      cudaGetLastError();  // CUDA's memory of it
      return claim;
    }
    std::atomic<bool>& place = taken_[static_cast<size_t>(device)];
    if (!place.exchange(true)) claim.place_ = &place;
    return claim;
  }
  DeviceClaim(DeviceClaim&& other) noexcept : place_(std::exchange(other.place_, nullptr)) {}
  DeviceClaim& operator=(DeviceClaim&& other) noexcept {
    std::swap(place_, other.place_);
    return *this;
  }
  ~DeviceClaim() {
    if (place_ != nullptr) place_->store(false);
  }
  bool is_held() const { return place_ != nullptr; }

 private:
  static inline std::array<std::atomic<bool>, 64> taken_{};
  std::atomic<bool>* place_ = nullptr;
};

}  // namespace headwater::backend::cuda
