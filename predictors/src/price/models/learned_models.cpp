#include "perfmodel/predictors/detail/learned_models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <sstream>

#include "files/json_file.hpp"
#include "price/kernels/hashed_product.hpp"
#include "price/kernels/product_epilogue.hpp"
#include "price/learned/learned_model.hpp"
#include "price/learned/model_file.hpp"

namespace perfmodel {
namespace {

using learned::Arithmetic, learned::LearnedModel;

/// A model with its trees laid out for speed.
struct Loaded {
  explicit Loaded(LearnedModel the_model)
      : model(std::move(the_model)), common(model.common), chip(model.chip) {}

  LearnedModel model;
  learned::TreeWalker common, chip;
};

/// The arithmetic that a file's name promises ("gemm-bfloat16.json"), if it tells one.
std::optional<Arithmetic> arithmetic_of(const std::filesystem::path& file, KernelFamily family) {
  if (learned::moves_bytes(family)) return std::nullopt;  // counts for every type
  return learned::find_arithmetic(
      file.stem().string().substr(std::string_view(to_string(family)).size() + 1));
}

/// A file of models of one family: read once, when a kernel needs it.
class ModelFile {
 public:
  ModelFile(std::filesystem::path path, KernelFamily family)
      : path_(std::move(path)), family_(family), arithmetic_(arithmetic_of(path_, family)) {}

  bool may_cover(DType dtype, bool tf32) const {
    return !arithmetic_ || (arithmetic_->dtype == dtype && arithmetic_->tf32 == tf32);
  }
  const std::vector<Loaded>& models() const {
    std::call_once(once_, [this] {
      read();
      is_read_ = true;
    });
    return models_;
  }
  bool is_read() const { return is_read_; }
  const std::filesystem::path& path() const { return path_; }
  std::optional<Error> problem() const { return is_read_ ? problem_ : std::nullopt; }

 private:
  void read() const {
    auto models = learned::read_model_file(path_);
    if (!models) {
      problem_ = models.error();
      return;
    }
    for (LearnedModel& model : *models) {
      if (model.family != family_) {
        reject(to_string(family_), to_string(model.family));
      } else if (!may_cover(model.dtype, model.tf32)) {
        reject(learned::arithmetic_name(arithmetic_->dtype, arithmetic_->tf32),
               learned::arithmetic_name(model.dtype, model.tf32));
      } else {
        models_.emplace_back(std::move(model));
      }
    }
  }

  void reject(std::string_view expected, std::string_view found) const {
    if (problem_) return;
    problem_ = Error{.code = ErrorCode::kFormat,
                     .message = fmt::format(
                         "expected models of {} kernels, as the file's name says, found one of {}",
                         expected, found),
                     .file = path_};
  }

  std::filesystem::path path_;
  KernelFamily family_;
  std::optional<Arithmetic> arithmetic_;
  mutable std::once_flag once_;
  mutable std::atomic<bool> is_read_ = false;
  mutable std::vector<Loaded> models_;
  mutable std::optional<Error> problem_;
};

/// Models of one family.
class Library {
 public:
  explicit Library(KernelFamily family) : family_(family) {}

  void add_file(std::filesystem::path file) { files_.emplace_back(std::move(file), family_); }
  void add_model(LearnedModel model) { models_.emplace_back(std::move(model)); }
  bool empty() const { return files_.empty() && models_.empty(); }

  const Loaded* find(Arithmetic of, const Gpu& gpu) const {
    if (const Loaded* loaded = first_of(models_, of, gpu)) return loaded;
    for (const ModelFile& file : files_) {
      if (!file.may_cover(of.dtype, of.tf32)) continue;
      if (const Loaded* loaded = first_of(file.models(), of, gpu)) return loaded;
    }
    return nullptr;
  }
  const std::deque<ModelFile>& files() const { return files_; }
  template <class Visit>
  void each_model(Visit visit) const {
    for (const Loaded& loaded : models_) visit(loaded.model);
    for (const ModelFile& file : files_) {
      for (const Loaded& loaded : file.models()) visit(loaded.model);
    }
  }

 private:
  static const Loaded* first_of(const std::vector<Loaded>& models, Arithmetic of, const Gpu& gpu) {
    for (const Loaded& loaded : models) {
      if (loaded.model.covers(of, gpu)) return &loaded;
    }
    return nullptr;
  }

  KernelFamily family_;
  std::deque<ModelFile> files_;  // stay where they are: each has its own flag
  std::vector<Loaded> models_;
};

/// All models of a family: for any GPU, and for single GPUs, which go first.
struct Libraries {
  explicit Libraries(KernelFamily family) : shared(family) {}

  Library shared;
  std::map<std::string, Library, std::less<>> by_gpu;

  bool empty() const { return shared.empty() && by_gpu.empty(); }
  /// The two half types move as many bytes and run at one speed: where models of the other one know
  /// the GPU better, they price both.
  const Loaded* find(Arithmetic of, const Gpu& gpu) const {
    const Loaded* exact = find_exact(of, gpu);
    if (of.dtype != DType::kFloat16 && of.dtype != DType::kBFloat16) return exact;
    const Knowledge known = exact ? exact->model.knowledge(gpu) : Knowledge::kNone;
    if (known == Knowledge::kBoard) return exact;
    of.dtype = of.dtype == DType::kFloat16 ? DType::kBFloat16 : DType::kFloat16;
    const Loaded* other = find_exact(of, gpu);
    return other && (!exact || other->model.knowledge(gpu) > known) ? other : exact;
  }
  /// The shared files stay unread where the GPU's own models do.
  const Loaded* find_exact(Arithmetic of, const Gpu& gpu) const {
    if (const auto own = by_gpu.find(gpu.name); own != by_gpu.end()) {
      if (const Loaded* loaded = own->second.find(of, gpu)) return loaded;
    }
    return shared.find(of, gpu);
  }
  template <class Visit>
  void each_file(Visit visit) const {
    for (const auto& [gpu, library] : by_gpu) std::ranges::for_each(library.files(), visit);
    std::ranges::for_each(shared.files(), visit);
  }
};

class LearnedKernelModel final : public KernelModel {
 public:
  LearnedKernelModel(const Libraries& libraries, const KernelModel& heuristic)
      : libraries_(libraries), heuristic_(heuristic) {}

  Price price(const KernelWork& work, const Gpu& gpu) const override {
    Price price;
    price_many({&work, 1}, gpu, {&price, 1});
    return price;
  }

  void price_many(std::span<const KernelWork> work, const Gpu& gpu,
                  std::span<Price> prices) const override {
    heuristic_.price_many(work, gpu, prices);
    for (std::size_t begin = 0; begin < work.size(); begin += kBlock) {
      const std::size_t count = std::min(kBlock, work.size() - begin);
      refine_block(work.subspan(begin, count), gpu, prices.subspan(begin, count));
    }
    for (std::size_t i = 0; i < work.size(); ++i) {
      if (const auto* hashed = std::get_if<HashedProductShape>(&work[i].shape)) {
        const KernelWork stored =
            kernels::stored_product(*hashed, work[i].dtype, work[i].matrix_units);
        prices[i] =
            kernels::beside_stored(prices[i], heuristic_.price(stored, gpu), price(stored, gpu));
      } else if (const auto alone = kernels::product_alone(work[i])) {
        prices[i] = kernels::with_epilogue(price(*alone, gpu), *alone, work[i], gpu);
      }
    }
  }

 private:
  static constexpr std::size_t kBlock = 64;
  using Choice = std::array<const Loaded*, kBlock>;

  /// As `LearnedModel::refine` does, kernels of one model through its trees together.
  void refine_block(std::span<const KernelWork> work, const Gpu& gpu,
                    std::span<Price> prices) const {
    Choice chosen;
    std::optional<Arithmetic> last;
    for (std::size_t i = 0; i < work.size(); ++i) {
      const Arithmetic of = {work[i].dtype, learned::is_tf32(work[i], gpu)};
      chosen[i] = last == of ? chosen[i - 1] : libraries_.find(of, gpu);
      last = of;
    }
    for (std::size_t i = 0; i < work.size(); ++i) {
      if (chosen[i]) refine(*chosen[i], chosen, i, work, gpu, prices);
    }
  }

  /// The kernels from `begin` on that `chosen` gives to this model; they are done then.
  static void refine(const Loaded& loaded, Choice& chosen, std::size_t begin,
                     std::span<const KernelWork> work, const Gpu& gpu, std::span<Price> prices) {
    const LearnedModel& model = loaded.model;
    const learned::FeatureSet& set = model.features();
    const LearnedModel::ForGpu known = model.for_gpu(gpu);
    const bool has_chip_trees = known.tree_chip >= 0 && !loaded.chip.empty();
    std::array<learned::FeatureRow, kBlock> rows;
    std::array<std::size_t, kBlock> places;
    std::array<float, kBlock> common_sums, chip_sums;
    std::size_t count = 0;
    for (std::size_t i = begin; i < work.size(); ++i) {
      if (chosen[i] != &loaded) continue;
      chosen[i] = nullptr;
      if (!set.fill(work[i], gpu, prices[i], rows[count])) continue;
      model.add_chip(known, rows[count]);
      places[count++] = i;
    }
    const std::span features(rows.front().data(), count * learned::kMaxFeatures);
    loaded.common.predict(features, learned::kMaxFeatures, std::span(common_sums).first(count));
    if (has_chip_trees) {
      loaded.chip.predict(features, learned::kMaxFeatures, std::span(chip_sums).first(count));
    }
    for (std::size_t i = 0; i < count; ++i) {
      model.apply(common_sums[i], has_chip_trees ? chip_sums[i] : 0, known, rows[i], gpu,
                  prices[places[i]]);
    }
  }

  const Libraries& libraries_;
  const KernelModel& heuristic_;
};

constexpr std::size_t kFamilies = static_cast<std::size_t>(KernelFamily::kSmall) + 1;

}  // namespace

struct LearnedModels::State {
  State() {
    for (std::size_t i = 0; i < kFamilies; ++i) {
      libraries.push_back(std::make_unique<Libraries>(static_cast<KernelFamily>(i)));
    }
  }

  std::filesystem::path folder;
  std::vector<std::unique_ptr<Libraries>> libraries;  // by family
  std::array<std::unique_ptr<LearnedKernelModel>, kFamilies> kernel_models;
  KernelModels models = KernelModels::heuristic();

  void install() {
    for (std::size_t i = 0; i < kFamilies; ++i) {
      const auto family = static_cast<KernelFamily>(i);
      if (libraries[i]->empty()) continue;
      kernel_models[i] = std::make_unique<LearnedKernelModel>(
          *libraries[i], KernelModels::heuristic().model(family));
      models.set(family, kernel_models[i].get());
    }
  }

  /// Adds a folder's files by the family that their names begin with; of all GPUs, or of one.
  bool add_files(const std::vector<std::filesystem::path>& files, const std::string& gpu) {
    bool any = false;
    for (const auto& file : files) {
      const std::string name = file.filename().string();
      for (std::size_t i = 0; i < kFamilies; ++i) {
        const auto family = static_cast<KernelFamily>(i);
        if (!name.starts_with(std::string(to_string(family)) + "-")) continue;
        Library& library = gpu.empty()
                               ? libraries[i]->shared
                               : libraries[i]->by_gpu.try_emplace(gpu, family).first->second;
        library.add_file(file);
        any = true;
      }
    }
    return any;
  }
};

LearnedModels::LearnedModels(std::unique_ptr<State> state) : state_(std::move(state)) {}
LearnedModels::LearnedModels(LearnedModels&&) noexcept = default;
LearnedModels& LearnedModels::operator=(LearnedModels&&) noexcept = default;
LearnedModels::~LearnedModels() = default;

const KernelModels& LearnedModels::models() const { return state_->models; }

Result<void> LearnedModels::read_all() const {
  for (const auto& libraries : state_->libraries) {
    libraries->each_file([](const ModelFile& file) { file.models(); });
  }
  if (auto found = problem()) return Unexpected{std::move(*found)};
  return {};
}

std::optional<Error> LearnedModels::problem() const {
  std::optional<Error> problem;
  for (const auto& libraries : state_->libraries) {
    libraries->each_file([&](const ModelFile& file) {
      if (!problem) problem = file.problem();
    });
  }
  return problem;
}

std::map<std::string, Knowledge> heuristic_knowledge(const Gpu& gpu) {
  std::map<std::string, Knowledge> kinds;
  for (const MeasuredKernels& measured : gpu.architecture.measured_kernels) {
    const bool here = std::ranges::find(measured.gpus, gpu.name) != measured.gpus.end();
    kinds[measured.kernels] = here ? Knowledge::kBoard : Knowledge::kArchitecture;
  }
  return kinds;
}

std::map<std::string, Knowledge> LearnedModels::knowledge(const Gpu& gpu) const {
  std::map<std::string, Knowledge> kinds = heuristic_knowledge(gpu);
  // A model goes before the heuristic, this GPU's models before the others.
  for (const auto& libraries : state_->libraries) {
    libraries->shared.each_model([&](const LearnedModel& model) {
      if (model.knows_vendor(gpu)) kinds[learned::kind_of(model)] = model.knowledge(gpu);
    });
    const auto own = libraries->by_gpu.find(gpu.name);
    if (own == libraries->by_gpu.end()) continue;
    own->second.each_model(
        [&](const LearnedModel& model) { kinds[learned::kind_of(model)] = Knowledge::kBoard; });
  }
  return kinds;
}

std::vector<std::string> LearnedModels::files_read() const {
  std::vector<std::string> files;
  for (const auto& libraries : state_->libraries) {
    libraries->each_file([&](const ModelFile& file) {
      if (!file.is_read()) return;
      files.push_back(file.path().lexically_relative(state_->folder).generic_string());
    });
  }
  std::ranges::sort(files);
  return files;
}

Result<LearnedModels> LearnedModels::open(const std::filesystem::path& folder) {
  PERFMODEL_TRY(files, json_files(folder, "kernel-model files"));
  auto state = std::make_unique<State>();
  state->folder = folder;
  bool any = state->add_files(*files, "");
  std::error_code failure;
  for (const auto& entry : folder_entries(folder, failure)) {
    std::error_code unknown;
    if (!std::filesystem::is_directory(entry, unknown)) continue;
    PERFMODEL_TRY(own, json_files(entry, "kernel-model files"));
    // Boards that differ in their links alone share a folder.
    std::istringstream names(entry.filename().string());
    for (std::string gpu; std::getline(names, gpu, '+');) any |= state->add_files(*own, gpu);
  }
  if (failure) {
    return fail(ErrorCode::kIo,
                "expected a folder of kernel-model files, found " + failure.message(), folder);
  }
  if (!any) {
    return fail(ErrorCode::kIo,
                "expected kernel-model files (<family>-<dtype>.json), found "
                "none",
                folder);
  }
  state->install();
  return LearnedModels(std::move(state));
}

Result<LearnedModels> LearnedModels::read(const std::filesystem::path& file) {
  PERFMODEL_TRY(models, learned::read_model_file(file));
  auto state = std::make_unique<State>();
  for (LearnedModel& model : *models) {
    auto& library = *state->libraries[static_cast<std::size_t>(model.family)];
    library.shared.add_model(std::move(model));
  }
  state->install();
  return LearnedModels(std::move(state));
}

}  // namespace perfmodel
