#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "plan_search_space.hpp"

namespace perfmodel::sharding::search {

/// Loads and bytes of ranks while tables are placed one after the other, never moved again.
class Packing {
 public:
  explicit Packing(const FlatSpace& space);

  enum class Order : std::uint8_t { kLongestFirst, kLargestFirst };
  /// Tables with the options in `layout`, each piece on the lightest rank or host that has room.
  /// False: one had no room; with `may_overflow` it goes to the place with most room.
  bool pack(Layout& layout, Order order, bool may_overflow = false);

 private:
  struct RankLoad {
    double load = kInfinite;
    std::int32_t rank = -1;  ///< -1: none
  };

  void clear();
  void tell_ranks_apart();
  bool place(const Layout& layout, std::uint32_t table, std::int32_t* where, bool may_overflow);
  bool place_everywhere(const Option& option, bool may_overflow);
  bool place_blocks(const Option& option, const Choice& choice, std::int32_t* where,
                    bool may_overflow);
  bool place_shards(const Option& option, const Choice& choice, std::int32_t* where,
                    bool may_overflow);
  std::int32_t best_host(const Choice& choice, bool may_overflow) const;
  std::int32_t best_rank(const Choice& choice, std::int32_t begin, std::int32_t end, const Run& run,
                         bool may_overflow) const;
  const RankLoad& lighter_below(std::size_t node) const;
  void seed_tree();
  void set_leaf(std::int32_t rank, bool is_in);
  bool place_on_lightest(const Option& option, const Choice& choice, std::int32_t* where);
  bool fits(std::int32_t rank, const ShardDemand& demand) const;
  void add(std::int32_t rank, const Run& run, int sign);
  double objective() const;

  const FlatSpace& space_;
  std::vector<double> load_;         // over all phases
  std::vector<ShardDemand> demand_;  // sums over the shards of a rank
  std::vector<std::uint32_t> used_;  // by the table that is placed: its number
  std::uint32_t now_ = 0;
  std::vector<std::uint32_t> order_;
  std::vector<double> keys_;        // per table: large ones come first
  const std::size_t leaves_;        // a power of two
  std::vector<RankLoad> lightest_;  // below each node of a tree over the ranks; [1]: of all
  std::vector<std::int32_t> refused_;
  std::vector<const Run*> block_;  // shards of the piece that a host gets
  bool is_alike_ = true;           // all ranks have what the first one has
  bool is_sorted_ = false;         // the tree agrees with `load_`
};

/// Plans to start from, best first, at most `most`; none: no seed fits. Once it has a plan, it
/// stops when `go_on` returns false. Only a share of the seeds is tried: above 0, up to 1.
std::vector<Layout> make_seeds(const FlatSpace& space, double lower_bound, std::size_t most,
                               double share, const std::function<bool()>& go_on);

/// The layout that needs least memory; may take more than there is.
Layout smallest_layout(const FlatSpace& space);

}  // namespace perfmodel::sharding::search
