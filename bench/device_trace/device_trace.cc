// What ran on the device and when, as CUPTI saw it. An instrument of tools/device_idle.py and no part of the engine: the
// CUDA driver loads this library into a program when CUDA_INJECTION64_PATH names it, and calls InitializeInjection().
//
//   HEADWATER_DEVICE_TRACE=FILE          where to; without it nothing is recorded
//   HEADWATER_DEVICE_TRACE_KIND=graphs   a launch of a graph is one record (the default); little overhead
//   HEADWATER_DEVICE_TRACE_KIND=kernels  each kernel and copy of a graph is a record: shows gaps inside, and slows them
//
// Kernels, copies and memsets outside of graphs are recorded either way: a graph that is one record hides its own only.
// A line a record, in no order, separated by tabs. Times are ns; graph is 0 for what was launched alone; launch is the
// same for all of one launch. The last line is written when the program ends, by returning from main or by exit():
//
//   kind (graph, kernel, copy, set)   start   end   stream   graph   launch   name
//   end   records written   records that CUPTI dropped   records without times
//
// Threads: CUPTI gives full buffers back from a thread of its own, and from the one that flushes; they take turns.
#include <cupti.h>
#include <cxxabi.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kBufferAlignment = 8;

struct Trace {
  std::mutex mutex;
  std::FILE* file = nullptr;
  std::unordered_map<std::string_view, std::string> names;  // by what the compiler made of them
  uint64_t written = 0, dropped = 0, untimed = 0;
};

// Never destroyed: CUPTI's thread may outlive what is.
Trace& trace() {
  static Trace& only = *new Trace;
  return only;
}

// Tells of the first call that failed, and of no other.
bool succeeded(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return true;
  static std::atomic_flag is_told = ATOMIC_FLAG_INIT;
  const char* reason = nullptr;
  if (cuptiGetErrorMessage(result, &reason) != CUPTI_SUCCESS || reason == nullptr) reason = "an unknown error";
  if (!is_told.test_and_set()) {
    std::fprintf(stderr, "headwater_device_trace: %s: %s (CUPTI error %d); the trace is not whole\n", what, reason,
                 static_cast<int>(result));
  }
  return false;
}

const char* name_of_copy(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy on device";
    default:
      return "copy";
  }
}

// CUPTI keeps the names of kernels as long as the process lives.
const char* readable(const char* name) {
  if (name == nullptr) return "kernel";
  const auto [known, is_new] = trace().names.try_emplace(name);
  if (is_new) {
    int status = 0;
    char* demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    known->second = status == 0 ? demangled : name;
    std::free(demangled);
  }
  return known->second.c_str();
}

template <typename Record>
void write_line(const Record& record, const char* kind, const char* name) {
  if (record.start == 0 && record.end == 0) {
    ++trace().untimed;
    return;
  }
  std::fprintf(trace().file, "%s\t%llu\t%llu\t%u\t%u\t%u\t%s\n", kind, static_cast<unsigned long long>(record.start),
               static_cast<unsigned long long>(record.end), record.streamId, record.graphId, record.correlationId,
               name);
  ++trace().written;
}

void write(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return write_line(*reinterpret_cast<const CUpti_ActivityGraphTrace2*>(record), "graph", "graph");
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      return write_line(kernel, "kernel", readable(kernel.name));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      return write_line(copy, "copy", name_of_copy(copy.copyKind));
    }
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return write_line(*reinterpret_cast<const CUpti_ActivityMemset4*>(record), "set", "memset");
    default:
      return;
  }
}

void CUPTIAPI take_buffer(uint8_t** buffer, size_t* bytes, size_t* records_max) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;  // CUPTI counts what it drops
  *records_max = 0;
}

void CUPTIAPI write_records(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t bytes) {
  const std::lock_guard lock(trace().mutex);
  if (trace().file != nullptr) {
    CUpti_Activity* record = nullptr;
    CUptiResult result = CUPTI_SUCCESS;
    while ((result = cuptiActivityGetNextRecord(buffer, bytes, &record)) == CUPTI_SUCCESS) write(record);
    if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) succeeded(result, "reading records");
    size_t dropped = 0;
    if (succeeded(cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped), "counting dropped records"))
      trace().dropped += dropped;
  }
  std::free(buffer);
}

// By then the program has waited for its work: flushing does not.
void finish() {
  succeeded(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flushing records");
  const std::lock_guard lock(trace().mutex);
  std::fprintf(trace().file, "end\t%llu\t%llu\t%llu\n", static_cast<unsigned long long>(trace().written),
               static_cast<unsigned long long>(trace().dropped), static_cast<unsigned long long>(trace().untimed));
  const bool is_whole = std::ferror(trace().file) == 0;
  if (std::fclose(trace().file) != 0 || !is_whole)
    std::fprintf(stderr, "headwater_device_trace: the trace could not be written; is the disk full?\n");
  trace().file = nullptr;
}

bool start(bool each_kernel) {
  if (!succeeded(cuptiActivityRegisterCallbacks(take_buffer, write_records), "registering callbacks")) return false;
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    if (!succeeded(cuptiActivityEnable(kind), "recording kernels, copies and memsets")) return false;
  }
  return each_kernel || succeeded(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), "recording graphs");
}

}  // namespace

// The driver's door. 1: go on; a program runs with or without its trace.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  const char* path = std::getenv("HEADWATER_DEVICE_TRACE");
  if (path == nullptr || *path == '\0' || trace().file != nullptr) return 1;
  const char* kind = std::getenv("HEADWATER_DEVICE_TRACE_KIND");
  const std::string_view chosen = kind == nullptr ? "graphs" : kind;
  if (chosen != "graphs" && chosen != "kernels") {
    std::fprintf(stderr, "headwater_device_trace: HEADWATER_DEVICE_TRACE_KIND is \"%s\"; it is graphs or kernels\n",
                 kind);
    return 1;
  }
  trace().file = std::fopen(path, "w");
  if (trace().file == nullptr) {
    std::fprintf(stderr, "headwater_device_trace: HEADWATER_DEVICE_TRACE is \"%s\", which cannot be written\n", path);
    return 1;
  }
  // Handlers run in reverse order. This one is registered late, when the driver and CUPTI have theirs.
  if (start(chosen == "kernels") && std::atexit(finish) != 0)
    std::fprintf(stderr, "headwater_device_trace: no room for a handler at exit; the trace will have no end\n");
  return 1;
}
