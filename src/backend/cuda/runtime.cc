#include "backend/cuda/runtime.h"

namespace headwater::backend::cuda {

Status checked(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return {};
  cudaGetLastError();
  const ErrorCode code = result == cudaErrorMemoryAllocation ? ErrorCode::kExhausted : ErrorCode::kInternal;
  return error(code, "{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result));
}

Result<DeviceTraits> device_traits() {
  int device = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    const char* reason = cudaGetErrorString(cudaGetLastError());
    return error(ErrorCode::kUnsupported, "no CUDA device ({}); use --backend cpu", reason);
  }
  return DeviceTraits{properties.name, fmt::format("sm_{}{}", properties.major, properties.minor),
                      static_cast<uint32_t>(properties.multiProcessorCount),
                      properties.major == 9 && properties.minor == 0};
}

DeviceMemory device_memory() {
  size_t free = 0, total = 0;
  if (!checked(cudaMemGetInfo(&free, &total), "the device's memory")) return {};
  return {free, total};
}

Result<DeviceBuffer> DeviceBuffer::create(size_t bytes) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  const cudaError_t taken = cudaMalloc(&data, bytes);
  if (taken == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const DeviceMemory memory = device_memory();
    return error(ErrorCode::kExhausted,
                 "the device refused {} bytes; {} of {} are free: lower --gpu-memory-utilization, --kv-cache-memory or "
                 "--max-num-batched-tokens, or take a smaller model",
                 bytes, memory.free, memory.total);
  }
  HEADWATER_RETURN_IF_ERROR(checked(taken, "device memory"));
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  // Work on other streams does not wait for the default one's.
  HEADWATER_RETURN_IF_ERROR(checked(cudaMemset(data, 0, bytes), "clearing device memory"));
  HEADWATER_RETURN_IF_ERROR(checked(cudaStreamSynchronize(cudaStreamLegacy), "clearing device memory"));
  return buffer;
}

Status DeviceBuffer::grow(size_t bytes) {
  if (bytes_ >= bytes) return {};
  *this = DeviceBuffer();  // first: both may not fit
  HEADWATER_ASSIGN_OR_RETURN(*this, create(bytes));
  return {};
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

Result<Buffer> create_pinned(size_t bytes) {
  void* data = nullptr;
  if (bytes == 0) return Buffer();
  HEADWATER_RETURN_IF_ERROR(checked(cudaMallocHost(&data, bytes), "pinned host memory"));
  std::fill_n(static_cast<std::byte*>(data), bytes, std::byte{0});
  return Buffer::adopt(static_cast<std::byte*>(data), bytes,
                       [](std::byte* memory, size_t) { static_cast<void>(cudaFreeHost(memory)); });
}

Result<Stream> Stream::create() {
  Stream stream;
  HEADWATER_RETURN_IF_ERROR(checked(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "a stream"));
  return stream;
}
Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Result<Event> Event::create() {
  Event event;
  HEADWATER_RETURN_IF_ERROR(checked(cudaEventCreate(&event.event_), "an event"));
  return event;
}
Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

Result<Graph> Graph::record(const Stream& stream, const std::function<void()>& enqueue) {
  HEADWATER_RETURN_IF_ERROR(
      checked(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "recording a graph"));
  enqueue();
  cudaGraph_t recorded = nullptr;
  HEADWATER_RETURN_IF_ERROR(checked(cudaStreamEndCapture(stream.get(), &recorded), "recording a graph"));
  Graph graph;
  Status status = checked(cudaGraphGetNodes(recorded, nullptr, &graph.nodes_), "a graph's nodes");
  if (status) status = checked(cudaGraphInstantiate(&graph.graph_, recorded, 0), "a graph");
  cudaGraphDestroy(recorded);
  HEADWATER_RETURN_IF_ERROR(status);
  return graph;
}
Graph::~Graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}

}  // namespace headwater::backend::cuda
