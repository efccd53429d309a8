#include "failing_allocator.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace failing_allocator {
namespace {

std::atomic<bool> armed = false;
std::atomic<std::size_t> calls = 0;
std::atomic<long> blocks = 0;
std::size_t failing = 0;
Failure how = Failure::kOne;

bool fails() {
  if (!armed.load(std::memory_order_acquire)) return false;
  const std::size_t n = calls.fetch_add(1) + 1;
  return how == Failure::kOne ? n == failing : n >= failing;
}

void* counted(void* block) {
  if (block) blocks.fetch_add(1, std::memory_order_relaxed);
  return block;
}

}  // namespace

void arm(std::size_t n, Failure failure) {
  failing = n;
  how = failure;
  calls = 0;
  armed.store(true, std::memory_order_release);
}

std::size_t disarm() {
  armed.store(false, std::memory_order_release);
  return calls;
}

long live() { return blocks; }

}  // namespace failing_allocator

using namespace failing_allocator;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define __SANITIZE_ADDRESS__ 1  // as GCC says it
#endif
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace {

void* allocate(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) noexcept {
  if (fails()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return counted(std::malloc(size ? size : 1));
  return counted(std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment));
}

void* or_throw(void* block) {
  if (!block) throw std::bad_alloc();
  return block;
}

void release(void* block) noexcept {
  if (block) blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) { return or_throw(allocate(size)); }
void* operator new[](std::size_t size) { return or_throw(allocate(size)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return or_throw(allocate(size, static_cast<std::size_t>(alignment)));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return or_throw(allocate(size, static_cast<std::size_t>(alignment)));
}
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, std::size_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t) noexcept { release(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { release(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { release(block); }
void operator delete(void* block, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::align_val_t) noexcept { release(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { release(block); }

#else

// glibc's own, under the names that it keeps for replacements.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* no_memory() {
  errno = ENOMEM;
  return nullptr;
}
void* malloc(std::size_t size) { return fails() ? no_memory() : counted(__libc_malloc(size)); }
void* calloc(std::size_t count, std::size_t size) {
  return fails() ? no_memory() : counted(__libc_calloc(count, size));
}
void* realloc(void* block, std::size_t size) {
  if (fails()) return no_memory();
  return block ? __libc_realloc(block, size) : counted(__libc_malloc(size));
}
void* memalign(std::size_t alignment, std::size_t size) {
  return fails() ? no_memory() : counted(__libc_memalign(alignment, size));
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  *block = memalign(alignment, size);
  return *block ? 0 : ENOMEM;
}
void free(void* block) {
  if (block) blocks.fetch_sub(1, std::memory_order_relaxed);
  __libc_free(block);
}
}

#endif
