#include "learned_model.hpp"

#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>

namespace perfmodel::learned {

std::string chip_of(const Gpu& gpu) {
  return gpu.architecture.name + "/" + std::to_string(gpu.num_sms);
}

bool is_tf32(const KernelWork& work, const Gpu& gpu) {
  return work.matrix_units && work.dtype == DType::kFloat32 &&
         !gpu.peak_tflop_per_s.fp32_matrix.has_value();
}

std::string_view arithmetic_name(DType dtype, bool tf32) {
  return tf32 && dtype == DType::kFloat32 ? std::string_view("tf32") : to_string(dtype);
}

std::string kind_of(const LearnedModel& model) {
  std::string kind(to_string(model.family));
  if (moves_bytes(model.family)) return kind;
  return kind.append("-").append(arithmetic_name(model.dtype, model.tf32));
}

std::optional<Arithmetic> find_arithmetic(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::kComplex128); ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const bool tf32 : {false, true}) {
      if (arithmetic_name(dtype, tf32) == name) return Arithmetic{dtype, tf32};
    }
  }
  return std::nullopt;
}

std::string_view interned(std::string_view name) {
  static std::mutex mutex;
  static auto& names =
      *new std::set<std::string, std::less<>>;  // never destroyed: prices may outlive
  const std::lock_guard lock(mutex);
  return *names.emplace(name).first;
}

const IntervalsByDistance& LevelIntervals::of(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names) {
    const auto found = std::ranges::find(own, name, &Own::of);
    if (found != own.end()) return found->intervals;
  }
  return any;
}

int LearnedModel::chip_index(const Gpu& gpu) const {
  for (std::size_t i = 0; i < chips.size(); ++i) {
    // Compared in place: this runs for every price.
    const std::string_view text = chips[i];
    const std::size_t slash = text.rfind('/');
    if (text.substr(0, slash) != gpu.architecture.name) continue;
    int sms = 0;
    for (char digit : text.substr(slash + 1)) sms = 10 * sms + (digit - '0');
    if (sms == gpu.num_sms) return static_cast<int>(i);
  }
  return -1;
}

Knowledge LearnedModel::knowledge(const Gpu& gpu) const {
  const auto is_sibling = [&](std::string_view other) {
    return other.substr(0, other.rfind('/')) == gpu.architecture.name;
  };
  if (chip_index(gpu) >= 0) {
    return std::ranges::find(gpus, gpu.name) != gpus.end() ? Knowledge::kBoard : Knowledge::kChip;
  }
  return std::ranges::any_of(chips, is_sibling) ? Knowledge::kArchitecture : Knowledge::kNone;
}

int LearnedModel::nearest_chip(const Gpu& gpu) const {
  int nearest = -1;
  double least = std::numeric_limits<double>::max();
  for (std::size_t i = 0; i < chips.size(); ++i) {
    const std::size_t slash = chips[i].rfind('/');
    if (std::string_view(chips[i]).substr(0, slash) != gpu.architecture.name) continue;
    const double sms = std::stod(chips[i].substr(slash + 1));
    const double apart = std::abs(std::log(sms / gpu.num_sms));
    if (apart >= least) continue;
    least = apart;
    nearest = static_cast<int>(i);
  }
  return nearest;
}

void LearnedModel::add_chip(const ForGpu& known, FeatureRow& row) const {
  const std::size_t own = features().specs.size();
  row[own] = static_cast<float>(known.tree_chip);
  const bool is_measured = known.knowledge == Knowledge::kBoard;
  if (known.tree_chip < 0 || is_measured || chip_devices.empty()) return;
  const auto& device = chip_devices[static_cast<std::size_t>(known.tree_chip)];
  std::ranges::copy(device, row.begin() + static_cast<std::ptrdiff_t>(own - kDeviceFeatures));
}

LearnedModel::ForGpu LearnedModel::for_gpu(const Gpu& gpu) const {
  ForGpu known{.knowledge = knowledge(gpu), .chip = chip_index(gpu)};
  const LevelIntervals& level = intervals[static_cast<std::size_t>(known.knowledge)];
  known.tree_chip = known.chip >= 0 ? known.chip : nearest_chip(gpu);
  known.intervals = &level.of({gpu.name, gpu.architecture.name, gpu.vendor});
  if (known.chip < 0) {
    known.trust = known.knowledge == Knowledge::kArchitecture ? sibling_trust : unseen_trust;
  }
  return known;
}

LearnedModel::Cell LearnedModel::cell_of(const FeatureSet& set, const FeatureRow& row) {
  Cell cell{};
  std::size_t axis = 0;
  for (std::size_t i = 0; i < set.specs.size(); ++i) {
    if (!set.specs[i].is_axis) continue;
    const float step = set.specs[i].is_kind ? 1 : kCellWidth;
    cell[axis++] = static_cast<std::int8_t>(std::clamp(std::floor(row[i] / step), -128.0F, 127.0F));
  }
  return cell;
}

namespace {
/// Whether `own` is among the cells. The fit writes them sorted; in unsorted cells some are missed.
/// A coordinate at the end of its range holds for all beyond it.
bool lies_in_one(const LearnedModel::Cells& cells, const LearnedModel::Cell& own) {
  const auto is_end = [](std::int8_t step) { return step == -128 || step == 127; };
  return std::ranges::none_of(own, is_end) && std::ranges::binary_search(cells, own);
}
}  // namespace

float LearnedModel::distance(const FeatureRow& row, int chip_number) const {
  const FeatureSet& set = features();
  const Cells& cells = cells_of(chip_number);
  if (lies_in_one(cells, cell_of(set, row))) return 0;
  std::array<float, kMaxAxes> at{};
  std::array<bool, kMaxAxes> is_kind{};
  std::size_t axes = 0;
  for (std::size_t i = 0; i < set.specs.size(); ++i) {
    if (!set.specs[i].is_axis) continue;
    is_kind[axes] = set.specs[i].is_kind;
    at[axes++] = row[i];
  }
  float nearest = std::numeric_limits<float>::max();
  for (const Cell& cell : cells) {
    float farthest = 0;
    for (std::size_t axis = 0; axis < axes && farthest < nearest; ++axis) {
      if (is_kind[axis]) {
        if (std::floor(at[axis]) != static_cast<float>(cell[axis])) {
          farthest = std::max(farthest, kOtherKind);
        }
        continue;
      }
      const float low = kCellWidth * static_cast<float>(cell[axis]);
      farthest = std::max({farthest, low - at[axis], at[axis] - low - kCellWidth});
    }
    nearest = std::min(nearest, farthest);
    if (nearest <= 0) return 0;
  }
  return nearest;
}

double LearnedModel::trust(float distance) {
  const double d = distance;
  return 1 / (1 + d * d);
}

bool LearnedModel::has_kinds_of(const FeatureRow& row, int chip_number) const {
  const FeatureSet& set = features();
  const Cell own = cell_of(set, row);
  return std::ranges::any_of(cells_of(chip_number), [&](const Cell& cell) {
    std::size_t axis = 0;
    for (const FeatureSpec& spec : set.specs) {
      if (!spec.is_axis) continue;
      if (spec.is_kind && cell[axis] != own[axis]) return false;
      ++axis;
    }
    return true;
  });
}

double LearnedModel::log_damping(double heuristic_us) const {
  if (!monotone) return 0;
  return -(1 - monotone->power) *
         std::log(std::clamp(heuristic_us, monotone->low_us, monotone->high_us));
}

std::array<double, Correction::kTerms> Correction::terms(const FeatureSet& set,
                                                         const FeatureRow& row) {
  const auto value = [&](std::string_view name) {
    for (std::size_t i = 0; i < set.specs.size(); ++i) {
      if (set.specs[i].name == name) return static_cast<double>(row[i]);
    }
    return 0.0;
  };
  return {1, std::clamp(value("log2_intensity_over_balance") / 4, -1.0, 1.0),
          std::clamp((value("log2_baseline_us") - 8) / 4, -1.0, 1.0)};
}

std::vector<double> Correction::axes(const FeatureSet& set, const FeatureRow& row) {
  std::vector<double> sizes;
  for (std::size_t i = 0; i < set.specs.size(); ++i) {
    if (set.specs[i].is_axis) sizes.push_back(static_cast<double>(row[i]));
  }
  return sizes;
}

double Correction::likeness(const std::vector<double>& x, const std::vector<double>& y) {
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  return std::exp(-squares / 2);
}

double Correction::log_ratio(const FeatureSet& set, const FeatureRow& row) const {
  const auto x = terms(set, row);
  const std::vector<double> sizes = axes(set, row);
  double sum = std::inner_product(x.begin(), x.end(), weights.begin(), 0.0);
  for (const Anchor& anchor : anchors) sum += anchor.weight * likeness(sizes, anchor.at);
  constexpr double kMost = 50;  // no price becomes 0 or infinite
  return std::clamp(sum, -kMost, kMost);
}

int LearnedModel::apply(float common_sum, float chip_sum, const ForGpu& known,
                        const FeatureRow& row, const Gpu& gpu, Price& price) const {
  double log_ratio = common_sum + chip_sum + log_damping(price.time.count());
  if (known.chip < 0) log_ratio *= known.trust;
  for (const Correction& correction : corrections) {
    if (correction.gpu == gpu.name) {
      log_ratio += correction.log_ratio(features(), row);
    }
  }
  const float far = distance(row, known.chip);
  const double share = !monotone                       ? trust(far)
                       : has_kinds_of(row, known.chip) ? 1
                                                       : trust(kOtherKind);
  const double time = price.time.count() * std::exp(share * log_ratio);
  const int at = class_of(far);
  const Interval& interval = (*known.intervals)[static_cast<std::size_t>(at)];
  price.time = Microseconds{time};
  price.low = Microseconds{time * std::min(1.0, interval.low)};
  price.high = Microseconds{time * std::max(1.0, interval.high)};
  price.model = price_name.empty() ? interned(name) : price_name;
  price.in_range = far <= 0;
  price.knowledge = known.knowledge;
  return at;
}

const LaunchCost* LearnedModel::launch_cost(std::string_view gpu, std::string_view op) const {
  for (const LaunchCost& cost : launch_costs) {
    if (cost.gpu == gpu && cost.op == op) return &cost;
  }
  return nullptr;
}

bool LearnedModel::refine(const KernelWork& work, const Gpu& gpu, Price& price,
                          int* distance_class) const {
  FeatureRow row;
  const FeatureSet& set = features();
  if (!set.fill(work, gpu, price, row)) return false;
  const ForGpu known = for_gpu(gpu);
  add_chip(known, row);
  const float chip_sum = known.tree_chip >= 0 && !chip.roots.empty() ? chip.predict(row) : 0.0F;
  const int at = apply(common.predict(row), chip_sum, known, row, gpu, price);
  if (distance_class) *distance_class = at;
  return true;
}

}  // namespace perfmodel::learned
