#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/detail/explanation.hpp"
#include "perfmodel/detail/match_step.hpp"
#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/price_cache.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// What a Predictor loads.
struct PredictorConfig {
  std::filesystem::path data = {};       ///< data folder; empty: `find_data_folder()`
  std::vector<std::string> gpus = {};    ///< names, aliases or files; empty: all of `data`/gpus
  std::string models = "learned";        ///< as `choose_kernel_models` takes it
  std::filesystem::path overheads = {};  ///< as `OverheadTables::choose` takes it; empty: reference
  /// Read all model files at once, so that a broken one is an error of `load`. Else each is read
  /// when a kernel first needs it, and is an error of every prediction from then on.
  bool read_models = false;
  /// Prices remembered per GPU (`PriceCache::kEntryBytes` each), allocated with the first question
  /// about that GPU; 0: none. A training step has 50 to 1,000 kernels.
  std::size_t cached_prices = PriceCache::kDefaultCapacity;
};

/// What is asked about a graph beside the GPU. The defaults ask for the graph as it is.
struct AskOptions {
  std::int64_t batch = 0;     ///< samples per step instead of the graph's; 0: as it is
  std::int64_t sequence = 0;  ///< tokens per sample instead of the graph's; 0: as it is
  std::int64_t world = 0;     ///< ranks, for `strategy` and collectives of no recorded size
  std::string topology = {};  ///< name; empty: what the GPU usually sits in
  std::optional<ParallelStrategy> strategy = {};  ///< run the graph of one rank on `world` ranks
  double interference = 1;                        ///< see CollectiveOptions
  double host_scale = 1;                          ///< multiplies the host's own time
  double device_scale = 1;                        ///< multiplies kernels but collectives
  Launching launching = Launching::kEager;        ///< see PredictOptions
  bool host_sensitivity = false;                  ///< fill `host_sensitivity`
  bool keep_ops = false;          ///< fill `ops`, `critical_path` (half as much time again)
  std::size_t what_if_steps = 0;  ///< see PredictOptions; needs `keep_ops`
  std::stop_token cancel = {};    ///< ends the prediction with ErrorCode::kCancelled
};

class PreparedGraph;
struct Advice;
struct OptimizeOptions;

/// One of many questions. Exactly one of the graphs is given; it must outlive the answer. All else
/// is the question's own.
struct Question {
  const ExecutionGraph* graph = nullptr;
  const PreparedGraph* prepared = nullptr;
  std::string gpu = {};
  AskOptions options = {};
};

struct AskManyOptions {
  std::size_t threads = 1;      ///< 0: as many as the machine runs at once
  std::stop_token cancel = {};  ///< questions that were not begun are answered kCancelled
  /// Called after each answer with the number of answers so far, by one thread at a time.
  std::function<void(std::size_t answered)> progress = {};
};

/// Everything that predictions need, loaded once: GPUs, kernel models, host overheads. Asks are
/// `const`, take no locks that wait for a prediction, and may come from any number of threads.
/// Answers are those of `predict`, to the bit, whatever was asked before and beside. Nothing is
/// global: two Predictors share nothing, copies of one share all.
///
/// Memory: the data (some MB), `cached_prices` per GPU that was asked about, and per thread at work
/// one set of scratch (some kB per node of the graph at hand).
///
/// Whatever can fail returns its error as a value, `ErrorCode::kOutOfMemory` included; `gpus()`
/// alone may throw std::bad_alloc.
///
/// ```
/// auto predictor = perfmodel::Predictor::load();
/// if (!predictor) return fail(predictor.error());
/// auto job = predictor->prepare(*perfmodel::read_execution_graph("dlrm.json"));
/// for (std::int64_t batch : {512, 1024, 2048}) {
///   auto answer = predictor->predict(*job, "h100-sxm-80gb", {.batch = batch});
///   if (answer) std::printf("%ld: %.1f us\n", batch, answer->e2e_us);
/// }
/// ```
class Predictor {
 public:
  /// Reads GPUs and overheads now, model files when `config` says so. Errors: no data folder, files
  /// that cannot be read, unknown GPUs.
  static Result<Predictor> load(const PredictorConfig& config = {});

  /// What a graph's answers share, worked out once: for graphs about which more than one question
  /// comes. Takes the graph over. Errors: a graph without ops.
  Result<PreparedGraph> prepare(ExecutionGraph graph) const;
  /// The same of what a file holds (`read_recorded_program`). A trace brings its own host, unless
  /// the configuration names overheads; without shapes its kernels take the time that it measured,
  /// on another GPU scaled by family. A graph that changed since it was made of the trace keeps
  /// both.
  Result<PreparedGraph> prepare(RecordedProgram program) const;

  /// The time of one training step of `graph` on `gpu` (name, alias or title, or the file of the
  /// configuration) with the overheads of that GPU.
  ///
  /// Names in the answer's `ops` point into `graph`. Warnings about what stands in on that GPU
  /// (`stand_ins`) and about the choice of overheads and models come first among the answer's.
  ///
  /// Errors: an unknown GPU (with the nearest names) or topology; a batch or sequence that the
  /// graph cannot be changed to; a model file that was needed and cannot be read; those of
  /// `predict`.
  Result<Prediction> predict(const ExecutionGraph& graph, std::string_view gpu,
                             const AskOptions& options = {}) const;
  /// The same. Changes of the batch cost next to nothing here. Error: a graph that another
  /// Predictor prepared.
  Result<Prediction> predict(const PreparedGraph& graph, std::string_view gpu,
                             const AskOptions& options = {}) const;

  /// With which scales the step that `options` asks for (its batch, say) takes what was measured
  /// on `gpu`: other batches, GPUs and variants that are asked with them start from the truth. See
  /// `match_step`; scales of `options` do not count.
  /// ```
  /// auto scales = predictor->match_step(*job, "a100-sxm-80gb", 5100, {.batch = 2048});
  /// auto other = predictor->predict(*job, "h100-sxm-80gb", {.host_scale = scales->host});
  /// ```
  Result<StepScales> match_step(const PreparedGraph& graph, std::string_view gpu,
                                double measured_us, const AskOptions& options = {}) const;

  /// answers[i] is that of questions[i]. Errors of single questions stand in their answer; the call
  /// itself fails if there are no questions, or without memory for the list.
  /// ```
  /// std::vector<Question> list;
  /// for (const auto& gpu : names) list.push_back({.prepared = &job, .gpu = gpu});
  /// auto answers = predictor.predict_many(list, {.threads = 0});
  /// ```
  Result<std::vector<Result<Prediction>>> predict_many(std::span<const Question> questions,
                                                       const AskManyOptions& options = {}) const;

  /// What to change about the graph (perfmodel/optimize.hpp). Of `ask`, `topology`, `interference`,
  /// `host_scale` and `cancel` count. Errors: those of `predict` and of `optimize`.
  Result<Advice> optimize(const PreparedGraph& graph, std::string_view gpu,
                          const OptimizeOptions& options, const AskOptions& ask = {}) const;

  /// What bounds the step, in numbers and words. Knows more if the prediction kept its ops.
  Result<Explanation> explain(const Prediction& prediction) const;

  /// Names of the GPUs that were loaded, sorted.
  std::vector<std::string> gpus() const;
  /// Where they, models and overheads were read.
  const std::filesystem::path& data_folder() const;
  /// By name, alias or title, ignoring case. Errors: see `predict`.
  Result<Gpu> gpu(std::string_view name) const;

  /// Of all GPUs together: prices asked of the models so far, and prices remembered.
  struct CacheReport {
    std::uint64_t misses = 0;
    std::size_t prices = 0;
    std::size_t bytes = 0;
  };
  CacheReport cache_report() const;

 private:
  struct State;
  friend class PreparedGraph;
  explicit Predictor(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// A graph made ready by `Predictor::prepare`. Immutable and thread-safe; cheap to copy and move.
class PreparedGraph {
 public:
  const ExecutionGraph& graph() const;
  /// Samples per step as the graph has them; none where its inputs do not tell.
  std::optional<std::int64_t> batch() const;

 private:
  friend class Predictor;
  struct State;
  explicit PreparedGraph(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace perfmodel
