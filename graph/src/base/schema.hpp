#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace perfmodel {

/// The kind of a JSON document and its version (docs/formats.md has the rules). `version` grows
/// when a key goes or changes its meaning, `minor_version` when keys are added.
struct Schema {
  std::string_view name;
  int version = 1;
  int minor_version = 0;
};

/// All documents that are read or written, by name. A file without `minor_version` has 0.
namespace schemas {

inline constexpr Schema kAllocatorSnapshot = {"perfmodel-allocator-snapshot", 1, 0};
inline constexpr Schema kAnalyze = {"perfmodel-analyze", 1, 1};
inline constexpr Schema kArchitecture = {"perfmodel-architecture"};
inline constexpr Schema kBenchDevice = {"kernels-bench-device", 1, 1};
inline constexpr Schema kBenchPlan = {"kernels-bench-plan", 1, 1};
inline constexpr Schema kBuild = {"perfmodel-build", 1, 2};
inline constexpr Schema kCalibrate = {"perfmodel-calibrate", 1, 2};
inline constexpr Schema kCollective = {"perfmodel-collective"};
inline constexpr Schema kCollectives = {"perfmodel-collectives"};
inline constexpr Schema kDiagnose = {"perfmodel-diagnose"};
inline constexpr Schema kEval = {"perfmodel-eval", 1, 1};
inline constexpr Schema kEvalGraphs = {"perfmodel-eval-graphs", 1, 2};
inline constexpr Schema kFewShot = {"perfmodel-few-shot", 1, 1};
inline constexpr Schema kGate = {"perfmodel-gate"};
inline constexpr Schema kGemm = {"perfmodel-gemm"};
inline constexpr Schema kGpu = {"perfmodel-gpu", 1, 2};
inline constexpr Schema kFramework = {"perfmodel-framework"};
inline constexpr Schema kGpus = {"perfmodel-gpus", 1, 4};
inline constexpr Schema kKernelModels = {"perfmodel-kernel-models", 3, 0};
inline constexpr Schema kLayout = {"perfmodel-layout", 1, 1};
inline constexpr Schema kLayoutSweep = {"perfmodel-layout-sweep"};
inline constexpr Schema kLayoutTable = {"perfmodel-layout-table"};
inline constexpr Schema kLossModel = {"perfmodel-loss-model"};
inline constexpr Schema kDuration = {"perfmodel-duration"};
inline constexpr Schema kKernels = {"perfmodel-kernels", 1, 2};
inline constexpr Schema kMeasuredMachine = {"perfmodel-measured-machine"};
// These two are written in Python (kernels_bench/pytorch).
inline constexpr Schema kMeasuredErrors = {"perfmodel-measured-errors"};
inline constexpr Schema kMeasurements = {"perfmodel-measurements"};
inline constexpr Schema kMemory = {"perfmodel-memory", 1, 1};
inline constexpr Schema kOptimize = {"perfmodel-optimize", 1, 2};
inline constexpr Schema kOverheads = {"perfmodel-overheads", 1, 4};
inline constexpr Schema kPrediction = {"perfmodel-prediction", 1, 8};
inline constexpr Schema kReplay = {"perfmodel-replay", 1, 3};
inline constexpr Schema kReport = {"perfmodel-report", 1, 2};
inline constexpr Schema kRewrite = {"perfmodel-rewrite", 1, 3};
inline constexpr Schema kShard = {"perfmodel-shard", 1, 2};
inline constexpr Schema kShardStudy = {"perfmodel-shard-study"};
inline constexpr Schema kShardSweep = {"perfmodel-shard-sweep", 1, 2};
inline constexpr Schema kShardingStudy = {"perfmodel-sharding-study", 1, 1};
inline constexpr Schema kSuite = {"perfmodel-suite"};
inline constexpr Schema kSuiteReport = {"perfmodel-suite-report"};
inline constexpr Schema kSuites = {"perfmodel-suites"};
inline constexpr Schema kSync = {"perfmodel-sync"};
inline constexpr Schema kSyncWorkers = {"perfmodel-sync-workers"};
inline constexpr Schema kSweep = {"perfmodel-sweep"};
inline constexpr Schema kSweepReport = {"perfmodel-sweep-report", 1, 2};
inline constexpr Schema kTopology = {"perfmodel-topology", 1, 2};
inline constexpr Schema kTrace = {"perfmodel-trace", 1, 5};
inline constexpr Schema kTraceComparison = {"perfmodel-trace-comparison", 1, 1};
inline constexpr Schema kTrain = {"perfmodel-train", 1, 2};
inline constexpr Schema kVersion = {"perfmodel-version"};
inline constexpr Schema kWhatIf = {"perfmodel-whatif", 1, 4};

}  // namespace schemas

/// Why a document of this schema with that `version` cannot be read; empty: it can. Only `version`
/// counts: what a higher `minor_version` has added is no key that an older program needs.
std::string version_problem(const Schema& schema, std::int64_t version);

}  // namespace perfmodel
