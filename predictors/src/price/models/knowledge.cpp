#include "knowledge.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "price/learned/learned_model.hpp"

namespace perfmodel {
namespace {

void widen(Price& price) {
  const double time = price.time.count();
  if (!(time > 0)) return;
  price.low *= price.low.count() / time;
  price.high *= price.high.count() / time;
}

class StatedModel final : public KernelModel {
 public:
  explicit StatedModel(const KernelModel& model) : model_(model) {}

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    Price price = model_.price(work, gpu);
    state(price, heuristic_knowledge(work, gpu));
    return price;
  }
  void price_many(std::span<const KernelWork> work, const Gpu& gpu,
                  std::span<Price> prices) const override {
    model_.price_many(work, gpu, prices);
    // Looked up again only where the type changes: all are of one family.
    Knowledge known = Knowledge::kNone;
    for (std::size_t i = 0; i < work.size(); ++i) {
      if (i == 0 || work[i].dtype != work[i - 1].dtype || work[i].family != work[i - 1].family ||
          work[i].matrix_units != work[i - 1].matrix_units ||
          work[i].shape.index() != work[i - 1].shape.index()) {
        known = heuristic_knowledge(work[i], gpu);
      }
      state(prices[i], known);
    }
  }

 private:
  static void state(Price& price, Knowledge known) {
    price.knowledge = known;
    if (known == Knowledge::kNone) widen(price);
  }

  const KernelModel& model_;
};

std::string_view type_name(const KernelWork& work, const Gpu& gpu) {
  const DType dtype = work.dtype == DType::kFloat16 ? DType::kBFloat16 : work.dtype;
  return learned::arithmetic_name(dtype, learned::is_tf32(work, gpu));
}

bool is_named(std::string_view kernels, const KernelWork& work, const Gpu& gpu) {
  const std::string_view family = to_string(work.family);
  if (!kernels.starts_with(family)) return false;
  kernels.remove_prefix(family.size());
  return kernels.empty() || (kernels.front() == '-' && kernels.substr(1) == type_name(work, gpu));
}

}  // namespace

Knowledge heuristic_knowledge(const KernelWork& work, const Gpu& gpu) {
  Knowledge known = Knowledge::kNone;
  if (std::holds_alternative<HashedProductShape>(work.shape)) return known;  // none was timed
  for (const MeasuredKernels& measured : gpu.architecture.measured_kernels) {
    if (!is_named(measured.kernels, work, gpu)) continue;
    if (std::ranges::find(measured.gpus, gpu.name) != measured.gpus.end()) return Knowledge::kBoard;
    known = Knowledge::kArchitecture;
  }
  return known;
}

KernelModels with_knowledge(const KernelModels& heuristics) {
  // Never destroyed: the models live as long as the program.
  static auto& stated = *new std::vector<std::unique_ptr<StatedModel>>;
  KernelModels result = heuristics;
  for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
    const auto family = static_cast<KernelFamily>(i);
    if (family == KernelFamily::kCollective) continue;
    stated.push_back(std::make_unique<StatedModel>(heuristics.model(family)));
    result.set(family, stated.back().get());
  }
  return result;
}

}  // namespace perfmodel
