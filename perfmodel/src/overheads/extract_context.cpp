#include <fmt/format.h>

#include <algorithm>

#include "base/stop_point.hpp"
#include "extract_overheads.hpp"
#include "host_chain.hpp"
#include "host_kind.hpp"
#include "loader_pause.hpp"
#include "microseconds.hpp"
#include "template_learner.hpp"
#include "term_samples.hpp"

namespace perfmodel {
namespace {

std::vector<double> lower_quarter(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  samples.resize((samples.size() + 3) / 4);
  return samples;
}

// Latencies of launches and gaps between tasks of a device, as recorded.
class DeviceSamples {
 public:
  // Latencies from work that found its stream idle, gaps from work that was queued.
  void add(const Trace& trace, const std::vector<CallWait>& waits) {
    constexpr double kQueuedUs = 5;
    std::int64_t free_at = 0;
    const GpuEvent* previous = nullptr;
    for (const GpuEvent& task : trace.gpu) {
      const bool same =
          previous && previous->device == task.device && previous->stream == task.stream;
      if (!same) free_at = 0;
      const std::int64_t stream_free = free_at;
      free_at = std::max(free_at, task.end_ns());
      previous = &task;
      if (task.launch < 0) continue;
      const HostEvent& call = trace.host[task.launch];
      const bool blocking = waits[task.launch].kind == CallWait::Kind::kBlockingCopy;
      const double after_call = us(task.start_ns - call.end_ns());
      const bool idle = !same || stream_free < call.start_ns;
      if (blocking) {
        const bool read = trace.name(task).find("DtoH") != std::string_view::npos;
        if (idle) {
          (read ? blocking_read_latency_ : blocking_write_latency_)
              .push_back(us(task.start_ns - call.start_ns));
        }
      } else if (idle) {
        // Late starts on an idle stream wait for something else (an event, another rank's arrival).
        if (after_call > 20) continue;
        if (task.kind != GpuKind::kKernel) {
          copy_latency_.push_back(after_call);
        } else if (is_collective_kernel(trace.name(task))) {
          collective_latency_.push_back(after_call);
        } else {
          launch_latency_.push_back(after_call);
        }
      } else if (us(stream_free - call.end_ns()) > kQueuedUs && task.kind == GpuKind::kKernel) {
        const double gap = us(task.start_ns - stream_free);
        if (gap >= 0 && gap < 5) kernel_gap_.push_back(gap);
      }
    }
  }

  void give(DeviceConstants& constants) const {
    const auto set = [](double& constant, const std::vector<double>& samples) {
      // Not before its call, which clocks that disagree may say.
      if (!samples.empty()) constant = std::max(0.0, mean_of(samples));
    };
    set(constants.launch_latency_us, launch_latency_);
    set(constants.collective_latency_us,
        collective_latency_.empty() ? launch_latency_ : collective_latency_);
    set(constants.copy_latency_us, copy_latency_);
    // The least delayed calls show the latency; the others waited for work on another stream.
    set(constants.blocking_read_latency_us, lower_quarter(blocking_read_latency_));
    set(constants.blocking_write_latency_us, lower_quarter(blocking_write_latency_));
    set(constants.kernel_gap_us, kernel_gap_);
  }

 private:
  std::vector<double> launch_latency_, collective_latency_, copy_latency_, blocking_read_latency_,
      blocking_write_latency_, kernel_gap_;
};

// `observed`: an execution trace observer recorded too.
Collector collector_of(const Trace& trace, bool observed) {
  if (!trace.has_pytorch_ops) return Collector::kUnknown;
  if (observed) return Collector::kProfilerAndObserver;
  if (trace.has_python_frames) return Collector::kProfilerWithStacks;
  return trace.arguments.empty() ? Collector::kProfilerWithoutShapes : Collector::kProfiler;
}

/// When ops begin and data loaders pause, on all threads.
class HostMoments {
 public:
  HostMoments() = default;
  explicit HostMoments(const Trace& trace) {
    for (const HostEvent& event : trace.host) {
      if (event.kind == HostKind::kOp) op_starts_ns_.push_back(event.start_ns);
      if (!trace.name(event).starts_with("enumerate(DataLoader)")) continue;
      loaders_.push_back(&event);
      longest_loader_ns_ = std::max(longest_loader_ns_, event.duration_ns);
    }
    std::ranges::sort(op_starts_ns_);
    std::ranges::stable_sort(loaders_, {}, &HostEvent::start_ns);
  }

  bool no_op_between(std::int64_t from, std::int64_t to) const {
    const auto next = std::ranges::upper_bound(op_starts_ns_, from);
    return next == op_starts_ns_.end() || *next >= to;
  }

  double loader_us(std::int64_t from, std::int64_t to) const {
    double sum = 0;
    auto at =
        std::ranges::lower_bound(loaders_, from - longest_loader_ns_, {}, &HostEvent::start_ns);
    for (; at != loaders_.end() && (*at)->start_ns < to; ++at) {
      sum += us(std::max<std::int64_t>(
          0, std::min(to, (*at)->end_ns()) - std::max(from, (*at)->start_ns)));
    }
    return sum;
  }

 private:
  std::vector<std::int64_t> op_starts_ns_;
  std::vector<const HostEvent*> loaders_;  // in the order of their starts
  std::int64_t longest_loader_ns_ = 0;
};

class ContextExtractor {
 public:
  ContextExtractor(const OverheadOptions& options, OverheadTable table)
      : options_(options), table_(std::move(table)) {}

  Result<void> add(const OverheadSource& source) {
    GraphLink linked;
    PERFMODEL_TRY(chains, host_chains(source, options_.iterations, &linked));
    judge(source, *chains);
    trace_ = source.trace;
    graph_ = source.graph;
    waits_ = find_call_waits(*trace_);
    work_ = work_of_calls(*trace_);
    streams_ = stream_roles(*trace_);
    moments_ = HostMoments(*trace_);
    table_.iterations += chains->size();
    now_ = {};
    for (std::size_t i = 0; i < chains->size(); ++i) {
      const HostChain& chain = (*chains)[i];
      for (const ChainOp& op : chain.ops) add_op(op);
      add_gaps(chain, i + 1 < chains->size() ? &(*chains)[i + 1] : nullptr, chains->front());
    }
    if (graph_) {
      learn_templates(*trace_, *graph_, linked, *chains, waits_, work_, streams_, learner_);
    } else {
      learn_templates(*trace_, find_trace_ops(*trace_), *chains, waits_, work_, streams_, learner_);
    }
    device_.add(*trace_, waits_);
    keep(iterations(*trace_).empty(), chains->size());
    return {};
  }

  OverheadTable finish() {
    table_.data_loading = stats_of(loader_pauses_);
    if (!loader_pauses_.empty()) {
      table_.warnings.push_back(
          fmt::format("{} pauses in the data loader (mean {:.1f} ms) are left out",
                      loader_pauses_.size(), mean_of(loader_pauses_) / 1e3));
    }
    samples_.give(table_, &TermSamples::term);
    for (const HostTerm& host : kHostTerms) {
      if (host.figures && !host.is_gap) add_kinds(table_.*host.figures);
    }
    table_.t1.by_name.erase(any_list_key());  // gaps have a class of their own for these
    for (const auto& [call, samples] : t4_) {
      if (const auto all = samples.term().all; all.count > 0) table_.t4[call] = all;
    }
    for (const auto& [key, op] : ops_.term().by_name) table_.ops[op.name] = op.stats;
    for (const auto& [key, sum] : splits_) {
      const double inside = std::max(sum.total, sum.tail + sum.head);
      table_.gap_splits[key] = {.tail = sum.tail / inside, .head = sum.head / inside};
    }
    table_.templates = learner_.finish();
    device_.give(table_.device);
    return std::move(table_);
  }

 private:
  // Warns of anything that makes a recording longer than a step, and leaves first steps out if
  // there are others.
  void judge(const OverheadSource& source, std::vector<HostChain>& chains) {
    const std::string file = std::filesystem::path(source.trace->source).filename().string();
    const auto unfit = [&](std::string why) {
      table_.warnings.push_back(file + ": " + why);
      table_.unfit_for_pools = std::move(why);
    };
    // PyTorch numbers its record functions only if an execution trace observer asks for it.
    const bool observed = std::ranges::any_of(source.trace->host, [](const HostEvent& event) {
      return event.kind == HostKind::kOp && event.record_function_id != 0;
    });
    if (observed) {
      unfit(
          "the profiler and an execution trace observer recorded at once, which makes host times "
          "several times longer");
    }
    table_.python_recorded |= source.trace->has_python_frames;
    const Collector collector = collector_of(*source.trace, observed);
    if (source_ == 0 || collector == Collector::kUnknown ||
        (table_.collector != Collector::kUnknown && collector > table_.collector)) {
      table_.collector = collector;  // the one that lengthens most
    }
    const auto first = [&](const HostChain& chain) { return makes_optimizer_state(chain, source); };
    const auto firsts = static_cast<std::size_t>(std::ranges::count_if(chains, first));
    if (firsts == chains.size()) {
      unfit("the optimizer makes its state in the recorded step, as in a first step only");
    } else if (firsts > 0) {
      table_.warnings.push_back(
          fmt::format("{}: {} of {} steps left out: the optimizer makes its state in it", file,
                      firsts, chains.size()));
      std::erase_if(chains, first);
    }
  }

  const HostEvent& host(std::int32_t event) const { return trace_->host[event]; }

  // Joins the samples of the current trace to the others, without its one-time costs.
  void keep(bool single_pass, std::size_t steps) {
    std::size_t dropped = now_.terms.drop_first_uses(single_pass);
    now_.ops.drop_first_uses(single_pass || steps == 1);  // counted in place
    samples_.append(now_.terms);
    ops_.append(now_.ops);
    for (auto& [call, samples] : now_.t4) {
      TermSamples calls;
      for (double sample : samples) calls.add(sample, call);
      dropped += calls.drop_first_uses(single_pass);
      t4_[call].append(calls);
    }
    if (dropped > 0) {
      table_.warnings.push_back(fmt::format(
          "{}: {} left out", source_ < table_.sources.size() ? table_.sources[source_] : "",
          dropped == 1 ? "1 one-time cost over 1 ms is"
                       : fmt::format("{} one-time costs over 1 ms are", dropped)));
    }
    ++source_;
  }

  // Own time of a call: without the part that it spent waiting.
  double own_us(std::int32_t call) const {
    return us(host(call).duration_ns - waits_[call].wait_ns);
  }

  void add_op(const ChainOp& op) {
    const HostEvent& event = host(op.event);
    const std::string_view name = trace_->name(event);
    if (op.calls.empty()) {
      const double whole = us(event.duration_ns);
      now_.terms[Term::kTx].add(whole, name, {op.subtree}, op.tensors);
      now_.ops.add(whole, name);
      return;
    }
    double total = 0;
    const auto gap = [&](std::int64_t from, std::int64_t to) {
      const double length = std::max(0.0, us(to - from));
      total += length;
      return length;
    };
    now_.terms[Term::kT2].add(gap(event.start_ns, host(op.calls.front().event).start_ns), name,
                              {op.subtree}, op.tensors);
    for (std::size_t i = 0; i < op.calls.size(); ++i) {
      const std::int32_t call = op.calls[i].event;
      const double own = own_us(call);
      total += own;
      const TemplateCall described = describe_call(*trace_, call, waits_, work_, streams_);
      now_.t4[call_key(described)].push_back(own);
      if (described.kind == TemplateCall::Kind::kSync) {
        const bool waited = waits_[call].wait_ns > 0;
        now_.t4[described.call + (waited ? " wake" : " idle")].push_back(own);
      }
      if (i + 1 == op.calls.size()) break;
      now_.terms[Term::kT5].add(gap(host(call).end_ns(), host(op.calls[i + 1].event).start_ns),
                                name, {hash_mix(op.subtree, i + 1), op.subtree}, op.tensors);
    }
    const double rest = gap(host(op.calls.back().event).end_ns(), event.end_ns());
    now_.terms[Term::kT3].add(rest, name, {op.subtree}, op.tensors);
    now_.ops.add(total, name);
  }

  // Between two ops, loose synchronises are waits as well, and loose launches are calls of labels.
  double loose_calls_us(const HostChain& chain, std::int64_t from, std::int64_t to) const {
    double sum = 0;
    for (const ChainCall& call : chain.loose_calls) {
      const HostEvent& event = host(call.event);
      if (event.start_ns >= from && event.end_ns() <= to) {
        const bool of_label = event.launches && call.node >= 0;
        sum += us(of_label ? event.duration_ns : waits_[call.event].wait_ns);
      }
    }
    return sum;
  }

  // `gradients`: ops of the backward pass in the step. Python's loops over parameters at its
  // border, and the engine's preparations before its thread begins, grow with them.
  void add_gap(double length, const ChainOp& previous, const ChainOp& next, GapClass gap,
               double gradients) {
    const bool border = gap == GapClass::kIteration;  // whatever the step before ended with
    const bool grows = border || gap == GapClass::kThread;
    const std::uint64_t context = gap_context(next.label, border ? 0 : previous.name, next.name);
    add_split(length, previous, next, gap, context);
    now_.terms[Term::kT1].add(std::max(0.0, length), to_string(gap), {context},
                              gap == GapClass::kList ? next.tensors
                              : grows                ? gradients
                                                     : 0);
  }

  // Takes the data loader's pauses out of a gap; they are reported apart.
  double without_loader(double length, std::int64_t from, std::int64_t to) {
    double pause = moments_.loader_us(from, to);
    if (pause < kLoaderPauseUs) return length;
    pause = std::min(pause, length);
    loader_pauses_.push_back(pause);
    return length - pause;
  }

  // For a gap that crosses from one phase to another: its length in either.
  void add_split(double length, const ChainOp& previous, const ChainOp& next, GapClass gap,
                 std::uint64_t context) {
    if (previous.phase_event == next.phase_event || length <= 0) return;
    double tail = 0, head = 0;
    if (previous.phase_event >= 0) {
      tail = us(host(previous.phase_event).end_ns() - host(previous.event).end_ns());
    }
    if (next.phase_event >= 0) {
      head = us(host(next.event).start_ns - host(next.phase_event).start_ns);
    }
    for (std::uint64_t key : {context, gap_class_key(gap)}) {
      SplitSum& sum = splits_[key];
      sum.total += length;
      sum.tail += std::clamp(tail, 0.0, length);
      sum.head += std::clamp(head, 0.0, length);
    }
  }

  // Two threads now and then work at once: a gap begins when all ops so far have ended.
  void add_gaps(const HostChain& chain, const HostChain* following, const HostChain& first_chain) {
    std::int64_t from = chain.begin_ns;
    const auto gradients = static_cast<double>(std::ranges::count_if(
        chain.ops, [&](const ChainOp& op) { return runs_gradient(trace_->name(host(op.event))); }));
    for (std::size_t i = 0; i + 1 < chain.ops.size(); ++i) {
      const ChainOp& previous = chain.ops[i];
      const ChainOp& next = chain.ops[i + 1];
      from = std::max(from, host(previous.event).end_ns());
      const std::int64_t to = std::max(from, host(next.event).start_ns);
      const GapClass gap = next.walks_list ? GapClass::kList
                           : host(previous.event).thread != host(next.event).thread
                               ? GapClass::kThread
                           : previous.label_item != next.label_item ? GapClass::kLabel
                                                                    : GapClass::kSibling;
      add_gap(without_loader(us(to - from) - loose_calls_us(chain, from, to), from, to), previous,
              next, gap, gradients);
    }
    // The step's border: measured to the next chain if that follows at once, else to the marks.
    const ChainOp& last = chain.ops.back();
    const bool follows = following && !chain.ends_window && following->begin_ns > chain.end_ns &&
                         moments_.no_op_between(chain.end_ns, following->begin_ns);
    if (follows) {
      from = host(last.event).end_ns();
      const std::int64_t to = host(following->ops.front().event).start_ns;
      const double calls = loose_calls_us(chain, from, to) + loose_calls_us(*following, from, to);
      add_gap(without_loader(us(to - from) - calls, from, to), last, following->ops.front(),
              GapClass::kIteration, gradients);
    } else if (chain.border_gap_ns) {
      // In the long run the first recorded step follows the last one.
      const HostChain& next = !following ? first_chain : chain.ends_window ? *following : chain;
      add_gap(us(*chain.border_gap_ns), last, next.ops.front(), GapClass::kIteration, gradients);
    }
  }

  struct SplitSum {
    double total = 0, tail = 0, head = 0;
  };

  const OverheadOptions& options_;
  OverheadTable table_;
  const Trace* trace_ = nullptr;
  const ExecutionGraph* graph_ = nullptr;
  std::vector<CallWait> waits_;
  CallWork work_;
  StreamRoles streams_;
  struct Samples {
    HostSamples terms;
    TermSamples ops;
    std::map<std::string, std::vector<double>> t4;
  };
  Samples now_;  // samples of the current trace
  std::size_t source_ = 0;
  HostSamples samples_;
  TermSamples ops_;
  std::map<std::string, TermSamples> t4_;
  std::unordered_map<std::uint64_t, SplitSum> splits_;
  std::vector<double> loader_pauses_;
  HostMoments moments_;
  DeviceSamples device_;
  TemplateLearner learner_;
};

}  // namespace

Result<OverheadTable> extract_context(std::span<const OverheadSource> sources,
                                      const OverheadOptions& options, OverheadTable table) {
  ContextExtractor extractor(options, std::move(table));
  for (const OverheadSource& source : sources) {
    stop_point();
    PERFMODEL_TRY_TO(extractor.add(source));
  }
  return extractor.finish();
}

}  // namespace perfmodel
