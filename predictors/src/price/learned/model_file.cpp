#include "model_file.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/schema.hpp"
#include "files/json_file.hpp"
#include "files/json_position.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "tree_text.hpp"

namespace perfmodel::learned {
namespace {

namespace dom = simdjson::dom;

/// Keeps the first thing that is odd, with its place.
class Reader {
 public:
  Reader(dom::element element, std::string pointer, std::optional<Error>& error)
      : element_(element), pointer_(std::move(pointer)), error_(error) {}

  Reader member(std::string_view key) const {
    dom::element child;
    if (element_.at_key(key).get(child)) return fail(key, "this key");
    return {child, fmt::format("{}/{}", pointer_, key), error_};
  }
  bool has(std::string_view key) const {
    dom::element child;
    return !element_.at_key(key).get(child);
  }
  std::string string() const {
    std::string_view text;
    if (element_.get(text)) fail("", "a string");
    return std::string(text);
  }
  double number() const {
    double value = 0;
    if (element_.get(value) || !std::isfinite(value)) fail("", "a number");
    return value + 0.0;  // not -0, which would be written as an integer
  }
  double number(double low, double high) const {
    const double value = number();
    if (!failed() && !(value >= low && value <= high)) {
      fail("", fmt::format("a number from {} to {}", low, high));
    }
    return value;
  }
  std::int64_t integer(std::int64_t low, std::int64_t high) const {
    std::int64_t value = low;
    if (element_.get(value) || value < low || value > high) {
      fail("", fmt::format("an integer from {} to {}", low, high));
      return low;
    }
    return value;
  }
  template <class Visit>  // visit(Reader item)
  void each(Visit visit) const {
    dom::array array;
    if (element_.get(array)) {
      fail("", "a list");
      return;
    }
    std::size_t at = 0;
    for (dom::element item : array) {
      if (error_) return;
      visit(Reader(item, fmt::format("{}/{}", pointer_, at++), error_));
    }
  }
  std::vector<std::string> strings() const {
    std::vector<std::string> result;
    each([&](const Reader& item) { result.push_back(item.string()); });
    return result;
  }
  /// The numbers of a list, without a place for each: trees have thousands.
  std::vector<double> numbers() const {
    std::vector<double> result;
    dom::array array;
    if (element_.get(array)) {
      fail("", "a list of numbers");
      return result;
    }
    for (dom::element item : array) {
      double value = 0;
      if (item.get(value)) {
        fail("", fmt::format("a number at place {}", result.size()));
        return result;
      }
      result.push_back(value);
    }
    return result;
  }
  /// A list of lists of as many integers each, as `Rows` hold them: of thousands, without a place
  /// for each. False if there is something else; reading it item by item finds out where.
  template <class Rows>
  bool rows(Rows& to) const {
    dom::array list;
    if (element_.get(list)) return false;
    to.reserve(list.size());
    for (dom::element item : list) {
      dom::array numbers;
      if (item.get(numbers) || numbers.size() != to.emplace_back().size()) return false;
      auto at = to.back().begin();
      for (dom::element number : numbers) {
        std::int64_t value = 0;
        using Limits = std::numeric_limits<typename Rows::value_type::value_type>;
        if (number.get(value) || value < Limits::min() || value > Limits::max()) return false;
        *at++ = static_cast<typename Rows::value_type::value_type>(value);
      }
    }
    return true;
  }
  std::string text() const { return simdjson::minify(element_); }

  Reader fail(std::string_view key, const std::string& expected) const {
    if (!error_) {
      error_ = Error{.code = ErrorCode::kFormat,
                     .message = "expected " + expected + ", found something else",
                     .json_pointer = key.empty() ? pointer_ : fmt::format("{}/{}", pointer_, key)};
    }
    return *this;
  }
  bool failed() const { return error_.has_value(); }

 private:
  dom::element element_;
  std::string pointer_;
  std::optional<Error>& error_;
};

/// No part of a model may change a time by more than exp(this): a time has to stay a finite number.
constexpr double kMaxLogRatio = 50;

/// A bound of what an ensemble can answer, either sign.
double largest_answer(const TreeEnsemble& ensemble) {
  double sum = std::abs(ensemble.base);
  for (std::size_t tree = 0; tree < ensemble.roots.size(); ++tree) {
    float largest = 0;
    for (const TreeEnsemble::Node& node : ensemble.nodes_of(tree)) {
      if (node.feature == TreeEnsemble::kLeaf) largest = std::max(largest, std::abs(node.value));
    }
    sum += largest;
  }
  return sum;
}

TreeEnsemble read_ensemble(const Reader& object, std::size_t columns) {
  TreeEnsemble ensemble{
      .base = static_cast<float>(object.member("base").number(-kMaxLogRatio, kMaxLogRatio))};
  const std::string text = object.member("nodes").string();
  if (object.failed()) return ensemble;
  const std::string expected = read_tree_text(text, columns, ensemble);
  if (!expected.empty()) object.fail("nodes", expected);
  if (!object.failed() && largest_answer(ensemble) > kMaxLogRatio) {
    object.fail("", fmt::format("trees whose answers lie within {}", kMaxLogRatio));
  }
  return ensemble;
}

/// Architecture and number of SMs.
bool is_chip(std::string_view text) {
  const std::size_t slash = text.rfind('/');
  if (slash == text.npos || slash == 0) return false;
  const std::string_view sms = text.substr(slash + 1);
  return !sms.empty() && sms.size() < 7 && sms.find_first_not_of("0123456789") == sms.npos;
}

IntervalsByDistance read_intervals(const Reader& list) {
  IntervalsByDistance intervals;
  std::size_t count = 0;
  list.each([&](const Reader& item) {
    if (count < intervals.size()) {
      intervals[count] = {item.member("low").number(0, 1e6), item.member("high").number(0, 1e6),
                          static_cast<int>(item.member("rows").integer(0, 2'000'000'000))};
    }
    ++count;
  });
  if (count != intervals.size()) list.fail("", fmt::format("{} intervals", intervals.size()));
  return intervals;
}

LevelIntervals read_level(const Reader& level) {
  LevelIntervals made{.any = read_intervals(level.member("any")), .own = {}};
  level.member("own").each([&](const Reader& item) {
    made.own.push_back({item.member("of").string(), read_intervals(item.member("intervals"))});
  });
  return made;
}

LearnedModel::Cells read_cells(const Reader& list) {
  LearnedModel::Cells cells;
  if (list.rows(cells)) return cells;
  cells.clear();
  list.each([&](const Reader& item) {
    LearnedModel::Cell cell{};
    std::size_t axis = 0;
    item.each([&](const Reader& step) {
      if (axis < cell.size()) cell[axis] = static_cast<std::int8_t>(step.integer(-128, 127));
      ++axis;
    });
    if (axis != cell.size()) item.fail("", fmt::format("{} steps", cell.size()));
    cells.push_back(cell);
  });
  return cells;
}

/// Files of before have no anchors.
Correction read_correction(const Reader& item, const FeatureSet& set) {
  Correction correction{.gpu = item.member("gpu").string()};
  const std::vector<double> weights = item.member("weights").numbers();
  if (weights.size() != Correction::kTerms) {
    item.fail("weights", fmt::format("{} numbers", Correction::kTerms));
    return correction;
  }
  double sum = 0;
  for (const double weight : weights) sum += std::abs(weight);
  if (!(sum <= kMaxLogRatio)) {
    item.fail("weights", fmt::format("numbers whose sum is within {}", kMaxLogRatio));
  }
  std::ranges::transform(weights, correction.weights.begin(), [](double w) { return w + 0.0; });
  const std::size_t axes = Correction::axes(set, {}).size();
  if (item.has("anchors")) {
    item.member("anchors").each([&](const Reader& anchor) {
      correction.anchors.push_back(
          {anchor.member("at").numbers(), anchor.member("weight").number(-1e6, 1e6)});
      if (!anchor.failed() && correction.anchors.back().at.size() != axes) {
        anchor.fail("at", fmt::format("{} numbers, one for each axis", axes));
      }
    });
  }
  correction.rows = static_cast<int>(item.member("rows").integer(0, 2'000'000'000));
  return correction;
}

LearnedModel read_model(const Reader& object) {
  LearnedModel model;
  model.name = object.member("name").string();
  model.price_name = interned(model.name);
  const auto family = parse_kernel_family(object.member("family").string());
  const auto arithmetic = find_arithmetic(object.member("dtype").string());
  if (object.has("monotone")) {
    const Reader monotone = object.member("monotone");
    model.monotone = {monotone.member("power").number(0, 1),
                      monotone.member("low_us").number(1e-6, 1e12),
                      monotone.member("high_us").number(1e-6, 1e12)};
    if (!object.failed() && model.monotone->low_us > model.monotone->high_us) {
      monotone.fail("high_us", "a time of at least low_us");
    }
  }
  const DType dtype = arithmetic ? arithmetic->dtype : DType::kFloat32;
  const FeatureSet* set = !family          ? nullptr
                          : model.monotone ? monotone_set(*family, dtype)
                                           : feature_set(*family, dtype);
  if (!set) object.fail("family", "a family with learned models");
  if (!arithmetic) object.fail("dtype", "a known element type");
  model.feature_names = object.member("features").strings();
  if (object.failed()) return model;
  model.family = *family;
  model.dtype = arithmetic->dtype;
  model.tf32 = arithmetic->tf32;
  const bool same = std::equal(
      set->specs.begin(), set->specs.end(), model.feature_names.begin(), model.feature_names.end(),
      [](const FeatureSpec& spec, const std::string& name) { return spec.name == name; });
  if (!same) object.fail("features", "the features of this program's version");
  model.common_cells = read_cells(object.member("common_cells"));
  object.member("chip_cells").each([&](const Reader& item) {
    model.chip_cells.push_back(read_cells(item));
  });
  object.member("chips").each([&](const Reader& item) {
    model.chips.push_back(item.string());
    if (!item.failed() && !is_chip(model.chips.back())) item.fail("", "a chip (\"ampere/108\")");
  });
  model.gpus = object.member("gpus").strings();
  model.vendors = object.member("vendors").strings();
  if (model.chip_cells.size() != model.chips.size()) {
    object.fail("chip_cells", "one list of cells per chip");
  }
  const Reader intervals = object.member("intervals");
  if (object.failed()) return model;
  for (std::size_t i = 0; i < kKnowledgeLevels; ++i) {
    model.intervals[i] = read_level(intervals.member(to_string(static_cast<Knowledge>(i))));
  }
  object.member("launch_costs").each([&](const Reader& cost) {
    model.launch_costs.push_back({cost.member("gpu").string(), cost.member("op").string(),
                                  cost.member("floor_us").number(0, 1e9),
                                  cost.member("dispatch_us").number(0, 1e9)});
  });
  object.member("chip_devices").each([&](const Reader& item) {
    const std::vector<double> device = item.numbers();
    if (device.size() != kDeviceFeatures) {
      item.fail("", fmt::format("{} numbers", kDeviceFeatures));
      return;
    }
    constexpr double kLargest = std::numeric_limits<float>::max();
    if (std::ranges::any_of(device, [](double x) { return std::abs(x) > kLargest; })) {
      item.fail("", fmt::format("numbers of at most {:.3g}", kLargest));
      return;
    }
    std::ranges::transform(device, model.chip_devices.emplace_back().begin(),
                           [](double x) { return static_cast<float>(x); });
  });
  if (!object.failed() && model.chip_devices.size() != model.chips.size()) {
    object.fail("chip_devices", "one list of numbers for each chip");
  }
  model.sibling_trust = object.member("sibling_trust").number(0, 1);
  model.unseen_trust = object.member("unseen_trust").number(0, 1);
  object.member("corrections").each([&](const Reader& item) {
    model.corrections.push_back(read_correction(item, *set));
  });
  model.card = object.member("card").text();
  const Reader trees = object.member("trees");
  if (object.failed()) return model;
  model.common = read_ensemble(trees.member("common"), set->specs.size());
  model.chip = read_ensemble(trees.member("chip"), set->specs.size() + 1);
  return model;
}

std::string shortest(float value) {
  return value == 0 && std::signbit(value) ? "-0.0" : fmt::format("{}", value);  // -0: an integer
}

std::string json_text(std::string_view text) { return nlohmann::json(text).dump(); }

template <class Items, class Format>
std::string joined(const Items& items, const char* separator, Format format) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += separator;
    text += format(item);
  }
  return text;
}

std::string ensemble_text(const TreeEnsemble& ensemble) {
  return fmt::format("{{\"base\": {},\n  \"nodes\": \"{}\"}}", shortest(ensemble.base),
                     tree_text(ensemble));
}

std::string intervals_text(const IntervalsByDistance& intervals) {
  return fmt::format("[{}]", joined(intervals, ", ", [](const Interval& i) {
                       return fmt::format(R"({{"low": {:.4f}, "high": {:.4f}, "rows": {}}})", i.low,
                                          i.high, i.rows);
                     }));
}

/// The nearest level first.
std::string levels_text(const std::array<LevelIntervals, kKnowledgeLevels>& levels) {
  std::string text;
  for (std::size_t i = levels.size(); i-- > 0;) {
    text += fmt::format("{}\"{}\": {{\"any\": {}, \"own\": [{}]}}", text.empty() ? "" : ",\n  ",
                        to_string(static_cast<Knowledge>(i)), intervals_text(levels[i].any),
                        joined(levels[i].own, ",\n    ", [](const LevelIntervals::Own& own) {
                          return fmt::format(R"({{"of": {}, "intervals": {}}})", json_text(own.of),
                                             intervals_text(own.intervals));
                        }));
  }
  return text;
}

std::string cells_text(const LearnedModel::Cells& cells) {
  return fmt::format("[{}]", joined(cells, ",", [](const LearnedModel::Cell& cell) {
                       return fmt::format("[{}]", fmt::join(cell, ","));
                     }));
}

std::string model_text(const LearnedModel& model) {
  return fmt::format(
      "{{\"name\": {},\n\"family\": {}, \"dtype\": {},{}\n\"card\": {},\n\"features\": [{}],\n"
      "\"common_cells\": {},\n\"chip_cells\": [{}],\n\"chip_devices\": [{}],\n\"chips\": [{}], "
      "\"gpus\": [{}], \"vendors\": "
      "[{}],\n"
      "\"intervals\": {{{}}},\n\"launch_costs\": "
      "[{}],\n\"sibling_trust\": {}, \"unseen_trust\": {}, \"corrections\": [{}],\n"
      "\"trees\": {{\"common\": {},\n\"chip\": {}}}}}",
      json_text(model.name), json_text(to_string(model.family)),
      json_text(arithmetic_name(model.dtype, model.tf32)),
      model.monotone
          ? fmt::format(R"( "monotone": {{"power": {}, "low_us": {}, "high_us": {}}},)",
                        model.monotone->power, model.monotone->low_us, model.monotone->high_us)
          : "",
      model.card.empty() ? "{}" : nlohmann::json::parse(model.card).dump(1),
      joined(model.feature_names, ", ", [](const std::string& n) { return json_text(n); }),
      cells_text(model.common_cells), joined(model.chip_cells, ",\n  ", cells_text),
      joined(model.chip_devices, ", ",
             [](const auto& device) { return fmt::format("[{}]", joined(device, ",", shortest)); }),
      joined(model.chips, ", ", [](const std::string& n) { return json_text(n); }),
      joined(model.gpus, ", ", [](const std::string& n) { return json_text(n); }),
      joined(model.vendors, ", ", [](const std::string& n) { return json_text(n); }),
      levels_text(model.intervals),
      joined(model.launch_costs, ",\n  ",
             [](const LaunchCost& c) {
               return fmt::format(
                   R"({{"gpu": {}, "op": {}, "floor_us": {:.3f}, "dispatch_us": {:.3f}}})",
                   json_text(c.gpu), json_text(c.op), c.floor_us, c.dispatch_us);
             }),
      model.sibling_trust, model.unseen_trust,
      joined(model.corrections, ",\n  ",
             [](const Correction& c) {
               return fmt::format(R"({{"gpu": {}, "weights": [{}], "anchors": [{}], "rows": {}}})",
                                  json_text(c.gpu), fmt::join(c.weights, ", "),
                                  joined(c.anchors, ",",
                                         [](const Correction::Anchor& a) {
                                           return fmt::format(R"({{"at": [{}], "weight": {}}})",
                                                              fmt::join(a.at, ","), a.weight);
                                         }),
                                  c.rows);
             }),
      ensemble_text(model.common), ensemble_text(model.chip));
}

}  // namespace

Result<std::vector<LearnedModel>> read_model_file(const std::filesystem::path& file) {
  const auto fail = [&](Error error) {
    error.file = file;
    return Unexpected{std::move(error)};
  };
  PERFMODEL_TRY(read, read_json_text(file, "kernel-model file"));
  const std::string& text = *read;
  dom::parser parser;
  dom::element document;
  if (const auto code = parser.parse(text).get(document)) {
    if (code == simdjson::MEMALLOC) throw std::bad_alloc();
    Error error{
        .code = ErrorCode::kSyntax,
        .message = fmt::format("expected a whole JSON document, found {} bytes that are none ({})",
                               text.size(), simdjson::error_message(code))};
    if (const auto defect = find_json_defect(text)) set_position(error, *defect, text);
    return fail(std::move(error));
  }
  std::optional<Error> error;
  const Reader root(document, "", error);
  if (root.member("schema").string() != schemas::kKernelModels.name)
    root.fail("schema", fmt::format("\"{}\"", schemas::kKernelModels.name));
  if (!error) {
    const std::int64_t version = root.member("version").integer(0, 1'000'000);
    std::string problem = version_problem(schemas::kKernelModels, version);
    // Trees are ratios to their own program's heuristics, so they cannot be converted.
    if (version < schemas::kKernelModels.version) problem += ": fit it anew, `perfpredict train`";
    if (!problem.empty() && !error) {
      error = Error{.code = ErrorCode::kFormat, .message = problem, .json_pointer = "/version"};
    }
  }
  std::vector<LearnedModel> models;
  if (!error) {
    root.member("models").each([&](const Reader& item) { models.push_back(read_model(item)); });
  }
  if (!error && models.empty()) root.fail("models", "at least one model");
  if (error) {
    set_position(*error, find_json_pointer(text, error->json_pointer), text);
    return fail(std::move(*error));
  }
  return models;
}

Result<void> write_model_file(const std::filesystem::path& file,
                              const std::vector<LearnedModel>& models) {
  PERFMODEL_TRY(output, OutputFile::create(file));
  output->write(fmt::format("{{\"schema\": \"{}\", \"version\": {},\n\"models\": [",
                            schemas::kKernelModels.name, schemas::kKernelModels.version));
  for (std::size_t i = 0; i < models.size(); ++i) {
    output->write(i ? ",\n" : "");
    output->write(model_text(models[i]));
  }
  output->write("]}\n");
  return output->commit();
}

}  // namespace perfmodel::learned
