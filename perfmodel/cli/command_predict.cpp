#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "anonymize_option.hpp"
#include "arguments.hpp"
#include "command.hpp"
#include "kernel_models_option.hpp"
#include "measured_step_option.hpp"
#include "overheads/own_host.hpp"
#include "overheads_option.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/detail/timeline.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "predict_mixed.hpp"
#include "prediction_report.hpp"
#include "read_files.hpp"
#include "rewrite_flags.hpp"
#include "terminal/cli11.hpp"
#include "trace/moved_kernel_times.hpp"
#include "trace_output.hpp"

namespace perfmodel::cli {
namespace {

struct PredictArguments {
  std::vector<std::string> graphs, overheads, kernel_times, against;
  std::string gpu, use = "all", models = "learned", timeline;
  std::int64_t world = 0;
  std::vector<double> rank_start;
  std::string topology, strategy, chakra;
  std::shared_ptr<Anonymizer> anonymizer;
  double interference = 1, host_scale = 1;
  std::optional<double> bucket_mb, unit_mb;
  Window iterations, kernel_iterations, against_iterations;
  ReadOptions reading;
  bool json = false, missing_collectives = false;
  bool full = false, burst = false, cuda_graphs = false, compiled = false, as_recorded = false;
  std::optional<std::size_t> top;
  MixedArguments mixed;
  TimedStep measured;
};

constexpr std::size_t kWhatIfSteps = 10, kRowsOfFull = 10, kRowsOfAgainst = 8;
constexpr double kMostRanks = 1 << 20, kMostInterference = 1000;
constexpr double kLatestStartUs = 1e16;  // epoch stamps are 1.7e15

constexpr const char* kIterationsRule =
    "--iterations and --kernel-iterations count from 0; B is not included. Without "
    "--kernel-times,\n"
    "--iterations picks iterations of the graph. With --kernel-times it picks iterations of the\n"
    "trace, as --kernel-iterations does; give both to pick from the graph and from the trace.\n"
    "Files come first: a flag in front of them takes one value only.";

Launching launching_of(const PredictArguments& arguments) {
  if (arguments.cuda_graphs) return Launching::kCudaGraphs;
  return arguments.compiled ? Launching::kCompiled : Launching::kEager;
}

class Run {
 public:
  explicit Run(const PredictArguments& arguments) : arguments_(arguments) {}

  Result<PredictionReport> run() {
    auto data = find_data_folder();
    if (!data) return Unexpected{data.error()};
    auto gpu = find_gpu(arguments_.gpu, *data / "gpus");
    if (!gpu) return Unexpected{gpu.error()};
    report_.gpu = std::move(*gpu);
    for (std::string& sentence : stand_ins(report_.gpu)) warn(std::move(sentence));
    report_.models = arguments_.models;
    report_.use = arguments_.use == "comm" ? KernelTimes::Use::kComm : KernelTimes::Use::kAll;
    if (auto found = find_topology(); !found) return Unexpected{found.error()};
    auto inputs = read_inputs();
    if (!inputs) return Unexpected{inputs.error()};
    if (auto read = read_tables(*data, *inputs); !read) return Unexpected{read.error()};
    if (auto read = read_ranks(*inputs); !read) return Unexpected{read.error()};
    if (auto matched = match(*inputs); !matched) return Unexpected{matched.error()};
    if (auto done = predict_ranks(); !done) return Unexpected{done.error()};
    for (RankPrediction& rank : report_.ranks) {
      if (const auto batch = samples_per_step(rank.graph)) rank.prediction.batch = *batch;
    }
    if (auto readable = chosen_.check(); !readable) return Unexpected{readable.error()};
    if (auto compared = compare_with_traces(); !compared) return Unexpected{compared.error()};
    count_work(report_.slowest());
    if (chosen_.owner) report_.model_files = chosen_.owner->files_read();
    collect_warnings();
    return std::move(report_);
  }

 private:
  Result<std::vector<RecordedProgram>> read_inputs() {
    if (auto once = all_different(arguments_.graphs); !once) return Unexpected{once.error()};
    return read_programs(arguments_.graphs, arguments_.reading, arguments_.anonymizer.get());
  }

  // A trace brings its own host; a graph runs on the reference one.
  Result<void> read_tables(const std::filesystem::path& data,
                           const std::vector<RecordedProgram>& inputs) {
    std::vector<std::string> files = arguments_.overheads;
    OverheadTables tables(data);
    if (files.empty() && inputs.front().trace) return own_tables(inputs, tables);
    if (files.empty()) files.emplace_back();
    for (const std::string& file : files) {
      auto chosen = tables.choose(file, report_.gpu);
      if (!chosen) return Unexpected{chosen.error()};
      if (!chosen->warning.empty()) warn(chosen->warning);
      if (is_recorded() && chosen->table->without_collector) {
        chosen->table = std::make_shared<const OverheadTable>(as_recorded(*chosen->table));
      }
      tables_.push_back(std::move(*chosen));
    }
    return {};
  }

  // What is compared with a trace has the trace's profiler.
  bool is_recorded() const { return arguments_.as_recorded || !arguments_.against.empty(); }

  Result<void> own_tables(const std::vector<RecordedProgram>& inputs, OverheadTables& tables) {
    for (const RecordedProgram& input : inputs) {
      auto own = tables.own(*input.trace, input.graph, is_recorded());
      if (!own) return Unexpected{own.error()};
      for (const std::string& warning : own->table->warnings) warn(warning);
      tables_.push_back(std::move(*own));
    }
    return {};
  }

  std::string shown_name(const std::string& file) const {
    return with_pseudonyms(file_name(file), arguments_.anonymizer);
  }

  // A trace is read once if all graphs share it.
  Result<const Trace*> trace(const std::string& file) {
    if (!trace_ || trace_file_ != file) {
      auto read = read_trace_file(file, arguments_.reading, arguments_.anonymizer.get());
      if (!read) return Unexpected{read.error()};
      for (const std::string& warning : read->warnings) warn(file_name(file) + ": " + warning);
      trace_ = std::move(*read);
      trace_file_ = file;
    }
    return &*trace_;
  }

  // Collectives are priced on the named topology, else on the one that the GPU usually sits in.
  Result<void> find_topology() {
    auto models = choose_kernel_models(arguments_.models);
    if (!models) return Unexpected{models.error()};
    chosen_ = std::move(*models);
    if (!chosen_.warning.empty()) {
      warn(chosen_.warning);
      report_.models = "heuristic";
    }
    models_ = chosen_.models;
    topology_ = topology_for(report_.gpu);
    if (!arguments_.topology.empty()) {
      auto found = TopologyCatalog::builtin().find(arguments_.topology);
      if (!found) return Unexpected{found.error()};
      topology_ = std::move(*found);
      if (auto good = check_fits(topology_, arguments_.world); !good) return good;
      if (std::ranges::find(topology_.gpus, report_.gpu.name) == topology_.gpus.end()) {
        warn("topology " + topology_.name + " is not built with " + report_.gpu.name +
             ": only its links are used");
      }
      for (std::string& sentence : stand_ins(topology_)) warn(std::move(sentence));
    } else if (arguments_.interference == 1) {
      return {};
    }
    collectives_ = make_collective_model(topology_, {.interference = arguments_.interference});
    models_.set(KernelFamily::kCollective, collectives_.get());
    return {};
  }

  Result<void> read_ranks(std::vector<RecordedProgram>& inputs) {
    const std::size_t count = arguments_.graphs.size();
    report_.ranks.reserve(count);
    kernel_times_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const ChosenOverheads& chosen = table_of(i);
      report_.ranks.push_back({.graph_file = shown_name(arguments_.graphs[i]),
                               .graph = std::move(inputs[i].graph),
                               .overheads_file = chosen.file,
                               .overheads_method = chosen.table->method,
                               .overheads_gpu = chosen.table->gpu,
                               .overheads_sources = chosen.table->sources,
                               .overheads_programs = chosen.table->programs,
                               .host_scale = arguments_.host_scale,
                               .without_collector = chosen.table->without_collector.has_value()});
      if (inputs[i].trace) {
        report_.ranks.back().recorded_us =
            recorded_step_us(*inputs[i].trace, arguments_.iterations);
      }
      if (auto read = read_kernel_times(i); !read) return read;
      if (auto read = own_kernel_times(i, inputs[i]); !read) return read;
    }
    return {};
  }

  const ChosenOverheads& table_of(std::size_t rank) const {
    return tables_[tables_.size() == 1 ? 0 : rank];
  }

  // See kIterationsRule.
  bool window_is_of_trace() const {
    return !arguments_.kernel_times.empty() && !arguments_.kernel_iterations;
  }

  Result<void> read_kernel_times(std::size_t index) {
    const auto& files = arguments_.kernel_times;
    if (files.empty()) return {};
    RankPrediction& rank = report_.ranks[index];
    const std::string& trace_file = files[files.size() == 1 ? 0 : index];
    auto found =
        read_times(rank.graph, trace_file,
                   window_is_of_trace() ? arguments_.iterations : arguments_.kernel_iterations);
    if (!found) return Unexpected{found.error()};
    kernel_times_[index] = std::move(*found);
    rank.kernel_times_file = file_name(trace_file);
    return {};
  }

  Result<void> own_kernel_times(std::size_t index, const RecordedProgram& input) {
    RankPrediction& rank = report_.ranks[index];
    if (!input.trace || kernel_times_[index]) return {};
    auto found = kernel_times_on(rank.graph, *input.trace, report_.gpu, arguments_.iterations);
    if (!found) return Unexpected{found.error()};
    kernel_times_[index] = std::move(found->times);
    // Nothing tells what a step's kernels take on their own GPU better than the step itself.
    const bool own_gpu = kernel_times_[index]->other_gpu.empty();
    own_use_ = own_gpu ? KernelTimes::Use::kAll : found->use;
    if (own_use_ == KernelTimes::Use::kAll) {
      rank.kernel_times_file = file_name(input.trace->source);
    }
    if (found->sentence) warn(*found->sentence);
    return {};
  }

  // One rank, and no other network in question: what it waited for the others stays.
  bool is_alone() const {
    return arguments_.graphs.size() == 1 && arguments_.topology.empty() &&
           arguments_.interference == 1;
  }

  PredictOptions options_of(std::size_t rank) const {
    PredictOptions options{
        .recorded_waits = is_alone(), .models = &models_, .world_size = arguments_.world};
    options.keep_calls = !arguments_.timeline.empty();
    if (!arguments_.strategy.empty()) {
      options.scale_out =
          ScaleOut{.world = arguments_.world,
                   .strategy = arguments_.strategy == "fsdp" ? ParallelStrategy::kFsdp
                                                             : ParallelStrategy::kDdp,
                   .topology = &topology_,
                   .interference = arguments_.interference};
      if (arguments_.bucket_mb) {  // as PyTorch does: a cap of the user's own holds for all buckets
        auto& ddp = options.scale_out->ddp;
        ddp.bucket_cap_bytes = ddp.first_bucket_bytes = *arguments_.bucket_mb * 1024 * 1024;
      }
      if (arguments_.unit_mb) options.scale_out->fsdp_unit_bytes = *arguments_.unit_mb * 1e6;
    }
    options.use = own_use_.value_or(report_.use);
    options.what_if_steps = kWhatIfSteps;
    options.host_scale = scales_ ? scales_->host : arguments_.host_scale;
    options.device_scale = scales_ ? scales_->device : 1;
    options.sustained = !arguments_.burst;
    options.launching = launching_of(arguments_);
    options.host_sensitivity = table_of(rank).table->method != OverheadMethod::kLin;
    if (!window_is_of_trace()) options.iterations = arguments_.iterations;
    if (kernel_times_[rank]) options.kernel_times = &*kernel_times_[rank];
    return options;
  }

  // The host that a measured step tells.
  Result<void> match(std::vector<RecordedProgram>& inputs) {
    if (!arguments_.measured.us) return {};
    RankPrediction& rank = report_.ranks.front();
    RecordedProgram& program = inputs.front();
    std::swap(program.graph, rank.graph);
    auto scales = match_measured(
        arguments_.measured, program,
        {.gpu = report_.gpu, .overheads = table_of(0).table.get(), .options = options_of(0)});
    std::swap(program.graph, rank.graph);
    if (!scales) return Unexpected{scales.error()};
    scales_ = *scales;
    rank.measured = RankPrediction::Measured{*arguments_.measured.us, *scales};
    warn(measured_sentence(arguments_.measured, *scales));
    return {};
  }

  Result<void> predict_ranks() {
    bool lin = false;
    std::vector<RankInput> inputs;
    for (std::size_t i = 0; i < report_.ranks.size(); ++i) {
      lin |= table_of(i).table->method == OverheadMethod::kLin;
      inputs.push_back({.graph = &report_.ranks[i].graph,
                        .table = table_of(i).table.get(),
                        .options = options_of(i),
                        .name = report_.ranks[i].graph_file});
    }
    if (lin) return predict_apart(inputs);
    auto job = predict_job(inputs, report_.gpu,
                           {.rank_start_us = arguments_.rank_start,
                            .missing_collectives = arguments_.missing_collectives,
                            .keep_chakra = !arguments_.chakra.empty()});
    if (!job) return Unexpected{job.error()};
    report_.chakra = std::move(job->chakra);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      report_.ranks[i].prediction = std::move(job->ranks[i]);
    }
    report_.job = job->job;
    for (std::string& warning : job->warnings) warn(std::move(warning));
    return {};
  }

  Result<void> compare_with_traces() {
    for (std::size_t i = 0; i < arguments_.against.size(); ++i) {
      RankPrediction& rank = report_.ranks[i];
      auto measured = trace(arguments_.against[i]);
      if (!measured) return Unexpected{measured.error()};
      auto made = compare(**measured, rank.prediction, arguments_.against_iterations);
      if (!made) return Unexpected{made.error()};
      warn_of_other_gpu((*measured)->gpu_name(), *made);
      rank.against_file = shown_name(arguments_.against[i]);
      rank.against = std::move(*made);
    }
    return {};
  }

  // Errors then say what the GPUs differ in, not what the prediction lacks.
  void warn_of_other_gpu(const std::string& name, TraceComparison& comparison) const {
    if (name.empty()) return;
    const auto data = find_data_folder();
    const auto known = data ? find_known_gpu(name, *data / "gpus") : Result<Gpu>(report_.gpu);
    if (known && known->name == report_.gpu.name) return;
    comparison.warnings.push_back("the trace is of another GPU than was asked for: " + name);
  }

  void count_work(std::size_t rank) {
    const RankPrediction& at = report_.ranks[rank];
    report_.work =
        step_work(at.graph, report_.gpu, at.prediction.batch, options_of(rank).iterations);
  }

  // The baseline of method lin knows no other ranks.
  Result<void> predict_apart(const std::vector<RankInput>& inputs) {
    if (!arguments_.rank_start.empty() || !arguments_.chakra.empty()) {
      return fail(
          ErrorCode::kImpossible,
          "expected overheads of method context for --rank-start and --chakra, found method "
          "lin");
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      auto prediction = predict(*inputs[i].graph, report_.gpu, *inputs[i].table, inputs[i].options);
      if (!prediction) return Unexpected{prediction.error()};
      report_.ranks[i].prediction = std::move(*prediction);
    }
    if (inputs.size() > 1) {
      warn(
          "with overheads of method lin the graphs are predicted one by one: ranks do not wait "
          "for each other");
    }
    return {};
  }

  Result<KernelTimes> read_times(const ExecutionGraph& graph, const std::string& file,
                                 const Window& window) {
    auto recorded = trace(file);
    if (!recorded) return Unexpected{recorded.error()};
    auto times = kernel_times(graph, **recorded, window);
    if (times && times->size() == 0) {
      return Unexpected{Error{.code = ErrorCode::kImpossible,
                              .message = "expected device work of the graph's ops, found none",
                              .file = file}};
    }
    return times;
  }

  void warn(std::string warning) {
    warning = with_pseudonyms(std::move(warning), arguments_.anonymizer);
    if (std::ranges::find(report_.warnings, warning) == report_.warnings.end()) {
      report_.warnings.push_back(std::move(warning));
    }
  }

  void collect_warnings() {
    const bool communicates = std::ranges::any_of(report_.ranks, [](const RankPrediction& rank) {
      return rank.prediction.communication.collectives > 0;
    });
    if (!communicates && (!arguments_.topology.empty() || arguments_.interference != 1 ||
                          (arguments_.world > 1 && arguments_.strategy.empty()))) {
      warn("there are no collectives: --world, --topology and --interference change nothing");
    }
    // What all graphs share is said once.
    std::vector<std::pair<std::string, std::string>> of_files;  // warning, its graphs
    std::map<std::string, std::size_t> graphs;
    for (const RankPrediction& rank : report_.ranks) {
      for (const std::string& warning : rank.prediction.warnings) {
        ++graphs[warning];
        const auto known =
            std::ranges::find(of_files, warning, [](auto& entry) { return entry.first; });
        if (known == of_files.end()) {
          of_files.emplace_back(warning, rank.graph_file);
        } else {
          known->second += ", " + rank.graph_file;
        }
      }
    }
    for (const auto& [warning, files] : of_files) {
      warn(graphs[warning] >= report_.ranks.size() ? warning : files + ": " + warning);
    }
    if (std::string warning = report_.mfu_warning(); !warning.empty()) warn(std::move(warning));
    // A step that cannot run is what matters most: for want of units, then of memory.
    std::stable_partition(
        report_.warnings.begin(), report_.warnings.end(), [&](const std::string& warning) {
          return std::ranges::any_of(report_.ranks, [&](const RankPrediction& rank) {
            std::vector<std::string> stoppers = rank.prediction.coverage.lacking_units;
            stoppers.push_back(memory_warning(rank.prediction.memory, report_.gpu));
            return std::ranges::any_of(stoppers, [&](const std::string& stopper) {
              return !stopper.empty() && warning.ends_with(stopper);
            });
          });
        });
  }

  const PredictArguments& arguments_;
  PredictionReport report_;
  ChosenKernelModels chosen_;
  KernelModels models_;
  Topology topology_;
  std::unique_ptr<KernelModel> collectives_;
  std::vector<ChosenOverheads> tables_;
  std::vector<std::optional<KernelTimes>> kernel_times_;  // per rank
  std::optional<KernelTimes::Use> own_use_;               // of those of the traces themselves
  std::optional<StepScales> scales_;                      // of a measured step
  std::optional<Trace> trace_;
  std::string trace_file_;
};

// "a100-sxm-80gb,h100-sxm-80gb" is no GPU, and no file is called so.
bool names_several(const std::string& gpu) {
  std::error_code ignored;
  return gpu.find_first_of(",:") != std::string::npos && !std::filesystem::exists(gpu, ignored);
}

bool is_mixed(const PredictArguments& arguments) {
  return names_several(arguments.gpu) || arguments.mixed.given();
}

// What a job of unlike ranks has no answer to.
void check_mixed(const PredictArguments& arguments) {
  const auto refuse = [](bool given, const char* flag) {
    if (!given) return;
    throw CLI::ValidationError(flag,
                               "expected ranks that are alike, found several GPUs or times "
                               "and links per rank");
  };
  refuse(!arguments.kernel_times.empty(), "--kernel-times");
  refuse(!arguments.against.empty(), "--against");
  refuse(!arguments.rank_start.empty(), "--rank-start");
  refuse(!arguments.chakra.empty(), "--chakra");
  refuse(arguments.measured.us.has_value(), "--measured-step");
  refuse(arguments.iterations.has_value(), "--iterations");
  refuse(arguments.strategy == "fsdp", "--strategy fsdp");
  if (arguments.overheads.size() > 1) {
    throw CLI::ValidationError("--overheads", "expected one for all ranks, found several");
  }
}

void check_counts(PredictArguments& arguments) {
  if (is_mixed(arguments)) check_mixed(arguments);
  const std::size_t graphs = arguments.graphs.size();
  if (graphs == 0) throw CLI::RequiredError("GRAPH");
  const auto check = [graphs](const char* option, std::size_t count) {
    if (count > 1 && count != graphs) {
      throw CLI::ValidationError(option, "expected one file for all graphs or one per graph (" +
                                             std::to_string(graphs) + "), found " +
                                             std::to_string(count));
    }
  };
  if (arguments.measured.us && graphs > 1) {
    throw CLI::ValidationError("--measured-step", "expected the graph of one rank, found " +
                                                      std::to_string(graphs) + " graphs");
  }
  check("--overheads", arguments.overheads.size());
  check("--kernel-times", arguments.kernel_times.size());
  if (!arguments.against.empty() && arguments.against.size() != graphs) {
    throw CLI::ValidationError("--against", "expected one trace per graph (" +
                                                std::to_string(graphs) + "), found " +
                                                std::to_string(arguments.against.size()));
  }
  if (!arguments.rank_start.empty() && arguments.rank_start.size() != graphs) {
    throw CLI::ValidationError("--rank-start", "expected one start per graph (" +
                                                   std::to_string(graphs) + "), found " +
                                                   std::to_string(arguments.rank_start.size()));
  }
  if (!arguments.strategy.empty() && arguments.world == 0 && !names_several(arguments.gpu)) {
    throw CLI::RequiredError("--world");
  }
  if (arguments.strategy == "ddp" && arguments.unit_mb) {
    throw CLI::ValidationError("--unit-mb", "expected --strategy fsdp, found ddp");
  }
  if (arguments.strategy == "fsdp" && arguments.bucket_mb) {
    throw CLI::ValidationError("--bucket-mb", "expected --strategy ddp, found fsdp");
  }
  if (!arguments.strategy.empty() && graphs > 1) {
    throw CLI::ValidationError("--strategy", "expected the graph of one rank, found " +
                                                 std::to_string(graphs) + " graphs");
  }
}

Result<PredictionReport> predict_unlike(const PredictArguments& arguments) {
  const auto gpus = sync::gpus_of_ranks(arguments.gpu);
  if (!gpus) return Unexpected{gpus.error()};
  if (arguments.world > 0 && gpus->size() > 1 &&
      arguments.world != static_cast<std::int64_t>(gpus->size())) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected as many GPUs as --world says ({}), found {}", arguments.world,
                            gpus->size()));
  }
  MixedQuestion question{
      .graphs = arguments.graphs,
      .gpus = arguments.gpu,
      .overheads = arguments.overheads.empty() ? "" : arguments.overheads.front(),
      .topology = arguments.topology,
      .models = arguments.models,
      .ddp = arguments.strategy == "ddp",
      .bucket_mb = arguments.bucket_mb.value_or(0),
      .interference = arguments.interference,
      .host_scale = arguments.host_scale,
      .sustained = !arguments.burst,
      .keep_calls = !arguments.timeline.empty(),
      .missing_collectives = arguments.missing_collectives,
      .launching = launching_of(arguments),
      .what_if_steps = kWhatIfSteps,
      .reading = arguments.reading};
  // One GPU on --world ranks that differ in their pace or their links.
  if (gpus->size() == 1 && arguments.world > 1) {
    question.gpus = fmt::format("{}:{}", gpus->front(), arguments.world);
  }
  return predict_mixed(arguments.mixed, question);
}

Result<void> run_predict(const PredictArguments& arguments) {
  auto report = is_mixed(arguments) ? predict_unlike(arguments) : Run(arguments).run();
  if (!report) return Unexpected{report.error()};
  if (!arguments.timeline.empty()) {
    std::vector<const Prediction*> ranks;
    std::vector<TimelineTitle> titles;
    for (const RankPrediction& rank : report->ranks) {
      ranks.push_back(&rank.prediction);
      titles.push_back(
          {.graph = graph_title(rank), .gpu = rank.mixed ? rank.mixed->gpu : report->gpu.title});
    }
    const auto written = write_timeline(ranks, titles, report->slowest(), arguments.timeline);
    if (!written) return written;
  }
  if (!arguments.chakra.empty()) {
    // The graph of one rank, on --world of them that do the same.
    const bool alone = report->chakra.size() == 1 && arguments.world > 1;
    const std::size_t copies = alone ? static_cast<std::size_t>(arguments.world) : 1;
    if (auto written = write_chakra(report->chakra, arguments.chakra, {.copies = copies});
        !written) {
      return written;
    }
  }
  if (arguments.json) return print_document(prediction_json(*report));
  const bool bold = bold_allowed();
  std::string text = arguments.full
                         ? full_prediction_text(*report, arguments.top.value_or(kRowsOfFull), bold)
                         : short_prediction_text(*report, arguments.top, bold);
  for (const RankPrediction& rank : report->ranks) {
    if (!rank.against) continue;
    text +=
        against_text(*rank.against, rank.against_file,
                     arguments.top.value_or(arguments.full ? kRowsOfFull : kRowsOfAgainst), bold);
  }
  return print_report(text);
}

}  // namespace

Command predict_command(CLI::App& parent) {
  auto arguments = std::make_shared<PredictArguments>();
  CLI::App* app = parent.add_subcommand("predict", "Per-batch time of a graph on a GPU, and why");
  app->add_option("GRAPH", arguments->graphs,
                  "Execution graphs (PyTorch ET, .json or .json.gz) or Kineto traces; several are "
                  "ranks of one job")
      ->type_name("");
  app->add_option("--gpu", arguments->gpu,
                  "Name of a known GPU (see `gpus`), or a GPU file; NAME:COUNT,... or one name per "
                  "rank for a job on several kinds")
      ->required()
      ->type_name("NAME");
  add_overheads_option(*app, arguments->overheads, kOverheadsHelp + ", or one per graph");
  add_as_recorded(*app, arguments->as_recorded);
  add_measured_step(*app, arguments->measured, add_scale_host(*app, arguments->host_scale));
  add_mixed_flags(*app, arguments->mixed);
  auto* times = app->add_option("--kernel-times", arguments->kernel_times,
                                "Take durations from a trace of the same program: one for all "
                                "graphs or one per graph")
                    ->type_name("TRACE");
  app->add_option("--use", arguments->use, "What to take from it: collectives only, or everything")
      ->check(CLI::IsMember({"comm", "all"}))
      ->capture_default_str()
      ->needs(times);
  add_window(*app, "--iterations", arguments->iterations, "Iterations to use (see below)");
  add_window(*app, "--kernel-iterations", arguments->kernel_iterations,
             "Iterations of the trace to take durations from")
      ->needs(times);
  auto* against = app->add_option("--against", arguments->against,
                                  "Print the prediction beside what a trace of the same program "
                                  "measured, one trace per graph")
                      ->type_name("TRACE");
  add_window(*app, "--against-iterations", arguments->against_iterations,
             "Iterations of that trace to compare with")
      ->needs(against);
  app->add_option("--world", arguments->world,
                  "Number of ranks, for --strategy and for collectives whose group size is not "
                  "recorded")
      ->check(between(1, kMostRanks))
      ->type_name("N");
  app->add_option("--topology", arguments->topology,
                  "How GPUs and nodes are connected: a name of data/topologies/ or a file "
                  "(default: the usual node of this GPU)")
      ->type_name("NAME");
  auto* strategy = app->add_option("--strategy", arguments->strategy,
                                   "Run the graph of one rank on --world ranks: ddp (bucketed "
                                   "all-reduce) or fsdp (sharded parameters)")
                       ->check(CLI::IsMember({"ddp", "fsdp"}));
  app->add_option("--bucket-mb", arguments->bucket_mb,
                  "DDP: MiB of gradients per all-reduce (default 25, the first one 1)")
      ->check(at_least(0))
      ->needs(strategy)
      ->type_name("MIB");
  app->add_option("--unit-mb", arguments->unit_mb, "FSDP: MB of parameters per unit (default 100)")
      ->check(at_least(0))
      ->needs(strategy)
      ->type_name("MB");
  app->add_option(
         "--interference", arguments->interference,
         "Multiply the time of collectives on the wire by this: compute beside them slows it")
      ->check(between(1, kMostInterference))
      ->capture_default_str()
      ->type_name("X");
  app->add_option("--rank-start", arguments->rank_start,
                  "Time at which each rank begins the step, in microseconds on one clock: predicts "
                  "this one step instead of the steady state")
      ->check(between(-kLatestStartUs, kLatestStartUs))
      ->type_name("US");
  app->add_flag("--missing-collectives", arguments->missing_collectives,
                "Go on where a rank lacks a collective that others have");
  add_models_option(*app, arguments->models);
  auto* captured = app->add_flag("--cuda-graphs", arguments->cuda_graphs, kCudaGraphsHelp);
  app->add_flag("--compiled", arguments->compiled, kCompiledHelp)->excludes(captured);
  app->add_flag("--burst", arguments->burst,
                "Ignore the board's power limit: every kernel runs as fast as a short burst");
  app->add_option(
         "--timeline", arguments->timeline,
         "Write ranks, threads and streams, launches and the critical path as a Chrome trace, for "
         "ui.perfetto.dev")
      ->type_name("FILE");
  app->add_option(
         "--chakra", arguments->chakra,
         "Write Chakra traces for network simulators, PREFIX.N.et, one per rank: of the graphs, "
         "or of --world ranks that all run the one graph")
      ->type_name("PREFIX");
  app->add_flag("--full", arguments->full,
                "Print everything: host overheads and phases, all kernels, the critical path");
  app->add_option("--top", arguments->top, "Rows of the long tables (default 5, with --full 10)")
      ->check(at_least(0))
      ->type_name("N");
  add_reading(*app, arguments->reading);
  add_anonymize(*app, arguments->anonymizer);
  app->add_flag("--json", arguments->json, "Print one JSON document");
  app->footer(kIterationsRule);
  app->callback([arguments] {
    for (auto* files : {&arguments->kernel_times, &arguments->against, &arguments->overheads}) {
      return_swallowed(arguments->graphs, *files, 1);
    }
    check_counts(*arguments);
  });
  return {app, [arguments] { return run_predict(*arguments); }};
}

}  // namespace perfmodel::cli
