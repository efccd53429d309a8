#include "row_maker.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "builders/named_models.hpp"
#include "json/csv_file.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "rewrites/model_batch.hpp"
#include "rewrites/rewrite_input.hpp"
#include "sweep_row.hpp"

namespace perfmodel::sweep {
namespace {

// Errors that say nothing about the requested combination.
bool ends_sweep(const Error& error) {
  return error.code == ErrorCode::kIo || error.code == ErrorCode::kOutOfMemory ||
         error.code == ErrorCode::kCancelled;
}

}  // namespace

Result<std::shared_ptr<const RecordedProgram>> GraphStore::get(std::size_t graph) {
  const std::lock_guard lock(mutex_);
  if (auto known = graphs_[graph].lock()) return known;
  const GraphSource& source = spec_.graphs[graph];
  PERFMODEL_TRY(made, source.file.empty() ? built(source) : program_of(source.file));
  auto kept = std::make_shared<const RecordedProgram>(std::move(*made));
  graphs_[graph] = kept;
  return kept;
}

Result<RecordedProgram> GraphStore::built(const GraphSource& source) const {
  PERFMODEL_TRY(graph, toolbox_.build(source));
  return RecordedProgram{std::move(*graph), nullptr};
}

Result<void> RowMaker::match_step(const GraphSource& source) {
  scales_ = {};
  if (!source.measured) return {};
  const auto& [us, gpu, batch] = *source.measured;
  PERFMODEL_TRY(program, predictor_.prepare(RecordedProgram{graph_->graph, graph_->trace}));
  PERFMODEL_TRY(
      scales, predictor_.match_step(*program, gpu.empty() ? points_.spec().gpus.front().name : gpu,
                                    us, {.batch = batch}));
  scales_ = *scales;
  return {};
}

// A captured graph calls other libraries on a GPU of another vendor.
Result<ExecutionGraph> RowMaker::rewritten(const std::string& gpu,
                                           std::span<const NamedRewrite> rewrites) {
  vendor_.reset();
  if (!is_to_retarget(graph_->graph)) return rewrite_model(graph_->graph, rewrites);
  PERFMODEL_TRY(known, predictor_.gpu(gpu));
  vendor_ = known->vendor;
  ExecutionGraph graph = graph_->graph;
  PERFMODEL_TRY_TO(retarget_for(*known, graph, rewrites));
  return apply_rewrites(graph, rewrites);
}

bool RowMaker::is_prepared_for(const std::string& gpu) const {
  if (!vendor_) return true;
  const auto known = predictor_.gpu(gpu);
  return known && known->vendor == *vendor_;
}

Result<void> RowMaker::load(std::size_t number) {
  if (graph_number_ == number) return {};
  graph_number_.reset();
  group_.reset();
  plain_.reset();
  graph_.reset();
  PERFMODEL_TRY(graph, graphs_.get(number));
  graph_ = std::move(*graph);
  PERFMODEL_TRY_TO(match_step(points_.spec().graphs[number]));
  graph_number_ = number;
  return {};
}

// The batch of a row that changes nothing else about a graph with tensors; 0: the graph's own.
std::optional<std::int64_t> RowMaker::only_batch(const SweepPoints::Point& point) const {
  const ExecutionGraph& graph = graph_->graph;
  if (graph_->trace || is_from_trace(graph) || is_to_retarget(graph)) return std::nullopt;
  std::int64_t batch = 0;
  for (const std::size_t at : points_.spec().applied) {
    const RewriteAxis& axis = points_.spec().axes[at];
    const RewriteAxis::Value& value = axis.values[point.values[at]];
    if (!value.rewrite) continue;
    const auto count = parse_count(value.text);
    if (axis.name != "batch" || !count) return std::nullopt;
    batch = *count;
  }
  return batch;
}

Result<void> RowMaker::rewrite(std::uint64_t group, const SweepPoints::Point& point) {
  const std::string& gpu = points_.spec().gpus[point.gpu].name;
  if (group_ == group && is_prepared_for(gpu)) return {};
  group_.reset();
  std::vector<NamedRewrite> rewrites;
  for (const std::size_t axis : points_.spec().applied) {
    const auto& value = points_.spec().axes[axis].values[point.values[axis]];
    if (value.rewrite) rewrites.push_back(*value.rewrite);
  }
  launching_ = launching_of(rewrites);
  auto made = rewritten(gpu, rewrites);
  if (made) {
    prepared_ = predictor_.prepare(RecordedProgram{std::move(*made), graph_->trace});
  } else {
    prepared_ = Unexpected{made.error()};
  }
  if (!prepared_ && ends_sweep(prepared_.error())) return Unexpected{prepared_.error()};
  group_ = group;
  return {};
}

Result<RowMaker::Row> RowMaker::answer(const Result<Prediction>& prediction) const {
  if (!prediction) {
    if (ends_sweep(prediction.error())) return Unexpected{prediction.error()};
    return Row{.cells = refusal_cells(prediction.error()), .refused = true};
  }
  PERFMODEL_TRY(explanation, predictor_.explain(*prediction));
  return Row{.cells = result_cells(*prediction, *explanation),
             .too_large = !prediction->memory.fits()};
}

Result<RowMaker::Row> RowMaker::make(std::uint64_t index) {
  const SweepSpec& spec = points_.spec();
  const SweepPoints::Point point = points_.at(index);
  PERFMODEL_TRY_TO(load(point.graph));
  const StrategyChoice& choice = spec.strategies[point.strategy];
  const std::string& gpu = spec.gpus[point.gpu].name;
  AskOptions ask{.world = choice.world,
                 .strategy = choice.strategy,
                 .host_scale = spec.host_scale * scales_.host,
                 .device_scale = scales_.device,
                 .keep_ops = true};
  const std::string& topology = spec.topologies[point.topology];
  if (topology != "usual") ask.topology = topology;
  if (const auto batch = only_batch(point)) {
    ask.batch = *batch;
    if (!plain_) plain_ = predictor_.prepare(ExecutionGraph(graph_->graph));
    const auto prediction =
        plain_->and_then([&](const auto& plain) { return predictor_.predict(plain, gpu, ask); });
    if (prediction) return answer(prediction);
    ask.batch = 0;  // the rewrite says better what is wrong
  }
  PERFMODEL_TRY_TO(rewrite(index / points_.per_group(), point));
  if (!prepared_) return Row{.cells = refusal_cells(prepared_.error()), .refused = true};
  ask.launching = launching_;
  return answer(predictor_.predict(*prepared_, gpu, ask));
}

}  // namespace perfmodel::sweep
