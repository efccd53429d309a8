#include "plan_search_local.hpp"

#include <cmath>
#include <memory>

#include "plan_search_moves.hpp"

namespace perfmodel::sharding::search {
namespace {

constexpr std::uint64_t kMovesPerLook = 128;  // at the clock

template <std::size_t kPhases>
class Annealer final : public LocalSearch {
 public:
  explicit Annealer(const FlatSpace& space) : random_(0), moves_(space, random_) {}

  std::uint64_t run(const Layout& start, const Annealing& annealing, Random& random,
                    const double& worth, const SearchHooks& hooks) override {
    // Rising powers come nearer to the largest load, falling heat to the next local best.
    constexpr std::uint64_t kStages = 5;
    constexpr int kFirstDoublings = 3;
    moves_.use(random);
    moves_.load(start);
    moves_.ranks.allow_overflow(annealing.repair);
    std::uint64_t tried = 0;
    double heat = annealing.hot;
    const std::uint64_t per_stage = std::max<std::uint64_t>(1, annealing.moves / kStages);
    const double cooling = std::pow(
        annealing.cold / annealing.hot,
        1 / static_cast<double>(kStages * ((per_stage + kMovesPerLook - 1) / kMovesPerLook)));
    for (std::uint64_t stage = 0; stage < kStages; ++stage) {
      if (stage > 0) moves_.load(Layout(moves_.layout()));  // without rounding errors
      moves_.ranks.set_norm(kFirstDoublings + static_cast<int>(stage));
      objective_ = moves_.ranks.objective();
      double cost = moves_.ranks.kept_cost();
      for (std::uint64_t i = 0; i < per_stage; ++i, ++tried) {
        if (i % kMovesPerLook == 0) {
          if (!hooks.go_on(tried)) return tried;
          heat *= cooling;
        }
        if (!moves_.propose()) continue;
        if (!moves_.ranks.settle() || is_refused(cost, heat, random)) {
          moves_.take_back();
          continue;
        }
        moves_.keep();
        cost = moves_.ranks.kept_cost();
        objective_ = moves_.ranks.objective();
        if (moves_.ranks.overflow() > 0) continue;
        if (objective_ < worth * (1 - 1e-12)) {
          hooks.found(moves_.layout(), objective_);
        }
        if (annealing.repair) return tried + 1;
      }
    }
    return tried;
  }

 private:
  // The worse, the less likely it passes. Most are far worse: none of the numbers that may be drawn
  // lets them pass.
  bool is_refused(double cost, double heat, Random& random) const {
    constexpr double kMostDrawn = 37;  // -log(2^-53) = 36.7
    const auto range = moves_.ranks.cost_range();
    const bool far_worse = moves_.ranks.costs_more(cost * (1 + heat * kMostDrawn), range);
    if (!far_worse && !moves_.ranks.costs_more(cost, range)) return false;
    const double drawn = random.uniform();
    return far_worse || moves_.ranks.costs_more(cost * (1 - heat * std::log1p(-drawn)), range);
  }

  Random random_;
  Moves<kPhases> moves_;
  double objective_ = 0;
};

}  // namespace

std::unique_ptr<LocalSearch> make_local_search(const FlatSpace& space) {
  if (space.phases <= 1) return std::make_unique<Annealer<1>>(space);
  if (space.phases <= 3) return std::make_unique<Annealer<3>>(space);
  return std::make_unique<Annealer<kMostPhases>>(space);
}

}  // namespace perfmodel::sharding::search
