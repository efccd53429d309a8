#include "allocator_use.hpp"

#include <algorithm>

#include "base/stop_point.hpp"

namespace perfmodel {
namespace {

constexpr int kSteps = 2;
constexpr BlockId kNoBlock{UINT32_MAX};
constexpr int kGraphPool = 1;  // a stream's blocks stay with it, like a private pool's

class Run {
 public:
  Run(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes,
      const AllocatorOptions& options)
      : plan_(plan), bytes_(bytes), allocator_(options), blocks_(bytes.size(), kNoBlock) {}

  bool hold(const std::vector<std::int64_t>& held) {
    const bool is_held = std::ranges::all_of(held, [&](std::int64_t amount) {
      return amount == 0 || allocator_.allocate(amount).has_value();
    });
    note_peak();
    return is_held;
  }

  bool take_what_is_there() {
    const auto& storages = plan_.lifetimes.storages;
    for (std::size_t i = 0; i < storages.size(); ++i) {
      const bool is_there = storages[i].made_by == StorageLifetime::kBefore ||
                            storages[i].left_until >= storages[i].made_by;
      if (is_there && !take(i)) return false;
    }
    return true;
  }

  bool step() {
    for (const MemoryEvent& event : plan_.events) {
      const auto storage = static_cast<std::size_t>(event.storage);
      if (!event.is_free) {
        if (!take(storage)) return false;
      } else if (blocks_[storage] != kNoBlock) {  // a gradient that no step has left yet has none
        if (plan_.in_graph_pool[storage]) in_pool_ -= allocator_.place(blocks_[storage]).bytes;
        allocator_.free(blocks_[storage]);
        blocks_[storage] = kNoBlock;
      }
    }
    return true;
  }

  AllocatorUse use() const {
    return {.peak_allocated = peak_allocated_, .peak_reserved = allocator_.peak().reserved};
  }

 private:
  bool take(std::size_t storage) {
    if (bytes_[storage] == 0) return true;
    const bool in_pool = plan_.in_graph_pool[storage];
    const auto block = allocator_.allocate(bytes_[storage], in_pool ? kGraphPool : 0);
    if (!block) return false;
    blocks_[storage] = *block;
    if (in_pool) in_pool_ += allocator_.place(*block).bytes;
    note_peak();
    return true;
  }
  void note_peak() {
    peak_allocated_ = std::max(peak_allocated_, allocator_.current().allocated - in_pool_);
  }

  const MemoryPlan& plan_;
  const std::vector<std::int64_t>& bytes_;
  CachingAllocator allocator_;
  std::int64_t in_pool_ = 0, peak_allocated_ = 0;
  std::vector<BlockId> blocks_;  // blocks of the storages
};

}  // namespace

std::optional<AllocatorUse> allocator_use(const MemoryPlan& plan,
                                          const std::vector<std::int64_t>& bytes,
                                          const std::vector<std::int64_t>& held,
                                          const AllocatorOptions& options) {
  Run run(plan, bytes, options);
  if (!run.take_what_is_there() || !run.hold(held)) return std::nullopt;
  for (int i = 0; i < kSteps; ++i) {
    stop_point();
    if (!run.step()) return std::nullopt;
  }
  return run.use();
}

}  // namespace perfmodel
