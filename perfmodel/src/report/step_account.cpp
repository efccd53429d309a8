#include "report/step_account.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace perfmodel::report_page {
namespace {

using findings::DeviceKind;
using findings::KernelFact;
using findings::OpFact;
using findings::StepFacts;

std::size_t part_of(DeviceKind kind) {
  return kind == DeviceKind::kCollective ? 1 : kind == DeviceKind::kCopy ? 2 : 0;
}

// Spans by their start; `latest` finds the one that started last of those that cover a time. Times
// must be asked for in ascending order.
class OpenSpans {
 public:
  void add(double start_us, double end_us, std::int32_t op) {
    spans_.emplace_back(start_us, end_us, op);
  }
  void sort() { std::ranges::sort(spans_); }
  std::int32_t latest(double at_us) {
    for (; next_ < spans_.size() && std::get<0>(spans_[next_]) <= at_us; ++next_) {
      open_.push_back(spans_[next_]);
    }
    while (!open_.empty() && std::get<1>(open_.back()) <= at_us) open_.pop_back();
    return open_.empty() ? -1 : std::get<2>(open_.back());
  }

 private:
  std::vector<std::tuple<double, double, std::int32_t>> spans_, open_;
  std::size_t next_ = 0;
};

// Names that programs of the same layers do not share are no labels: steps, compiled graphs.
bool is_shown_label(const OpFact& op) {
  if (!op.is_label || op.is_frame) return false;
  for (const std::string_view other :
       {"ProfilerStep#", "## Call CompiledFxGraph", "Torch-Compiled Region", "PyTorch Profiler"}) {
    if (op.name.starts_with(other)) return false;
  }
  return true;
}

std::string_view without_number(std::string_view label) {
  constexpr std::string_view kOptimizer = "Optimizer.step";
  return label.starts_with(kOptimizer) ? kOptimizer : label;
}

// When each label ends. A predicted label ends with its last call, but its thread is in it until
// the next op outside of it: the backward pass runs meanwhile on a thread of its own.
std::vector<double> ends_of(const StepFacts& facts) {
  std::vector<double> ends;
  for (const OpFact& op : facts.ops) ends.push_back(op.end_us);
  if (facts.is_recorded) return ends;
  std::map<std::int32_t, std::vector<std::int32_t>> open;  // per thread, outermost first
  const auto close = [&](std::vector<std::int32_t>& labels, std::int32_t around, double at_us) {
    while (!labels.empty() && labels.back() != around) {
      ends[labels.back()] = std::max(ends[labels.back()], at_us);
      labels.pop_back();
    }
  };
  for (std::size_t i = 0; i < facts.ops.size(); ++i) {
    const OpFact& op = facts.ops[i];
    std::int32_t around = op.parent;
    while (around >= 0 && !facts.ops[around].is_label) around = facts.ops[around].parent;
    close(open[op.thread], around, op.start_us);
    if (op.is_label) open[op.thread].push_back(static_cast<std::int32_t>(i));
  }
  for (auto& [thread, labels] : open) close(labels, -1, facts.span_us);
  return ends;
}

// The spans of the labels that are shown.
OpenSpans label_spans(const StepFacts& facts) {
  const std::vector<double> ends = ends_of(facts);
  OpenSpans labels;
  for (std::size_t i = 0; i < facts.ops.size(); ++i) {
    const OpFact& op = facts.ops[i];
    if (is_shown_label(op)) labels.add(op.start_us, ends[i], static_cast<std::int32_t>(i));
  }
  labels.sort();
  return labels;
}

// The label around each op, else the one that some thread is in when the op starts.
std::vector<std::string_view> labels_of(const StepFacts& facts) {
  OpenSpans labels = label_spans(facts);
  std::vector<std::int32_t> order, around(facts.ops.size(), -1);
  for (std::size_t i = 0; i < facts.ops.size(); ++i) {
    const OpFact& op = facts.ops[i];
    const auto own = static_cast<std::int32_t>(i);
    around[i] = is_shown_label(op) ? own : op.parent < 0 ? -1 : around[op.parent];
    order.push_back(own);
  }
  std::ranges::stable_sort(order, {}, [&](std::int32_t i) { return facts.ops[i].start_us; });
  std::vector<std::string_view> names(facts.ops.size());
  for (const std::int32_t i : order) {
    const std::int32_t open = labels.latest(facts.ops[i].start_us);
    const std::int32_t label = around[i] >= 0 ? around[i] : open;
    if (label >= 0) names[i] = without_number(facts.ops[label].name);
  }
  return names;
}

std::int32_t innermost_op(const StepFacts& facts, std::int32_t op) {
  while (op >= 0 && facts.ops[op].is_label) {
    op = facts.ops[op].parent;
  }
  return op;
}

class Account {
 public:
  explicit Account(const StepFacts& facts)
      : facts_(facts), labels_(labels_of(facts)), host_labels_(label_spans(facts)) {
    for (std::size_t i = 0; i < facts.ops.size(); ++i) {
      const OpFact& op = facts.ops[i];
      if (op.is_label) continue;
      host_.add(op.start_us, op.end_us, static_cast<std::int32_t>(i));
      edges_.insert({op.start_us, op.end_us});
    }
    host_.sort();
  }

  std::vector<AccountRow> rows() {
    for (std::size_t i = 0; i < facts_.kernels.size(); ++i) add_kernel(i);
    edges_.insert({0, facts_.span_us});
    std::ranges::sort(moves_);
    std::size_t next = 0;
    double before = 0;
    for (const double at : edges_) {
      if (at <= 0 || at > facts_.span_us) continue;
      for (; next < moves_.size() && moves_[next].at_us <= before; ++next) apply(moves_[next]);
      give(before, at - before);
      before = at;
    }
    return std::move(rows_);
  }

 private:
  struct Move {
    double at_us;
    std::size_t part, row;
    bool starts;
    auto operator<=>(const Move&) const = default;
  };

  // Work beyond the last step's end is the next pass's, which is alike.
  void add_kernel(std::size_t i) {
    const KernelFact& kernel = facts_.kernels[i];
    const std::size_t part = part_of(kernel.kind), row = row_of(kernel, part);
    rows_[row].count += 1;
    const double period = facts_.span_us;
    if (!(kernel.time_us > 0) || !(period > 0)) return;
    const double start = std::fmod(std::max(0.0, kernel.start_us), period);
    const double end = start + std::min(kernel.time_us, period);
    add_piece(start, std::min(end, period), part, row);
    if (end > period) add_piece(0, end - period, part, row);
  }
  void add_piece(double start, double end, std::size_t part, std::size_t row) {
    if (!(end > start)) return;  // too short for a moment of its own
    moves_.push_back({start, part, row, true});
    moves_.push_back({end, part, row, false});
    edges_.insert({start, end});
  }
  void apply(const Move& move) {
    auto& running = running_[move.part];
    if (move.starts) {
      running.insert(move.row);
    } else {
      running.erase(running.find(move.row));
    }
  }
  void give(double from, double us) {
    const auto part =
        std::ranges::find_if(running_, [](const auto& rows) { return !rows.empty(); });
    if (part == running_.end()) {
      rows_[idle_row(from)].us += us;
      return;
    }
    for (const std::size_t row : *part) rows_[row].us += us / static_cast<double>(part->size());
  }

  std::size_t row_of(const KernelFact& kernel, std::size_t part) {
    const std::int32_t op = innermost_op(facts_, kernel.op);
    return row({.part = std::string(kStepParts[part]),
                .family = std::string(to_string(kernel.family)),
                .kernel = std::string(kernel.name),
                .op = std::string(op < 0 ? "" : facts_.ops[op].name),
                .label = std::string(kernel.op < 0 ? "" : labels_[kernel.op])});
  }
  std::size_t idle_row(double at_us) {
    const std::int32_t op = host_.latest(at_us), label = host_labels_.latest(at_us);
    std::string_view around = op >= 0 ? labels_[op] : "";
    if (op < 0 && label >= 0) around = without_number(facts_.ops[label].name);
    return row({.part = std::string(kStepParts[kIdlePart]),
                .op = std::string(op < 0 ? "" : facts_.ops[op].name),
                .label = std::string(around)});
  }
  std::size_t row(AccountRow made) {
    const auto [at, is_new] = known_.try_emplace(
        {made.part, made.kernel, made.op, made.label, made.family}, rows_.size());
    if (is_new) rows_.push_back(std::move(made));
    return at->second;
  }

  const StepFacts& facts_;
  std::vector<std::string_view> labels_;  // per op
  OpenSpans host_labels_, host_;
  std::set<double> edges_;
  std::vector<Move> moves_;
  std::array<std::multiset<std::size_t>, kIdlePart> running_;  // rows, per part
  std::vector<AccountRow> rows_;
  std::map<std::array<std::string, 5>, std::size_t> known_;
};

std::string name_by(const AccountRow& row, AccountKey key) {
  const bool idle = row.kernel.empty();
  switch (key) {
    case AccountKey::kFamily: return idle ? row.part : row.family;
    case AccountKey::kKernel: return idle ? row.part : row.kernel;
    case AccountKey::kOp:
      if (row.op.empty()) return idle ? "device idle, host between ops" : "(outside of ops)";
      return idle ? "device idle, host in " + row.op : row.op;
    case AccountKey::kLabel: return row.label.empty() ? "(outside of labels)" : row.label;
    default: return row.part;
  }
}

bool knows(const StepAccount& account, AccountKey key) {
  return (key != AccountKey::kOp && key != AccountKey::kLabel) ||
         std::ranges::any_of(account.rows, [key](const AccountRow& row) {
           return !(key == AccountKey::kOp ? row.op : row.label).empty();
         });
}

}  // namespace

StepAccount account_of(const StepFacts& facts, double step_us) {
  StepAccount made{.step_us = step_us, .rows = Account(facts).rows()};
  const double steps = static_cast<double>(std::max<std::size_t>(1, facts.steps));
  const double scale = facts.span_us > 0 ? step_us / facts.span_us : 0;
  for (AccountRow& row : made.rows) {
    row.us *= scale;
    row.count /= steps;
  }
  return made;
}

std::vector<AccountChange> compare_accounts(const StepAccount& before, const StepAccount& after,
                                            AccountKey key) {
  if (!knows(before, key) || !knows(after, key)) return {};
  std::map<std::string, AccountChange> changes;
  for (const AccountRow& row : before.rows) {
    AccountChange& change = changes[name_by(row, key)];
    change.before_us += row.us;
    change.count_before += row.count;
  }
  for (const AccountRow& row : after.rows) {
    AccountChange& change = changes[name_by(row, key)];
    change.after_us += row.us;
    change.count_after += row.count;
  }
  std::vector<AccountChange> made;
  for (auto& [name, change] : changes) {
    made.push_back(std::move(change));
    made.back().name = name;
  }
  std::ranges::stable_sort(made, std::ranges::greater{}, [](const AccountChange& change) {
    return std::abs(change.change_us());
  });
  return made;
}

}  // namespace perfmodel::report_page
