#include "booster.hpp"

#include <fmt/format.h>
#include <xgboost/c_api.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

namespace perfmodel::training {
namespace {

using learned::TreeEnsemble;

Error xgboost_error(std::string_view what) {
  return {.code = ErrorCode::kImpossible,
          .message = fmt::format("XGBoost could not {}: {}", what, XGBGetLastError())};
}

struct FreeMatrix {
  void operator()(void* handle) const { XGDMatrixFree(handle); }
};
struct FreeBooster {
  void operator()(void* handle) const { XGBoosterFree(handle); }
};
using Matrix = std::unique_ptr<void, FreeMatrix>;
using Booster = std::unique_ptr<void, FreeBooster>;

std::string array_interface(const float* data, std::size_t rows, std::size_t columns) {
  return fmt::format(R"({{"data": [{}, true], "shape": [{}, {}], "typestr": "<f4", "version": 3}})",
                     reinterpret_cast<std::uintptr_t>(data), rows, columns);
}

Result<Matrix> make_matrix(const BoosterData& data, std::span<const float> labels) {
  DMatrixHandle handle = nullptr;
  const std::string features = array_interface(data.features.data(), data.rows(), data.columns);
  if (XGDMatrixCreateFromDense(features.c_str(), R"({"missing": NaN, "nthread": 1})", &handle)) {
    return tl::unexpected(xgboost_error("take the features"));
  }
  Matrix matrix(handle);
  if (XGDMatrixSetFloatInfo(handle, "label", labels.data(), labels.size()) ||
      XGDMatrixSetFloatInfo(handle, "weight", data.weights.data(), data.weights.size())) {
    return tl::unexpected(xgboost_error("take labels and weights"));
  }
  return matrix;
}

std::optional<Error> set_parameters(BoosterHandle booster, const BoosterOptions& options) {
  const auto set = [&](const char* name, const std::string& value) {
    return XGBoosterSetParam(booster, name, value.c_str()) == 0;
  };
  std::string monotone;
  for (int sign : options.monotone) {
    monotone += monotone.empty() ? "(" : ",";
    monotone += std::to_string(sign);
  }
  // One thread: two spin at barriers when anything else runs, and sums would depend on the number.
  const bool done = set("nthread", "1") && set("tree_method", "hist") &&
                    set("objective", "reg:squarederror") && set("base_score", "0") &&
                    set("seed", std::to_string(options.seed)) &&
                    set("max_depth", std::to_string(options.depth)) &&
                    set("eta", fmt::format("{}", options.eta)) &&
                    set("subsample", fmt::format("{}", options.subsample)) &&
                    set("colsample_bytree", fmt::format("{}", options.columns)) &&
                    set("min_child_weight", fmt::format("{}", options.min_child_weight)) &&
                    set("lambda", fmt::format("{}", options.lambda)) && set("verbosity", "0") &&
                    (monotone.empty() || set("monotone_constraints", monotone + ")"));
  if (!done) return xgboost_error("set its parameters");
  return std::nullopt;
}

/// One of XGBoost's trees, in preorder: the left child follows its parent.
std::uint32_t append_node(const nlohmann::json& tree, std::size_t node, TreeEnsemble& ensemble) {
  const auto at = static_cast<std::uint32_t>(ensemble.nodes.size());
  ensemble.nodes.emplace_back();
  ensemble.nodes[at].value = tree["split_conditions"][node].get<float>();
  const int left = tree["left_children"][node].get<int>();
  if (left < 0) return at;
  ensemble.nodes[at].feature = tree["split_indices"][node].get<std::uint16_t>();
  append_node(tree, static_cast<std::size_t>(left), ensemble);
  const std::uint32_t right =
      append_node(tree, tree["right_children"][node].get<std::size_t>(), ensemble);
  ensemble.nodes[at].right = static_cast<std::uint16_t>(right - at);
  return at;
}

Result<TreeEnsemble> read_trees(BoosterHandle booster, float base) {
  bst_ulong length = 0;
  const char* text = nullptr;
  if (XGBoosterSaveModelToBuffer(booster, R"({"format": "json"})", &length, &text)) {
    return tl::unexpected(xgboost_error("write its model"));
  }
  TreeEnsemble ensemble{.base = base};
  const auto model = nlohmann::json::parse(text, text + length, nullptr, false);
  if (model.is_discarded()) return tl::unexpected(xgboost_error("write a readable model"));
  for (const auto& tree : model["learner"]["gradient_booster"]["model"]["trees"]) {
    ensemble.roots.push_back(append_node(tree, 0, ensemble));
  }
  return ensemble;
}

float weighted_mean(const BoosterData& data) {
  double sum = 0, weight = 0;
  for (std::size_t i = 0; i < data.rows(); ++i) {
    sum += static_cast<double>(data.weights[i]) * static_cast<double>(data.labels[i]);
    weight += static_cast<double>(data.weights[i]);
  }
  return weight > 0 ? static_cast<float>(sum / weight) : 0;
}

struct Trained {
  Matrix matrix;
  Booster booster;
  float base = 0;
};

Result<Trained> run(const BoosterData& data, const BoosterOptions& options) {
  Trained trained;
  trained.base = weighted_mean(data);
  std::vector<float> labels = data.labels;
  for (float& label : labels) label -= trained.base;
  PERFMODEL_TRY(matrix, make_matrix(data, labels));
  trained.matrix = std::move(*matrix);
  const DMatrixHandle cache[] = {trained.matrix.get()};
  BoosterHandle handle = nullptr;
  if (XGBoosterCreate(cache, 1, &handle)) return tl::unexpected(xgboost_error("start"));
  trained.booster.reset(handle);
  if (auto error = set_parameters(handle, options)) return tl::unexpected(*error);
  for (int round = 0; round < options.rounds; ++round) {
    if (XGBoosterUpdateOneIter(handle, round, trained.matrix.get())) {
      return tl::unexpected(xgboost_error("train"));
    }
  }
  return trained;
}

}  // namespace

Result<TreeEnsemble> boost(const BoosterData& data, const BoosterOptions& options) {
  PERFMODEL_TRY(trained, run(data, options));
  return read_trees(trained->booster.get(), trained->base);
}

Result<OracleResult> boost_with_oracle(const BoosterData& data, const BoosterOptions& options,
                                       std::span<const float> rows) {
  PERFMODEL_TRY(trained, run(data, options));
  PERFMODEL_TRY(trees, read_trees(trained->booster.get(), trained->base));
  const std::string values = array_interface(rows.data(), rows.size() / data.columns, data.columns);
  const bst_ulong* shape = nullptr;
  bst_ulong dimensions = 0;
  const float* predictions = nullptr;
  // The trees' sum alone: the base was taken out of the labels.
  if (XGBoosterPredictFromDense(
          trained->booster.get(), values.c_str(),
          R"({"type": 0, "training": false, "iteration_begin": 0, "iteration_end": 0, "strict_shape": false, "missing": NaN, "cache_id": 0})",
          nullptr, &shape, &dimensions, &predictions)) {
    return tl::unexpected(xgboost_error("predict"));
  }
  trees->base = 0;
  return OracleResult{std::move(*trees), {predictions, predictions + shape[0]}};
}

}  // namespace perfmodel::training
