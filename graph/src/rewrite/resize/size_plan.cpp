#include "size_plan.hpp"

#include <algorithm>

#include "call.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "recording.hpp"
#include "seeds.hpp"

namespace perfmodel {

struct SizePlan::Recorded {
  ExecutionGraph graph;
  resize::Symbol symbol = resize::Symbol::kBatch;
  std::int64_t given = 0, current = 0;
  std::vector<resize::Recording> recordings;  // the first one: of the graph as it is
  std::vector<std::uint32_t> lists;      // arguments and tensors that one of them gives a list or a
  std::vector<std::uint32_t> shapes;     // shape of their own
  std::vector<std::uint32_t> exchanges;  // nodes with the record of a collective
  std::vector<bool> reshaped;            // nodes

  void record(resize::Seeds seeds, const std::vector<resize::External>& externals);
  void find_reshaped();
  const resize::Recording* find(std::int64_t size, std::vector<std::int64_t>& numbers) const;
  void write(const resize::Recording& recording, const std::vector<std::int64_t>& numbers,
             ExecutionGraph& copy) const;
};

// Recorded where little is a coincidence (more samples, fewer, far more), and for one and two
// samples, where dimensions drop out and halves are ones. Most graphs need two of these.
void SizePlan::Recorded::record(resize::Seeds seeds,
                                const std::vector<resize::External>& externals) {
  recordings.emplace_back();
  std::vector<std::int64_t> numbers;
  const std::int64_t most = std::clamp<std::int64_t>(current, 1, resize::kLargestSize);
  for (const std::int64_t size :
       {2 * most + 15, most / 2 + 1, std::int64_t{1}, std::int64_t{2}, 1024 * most + 15}) {
    if (find(size, numbers)) continue;
    seeds.now = size;
    if (auto made = resize::Recording::make(graph, seeds, externals)) {
      recordings.push_back(std::move(*made));
    }
  }
  resize::Recording::finish(recordings, graph);
  for (const resize::Recording& recording : recordings) {
    for (const auto& list : recording.edits().lists) lists.push_back(list.at);
    for (const auto& shape : recording.edits().shapes) shapes.push_back(shape.tensor);
  }
  for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].comm >= 0) exchanges.push_back(i);
  }
  find_reshaped();
}

void SizePlan::Recorded::find_reshaped() {
  std::vector<bool> sizes(graph.shape_pool.size()), tensors(graph.tensors.size());
  for (const resize::Recording& recording : recordings) {
    for (const auto& size : recording.edits().sizes) sizes[size.at] = true;
  }
  for (std::uint32_t tensor : shapes) tensors[tensor] = true;
  const auto changes = [&](const Tensor& tensor) {
    bool any = tensors[&tensor - graph.tensors.data()];
    for (std::size_t d = 0; d < tensor.rank; ++d) any = any || sizes[tensor.shape_begin + d];
    return any;
  };
  for (const Node& node : graph.nodes) {
    bool any = false;
    const auto look = [&](const Tensor& tensor) { any = any || changes(tensor); };
    for_each_tensor(graph, graph.inputs(node), look);
    for_each_tensor(graph, graph.outputs(node), look);
    reshaped.push_back(any);
  }
}

const std::vector<bool>* SizePlan::Scratch::reshaped() const {
  return whole_ || !of_ ? nullptr : &of_->reshaped;
}

const resize::Recording* SizePlan::Recorded::find(std::int64_t size,
                                                  std::vector<std::int64_t>& numbers) const {
  if (recordings.empty() || size < 1 || size > resize::kLargestSize) return nullptr;
  const bool stays = size == current;
  for (std::size_t i = stays ? 0 : 1; i < (stays ? 1 : recordings.size()); ++i) {
    if (recordings[i].compute(size, numbers)) return &recordings[i];
  }
  return nullptr;
}

void SizePlan::Recorded::write(const resize::Recording& recording,
                               const std::vector<std::int64_t>& numbers,
                               ExecutionGraph& copy) const {
  copy.shape_pool.resize(graph.shape_pool.size());
  copy.arguments.resize(graph.arguments.size());
  for (std::uint32_t tensor : shapes) copy.tensors[tensor] = graph.tensors[tensor];
  for (std::uint32_t argument : lists) copy.arguments[argument] = graph.arguments[argument];
  make_edits(recording.edits(), graph, copy, resize::Results{numbers});
  const bool stays = &recording == &recordings.front();
  for (std::uint32_t node : exchanges) {
    if (!stays) {
      resize::renew_splits(copy, graph.nodes[node]);
      continue;
    }
    const auto record = graph.nodes[node].comm;
    copy.comm_records[record].in_splits = graph.comm_records[record].in_splits;
    copy.comm_records[record].out_splits = graph.comm_records[record].out_splits;
  }
}

Result<SizePlan> SizePlan::make(ExecutionGraph graph, bool batch, std::int64_t current) {
  auto made = std::make_shared<Recorded>();
  made->symbol = batch ? resize::Symbol::kBatch : resize::Symbol::kSequence;
  made->given = current;
  if (is_from_trace(graph)) {  // no rules to record: every other size is a whole rewrite
    const auto found = resize::current_size(graph, made->symbol);
    if (!found && (!batch || current == 0)) return Unexpected{found.error()};
    made->current = current != 0 ? current : *found;
    made->graph = std::move(graph);
    return SizePlan(std::move(made));
  }
  made->graph = std::move(graph);
  resize::Tracker scout(made->graph, resize::rules_of(made->graph), {});
  if (auto seen = scout.run(); !seen) return Unexpected{seen.error()};
  PERFMODEL_TRY(seeds, resize::find_seeds(made->graph, scout.externals(), made->symbol, current));
  made->current = seeds->was;
  made->record(std::move(*seeds), scout.externals());
  return SizePlan(std::move(made));
}

Result<SizePlan> SizePlan::batch(ExecutionGraph graph, std::int64_t current) {
  return make(std::move(graph), true, current);
}

Result<SizePlan> SizePlan::sequence(ExecutionGraph graph, std::int64_t current) {
  return make(std::move(graph), false, current);
}

const ExecutionGraph& SizePlan::graph() const { return recorded_->graph; }

std::int64_t SizePlan::current() const { return recorded_->current; }

bool SizePlan::recorded(std::int64_t size) const {
  std::vector<std::int64_t> numbers;
  return recorded_->find(size, numbers) != nullptr;
}

Result<void> SizePlan::apply(std::int64_t size, Scratch& scratch) const {
  const resize::Recording* recording = recorded_->find(size, scratch.numbers_);
  if (!recording) {
    PERFMODEL_TRY(made, resize::resized(graph(), recorded_->symbol, recorded_->given, size));
    scratch.rewritten_ = std::move(*made);
    scratch.whole_ = true;
    return {};
  }
  if (scratch.of_ != recorded_) {
    scratch.of_.reset();  // should the copy throw
    scratch.copy_ = graph();
    scratch.of_ = recorded_;
  }
  scratch.whole_ = false;
  recorded_->write(*recording, scratch.numbers_, scratch.copy_);
  return {};
}

}  // namespace perfmodel
