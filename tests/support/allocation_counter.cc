#include "support/allocation_counter.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEADWATER_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HEADWATER_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef HEADWATER_COUNTS_ALLOCATIONS
#define HEADWATER_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<uint64_t> counted{0};
}

namespace headwater::testing {

bool counts_allocations() {
  return HEADWATER_COUNTS_ALLOCATIONS;
}
uint64_t allocations() {
  return counted.load();
}

}  // namespace headwater::testing

#if HEADWATER_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  ++counted;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++counted;
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  ++counted;
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  ++counted;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  ++counted;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}
#endif
