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
#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/graph/detail/launching.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

inline constexpr std::size_t kCachedPrices = std::size_t{1} << 16;

/// The data that a Predictor loads.
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
  std::size_t cached_prices = kCachedPrices;
};

/// A question about a graph, apart from the GPU. By default the graph is predicted as it is.
struct AskOptions {
  std::int64_t batch = 0;     ///< samples per step instead of the graph's; 0: as it is
  std::int64_t sequence = 0;  ///< tokens per sample instead of the graph's; 0: as it is
  std::int64_t world = 0;     ///< ranks, for `strategy` and collectives of no recorded size
  std::string topology = {};  ///< name; empty: the GPU's usual node
  std::optional<ParallelStrategy> strategy = {};  ///< run the graph of one rank on `world` ranks
  bool delay_allreduce = false;                   ///< strategy ddp: see DdpOptions::delayed
  /// Above 1: the graph is one rank of a pipeline of so many stages on `world` ranks; the answer is
  /// the slowest stage's (see JobOptions::stages).
  std::int64_t stages = 1;
  double interference = 1;                  ///< see CollectiveOptions
  double host_scale = 1;                    ///< multiplies the host's own time
  double device_scale = 1;                  ///< multiplies all kernels except collectives
  Launching launching = Launching::kEager;  ///< see PredictOptions
  bool host_sensitivity = false;            ///< fill `host_sensitivity`
  bool keep_ops = false;          ///< fill `ops`, `critical_path` (half as much time again)
  bool times_only = false;        ///< leave out the step's range and `memory`: half the time
  std::size_t what_if_steps = 0;  ///< see PredictOptions; needs `keep_ops`
  std::stop_token cancel = {};    ///< ends the prediction with ErrorCode::kCancelled
};

class PreparedGraph;
struct Advice;
struct OptimizeOptions;
struct RecordedProgram;

/// One of many questions. Set exactly one of the two graphs; it must outlive the answer.
struct Question {
  const ExecutionGraph* graph = nullptr;
  const PreparedGraph* prepared = nullptr;
  std::string gpu = {};
  AskOptions options = {};
};

struct AskManyOptions {
  std::size_t threads = 1;      ///< 0: as many as the machine runs at once
  std::stop_token cancel = {};  ///< questions not yet begun are then answered kCancelled
  /// Called after each answer with the number of answers so far, by one thread at a time.
  std::function<void(std::size_t answered)> progress = {};
};

/// Everything that predictions need, loaded once: GPUs, kernel models, host overheads. Questions
/// are `const`, never wait for another prediction's lock, and may come from any number of threads.
/// An answer equals the one of `predict` to the bit, whatever else was asked. Nothing is global:
/// two Predictors share nothing, copies of one share everything.
///
/// Memory: the data (some MB), `cached_prices` per GPU in use, and scratch per working thread (some
/// kB per node of its graph).
///
/// Errors are returned as values, `ErrorCode::kOutOfMemory` included; only `gpus()` may throw
/// std::bad_alloc.
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

  /// Works out once what all answers about a graph share. Use it before asking about a graph more
  /// than once. Takes the graph over. Errors: a graph without ops.
  Result<PreparedGraph> prepare(ExecutionGraph graph) const;
  /// The same for the content of a file (`read_recorded_program`). A trace brings its own host,
  /// unless the configuration names overheads; without shapes its kernels keep their measured time,
  /// scaled by family on another GPU. A graph keeps both if it was changed since it was made from
  /// the trace.
  Result<PreparedGraph> prepare(RecordedProgram program) const;

  /// The time of one training step of `graph` on `gpu` (name, alias or title, or the file of the
  /// configuration) with the overheads of that GPU.
  ///
  /// Names in the answer's `ops` point into `graph`. The answer's first warnings name the stand-ins
  /// for that GPU (`stand_ins`) and the choice of overheads and models.
  ///
  /// Errors: an unknown GPU (with the nearest names) or topology; a batch or sequence that the
  /// graph cannot be changed to; a model file that cannot be read; as for `predict`.
  Result<Prediction> predict(const ExecutionGraph& graph, std::string_view gpu,
                             const AskOptions& options = {}) const;
  /// The same, with almost free changes of the batch. Error: a graph prepared by another
  /// Predictor.
  Result<Prediction> predict(const PreparedGraph& graph, std::string_view gpu,
                             const AskOptions& options = {}) const;

  /// Finds scales with which the step described by `options` (its batch, say) takes the measured
  /// time on `gpu`. Questions about other batches, GPUs and variants start from the truth if they
  /// use these scales. See `match_step`; the scales in `options` are ignored.
  /// ```
  /// auto scales = predictor->match_step(*job, "a100-sxm-80gb", 5100, {.batch = 2048});
  /// auto other = predictor->predict(*job, "h100-sxm-80gb", {.host_scale = scales->host});
  /// ```
  Result<StepScales> match_step(const PreparedGraph& graph, std::string_view gpu,
                                double measured_us, const AskOptions& options = {}) const;

  /// answers[i] belongs to questions[i] and holds its error if it fails. The call itself fails only
  /// without questions or without memory for the list.
  /// ```
  /// std::vector<Question> list;
  /// for (const auto& gpu : names) list.push_back({.prepared = &job, .gpu = gpu});
  /// auto answers = predictor.predict_many(list, {.threads = 0});
  /// ```
  Result<std::vector<Result<Prediction>>> predict_many(std::span<const Question> questions,
                                                       const AskManyOptions& options = {}) const;

  /// Finds what to change about the graph (perfmodel/optimize.hpp). Uses only `topology`,
  /// `interference`, `host_scale` and `cancel` of `ask`. Errors: as for `predict` and `optimize`.
  Result<Advice> optimize(const PreparedGraph& graph, std::string_view gpu,
                          const OptimizeOptions& options, const AskOptions& ask = {}) const;

  /// Says what bounds the step, in numbers and words; in more detail if the prediction kept its
  /// ops.
  Result<Explanation> explain(const Prediction& prediction) const;

  /// Names of the GPUs that were loaded, sorted.
  std::vector<std::string> gpus() const;
  /// The folder of GPUs, models and overheads.
  const std::filesystem::path& data_folder() const;
  /// Finds a GPU by name, alias or title, ignoring case. Errors: see `predict`.
  Result<Gpu> gpu(std::string_view name) const;

  /// Prices computed by the models so far, and prices remembered, over all GPUs.
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
  /// Samples per step of the graph; none if its inputs do not show them.
  std::optional<std::int64_t> batch() const;

 private:
  friend class Predictor;
  struct State;
  explicit PreparedGraph(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace perfmodel
