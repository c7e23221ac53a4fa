// The CUDA runtime with this project's errors and owners. Nothing here outlives the process's device.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <utility>

#include "core/core.h"

namespace headwater::backend::cuda {

// kExhausted for memory, kInternal else; the message names what failed and CUDA's reason. A failure is reported once: CUDA's
// own memory of it is cleared.
Status checked(cudaError_t result, const char* what);

struct DeviceTraits {
  std::string name;    // "NVIDIA H200"
  std::string target;  // "sm_90"
  uint32_t multiprocessors = 0;
  bool is_hopper = false;  // compute capability 9.0: the copy engine and warpgroup products
};
struct DeviceMemory {
  uint64_t free = 0, total = 0;
};
DeviceMemory device_memory();          // of the current device; zeros when it does not say
Result<DeviceTraits> device_traits();  // of the current device; kUnsupported where there is none

// Device memory, zeroed.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> create(size_t bytes);
  Status grow(size_t bytes);  // to at least so many; what it held is lost
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer();

  size_t size() const { return bytes_; }
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Host memory that the device copies from without the host's help.
Result<Buffer> create_pinned(size_t bytes);

class Stream {
 public:
  Stream() = default;
  static Result<Stream> create();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream();
  cudaStream_t get() const { return stream_; }
  Status wait() const { return checked(cudaStreamSynchronize(stream_), "work on the device"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() = default;
  static Result<Event> create();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Work recorded once and launched as often as wanted.
class Graph {
 public:
  Graph() = default;
  // Records what `enqueue` puts on the stream.
  static Result<Graph> record(const Stream& stream, const std::function<void()>& enqueue);
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)), nodes_(other.nodes_) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    std::swap(nodes_, other.nodes_);
    return *this;
  }
  ~Graph();
  Status launch(const Stream& stream) const {
    return checked(cudaGraphLaunch(graph_, stream.get()), "launch of a graph");
  }
  size_t nodes() const { return nodes_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
  size_t nodes_ = 0;
};

}  // namespace headwater::backend::cuda
