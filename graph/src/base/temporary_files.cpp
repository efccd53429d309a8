#include "temporary_files.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

namespace perfmodel {
namespace {

// Looked at by signal handlers, so there is no lock and nothing is allocated. Who takes a name out
// owns it.
std::array<std::atomic<char*>, 1024> names{};
static_assert(std::atomic<char*>::is_always_lock_free);

int put(char* name) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    char* none = nullptr;
    if (names[i].compare_exchange_strong(none, name)) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

TemporaryName::TemporaryName(const std::filesystem::path& name)
    : name_(std::make_unique<char[]>(name.native().size() + 1)) {
  std::memcpy(name_.get(), name.c_str(), name.native().size() + 1);
  slot_ = put(name_.get());
}

TemporaryName::~TemporaryName() {
  if (slot_ < 0) return;
  char* mine = name_.get();
  const bool taken_back = names[slot_].compare_exchange_strong(mine, nullptr);
  // Else a handler on another thread reads it, and the process ends.
  if (!taken_back) static_cast<void>(name_.release());
}

void remove_temporary_files() noexcept {
  for (std::atomic<char*>& slot : names) {
    if (const char* name = slot.exchange(nullptr)) ::unlink(name);
  }
}

}  // namespace perfmodel
