#include "predict/report_prediction.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/file_name.hpp"
#include "overheads/own_host.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "predict/pipeline_stages.hpp"
#include "predict/report_maker.hpp"
#include "predict/rewritten_times.hpp"
#include "trace/moved_kernel_times.hpp"

namespace perfmodel {
namespace {

// A warning of all graphs is said once, without their names.
std::vector<std::string> warnings_of_ranks(const std::vector<RankPrediction>& ranks) {
  std::vector<std::pair<std::string, std::vector<std::string>>> of_graphs;
  for (const RankPrediction& rank : ranks) {
    for (const std::string& warning : rank.prediction.warnings) {
      auto known = std::ranges::find(of_graphs, warning, [](auto& entry) { return entry.first; });
      if (known == of_graphs.end()) known = of_graphs.insert(known, {warning, {}});
      known->second.push_back(rank.graph_file);
    }
  }
  std::vector<std::string> warnings;
  for (const auto& [warning, graphs] : of_graphs) {
    const bool of_all = graphs.size() >= ranks.size();
    warnings.push_back(of_all ? warning : fmt::format("{}: {}", fmt::join(graphs, ", "), warning));
  }
  return warnings;
}

// A step that cannot run matters most: for want of units, then of memory.
void put_stoppers_first(PredictionReport& report) {
  std::vector<std::string> stoppers;
  for (const RankPrediction& rank : report.ranks) {
    const auto& lacking = rank.prediction.coverage.lacking_units;
    stoppers.insert(stoppers.end(), lacking.begin(), lacking.end());
    stoppers.push_back(memory_warning(rank.prediction.memory, report.gpu));
  }
  std::erase(stoppers, "");
  const auto stops = [&](const std::string& warning) {
    return std::ranges::any_of(stoppers,
                               [&](const std::string& end) { return warning.ends_with(end); });
  };
  std::stable_partition(report.warnings.begin(), report.warnings.end(), stops);
}

class AlikeRanks : ReportMaker {
 public:
  AlikeRanks(const PredictionQuestion& question, const QuestionReaders& read)
      : ReportMaker(question), read_(read) {}

  Result<PredictionReport> run() {
    PERFMODEL_TRY(data, find_data_folder());
    PERFMODEL_TRY(gpu, find_gpu(question_.gpu, *data / "gpus"));
    report_.gpu = std::move(*gpu);
    for (std::string& sentence : stand_ins(report_.gpu)) warn(std::move(sentence));
    report_.use = question_.use;
    PERFMODEL_TRY_TO(choose_models(question_.world, &report_.gpu));
    set_collectives();
    PERFMODEL_TRY(inputs, read_.programs(question_.graphs));
    for (RecordedProgram& input : *inputs) {
      PERFMODEL_TRY(done, retarget_for(report_.gpu, input.graph, question_.rewrites));
    }
    PERFMODEL_TRY_TO(read_tables(*data, *inputs));
    PERFMODEL_TRY_TO(read_ranks(*inputs));
    PERFMODEL_TRY_TO(match(*inputs));
    PERFMODEL_TRY_TO(rewrite_ranks());
    PERFMODEL_TRY_TO(predict_ranks());
    PERFMODEL_TRY_TO(finish(iterations_of_graphs()));
    PERFMODEL_TRY_TO(compare_with_traces(*data / "gpus"));
    collect_warnings();
    return std::move(report_);
  }

 private:
  // Collectives are priced on the named topology, else on the one that the GPU usually sits in.
  void set_collectives() {
    models_ = chosen_.models;
    network_ = topology_ ? *topology_ : topology_for(report_.gpu);
    if (!topology_ && question_.interference == 1) return;
    collectives_ = make_collective_model(network_, {.interference = question_.interference});
    models_.set(KernelFamily::kCollective, collectives_.get());
  }

  // A trace brings its own host; a graph runs on the reference one.
  Result<void> read_tables(const std::filesystem::path& data,
                           const std::vector<RecordedProgram>& inputs) {
    std::vector<std::string> files = question_.overheads;
    const bool own = files.empty() && inputs.front().trace;
    if (files.empty()) files.resize(own ? inputs.size() : 1);
    OverheadTables tables(data);
    for (std::size_t i = 0; i < files.size(); ++i) {
      PERFMODEL_TRY(chosen, own ? tables.own(*inputs[i].trace, inputs[i].graph, is_recorded())
                                : tables.choose(files[i], report_.gpu));
      warn(chosen->warning);
      if (own) {
        for (const std::string& warning : chosen->table->warnings) warn(warning);
      } else if (is_recorded() && chosen->table->without_collector) {
        chosen->table = std::make_shared<const OverheadTable>(as_recorded(*chosen->table));
      }
      tables_.push_back(std::move(*chosen));
    }
    return {};
  }

  // A prediction that is compared with a trace includes the trace's profiler.
  bool is_recorded() const { return question_.as_recorded || !question_.against.empty(); }

  // A trace is read once if all graphs share it.
  Result<const Trace*> trace(const std::string& file) {
    if (!trace_ || trace_file_ != file) {
      PERFMODEL_TRY(read, read_.trace(file));
      for (const std::string& warning : read->warnings) warn(file_name(file) + ": " + warning);
      trace_ = std::move(*read);
      trace_file_ = file;
    }
    return &*trace_;
  }

  Result<void> read_ranks(std::vector<RecordedProgram>& inputs) {
    const std::size_t count = question_.graphs.size();
    report_.ranks.reserve(count * static_cast<std::size_t>(question_.stages));
    kernel_times_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      RankPrediction& rank = report_.ranks.emplace_back(rank_of(
          question_.graphs[i], std::move(inputs[i].graph), table_of(i), question_.host_scale));
      rank.without_collector = table_of(i).table->without_collector.has_value();
      if (inputs[i].trace && question_.rewrites.empty()) {
        rank.recorded_us = recorded_step_us(*inputs[i].trace, question_.iterations);
      }
      PERFMODEL_TRY_TO(read_kernel_times(i));
      PERFMODEL_TRY_TO(own_kernel_times(i, inputs[i]));
    }
    return {};
  }

  const ChosenOverheads& table_of(std::size_t rank) const {
    return tables_[tables_.size() == 1 ? 0 : rank];
  }

  bool window_is_of_trace() const {
    return !question_.kernel_times.empty() && !question_.kernel_iterations;
  }

  PredictionQuestion::Iterations iterations_of_graphs() const {
    return window_is_of_trace() ? std::nullopt : question_.iterations;
  }

  Result<void> read_kernel_times(std::size_t index) {
    const auto& files = question_.kernel_times;
    if (files.empty()) return {};
    RankPrediction& rank = report_.ranks[index];
    const std::string& file = files[files.size() == 1 ? 0 : index];
    PERFMODEL_TRY(recorded, trace(file));
    PERFMODEL_TRY(times, kernel_times(rank.graph, **recorded,
                                      window_is_of_trace() ? question_.iterations
                                                           : question_.kernel_iterations));
    if (times->size() == 0) {
      return decline("expected device work of the graph's ops, found none", file);
    }
    kernel_times_[index] = std::move(*times);
    rank.kernel_times_file = file_name(file);
    return {};
  }

  Result<void> own_kernel_times(std::size_t index, const RecordedProgram& input) {
    RankPrediction& rank = report_.ranks[index];
    if (!input.trace || kernel_times_[index]) return {};
    PERFMODEL_TRY(found,
                  kernel_times_on(rank.graph, *input.trace, report_.gpu, question_.iterations));
    kernel_times_[index] = std::move(found->times);
    // The step itself is the best source for the times of its kernels on their own GPU.
    const bool as_traced = kernel_times_[index]->other_gpu.empty() && question_.rewrites.empty();
    own_use_ = as_traced ? KernelTimes::Use::kAll : found->use;
    if (own_use_ == KernelTimes::Use::kAll) {
      rank.kernel_times_file = file_name(input.trace->source);
    }
    warn(found->sentence.value_or(""));
    return {};
  }

  // One rank, and no other network in question: its waits for the other ranks stay.
  bool is_alone() const {
    return question_.graphs.size() == 1 && !topology_ && question_.interference == 1;
  }

  PredictOptions options_of(std::size_t rank) const {
    PredictOptions options{.recorded_waits = is_alone(),
                           .models = &models_,
                           .world_size = question_.world / question_.stages,
                           .topology = &network_};
    options.keep_calls = question_.keep_calls;
    if (question_.strategy) {
      options.scale_out = ScaleOut{.world = question_.world,
                                   .strategy = *question_.strategy,
                                   .topology = &network_,
                                   .interference = question_.interference};
      if (question_.bucket_mb) {  // as PyTorch does: a cap of the user's own holds for all buckets
        auto& ddp = options.scale_out->ddp;
        ddp.bucket_cap_bytes = ddp.first_bucket_bytes = *question_.bucket_mb * 1024 * 1024;
      }
      options.scale_out->ddp.delayed = question_.delay_allreduce;
      if (question_.unit_mb) options.scale_out->fsdp_unit_bytes = *question_.unit_mb * 1e6;
    }
    options.use = own_use_.value_or(report_.use);
    options.what_if_steps = question_.what_if_steps;
    options.host_scale = scales_ ? scales_->host : question_.host_scale;
    options.device_scale = scales_ ? scales_->device : 1;
    options.sustained = question_.sustained;
    options.launching = question_.launching;
    options.host_sensitivity = table_of(rank).table->method != OverheadMethod::kLin;
    options.iterations = iterations_of_graphs();
    if (kernel_times_[rank]) options.kernel_times = &*kernel_times_[rank];
    return options;
  }

  // Finds the host on which the step takes the measured time.
  Result<void> match(std::vector<RecordedProgram>& inputs) {
    if (!question_.measured.us) return {};
    RankPrediction& rank = report_.ranks.front();
    RecordedProgram& program = inputs.front();
    std::swap(program.graph, rank.graph);
    auto scales = match_measured(
        question_.measured, program,
        {.gpu = report_.gpu, .overheads = table_of(0).table.get(), .options = options_of(0)});
    std::swap(program.graph, rank.graph);
    if (!scales) return Unexpected{scales.error()};
    scales_ = *scales;
    rank.measured = RankPrediction::Measured{*question_.measured.us, *scales};
    warn(measured_sentence(question_.measured, *scales));
    return {};
  }

  // The measured step belongs to the graphs before these rewrites.
  Result<void> rewrite_ranks() {
    for (std::size_t i = 0; i < report_.ranks.size() && !question_.rewrites.empty(); ++i) {
      ExecutionGraph& graph = report_.ranks[i].graph;
      PERFMODEL_TRY(rewritten, rewrite_input(graph, question_.rewrites));
      PredictOptions options = options_of(i);
      KernelTimes collectives;
      Result<std::string> left_out;
      if (question_.kernel_times.empty()) {
        left_out = fit_kernel_times(graph, *rewritten, options, collectives);
      }
      if (!left_out) return Unexpected{left_out.error()};
      warn(*left_out);
      if (!options.kernel_times) kernel_times_[i].reset();
      if (collectives.size() > 0) kernel_times_[i] = std::move(collectives);
      graph = std::move(*rewritten);
      PERFMODEL_TRY_TO(read_kernel_times(i));
    }
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
    PERFMODEL_TRY(job, predict_job(inputs, report_.gpu,
                                   {.rank_start_us = question_.rank_start_us,
                                    .missing_collectives = question_.missing_collectives,
                                    .keep_chakra = question_.keep_chakra,
                                    .stages = question_.stages,
                                    .stage_layers = question_.stage_layers}));
    report_.chakra = std::move(job->chakra);
    if (question_.stages > 1) PERFMODEL_TRY_TO(copy_to_stages());
    for (std::size_t i = 0; i < report_.ranks.size(); ++i) {
      report_.ranks[i].prediction = std::move(job->ranks[i]);
    }
    report_.job = job->job;
    for (std::string& warning : job->warnings) warn(std::move(warning));
    return {};
  }

  // One rank of each stage is reported, and the traces of all ranks are kept.
  Result<void> copy_to_stages() {
    const RankPrediction recorded = report_.ranks.front();
    for (std::int64_t stage = 0; stage < question_.stages; ++stage) {
      if (stage > 0) report_.ranks.push_back(recorded);
      report_.ranks.back().graph_file += fmt::format(" as stage {}", stage);
    }
    PERFMODEL_TRY(traces, traces_of_all_ranks(report_.chakra, question_.world / question_.stages,
                                              report_.chakra_groups));
    report_.chakra = std::move(*traces);
    return {};
  }

  // The baseline of method lin knows no other ranks.
  Result<void> predict_apart(const std::vector<RankInput>& inputs) {
    if (question_.stages > 1) {
      return decline("expected overheads of method context for --stages, found method lin");
    }
    if (!question_.rank_start_us.empty() || question_.keep_chakra) {
      return decline(
          "expected overheads of method context for --rank-start and --chakra, found method lin");
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      PERFMODEL_TRY(prediction,
                    predict(*inputs[i].graph, report_.gpu, *inputs[i].table, inputs[i].options));
      report_.ranks[i].prediction = std::move(*prediction);
    }
    if (inputs.size() > 1) {
      warn(
          "with overheads of method lin the graphs are predicted one by one: ranks do not wait "
          "for each other");
    }
    return {};
  }

  Result<void> compare_with_traces(const std::filesystem::path& gpus) {
    for (std::size_t i = 0; i < question_.against.size(); ++i) {
      RankPrediction& rank = report_.ranks[i];
      PERFMODEL_TRY(measured, trace(question_.against[i]));
      PERFMODEL_TRY(comparison, compare(**measured, rank.prediction, question_.against_iterations));
      // Errors of another GPU describe the difference of the GPUs, not the gaps of the prediction.
      const std::string name = (*measured)->gpu_name();
      const auto known = name.empty() ? Result<Gpu>(report_.gpu) : find_known_gpu(name, gpus);
      if (!known || known->name != report_.gpu.name) {
        comparison->warnings.push_back("the trace is of another GPU than was asked for: " + name);
      }
      rank.against_file = without_names(file_name(question_.against[i]));
      rank.against = std::move(*comparison);
    }
    return {};
  }

  void collect_warnings() {
    if (!communicates() && (topology_ || question_.interference != 1 ||
                            (question_.world > 1 && !question_.strategy))) {
      warn("there are no collectives: --world, --topology and --interference change nothing");
    }
    for (std::string& warning : warnings_of_ranks(report_.ranks)) warn(std::move(warning));
    warn(report_.mfu_warning());
    put_stoppers_first(report_);
    put_captured_first(report_.warnings);
  }

  const QuestionReaders& read_;
  KernelModels models_;
  Topology network_;  // network of collectives
  std::unique_ptr<KernelModel> collectives_;
  std::vector<ChosenOverheads> tables_;
  std::vector<std::optional<KernelTimes>> kernel_times_;  // per rank
  std::optional<KernelTimes::Use> own_use_;               // use of the kernel times of traces
  std::optional<StepScales> scales_;                      // from a measured step
  std::optional<Trace> trace_;
  std::string trace_file_;
};

}  // namespace

// "a100-sxm-80gb,h100-sxm-80gb" is no GPU, and no file has this name.
bool PredictionQuestion::names_several_gpus() const {
  std::error_code ignored;
  return gpu.find_first_of(",:") != std::string::npos && !std::filesystem::exists(gpu, ignored);
}

Result<PredictionReport> report_prediction(const PredictionQuestion& question,
                                           const QuestionReaders& read) {
  if (question.has_unlike_ranks()) return report_mixed_job(question, read);
  return AlikeRanks(question, read).run();
}

}  // namespace perfmodel
