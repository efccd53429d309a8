#include "perfmodel/predictors/learned_models.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "json_file.hpp"
#include "learned/learned_model.hpp"
#include "learned/model_file.hpp"

namespace perfmodel {
namespace {

using learned::LearnedModel;

/// A model with its trees laid out for speed.
struct Loaded {
  explicit Loaded(LearnedModel the_model)
      : model(std::move(the_model)), common(model.common), chip(model.chip) {}

  LearnedModel model;
  learned::TreeWalker common, chip;
};

/// Model files of one family: read once, when first needed.
class Library {
 public:
  void add_file(std::filesystem::path file) { files_.push_back(std::move(file)); }
  void add_model(LearnedModel model) { models_.emplace_back(std::move(model)); }
  bool empty() const { return files_.empty() && models_.empty(); }

  const std::vector<Loaded>& models() const {
    std::call_once(once_, [this] {
      for (const auto& file : files_) {
        auto models = learned::read_model_file(file);
        if (!models) {
          if (!problem_) problem_ = models.error();
          continue;
        }
        for (LearnedModel& model : *models) models_.emplace_back(std::move(model));
      }
      is_read_ = true;
    });
    return models_;
  }

  std::optional<Error> problem() const { return is_read_ ? problem_ : std::nullopt; }

 private:
  std::vector<std::filesystem::path> files_;
  mutable std::once_flag once_;
  mutable std::atomic<bool> is_read_ = false;
  mutable std::vector<Loaded> models_;
  mutable std::optional<Error> problem_;
};

class LearnedKernelModel final : public KernelModel {
 public:
  LearnedKernelModel(const Library& library, const KernelModel& heuristic)
      : library_(library), heuristic_(heuristic) {}

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    Price price;
    price_many({&work, 1}, gpu, {&price, 1});
    return price;
  }

  void price_many(std::span<const KernelWork> work, const Gpu& gpu,
                  std::span<Price> prices) const override {
    heuristic_.price_many(work, gpu, prices);
    for (const Loaded& loaded : library_.models()) refine(loaded, work, gpu, prices);
  }

 private:
  /// As `LearnedModel::refine` does, the trees over many rows at once.
  void refine(const Loaded& loaded, std::span<const KernelWork> work, const Gpu& gpu,
              std::span<Price> prices) const {
    constexpr std::size_t kBlock = 64;
    const LearnedModel& model = loaded.model;
    const learned::FeatureSet& set = *learned::feature_set(model.family);
    const int chip = model.chip_index(gpu);
    const bool has_chip_trees = chip >= 0 && !loaded.chip.empty();
    std::array<learned::FeatureRow, kBlock> rows;
    std::array<std::size_t, kBlock> places;
    std::array<float, kBlock> common_sums, chip_sums;
    for (std::size_t next = 0; next < work.size();) {
      std::size_t count = 0;
      for (; next < work.size() && count < kBlock; ++next) {
        if (find(work[next]) != &loaded) continue;
        if (!set.fill(work[next], gpu, prices[next], rows[count])) continue;
        rows[count][set.specs.size()] = static_cast<float>(chip);
        places[count++] = next;
      }
      const std::span features(rows.front().data(), count * learned::kMaxFeatures);
      loaded.common.predict(features, learned::kMaxFeatures, std::span(common_sums).first(count));
      if (has_chip_trees) {
        loaded.chip.predict(features, learned::kMaxFeatures, std::span(chip_sums).first(count));
      }
      for (std::size_t i = 0; i < count; ++i) {
        model.apply(common_sums[i], has_chip_trees ? chip_sums[i] : 0, chip, rows[i], gpu,
                    prices[places[i]]);
      }
    }
  }

  const Loaded* find(const KernelWork& work) const {
    for (const Loaded& loaded : library_.models()) {
      if (loaded.model.covers(work)) return &loaded;
    }
    return nullptr;
  }

  const Library& library_;
  const KernelModel& heuristic_;
};

constexpr std::size_t kFamilies = static_cast<std::size_t>(KernelFamily::kSmall) + 1;

}  // namespace

struct LearnedModels::State {
  std::array<Library, kFamilies> libraries;
  std::array<std::unique_ptr<LearnedKernelModel>, kFamilies> kernel_models;
  KernelModels models = KernelModels::heuristic();

  void install() {
    for (std::size_t i = 0; i < kFamilies; ++i) {
      const auto family = static_cast<KernelFamily>(i);
      if (libraries[i].empty()) continue;
      kernel_models[i] = std::make_unique<LearnedKernelModel>(
          libraries[i], KernelModels::heuristic().model(family));
      models.set(family, kernel_models[i].get());
    }
  }
};

LearnedModels::LearnedModels(std::unique_ptr<State> state) : state_(std::move(state)) {}
LearnedModels::LearnedModels(LearnedModels&&) noexcept = default;
LearnedModels& LearnedModels::operator=(LearnedModels&&) noexcept = default;
LearnedModels::~LearnedModels() = default;

const KernelModels& LearnedModels::models() const { return state_->models; }

std::optional<Error> LearnedModels::problem() const {
  for (const Library& library : state_->libraries) {
    if (auto problem = library.problem()) return problem;
  }
  return std::nullopt;
}

Result<LearnedModels> LearnedModels::open(const std::filesystem::path& folder) {
  auto files = json_files(folder, "kernel-model files");
  if (!files) return Unexpected{files.error()};
  auto state = std::make_unique<State>();
  bool any = false;
  for (auto& file : *files) {
    const std::string name = file.filename().string();
    for (std::size_t i = 0; i < kFamilies; ++i) {
      const std::string prefix = std::string(to_string(static_cast<KernelFamily>(i))) + "-";
      if (!name.starts_with(prefix)) continue;
      state->libraries[i].add_file(file);
      any = true;
    }
  }
  if (!any) {
    return Unexpected{Error{.code = ErrorCode::kIo,
                            .message = "expected kernel-model files (<family>-<dtype>.json), found "
                                       "none",
                            .file = folder}};
  }
  state->install();
  return LearnedModels(std::move(state));
}

Result<LearnedModels> LearnedModels::read(const std::filesystem::path& file) {
  auto models = learned::read_model_file(file);
  if (!models) return Unexpected{models.error()};
  auto state = std::make_unique<State>();
  for (LearnedModel& model : *models) {
    state->libraries[static_cast<std::size_t>(model.family)].add_model(std::move(model));
  }
  state->install();
  return LearnedModels(std::move(state));
}

}  // namespace perfmodel
