#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/graph/detail/decoder_sizes.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/result.hpp"

/// Parallel training of decoder-only transformers: what one optimizer step takes on N GPUs, and
/// what memory, for one layout or for all that divide.
namespace perfmodel {

struct LayoutTraces;

/// A decoder-only transformer. Weights [parameters]: see `parameter_count`.
struct DecoderModel {
  std::string name;
  std::int64_t layers = 0, hidden = 0, heads = 0;
  std::int64_t kv_heads = 0;  ///< heads of keys and values; 0: as many as `heads`
  std::int64_t feed_forward = 0;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;  ///< rows of learned positions; 0: rotary, none learned
  bool gated = true;           ///< gate, up and down products; false: two products
  bool tied = false;           ///< the output layer shares the token embeddings
  bool biases = false;         ///< linear layers add one
  bool rms_norm = true;        ///< false: layer norm
  enum class Activation : std::uint8_t { kSilu, kGelu, kRelu } activation = Activation::kSilu;

  std::int64_t head_width = 0;  ///< 0: hidden / heads
  DecoderExperts experts;
  LatentAttentionSizes
      latent;  ///< key_value_rank 0: queries, keys and values are projected at once
  /// Hybrids: layers of state spaces, of attention, and, the rest, feed-forward ones, each with one
  /// norm and one residual sum. 0: each layer has attention and a feed-forward part.
  std::int64_t state_layers = 0, attention_layers = 0;
  StateSpaceSizes states;
  std::int64_t window = 0;           ///< tokens that windowed layers look back
  std::int64_t windowed_layers = 0;  ///< attention layers with the window
  /// Softmax has a learned term in addition to its scores. cuDNN and FlashAttention-4 know it;
  /// other kernels write scores to memory, and again in the backward pass.
  bool sinks = false;
  /// Tokens beyond the next that the model learns to predict: a layer and the output layer each.
  std::int64_t next_tokens = 0;
  /// Experts form so many groups; a token takes its experts from some of them (DeepSeek-V2, -V3).
  std::int64_t expert_groups = 1, groups_of_token = 1;
  /// `state_layers` are gated DeltaNets, and each layer has its feed-forward part (Qwen3-Next).
  bool delta_states = false;
  bool gated_heads = false;  ///< each number of attention's result is multiplied by a gate
  bool chunked = false;      ///< windowed layers do not leave chunks of `window` tokens (Llama 4)
};

/// Embeddings, layers, norms and, unless tied, the output layer.
std::int64_t parameter_count(const DecoderModel& model);

/// The part of these that one token meets: of routed experts top_k of a layer.
std::int64_t active_parameter_count(const DecoderModel& model);

/// The model FLOP of one token, forward and backward pass: 6 N + 6 layers hidden sequence, N
/// without the embeddings' lookup (with the output layer). Causal attention counts by half: what a
/// token sees. (PaLM's definition, 12 layers hidden sequence, counts it whole, and shares of the
/// peak exceed 100 % with long sequences.)
double model_flop_per_token(const DecoderModel& model, std::int64_t sequence);

/// The work of one step, however it is laid out.
struct LayoutJob {
  DecoderModel model;
  std::int64_t sequence = 0;      ///< tokens per sequence
  std::int64_t global_batch = 0;  ///< sequences per optimizer step
  enum class Precision : std::uint8_t {
    kBf16,
    kFp16,
    kFp8,
    kFp32,
    kFp4
  } precision = Precision::kBf16;
  /// Kernels of attention: those that the software runs, scores in memory, or one by name.
  enum class Attention : std::uint8_t {
    kFlash,
    kEager,
    kFa2,
    kFa3,
    kFa4,
    kCudnn,
    kTriton,  ///< FlashAttention 1 of 2022 and 2023
  } attention = Attention::kFlash;
  /// Pieces in which the output layer and the loss are worked out: 1: logits are whole; 0: fused,
  /// no logits in memory; none: as the software does.
  std::optional<std::int64_t> loss_chunks = {};
  enum class Optimizer : std::uint8_t { kAdamW, kAdamW8bit, kSgd } optimizer = Optimizer::kAdamW;
  bool fp32_gradients = true;  ///< accumulated and reduced in fp32; false: in the weights' type
  double dropout = 0;          ///< in GPT-like models; 0: none
  bool compiled = false;       ///< each layer by torch.compile
  /// Ops that CUDA graphs replay: the host does not issue them one by one.
  enum GraphScope : std::uint8_t {
    kAttentionGraph = 1,
    kRouterGraph = 2,
    kPreprocessGraph = 4,  ///< counts of the rows of experts
    kFullGraph = 8,        ///< all of a microbatch
  };
  std::uint8_t cuda_graphs = 0;  ///< bits
  /// What runs the job: a file of `data/frameworks/`, whose costs count besides kernels. Empty:
  /// the one that suits the GPU and the layout.
  std::string software;

  /// Coefficient of variation of the rows that experts of a layer get; 0: all get as many. The
  /// slowest rank of an expert-parallel group counts: its expected rows, in `high_ms` those that it
  /// exceeds one time in twenty.
  double expert_imbalance = 0;
  /// Experts get so many times their even share of rows, filled up or cut off; 0: all that come.
  double expert_capacity = 0;

  /// Sequences that are packed from documents, beyond which attention does not see: the sum of
  /// lengths squared over the sequence squared, mean and standard deviation over sequences.
  double packed_mean = 1, packed_deviation = 0;

  std::int64_t lora_rank = 0;     ///< adapters next to frozen weights; 0: all weights learn
  bool lora_on_all = false;       ///< feed-forward layers have adapters too, not attention alone
  std::int64_t frozen_bits = 16;  ///< bits; 4: QLoRA, made whole before each product

  /// Linear layers keep their inputs in fp8 for the backward pass (Transformer Engine).
  bool fp8_activations = false;
  double host_memory_bytes = 0;  ///< that a node has for offloaded parts; 0: no limit
  /// Bytes that the CPUs of a node move per second for the optimizer; 0: ZeRO-Offload's rate.
  double host_bytes_per_s = 0;
  /// Share of the parameters whose optimizer an offload puts on the CPUs; the GPU steps the others
  /// meanwhile (Megatron's HybridDeviceOptimizer, DeepSpeed's `ratio`). Above 0.
  double optimizer_offload_fraction = 1;
  double nvme_bytes_per_s = 0;  ///< rate of a node's drives, for an offload to them; 0: unknown
};
std::string_view to_string(LayoutJob::Precision precision);  ///< "bf16", ...

enum class Sharding : std::uint8_t { kNone, kZero1, kZero2, kZero3, kFsdp, kHsdp };
/// The part of the forward pass that is computed again for the backward pass.
struct LayoutRecompute {
  enum What : std::uint8_t {
    kNone,
    kSelective,  ///< scores of attention that lie in memory
    kFull,
    kOp,       ///< all of a layer but results of every second product and of attention (torchtitan)
    kEvery,    ///< each `count`-th layer (torchtitan)
    kBlock,    ///< the first `count` layers of each chunk (Megatron)
    kUniform,  ///< all layers, of which groups of `count` keep one input (Megatron)
    kModules,  ///< parts of each layer (Megatron)
  } what = kNone;
  enum Module : std::uint8_t {
    kCoreAttention = 1,
    kExpertActivation = 2,
    kNorms = 4,
    kLatentProjection = 8,
    kDenseInner = 16,
    kExpertInner = 32,
    kSharedExpert = 64,
  };
  std::int64_t count = 1;
  std::uint8_t modules = 0;  ///< bits of kModules
  constexpr LayoutRecompute(What of = kNone, std::int64_t layers = 1, std::uint8_t parts = 0)
      : what(of), count(layers), modules(parts) {}
  auto operator<=>(const LayoutRecompute&) const = default;
};
/// How attention sees tokens of other ranks: keys and values go round a ring while blocks are
/// computed (Liu et al. 2023); they are gathered first (Llama 3); or heads are exchanged for tokens
/// (DeepSpeed-Ulysses).
enum class ContextExchange : std::uint8_t { kRing, kAllGather, kAllToAll };
std::string_view to_string(ContextExchange exchange);  ///< "ring", "all-gather", "all-to-all"
/// Parts of training that are kept in host memory instead of the GPU's.
struct LayoutOffload {
  bool optimizer = false;    ///< its states and its step, on gradients that are sent there
  bool parameters = false;   ///< shards of the weights, with the optimizer alone
  bool activations = false;  ///< layers' activations, until their backward pass
  bool nvme = false;         ///< the optimizer's states are on NVMe drives (ZeRO-Infinity)
  bool any() const { return optimizer || parameters || activations; }
  bool operator==(const LayoutOffload&) const = default;
};
std::string_view to_string(LayoutOffload offload);  ///< "none", "optimizer+activations", ...
enum class PipelineOrder : std::uint8_t {
  k1F1B,  ///< interleaved with `vp` > 1
  kGpipe,
  kZbH1,      ///< zero bubble: weights' gradients fill the pipeline's waits
  kZbV,       ///< the same on two chunks per stage, laid out as a V
  kDualPipe,  ///< a V whose forward passes hide the collectives of backward passes
};
/// How rows reach the experts of other ranks and come back.
enum class Dispatcher : std::uint8_t {
  kAllToAll,  ///< a row per expert, by the collective
  kDeepEp,    ///< a token goes once to each node that has one of its experts, and on inside of it;
              ///< 20 of an H800's SMs do nothing else (DeepSeek-AI 2024)
  kHybridEp,  ///< the same without SMs of its own to speak of
};
std::string_view to_string(Dispatcher dispatcher);  ///< "alltoall", "deepep", "hybridep"
std::string_view to_string(Sharding sharding);      ///< "none", "1", ..., "fsdp", "hsdp"
std::string to_string(
    const LayoutRecompute& recompute);            ///< "none", "2", "block:4", "mlp+moe", ...
std::string_view to_string(PipelineOrder order);  ///< "1f1b", "gpipe", "zb-h1", ...

/// How a job is spread over dp x tp x pp x cp GPUs; ranks are numbered tp first, then cp, dp, pp.
/// The experts of a stage lie on groups of ep x etp of its dp x tp x cp ranks.
struct ParallelLayout {
  std::int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  std::int64_t vp = 1;  ///< chunks of layers per stage
  std::int64_t micro_batch = 1;
  Sharding zero = Sharding::kNone;
  LayoutRecompute recompute = LayoutRecompute::kNone;
  bool sequence_parallel = false;
  PipelineOrder order = PipelineOrder::k1F1B;
  std::int64_t etp = 1;  ///< ranks that share each expert's matrices
  ContextExchange context = ContextExchange::kRing;
  /// Each rank has an early and a late part of the sequence, so that all do the same share of
  /// causal attention; false: consecutive parts, of which the last never waits and works most.
  bool context_balanced = true;
  /// Compute hides the exchange of rows with experts as far as it can; none: as the software does.
  std::optional<bool> overlap_experts = {};
  std::optional<Dispatcher> dispatcher = {};  ///< none: as the software does
  /// Gathers and scatters of tensor parallelism move in parts while the product that needs or made
  /// them runs (torchtitan's asynchronous tensor parallelism in symmetric memory).
  bool async_tp = false;
  /// Layers per stage are chosen for the fastest step; else equal, or the program's own.
  bool searched_stages = false;
  LayoutOffload offload = {};
  std::int64_t gpus() const { return dp * tp * pp * cp; }
};

/// The terms of the step time, in the order of `LayoutPrediction::terms_ms`.
enum class LayoutTerm : std::uint8_t {
  kCompute,            ///< kernels of the busiest stage
  kHost,               ///< host work that no kernel hides
  kTensorParallel,     ///< exposed collectives of tensor and sequence parallelism
  kPipelineTransfers,  ///< exposed sends between stages
  kBubble,             ///< the busiest stage waits for others
  kDataParallel,       ///< exposed gradients and gathers of parameters
  kOptimizer,
  kExpertParallel,   ///< exposed exchange of rows with experts on other ranks
  kContextParallel,  ///< exposed exchange of keys and values with other parts of the sequence
  kOffload,          ///< exposed copies between GPUs and host memory
};
inline constexpr std::size_t kLayoutTerms = 10;
std::string_view to_string(LayoutTerm term);

struct LayoutPrediction {
  double step_ms = 0, low_ms = 0, high_ms = 0;
  double terms_ms[kLayoutTerms] = {};  ///< add up to step_ms
  double tokens_per_s_per_gpu = 0;
  /// Shares of the precision's dense peak; hfu counts recomputation. Above 1 there is a warning.
  double mfu = 0, hfu = 0;
  double allocated_bytes = 0, reserved_bytes = 0;  ///< peak of the worst rank, without the context
  /// Parts of the peak, whole bytes; with the allocator's they add up to `reserved_bytes`, without
  /// to `allocated_bytes`. `working`: of one layer's backward pass; `logits`: what they need beyond
  /// that; `gathered`: units of ZeRO-3; `program`: buffers and workspaces of the software.
  double weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0, activation_bytes = 0;
  double logit_bytes = 0, working_bytes = 0, gathered_bytes = 0, program_bytes = 0,
         allocator_bytes = 0;
  std::int64_t fullest_stage = 0;  ///< whose ranks these are
  std::string software;            ///< that the job names, or that suits
  double attention_share = 1;      ///< packed attention over whole sequences', slowest rank
  std::string attention;           ///< its kernel: fa2, cudnn, ..., eager
  double device_bytes = 0;         ///< that a program can use
  /// Host memory of the fullest node, all its ranks together: whole bytes, whose parts add up.
  /// `pinned`: what PyTorch's allocator of pinned blocks rounds up.
  double host_bytes = 0;
  double host_weight_bytes = 0, host_gradient_bytes = 0, host_optimizer_bytes = 0,
         host_activation_bytes = 0, host_pinned_bytes = 0;
  bool fits = false;  ///< GPU memory, and host memory if there is a limit
  double bubble_share = 0, exposed_comm_share = 0;  ///< shares of the step
  LayoutTerm limit = LayoutTerm::kCompute;          ///< largest term
  std::vector<std::int64_t> stage_layers = {};      ///< per stage, where they were searched
  std::vector<std::string> warnings;
};

/// The ways in which a machine differs from a healthy one (perfmodel/diagnosis.hpp).
struct MachineTrouble {
  double kernels = 1;        ///< multiplies the time of all kernels except collectives
  double products = 1;       ///< multiplies the time of products and of fused attention
  double link_share = 1;     ///< share of its rate that the link between GPUs of a node reaches
  double network_share = 1;  ///< the same between nodes
  bool no_overlap = false;   ///< nothing hides collectives
};

/// The machine: a GPU and how nodes of it are tied together.
struct LayoutMachine {
  std::string gpu;       ///< name, alias, title
  std::string topology;  ///< name; empty: what the GPU usually sits in
  double host_scale = 1;
  /// File of a network whose collectives ASTRA-sim's rules price (docs/collectives.md); empty:
  /// NCCL's on the topology.
  std::string collectives = {};
};

/// A step that somebody measured on the machine.
struct MeasuredStep {
  LayoutJob job;
  ParallelLayout layout;
  double step_ms = 0;
  std::optional<double> compute_ms = {};  ///< kernels without collectives (from a trace)
};

/// The fit of a calibration by measured steps. Errors are shares: |predicted / measured - 1|.
struct MeasuredFit {
  std::int64_t steps = 0;
  double mape_before = 0, mape_after = 0, mape_left_out = 0;  ///< left out: each by the others
  double median_before = 0, median_after = 0, median_left_out = 0;
  std::vector<std::pair<std::string, double>> factors;  ///< on the parts of a step
};

/// An effect on a step that was not measured, and its share of the step's range.
struct OpenEffect {
  std::string what;
  double share = 0;
};

class StepCalibration;

/// Lower bounds of a step.
struct LeastStep {
  double step_ms = 0, reserved_bytes = 0;
};

/// Prices layouts of one job family on one machine. Layers are priced once per distinct shard
/// (model, tp, micro batch, sequence, recompute, precision) and remembered, so that all further
/// layouts cost microseconds. Thread-safe.
class LayoutPricer {
 public:
  /// Errors: unknown GPU or topology, a GPU in no topology.
  static Result<LayoutPricer> make(const Predictor& predictor, const LayoutMachine& machine,
                                   const MachineTrouble& trouble);
  static Result<LayoutPricer> make(const Predictor& predictor, const LayoutMachine& machine);

  /// Errors (kImpossible): sizes that do not divide, more ranks than the topology can tie together,
  /// a type that the GPU lacks.
  Result<LayoutPrediction> predict(const LayoutJob& job, const ParallelLayout& layout) const;

  /// Less than `predict` says, at the cost of pricing layers for one `ep` alone; nothing if no such
  /// bound is known. `step_ms` is 0 if the layout does not fit.
  std::optional<LeastStep> at_least(const LayoutJob& job, const ParallelLayout& layout) const;

  /// The same step as tasks, for network simulators and timelines: a trace of every rank, or of one
  /// rank of each pipeline stage (perfmodel/detail/layout_traces.hpp). Errors: as `predict`; cp or
  /// ep other than 1, more than 4 million nodes.
  Result<LayoutTraces> traces(const LayoutJob& job, const ParallelLayout& layout,
                              bool every_rank) const;

  /// The same machine as measured steps say it is; its predictions are of models with a layer that
  /// was measured. Errors: as `predict`; no steps, steps without a time.
  Result<LayoutPricer> measured(std::span<const MeasuredStep> steps) const;
  /// None: nothing was measured.
  std::optional<MeasuredFit> fit() const;

  /// Lists the effects that are worth measuring to know that step better, largest share of its
  /// range first.
  Result<std::vector<OpenEffect>> worth_measuring(const LayoutJob& job,
                                                  const ParallelLayout& layout) const;

 private:
  struct State;
  explicit LayoutPricer(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
  std::shared_ptr<const StepCalibration> calibration_;
};

/// The values that a search may choose. Empty lists: all that divide.
struct LayoutSpace {
  std::vector<std::int64_t> dp = {}, tp = {}, pp = {}, vp = {}, micro_batch = {}, cp = {}, ep = {};
  std::vector<Sharding> zero = {};
  std::vector<LayoutRecompute> recompute = {};
  std::optional<bool> sequence_parallel = {};  ///< none: on where tp > 1
  std::vector<PipelineOrder> order = {};       ///< empty: 1F1B, interleaved with vp > 1
  std::vector<Dispatcher> dispatcher = {};     ///< empty: as the software does
  /// The same in all layouts: etp, context, context_balanced, overlap_experts, async_tp.
  ParallelLayout common = {};
  /// Empty: none, and all there are if nothing fits.
  std::vector<LayoutOffload> offload = {};
  bool searched_stages = false;
};

struct RankedLayout {
  ParallelLayout layout;
  LayoutPrediction prediction;
};

struct LayoutRanking {
  std::vector<RankedLayout> best;      ///< that fit, fastest first
  std::vector<RankedLayout> frontier;  ///< nothing else is both faster and smaller; by memory
  RankedLayout smallest;               ///< the least memory found, whether it fits or not
  std::int64_t considered = 0, priced = 0, fitting = 0;
  bool complete = true;  ///< false: cancelled; what was found so far
  /// If nothing fits on the GPUs and the space named no `offload`, all ways of it were searched:
  /// what fell short. Empty: it was not so.
  std::string unfit = {};
};

struct LayoutSearchOptions {
  std::size_t keep = 10;
  std::stop_token cancel = {};
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};
  /// Several processes share a search: each prices the layouts of one shard and hands on what it
  /// found (`priced`, by the layout's number in the order of the search); one of them searches all
  /// with what the others made (`known`), with the answer of a search alone. Layouts whose layers
  /// are priced together are in one shard.
  std::size_t shard = 0, shards = 1;
  std::function<void(std::int64_t number, const LayoutPrediction&)> priced = {};
  std::function<const LayoutPrediction*(std::int64_t number)> known = {};
};

/// All layouts of `gpus` GPUs within `space`, exhaustive and deterministic; what cannot fit or
/// cannot be among the best by a lower bound is not priced. Errors: no layout divides.
Result<LayoutRanking> rank_layouts(const LayoutPricer& pricer, const LayoutJob& job,
                                   std::int64_t gpus, const LayoutSpace& space = {},
                                   const LayoutSearchOptions& options = {});

}  // namespace perfmodel
