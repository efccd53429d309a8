#include "trace/op_tables.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>

#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

enum class Phase : std::uint8_t { kForward, kBackward, kRecompute, kOptimizer };

// Self and total figures of an op with device work inside it.
struct OpFigures {
  std::int64_t device_self_ns = 0, device_total_ns = 0;
  double flop = 0, bytes = 0, roofline_us = 0;
  std::int64_t worked_ns = 0;
  bool has_work = false, has_roofline = false;
};

double in_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

bool is_op(const HostEvent& event) { return event.kind == HostKind::kOp; }

class OpTables {
 public:
  OpTables(const Trace& trace, const TraceSelection& chosen, const TraceOps& nesting,
           const OpTree& tree, const OpWorks& works, TraceAnalysis& analysis)
      : trace_(trace),
        chosen_(chosen),
        nesting_(nesting),
        tree_(tree),
        works_(works),
        analysis_(analysis) {}

  void run() {
    find_phases();
    take_host_time();
    take_device_time();
    take_work();
    add_up();
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      if (!is_op(event) || !chosen_.has_host(event)) continue;
      count(i, by_name_, {event.name, -1});
      if (event.arguments >= 0) has_shapes_ = true;
    }
    for (std::size_t i = 0; has_shapes_ && i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      if (!is_op(event) || !chosen_.has_host(event)) continue;
      count(i, by_shape_, {event.name, shapes_of(event)});
    }
    count_kernels();
    analysis_.ops = rows(by_name_);
    analysis_.ops_by_shape = rows(by_shape_);
  }

 private:
  // Name; text of the shapes, -1: any or none.
  using Key = std::pair<NameId, std::int64_t>;
  struct Row {
    TraceAnalysis::Op op;
    bool all_rooflines = true;
    std::map<NameId, std::pair<std::size_t, std::int64_t>> kernels;
    std::map<KernelFamily, double> families;
  };
  using Table = std::map<Key, Row>;

  std::int64_t shapes_of(const HostEvent& event) const {
    if (event.arguments < 0) return -1;
    return trace_.arguments[event.arguments].dims;
  }

  static bool is_backward(std::string_view name) {
    return name.starts_with("autograd::engine::evaluate_function");
  }

  // Backward functions of the ops inside of a checkpoint have an evaluate_function of their own;
  // work in the checkpoint's without one is forward work done again. An optimizer may run a step's
  // passes itself, given as a closure: events that begin before the last of its backward ops ends
  // are none of its own work.
  void find_phases() {
    std::vector<std::pair<std::int64_t, std::int64_t>> backward;  // start, end
    for (const HostEvent& event : trace_.host) {
      if (is_backward(trace_.name(event))) backward.emplace_back(event.start_ns, event.end_ns());
    }
    std::ranges::sort(backward);
    const auto own_begin = [&](const HostEvent& optimizer) {
      const auto after = std::ranges::lower_bound(
          backward, std::pair(optimizer.end_ns(), std::numeric_limits<std::int64_t>::min()));
      const bool inside = after != backward.begin() && (after - 1)->first >= optimizer.start_ns;
      return inside ? (after - 1)->second : optimizer.start_ns;
    };
    phases_.assign(trace_.host.size(), Phase::kForward);
    std::int64_t optimizer_begin = 0;  // own work of the optimizer at hand
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      const std::int32_t parent = nesting_.parent[i];
      Phase& phase = phases_[i];
      if (parent >= 0) phase = phases_[parent];
      const std::string_view name = trace_.name(event);
      if (is_backward(name)) phase = Phase::kBackward;
      if (name == "CheckpointFunctionBackward") phase = Phase::kRecompute;
      if (name.starts_with("Optimizer.step")) {
        if (phase != Phase::kOptimizer) optimizer_begin = own_begin(event);
        phase = Phase::kOptimizer;
      } else if (phase == Phase::kOptimizer && event.start_ns < optimizer_begin) {
        phase = Phase::kForward;
      }
    }
  }

  void take_host_time() {
    host_self_ns_.assign(trace_.host.size(), 0);
    std::vector<std::int64_t> covered_to(trace_.host.size(), 0);  // by calls: they may nest
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      if (is_op(event)) host_self_ns_[i] += event.duration_ns;
      if (tree_.parent[i] < 0 || event.kind == HostKind::kAnnotation) continue;
      const auto parent = tree_.parent[i];
      std::int64_t inside = event.duration_ns;
      if (event.kind == HostKind::kCall) {
        std::int64_t& covered = covered_to[parent];
        inside = std::max<std::int64_t>(0, event.end_ns() - std::max(covered, event.start_ns));
        covered = std::max(covered, event.end_ns());
      }
      host_self_ns_[parent] -= inside;
    }
  }

  OpFigures& figures_of(std::int32_t op) {
    std::int32_t& place = place_[op];
    if (place < 0) {
      place = static_cast<std::int32_t>(figures_.size());
      figures_.emplace_back();
    }
    return figures_[place];
  }

  void take_device_time() {
    place_.assign(trace_.host.size(), -1);
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      if (!chosen_.has_gpu(i)) continue;
      const GpuEvent& event = trace_.gpu[i];
      const std::int32_t op = tree_.launcher[i];
      if (op < 0) {
        analysis_.device_outside_ops_us += in_us(event.duration_ns);
        continue;
      }
      figures_of(op).device_self_ns += event.duration_ns;
      double& of_phase = phase_us(phases_[op]);
      of_phase += in_us(event.duration_ns);
    }
  }

  double& phase_us(Phase phase) {
    switch (phase) {
      case Phase::kBackward: return analysis_.phases.backward_us;
      case Phase::kRecompute: return analysis_.phases.recompute_us;
      case Phase::kOptimizer: return analysis_.phases.optimizer_us;
      case Phase::kForward: break;
    }
    return analysis_.phases.forward_us;
  }

  // Work counts if the op ran on the device: shapes alone do not tell.
  void take_work() {
    for (std::size_t i = 0; i < place_.size(); ++i) {
      const OpWork* const work = works_.of(i);
      if (!work || place_[i] < 0) continue;
      OpFigures& figures = figures_[place_[i]];
      if (figures.device_self_ns == 0) continue;
      figures.has_work = true;
      figures.flop = work->flop;
      figures.bytes = work->bytes;
      figures.worked_ns = figures.device_self_ns;
      figures.has_roofline = work->roofline_us.has_value();
      figures.roofline_us = work->roofline_us.value_or(0);
    }
  }

  // Ops come after the ops that contain them.
  void add_up() {
    for (OpFigures& figures : figures_) figures.device_total_ns = figures.device_self_ns;
    for (std::size_t i = trace_.host.size(); i-- > 0;) {
      if (place_[i] < 0 || !is_op(trace_.host[i]) || tree_.parent[i] < 0) continue;
      OpFigures& parent = figures_of(tree_.parent[i]);
      const OpFigures& figures = figures_[place_[i]];
      parent.device_total_ns += figures.device_total_ns;
      if (!figures.has_work) continue;
      parent.has_roofline = figures.has_roofline && (!parent.has_work || parent.has_roofline);
      parent.has_work = true;
      parent.flop += figures.flop;
      parent.bytes += figures.bytes;
      parent.worked_ns += figures.worked_ns;
      parent.roofline_us += figures.roofline_us;
    }
  }

  void count(std::size_t i, Table& table, const Key& key) {
    Row& row = table[key];
    static constexpr OpFigures kNone;
    const OpFigures& figures = place_[i] < 0 ? kNone : figures_[place_[i]];
    TraceAnalysis::Op& op = row.op;
    ++op.count;
    op.host_self_us += in_us(host_self_ns_[i]);
    op.host_total_us += in_us(trace_.host[i].duration_ns);
    op.device_self_us += in_us(figures.device_self_ns);
    op.device_total_us += in_us(figures.device_total_ns);
    if (phases_[i] == Phase::kRecompute) op.recomputed_us += in_us(figures.device_self_ns);
    if (const OpWork* const work = works_.of(i); work && figures.device_self_ns > 0) {
      row.families[work->family] += in_us(figures.device_self_ns);
    }
    if (!figures.has_work) return;
    op.flop = op.flop.value_or(0) + figures.flop;
    op.bytes = op.bytes.value_or(0) + figures.bytes;
    op.worked_us += in_us(figures.worked_ns);
    op.roofline_us = op.roofline_us.value_or(0) + figures.roofline_us;
    row.all_rooflines &= figures.has_roofline;
  }

  void count_kernels() {
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      const std::int32_t op = tree_.launcher[i];
      if (op < 0 || !chosen_.has_gpu(i)) continue;
      const HostEvent& event = trace_.host[op];
      if (!chosen_.has_host(event)) continue;
      const GpuEvent& kernel = trace_.gpu[i];
      for (Table* table : {&by_name_, &by_shape_}) {
        if (table == &by_shape_ && !has_shapes_) continue;
        Row& row = (*table)[{event.name, table == &by_name_ ? -1 : shapes_of(event)}];
        auto& [count, sum] = row.kernels[kernel.name];
        ++count;
        sum += kernel.duration_ns;
        if (!works_.of(op)) {
          const auto family = family_of(kernel.name);
          if (family) row.families[*family] += in_us(kernel.duration_ns);
        }
      }
    }
  }

  std::optional<KernelFamily> family_of(NameId kernel) {
    const auto [at, added] = family_by_name_.try_emplace(kernel);
    if (added) at->second = kernel_family_of_name(trace_.names.text(kernel));
    return at->second;
  }

  std::vector<TraceAnalysis::Op> rows(Table& table) const {
    std::vector<TraceAnalysis::Op> made;
    for (auto& [key, row] : table) {
      TraceAnalysis::Op& op = row.op;
      op.name = trace_.names.text(key.first);
      if (key.second >= 0) op.shapes = trace_.names.text(static_cast<NameId>(key.second));
      if (!row.all_rooflines) op.roofline_us.reset();
      for (const auto& [name, sum] : row.kernels) {
        op.kernels.push_back({.name = std::string(trace_.names.text(name)),
                              .count = sum.first,
                              .total_us = in_us(sum.second)});
      }
      std::ranges::stable_sort(op.kernels, std::ranges::greater{},
                               &TraceAnalysis::OpKernel::total_us);
      op.category = category_of(row);
      made.push_back(std::move(op));
    }
    std::ranges::stable_sort(made, [](const TraceAnalysis::Op& a, const TraceAnalysis::Op& b) {
      if (a.device_self_us != b.device_self_us) return a.device_self_us > b.device_self_us;
      return a.host_self_us > b.host_self_us;
    });
    return made;
  }

  static std::string category_of(const Row& row) {
    if (!row.families.empty()) {
      return std::string(to_string(std::ranges::max_element(row.families, {}, [](const auto& f) {
                                     return f.second;
                                   })->first));
    }
    return row.kernels.empty() ? "host" : "other";
  }

  const Trace& trace_;
  const TraceSelection& chosen_;
  const TraceOps& nesting_;
  const OpTree& tree_;
  const OpWorks& works_;
  TraceAnalysis& analysis_;
  std::vector<std::int64_t> host_self_ns_;  // per host event
  std::vector<std::int32_t> place_;         // per host event, into figures_; -1: no device work
  std::deque<OpFigures> figures_;
  std::vector<Phase> phases_;
  Table by_name_, by_shape_;
  bool has_shapes_ = false;
  std::unordered_map<NameId, std::optional<KernelFamily>> family_by_name_;
};

}  // namespace

OpTree op_tree(const Trace& trace, const TraceOps& ops) {
  OpTree made;
  made.parent.assign(trace.host.size(), -1);
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const std::int32_t around = ops.parent[i];
    if (around < 0) continue;
    made.parent[i] = is_op(trace.host[around]) ? around : made.parent[around];
  }
  made.launcher.assign(trace.gpu.size(), -1);
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    if (trace.gpu[i].launch < 0) continue;
    made.launcher[i] = made.parent[trace.gpu[i].launch];
  }
  return made;
}

std::vector<TraceAnalysis::Module> module_table(const Trace& trace, const TraceSelection& chosen) {
  // Launches by thread and time of their call, with the device time of all up to each.
  std::vector<std::tuple<std::int32_t, std::int64_t, std::int64_t>> launched;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    if (event.launch < 0 || !chosen.has_gpu(i)) continue;
    const HostEvent& call = trace.host[event.launch];
    launched.emplace_back(call.thread, call.start_ns, event.duration_ns);
  }
  std::ranges::sort(launched);
  std::vector<std::int64_t> sums = {0};
  for (const auto& [thread, at, ns] : launched) sums.push_back(sums.back() + ns);
  const auto sum_before = [&](std::int32_t thread, std::int64_t at) {
    const auto first = std::ranges::lower_bound(launched, std::tuple(thread, at, std::int64_t{0}));
    return sums[first - launched.begin()];
  };
  std::map<NameId, TraceAnalysis::Module> by_name;
  for (const HostEvent& event : trace.modules) {
    if (!chosen.has_host(event)) continue;
    TraceAnalysis::Module& module = by_name[event.name];
    ++module.count;
    module.host_total_us += in_us(event.duration_ns);
    module.device_total_us +=
        in_us(sum_before(event.thread, event.end_ns()) - sum_before(event.thread, event.start_ns));
  }
  std::vector<TraceAnalysis::Module> made;
  for (auto& [name, module] : by_name) {
    module.name = trace.names.text(name);
    made.push_back(std::move(module));
  }
  std::ranges::stable_sort(made, [](const auto& a, const auto& b) {
    return a.device_total_us != b.device_total_us ? a.device_total_us > b.device_total_us
                                                  : a.host_total_us > b.host_total_us;
  });
  return made;
}

void add_op_tables(const Trace& trace, const TraceSelection& chosen, const TraceOps& nesting,
                   const OpTree& tree, const OpWorks& works, TraceAnalysis& analysis) {
  OpTables(trace, chosen, nesting, tree, works, analysis).run();
}

}  // namespace perfmodel
