#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "cli/shared/critical_path_text.hpp"
#include "cli/shared/prediction_parts.hpp"
#include "explain/op_title.hpp"
#include "predict/prediction_results.hpp"
#include "prediction_report.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

class Renderer {
 public:
  Renderer(const PredictionReport& report, std::size_t top, bool bold)
      : report_(report),
        rank_(report.ranks[report.slowest()]),
        p_(rank_.prediction),
        steps_(static_cast<double>(std::max<std::size_t>(p_.iterations.size(), 1))),
        top_(top),
        bold_(bold),
        time_(p_.e2e_us) {}

  std::string run() {
    head();
    ranks();
    iterations();
    totals();
    communication();
    host_terms();
    kernels();
    phases();
    critical_path();
    ops();
    coverage();
    warnings();
    return std::move(text_);
  }

 private:
  void add(const TextTable& table) {
    text_ += '\n';
    text_ += table.text(bold_);
  }

  std::string heading(std::string_view words) const {
    return fmt::format("\n  {}{}{}\n", bold_ ? "\033[1m" : "", words, bold_ ? "\033[0m" : "");
  }

  void head() {
    const bool several = report_.ranks.size() > 1;
    text_ += heading(
        fmt::format("{} per batch{}", time_.with_name(p_.e2e_us),
                    several ? ", the slowest of " + counted(report_.ranks.size(), "rank") : ""));
    text_ += "\n";
    TextList list;
    list.row("graph", graph_title(rank_));
    for (std::size_t i = 0; several && i < report_.ranks.size(); ++i) {
      list.row(rank_title(report_, i), graph_title(report_.ranks[i]));
    }
    list.fact("rewritten by", fmt::format("{}", fmt::join(report_.rewrites, " ")));
    list.row("GPU", fmt::format("{} ({})", report_.gpu.title, report_.gpu.name));
    list.row("host", host());
    if (rank_.recorded_us) {
      list.row("recorded", time_.with_name(*rank_.recorded_us) + " per batch, under the profiler");
    }
    if (report_.drawn) list.row("stragglers", drawn_text(report_));
    if (p_.e2e_high_us > p_.e2e_low_us) {
      const auto& hosts = p_.coverage.own_pace ? kSameHosts : kOtherHosts;
      list.row("range", fmt::format("{} to {} {} in nine of ten cases, hosts of {} to {} times the "
                                    "host time included",
                                    time_(p_.e2e_low_us), time_(p_.e2e_high_us), time_.name(),
                                    hosts.front(), hosts.back()));
    }
    if (!p_.host_sensitivity.empty()) list.row("other hosts", other_hosts());
    const std::string power = power_text(p_, report_.gpu);
    if (!power.empty()) list.row("power", power);
    std::string kernels = report_.models + " models";
    if (!rank_.kernel_times_file.empty()) {
      kernels = fmt::format("{} as traced in {}; else {}",
                            report_.use == KernelTimes::Use::kComm ? "collectives" : "all",
                            rank_.kernel_times_file, kernels);
    }
    list.row("kernels", kernels);
    if (p_.scaled_out) {
      const ScaledOut& s = *p_.scaled_out;
      list.row("ranks", fmt::format("{} on {}, {}: {}{}", s.world,
                                    counted(static_cast<std::size_t>(s.nodes), "node"),
                                    to_string(s.strategy), counted(s.collectives, "collective"),
                                    s.own_collectives ? " of the graph, priced for so many ranks"
                                                      : fmt::format(" for {:.1f} MB of parameters",
                                                                    s.parameter_bytes / 1e6)));
    }
    if (p_.memory.needed_bytes() > 0) {
      list.row("memory", memory_text(p_.memory) + (p_.memory.fits() ? "" : "; it does not fit"));
    }
    if (const auto rate = p_.samples_per_s()) list.row("throughput", throughput(*rate));
    each_titled_figure(p_, [&](auto title, auto text) { list.fact(title, text); });
    text_ += list.text();
  }

  // Names the assumed host, and the effect of another one.
  std::string host() const {
    std::string text;
    if (rank_.overheads_programs.empty()) {
      text = fmt::format("{}: method {}, {}from {}", rank_.overheads_file,
                         to_string(rank_.overheads_method),
                         rank_.overheads_gpu.empty() ? "" : rank_.overheads_gpu + ", ",
                         joined(rank_.overheads_sources, 3));
    } else {
      std::vector<std::string> names;
      for (const OverheadProgram& program : rank_.overheads_programs) {
        if (program.left_out.empty()) names.push_back(program.name);
      }
      text = fmt::format("{}, learned from {}", rank_.overheads_file, joined(names, 6));
    }
    if (rank_.overheads_file == rank_.graph_file && rank_.without_collector) {
      text += "; without its profiler";
    }
    if (p_.coverage.own_launches) text += "; launches as this program made them there";
    if (rank_.host_scale != 1) text += fmt::format("; {} × as slow", rank_.host_scale);
    return text;
  }

  std::string other_hosts() const {
    std::vector<std::string> steps;
    for (const Prediction::OnHost& host : p_.host_sensitivity) {
      steps.push_back(
          fmt::format("{} on one {} × as slow", time_.with_name(host.e2e_us), host.scale));
    }
    return fmt::format("{}", fmt::join(steps, ", "));
  }

  // "12,345 samples/s: 1,543 on each of 8 GPUs, batch 2,048".
  std::string throughput(double rate) const {
    const std::string batch = "batch " + grouped(*p_.batch);
    if (p_.ranks == 1) return fmt::format("{} samples/s, {}", rate_text(rate), batch);
    return fmt::format("{} samples/s: {} on each of {} GPUs, {} each", rate_text(rate),
                       rate_text(*p_.samples_per_s_per_gpu()), p_.ranks, batch);
  }

  void ranks() {
    if (report_.ranks.size() < 2) return;
    TextTable table{"Ranks, " + time_.name(),
                    "per batch",
                    "GPU active",
                    "host busy",
                    "waiting",
                    "transfer",
                    "for others",
                    "exposed",
                    "came last"};
    for (std::size_t i = 0; i < report_.ranks.size(); ++i) {
      const Prediction& p = report_.ranks[i].prediction;
      const RankReport& c = p.communication;
      table.row({rank_title(report_, i), time_(p.e2e_us), time_(p.gpu_active_us), time_(p.cpu_us),
                 time_(p.wait_us), time_(c.transfer_us), time_(c.waiting_us), time_(c.exposed_us),
                 fmt::format("{} of {}", c.last_arrivals, c.collectives)});
    }
    table.row({"mean", time_(report_.mean_e2e_us())});
    add(table);
    if (report_.job) job(*report_.job);
    text_ += "\n  The slowest rank in detail:\n";
  }

  void job(const JobReport& job) {
    TextList list;
    list.row("imbalance", percent(job.imbalance) + " (slowest rank's own time over the mean)");
    if (job.straggler >= 0) {
      list.row("straggler",
               fmt::format("rank {} ({}): not to wait for it would save {} per step on average",
                           job.straggler, report_.ranks[job.straggler].graph_file,
                           time_.with_name(job.straggler_saving_us)));
    }
    text_ += "\n" + list.text();
  }

  void iterations() {
    if (p_.iterations.size() < 2) return;
    TextTable table{"Iterations", time_.name(), "GPU active"};
    for (std::size_t i = 0; i < std::min(top_, p_.iterations.size()); ++i) {
      const auto& iteration = p_.iterations[i];
      table.row({iteration.name, time_(iteration.e2e_us), time_(iteration.gpu_active_us)});
    }
    if (p_.iterations.size() > top_) {
      table.row({fmt::format("({} more)", p_.iterations.size() - top_)});
    }
    add(table);
    text_ += "\n  All that follows is per iteration, the mean.\n";
  }

  void totals() {
    TextTable table{"Time", time_.name(), "share"};
    for (const auto& [name, us] : {std::pair<const char*, double>{"GPU active", p_.gpu_active_us},
                                   {"GPU idle", p_.gpu_idle_us},
                                   {"host busy", p_.cpu_us},
                                   {"host waiting for the GPU", p_.wait_us}}) {
      table.row({name, time_(us), percent_of(us, p_.e2e_us)});
    }
    add(table);
  }

  void communication() {
    const RankReport& c = p_.communication;
    if (c.collectives == 0 || report_.job) return;
    TextTable table{"Communication", time_.name(), "share"};
    table.row({"collectives", time_(c.transfer_us), percent_of(c.transfer_us, p_.e2e_us)});
    table.row({"of it beside no other GPU work", time_(c.exposed_us),
               percent_of(c.exposed_us, p_.e2e_us)});
    add(table);
  }

  void host_terms() {
    TextTable table{"Host busy", time_.name(), "share"};
    for (const HostTerm& host : kHostTerms) {
      const double us = p_.terms_us[static_cast<std::size_t>(host.term)];
      table.row(
          {fmt::format("{}  {}", host.name, host.meaning), time_(us), percent_of(us, p_.cpu_us)});
    }
    add(table);
  }

  void kernels() {
    const auto families = totals_by_family(p_);
    if (families.empty()) {  // method lin
      TextTable table{"GPU work", time_.name(), "share"};
      for (const auto& [name, us] :
           {std::pair<const char*, double>{"compute", p_.compute_kernel_us},
            {"communication", p_.comm_kernel_us}}) {
        table.row({name, time_(us), percent_of(us, p_.kernel_sum_us)});
      }
      add(table);
      return;
    }
    TextTable table{"GPU work", "count", time_.name(), "share", "low", "high", "<bound", "<model"};
    FamilyTotal sum;
    for (const FamilyTotal& family : families) {
      sum.count += family.count;
      table.row(family_cells(family, time_, p_.kernel_sum_us));
    }
    const double waiting = p_.communication.waiting_us;
    if (waiting > 0) {
      table.row({"waiting for ranks", "", time_(waiting), percent_of(waiting, p_.kernel_sum_us)});
    }
    const auto [low_us, high_us] = range_of_kernels(p_);
    table.row({"sum", count_text(sum.count), time_(p_.kernel_sum_us), "", time_(low_us + waiting),
               time_(high_us + waiting)});
    add(table);
  }

  void phases() {
    const double whole = p_.cpu_us + p_.wait_us;
    TextTable table{"Phases of the host", time_.name(), "share", "of it waiting"};
    for (const auto& phase : p_.phases) {
      const double us = phase.host_us + phase.wait_us;
      if (us > 0) {
        table.row({phase.label, time_(us), percent_of(us, whole),
                   phase.wait_us > 0 ? time_(phase.wait_us) : "-"});
      }
    }
    if (!table.empty()) add(table);
  }

  void critical_path() {
    if (p_.critical_path.steps.empty() || top_ == 0) return;
    text_ += critical_path_text(p_.critical_path, "step", top_, bold_);
  }

  void ops() {
    const auto totals = totals_by_op(p_);
    if (totals.empty() || top_ == 0) return;
    TextTable table{"Ops, by name", "count", "host " + time_.name(), "waiting", "GPU"};
    const auto row = [&](const std::string& name, const OpTotal& op, std::string device) {
      table.row({name, count_text(op.count), time_(op.host_us),
                 op.wait_us > 0 ? time_(op.wait_us) : "-", std::move(device)});
    };
    const std::size_t shown = std::min(top_, totals.size());
    for (const OpTotal& op : std::span(totals).first(shown)) {
      row(op_title(op.name), op, op.device_us > 0 ? time_(op.device_us) : "-");
    }
    if (totals.size() > top_) {
      const OpTotal others = sum_of(std::span(totals).subspan(top_));
      row(fmt::format("({} more names)", totals.size() - top_), others, time_(others.device_us));
    }
    add(table);
  }

  void coverage() {
    if (p_.ops.empty()) return;  // method lin keeps no account
    const Prediction::Coverage& c = p_.coverage;
    text_ += heading("Coverage");
    TextList list;
    list.row("modelled time", percent(c.modelled_time_fraction));
    const auto unmodelled = unmodelled_ops(c);
    if (const std::string basis = basis_of_prices(c); !basis.empty()) {
      list.row("prices rest on", basis);
    }
    list.row("without a kernel model", unmodelled.empty() ? "none" : joined(unmodelled, top_));
    std::size_t templated = 0;
    for (std::size_t nodes : c.nodes_by_template_level) templated += nodes;
    list.row(
        "launches known from",
        fmt::format("traces for {}, rules for {}; they disagree on {}", counted(templated, "node"),
                    counted(c.nodes_by_rule, "node"), counted(c.disagreements, "node")));
    const auto [unknown, unknown_us] = unknown_work();
    list.row("kernels of unknown work",
             grouped(unknown) + ", " + time_.with_name(unknown_us / steps_));
    double host = 0;
    for (double us : c.host_us_by_key_level) host += us;
    const auto share = [&](KeyLevel level) {
      return percent_of(c.host_us_by_key_level[static_cast<std::size_t>(level)], host);
    };
    list.row("host time found by",
             fmt::format("context {}, name {}, kind {}, overall mean {}", share(KeyLevel::kContext),
                         share(KeyLevel::kName), share(KeyLevel::kKind), share(KeyLevel::kAll)));
    text_ += list.text();
  }

  // Kernels that only a launch template knows, without those whose time was measured.
  std::pair<std::size_t, double> unknown_work() const {
    std::pair<std::size_t, double> sum{0, 0};
    for (const PredictedOp& op : p_.ops) {
      for (const PredictedKernel& kernel : op.kernels) {
        if (!kernel.inferred || kernel.price.bound == Bound::kMeasured) continue;
        ++sum.first;
        sum.second += kernel.price.time.count();
      }
    }
    return sum;
  }

  void warnings() {
    text_ += heading(report_.warnings.empty() ? "No warnings" : "Warnings");
    for (const std::string& warning : report_.warnings) text_ += wrapped(warning, "  - ", 4);
  }

  const PredictionReport& report_;
  const RankPrediction& rank_;
  const Prediction& p_;
  double steps_;
  std::size_t top_;
  bool bold_;
  TimeUnit time_;
  std::string text_;
};

}  // namespace

std::string graph_title(const RankPrediction& rank) {
  return rank.graph_file + (rank.graph.built ? " (built)" : "");
}

std::string rank_title(const PredictionReport& report, std::size_t rank) {
  const auto& mixed = report.ranks[rank].mixed;
  if (!mixed) return fmt::format("rank {}", rank);
  std::string text = fmt::format("{} x {}", mixed->count, mixed->gpu);
  if (mixed->slowdown != 1) text += fmt::format(", {} times as slow", mixed->slowdown);
  if (report.ranks[rank].host_scale != 1) {
    text += fmt::format(", host {}", report.ranks[rank].host_scale);
  }
  if (mixed->link_gb_per_s > 0) text += fmt::format(", {} GB/s", mixed->link_gb_per_s);
  return text;
}

std::string drawn_text(const PredictionReport& report) {
  if (!report.drawn) return "";
  const sync::DrawnSteps& drawn = *report.drawn;
  return fmt::format("mean {:.1f} us, median {:.1f}, 95 % of {} draws within {:.1f}, most {:.1f}",
                     drawn.mean_us, drawn.median_us, drawn.draws, drawn.p95_us, drawn.most_us);
}

std::string basis_of_prices(const Prediction::Coverage& coverage) {
  const auto& by_level = coverage.kernel_us_by_knowledge;
  double sum = 0;
  for (double us : by_level) sum += us;
  if (!(sum > 0)) return "";
  constexpr const char* kBases[kKnowledgeLevels] = {"data sheet alone", "its architecture",
                                                    "its chip", "this GPU"};
  std::vector<std::string> parts;
  for (std::size_t i = by_level.size(); i-- > 0;) {
    if (by_level[i] > 0)
      parts.push_back(fmt::format("{} {}", kBases[i], percent_of(by_level[i], sum)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string full_prediction_text(const PredictionReport& report, std::size_t top, bool bold) {
  return Renderer(report, top, bold).run();
}

}  // namespace perfmodel::cli
