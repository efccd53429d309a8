#include "report/report_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "analyze/finding_results.hpp"
#include "memory/drawn_purposes.hpp"
#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::report_page {
namespace {

using findings::DeviceKind;
using findings::KernelFact;
using findings::OpFact;
using findings::StepFacts;

std::int64_t hundredths(double us) { return std::llround(100 * us); }

// Differences to the value before, so that most numbers are short.
Json differences(const std::vector<double>& values) {
  Json made = Json::array();
  std::int64_t before = 0;
  for (const double value : values) {
    const std::int64_t now = hundredths(value);
    made.push_back(now - before);
    before = now;
  }
  return made;
}

template <class Item, class Value>
Json column(const std::vector<Item>& items, Value&& value) {
  Json made = Json::array();
  for (const Item& item : items) made.push_back(value(item));
  return made;
}

// Six digits, no more.
Json short_float(double value) {
  if (value == 0) return 0;
  const double scale = std::pow(10, 5 - std::floor(std::log10(std::abs(value))));
  const double rounded = std::round(value * scale) / scale;
  if (std::abs(rounded) >= 1e6 && std::abs(rounded) < 9e15) return std::llround(rounded);
  return rounded;
}

// The longest, in their order.
std::vector<std::size_t> kept(std::size_t count, std::size_t most,
                              const std::function<double(std::size_t)>& length) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (count <= most) return order;
  std::ranges::nth_element(order, order.begin() + static_cast<std::ptrdiff_t>(most),
                           [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  order.resize(most);
  std::ranges::sort(order);
  return order;
}

struct DrawnSlices {
  std::vector<std::size_t> ops, kernels;
  std::vector<int> place_of_op, place_of_kernel;  // -1: left out
};

DrawnSlices drawn_slices(const StepFacts& facts, std::size_t most) {
  DrawnSlices made;
  // Calls of Python have a limit of their own, so that they take no op's place.
  std::vector<std::size_t> ops, frames;
  for (std::size_t i = 0; i < facts.ops.size(); ++i) {
    (facts.ops[i].is_frame ? frames : ops).push_back(i);
  }
  for (const auto* part : {&ops, &frames}) {
    const auto length = [&](std::size_t i) {
      const OpFact& op = facts.ops[(*part)[i]];
      return op.end_us - op.start_us;
    };
    for (const std::size_t i : kept(part->size(), most, length)) made.ops.push_back((*part)[i]);
  }
  std::ranges::sort(made.ops);
  made.kernels =
      kept(facts.kernels.size(), most, [&](std::size_t i) { return facts.kernels[i].time_us; });
  const auto places = [](const std::vector<std::size_t>& order, std::size_t count) {
    std::vector<int> at(count, -1);
    for (std::size_t place = 0; place < order.size(); ++place) {
      at[order[place]] = static_cast<int>(place);
    }
    return at;
  };
  made.place_of_op = places(made.ops, facts.ops.size());
  made.place_of_kernel = places(made.kernels, facts.kernels.size());
  return made;
}

// The innermost shown op around it: ops within an op that is left out go to its parent.
int shown_op(const StepFacts& facts, const DrawnSlices& shown, std::int32_t op) {
  while (op >= 0 && shown.place_of_op[op] < 0) {
    op = facts.ops[op].parent;
  }
  return op < 0 ? -1 : shown.place_of_op[op];
}

Json ops_data(const StepFacts& facts, const DrawnSlices& shown, Names& names) {
  std::vector<const OpFact*> ops;
  std::vector<double> starts;
  for (const std::size_t i : shown.ops) {
    ops.push_back(&facts.ops[i]);
    starts.push_back(facts.ops[i].start_us);
  }
  return {
      {"name", column(ops, [&](const OpFact* op) { return names.index(op->name); })},
      {"parent", column(ops, [&](const OpFact* op) { return shown_op(facts, shown, op->parent); })},
      {"thread", column(ops, [](const OpFact* op) { return op->thread; })},
      {"start", differences(starts)},
      {"time", column(ops, [](const OpFact* op) { return hundredths(op->end_us - op->start_us); })},
      {"host", column(ops, [](const OpFact* op) { return hundredths(op->host_us); })},
      {"wait", column(ops, [](const OpFact* op) { return hundredths(op->wait_us); })},
      {"taken", column(ops, [](const OpFact* op) { return std::llround(op->taken_bytes); })},
      {"label", column(ops, [](const OpFact* op) { return op->is_frame ? 2 : op->is_label; })}};
}

Json kernels_data(const StepFacts& facts, const DrawnSlices& shown, Names& names) {
  std::vector<const KernelFact*> kernels;
  std::vector<double> starts;
  for (const std::size_t i : shown.kernels) {
    kernels.push_back(&facts.kernels[i]);
    starts.push_back(facts.kernels[i].start_us);
  }
  const auto flop = [](const KernelFact* k) { return k->work ? k->work->flop.value : 0.0; };
  const auto moved = [](const KernelFact* k) {
    return k->work ? k->work->bytes().value : k->copied_bytes;
  };
  const auto shape = [&](const KernelFact* k) {
    std::string made = k->work ? shape_text(*k->work) : "";
    if (made.empty() && k->op >= 0) made = facts.ops[k->op].shapes;
    if (made.size() > 120) made = made.substr(0, 117) + "...";
    return names.index(made);
  };
  const auto of_model = [&](std::string_view text) {
    return text.empty() ? -1 : names.index(text);
  };
  return {
      {"name", column(kernels, [&](const KernelFact* k) { return names.index(k->name); })},
      {"op", column(kernels, [&](const KernelFact* k) { return shown_op(facts, shown, k->op); })},
      {"stream", column(kernels, [](const KernelFact* k) { return k->stream; })},
      {"family",
       column(kernels, [&](const KernelFact* k) { return names.index(to_string(k->family)); })},
      {"start", differences(starts)},
      {"time", column(kernels, [](const KernelFact* k) { return hundredths(k->time_us); })},
      {"low", column(kernels, [](const KernelFact* k) { return hundredths(k->low_us); })},
      {"high", column(kernels, [](const KernelFact* k) { return hundredths(k->high_us); })},
      {"roofline",
       column(kernels, [](const KernelFact* k) { return hundredths(k->roofline_us.value_or(0)); })},
      {"flop", column(kernels, [&](const KernelFact* k) { return short_float(flop(k)); })},
      {"bytes", column(kernels, [&](const KernelFact* k) { return short_float(moved(k)); })},
      {"shape", column(kernels, shape)},
      {"model", column(kernels, [&](const KernelFact* k) { return of_model(k->model); })},
      {"bound", column(kernels, [&](const KernelFact* k) { return of_model(k->bound); })},
      {"ok", column(kernels, [](const KernelFact* k) { return k->in_range ? 1 : 0; })}};
}

// Per step, all of them, whatever is drawn.
Json op_totals(const StepFacts& facts) {
  struct Total {
    double count = 0, host_us = 0, wait_us = 0, device_us = 0;
  };
  std::map<std::string_view, Total> totals;
  double device = 0;
  for (const OpFact& op : facts.ops) {
    if (op.is_label) continue;
    Total& total = totals[op.name];
    total.count += 1;
    total.host_us += op.host_us;
    total.wait_us += op.wait_us;
  }
  for (const KernelFact& kernel : facts.kernels) {
    device += kernel.time_us;
    std::int32_t op = kernel.op;
    while (op >= 0 && facts.ops[op].is_label) {
      op = facts.ops[op].parent;
    }
    const std::string_view name =
        op < 0 ? std::string_view("(outside of ops)") : facts.ops[op].name;
    totals[name].device_us += kernel.time_us;
  }
  const auto steps = static_cast<double>(facts.steps);
  Json made = Json::array();
  for (const auto& [name, total] : totals) {
    made.push_back({std::string(name), short_float(total.count / steps),
                    short_float(total.host_us / steps), short_float(total.wait_us / steps),
                    short_float(total.device_us / steps),
                    device > 0 ? short_float(total.device_us / device) : Json(0)});
  }
  return made;
}

Json kernel_totals(const StepFacts& facts) {
  struct Total {
    KernelFamily family = KernelFamily::kSmall;
    double count = 0, us = 0, roofline_us = 0;
    bool has_roofline = true;
  };
  std::map<std::string_view, Total> totals;
  double all = 0;
  for (const KernelFact& kernel : facts.kernels) {
    Total& total = totals[kernel.name];
    total.family = kernel.family;
    total.count += 1;
    total.us += kernel.time_us;
    total.has_roofline &= kernel.roofline_us.has_value();
    total.roofline_us += kernel.roofline_us.value_or(0);
    all += kernel.time_us;
  }
  const auto steps = static_cast<double>(facts.steps);
  Json made = Json::array();
  for (const auto& [name, total] : totals) {
    made.push_back(
        {std::string(name), std::string(to_string(total.family)), short_float(total.count / steps),
         short_float(total.us / steps), short_float(total.us / total.count),
         total.has_roofline && total.us > 0 ? short_float(total.roofline_us / total.us) : Json(),
         all > 0 ? short_float(total.us / all) : Json(0)});
  }
  return made;
}

// Slices to mark, and the path by name: all of it, whatever is drawn.
Json path_data(const Run& run, const DrawnSlices& shown) {
  constexpr std::size_t kMostRows = 200;
  struct Total {
    double us = 0;
    std::size_t count = 0;
  };
  std::map<std::pair<bool, std::string_view>, Total> totals;  // on the device, name
  std::set<int> kernels, ops;
  for (const auto& piece : run.path) {
    const bool on_device = piece.kernel >= 0;
    std::string_view name = "(outside of ops)";
    if (on_device) {
      const auto at = piece.kernel;
      name = run.facts->kernels[at].name;
      kernels.insert(shown.place_of_kernel[at]);
    } else if (piece.op >= 0) {
      name = run.facts->ops[piece.op].name;
      ops.insert(shown_op(*run.facts, shown, piece.op));
    }
    Total& total = totals[{on_device, name}];
    total.us += piece.us;
    ++total.count;
  }
  kernels.erase(-1);
  ops.erase(-1);
  std::vector<std::pair<std::pair<bool, std::string_view>, Total>> order(totals.begin(),
                                                                         totals.end());
  std::ranges::stable_sort(order,
                           [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  Json rows = Json::array();
  Total rest;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [key, total] = order[i];
    if (i < kMostRows) {
      rows.push_back({key.first ? "device" : "host", std::string(key.second), short_float(total.us),
                      total.count});
    } else {
      rest.us += total.us;
      rest.count += total.count;
    }
  }
  if (rest.count > 0) rows.push_back({"", "(the rest)", short_float(rest.us), rest.count});
  return {{"kernels", kernels}, {"ops", ops}, {"rows", std::move(rows)}};
}

std::string time_text(double us) {
  return us >= 1000 ? fmt::format("{:.3f} ms", us / 1000) : fmt::format("{:.1f} us", us);
}

Json headline_facts(const Run& run, double active_us, double wait_us) {
  const StepFacts& facts = *run.facts;
  Json made = Json::array();
  made.push_back({"per step", time_text(run.step_us)});
  for (const auto& [name, value] : run.more_facts) made.push_back({name, value});
  const auto share = [&](double us) {
    return fmt::format("{:.1f} %", run.step_us > 0 ? 100 * us / run.step_us : 0);
  };
  made.push_back({"GPU busy", share(active_us)});
  made.push_back({"host waiting", share(wait_us)});
  made.push_back({"kernels per step",
                  fmt::format("{}", facts.kernels.size() / std::max<std::size_t>(1, facts.steps))});
  if (facts.steps > 1) made.push_back({"steps", fmt::format("{}", facts.steps)});
  return made;
}

Json findings_data(const Findings* found) {
  if (!found) return Json::array();
  Json list = json_list(found->findings, kFindingFields, true);
  for (Json& finding : list) {
    for (Json& figure : finding) {
      if (figure.is_number_float()) figure = short_float(figure.get<double>());
    }
  }
  return list;
}

Json memory_data(const Run& run) {
  Json made;
  if (run.memory && !run.memory->curve.empty()) {
    const auto& curve = run.memory->curve;
    constexpr std::size_t kMost = 1500;
    const std::size_t every = std::max<std::size_t>(1, curve.size() / kMost);
    std::vector<MemoryPoint> points;
    // The highest of each stretch stays.
    const auto total = [](const MemoryPoint& point) {
      return std::accumulate(point.bytes.begin(), point.bytes.end(), 0.0);
    };
    for (std::size_t i = 0; i < curve.size(); i += every) {
      const auto until =
          curve.begin() + static_cast<std::ptrdiff_t>(std::min(curve.size(), i + every));
      points.push_back(
          *std::max_element(curve.begin() + static_cast<std::ptrdiff_t>(i), until,
                            [&](const auto& a, const auto& b) { return total(a) < total(b); }));
    }
    made["by_op"] = true;
    made["at"] = column(points, [](const MemoryPoint& point) { return point.node; });
    made["series"] = Json::array();
    for (const DrawnPurpose& drawn : drawn_purposes(points)) {
      made["series"].push_back(
          {{"name", drawn.name}, {"bytes", column(points, [&](const MemoryPoint& point) {
                                    return std::llround(point.bytes[drawn.purpose]);
                                  })}});
    }
    made["needed_bytes"] = run.memory->memory.needed_bytes();
  } else if (run.measured_memory) {
    const auto points = thinned(run.measured_memory->curve, 1500);
    made["by_op"] = false;
    made["at"] = column(points, [](const auto& point) { return short_float(point.time_us); });
    made["series"] = Json::array();
    made["series"].push_back(
        {{"name", "allocated"},
         {"bytes", column(points, [](const auto& point) { return point.allocated_bytes; })}});
  } else {
    return nullptr;
  }
  if (run.facts->device_memory_bytes) made["limit_bytes"] = *run.facts->device_memory_bytes;
  return made;
}

Json peaks_of(const Gpu* gpu) {
  Json made = Json::array();
  if (!gpu) return made;
  const auto add = [&](std::string_view name, const std::optional<double>& tflop) {
    if (tflop) made.push_back({{"name", name}, {"flop_per_s", *tflop * 1e12}});
  };
  const auto& peaks = gpu->peak_tflop_per_s;
  add("fp32", peaks.fp32);
  add("TF32, matrix units", peaks.tf32_matrix);
  add("bf16, matrix units", peaks.bf16_matrix ? peaks.bf16_matrix : std::optional<double>());
  if (!peaks.bf16_matrix) add("fp16, matrix units", peaks.fp16_matrix);
  return made;
}

}  // namespace

int Names::index(std::string_view name) {
  const auto found = known_.find(name);
  if (found != known_.end()) return found->second;
  const int made = static_cast<int>(names_.size());
  names_.emplace_back(name);
  known_.emplace(std::string(name), made);
  return made;
}

std::string shape_text(const KernelWork& work) {
  const std::string_view dtype = to_string(work.dtype);
  if (const auto* gemm = std::get_if<GemmShape>(&work.shape)) {
    const std::string batch = gemm->batch > 1 ? fmt::format("{} x ", gemm->batch) : "";
    return fmt::format("{}m {} n {} k {}, {}", batch, gemm->m, gemm->n, gemm->k, dtype);
  }
  if (const auto* conv = std::get_if<ConvolutionShape>(&work.shape)) {
    if (work.family == KernelFamily::kPooling) {
      return fmt::format("{} channels of {}x{}, window {}x{}, {}", conv->n, conv->h, conv->w,
                         conv->r, conv->s, dtype);
    }
    return fmt::format("n {} c {} h {} w {} k {} filter {}x{}, {}", conv->n, conv->c, conv->h,
                       conv->w, conv->k, conv->r, conv->s, dtype);
  }
  if (const auto* attention = std::get_if<AttentionShape>(&work.shape)) {
    return fmt::format("batch {} heads {} q {} k {} dim {}, {}", attention->batch, attention->heads,
                       attention->seq_q, attention->seq_k, attention->head_dim, dtype);
  }
  if (const auto* rows = std::get_if<RowShape>(&work.shape)) {
    return fmt::format("rows {} of {}, {}", rows->rows, rows->cols, dtype);
  }
  if (work.bytes().value > 0) return fmt::format("{:.3g} MB, {}", work.bytes().value / 1e6, dtype);
  return "";
}

std::string limit_sentence(const Run& run) {
  double host = 0, all = 0;
  std::map<std::string, double> host_ops, families;
  for (const auto& piece : run.path) {
    all += piece.us;
    if (piece.kernel >= 0) {
      const KernelFact& kernel = run.facts->kernels[piece.kernel];
      families[std::string(to_string(kernel.family))] += piece.us;
    } else {
      host += piece.us;
      const std::int32_t top = run.facts->top_op(piece.op);
      const std::string_view name = top < 0 ? std::string_view() : run.facts->ops[top].name;
      const bool between = name.empty() || name.starts_with("ProfilerStep#");
      host_ops[between ? "Python between ops" : std::string(name)] += piece.us;
    }
  }
  if (!(all > 0)) return "";
  const auto most = [](const std::map<std::string, double>& parts) {
    const auto at = std::ranges::max_element(
        parts, [](const auto& a, const auto& b) { return a.second < b.second; });
    return at == parts.end() ? std::pair<std::string, double>() : std::pair(at->first, at->second);
  };
  const bool by_host = host > 0.5 * all;
  const auto [name, us] = most(by_host ? host_ops : families);
  return fmt::format(
      "The {} limits the step: {:.0f} % of the critical path is its work, most of it "
      "{} ({:.0f} %).",
      by_host ? "host" : "device", 100 * (by_host ? host : all - host) / all, name, 100 * us / all);
}

Json run_data(const Run& run, std::size_t most_slices, Names& names) {
  const StepFacts& facts = *run.facts;
  const DrawnSlices shown = drawn_slices(facts, most_slices);
  const auto steps = static_cast<double>(facts.steps);
  double waiting = facts.loading_us, kernels = 0, collectives = 0;
  for (const auto& wait : facts.waits) waiting += wait.wait_us;
  for (const KernelFact& kernel : facts.kernels) {
    kernels += kernel.time_us;
    if (kernel.kind == DeviceKind::kCollective) collectives += kernel.time_us;
  }
  const double active = facts.active_us() / steps;
  return {{"name", run.name},
          {"gpu", run.gpu ? run.gpu->title : ""},
          {"recorded", facts.is_recorded},
          {"steps", facts.steps},
          {"step_us", run.step_us},
          {"span_us", facts.span_us},
          {"begins_us", facts.step_begins_us},
          {"active_us", short_float(active)},
          {"wait_us", short_float(waiting / steps)},
          {"kernel_sum_us", short_float(kernels / steps)},
          {"collective_us", short_float(collectives / steps)},
          {"facts", headline_facts(run, active, waiting / steps)},
          {"limit", limit_sentence(run)},
          {"warnings", run.found ? run.found->warnings : std::vector<std::string>()},
          {"ops", ops_data(facts, shown, names)},
          {"kernels", kernels_data(facts, shown, names)},
          {"left_out",
           facts.ops.size() + facts.kernels.size() - shown.ops.size() - shown.kernels.size()},
          {"path", path_data(run, shown)},
          {"findings", findings_data(run.found)},
          {"totals", {{"ops", op_totals(facts)}, {"kernels", kernel_totals(facts)}}},
          {"memory", memory_data(run)},
          {"peaks", peaks_of(run.gpu)},
          {"dram_bytes_per_s", run.gpu ? Json(run.gpu->dram_bandwidth.value) : Json()}};
}

}  // namespace perfmodel::report_page
