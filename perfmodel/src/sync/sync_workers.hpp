#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/sync/detail/sync_job.hpp"

namespace perfmodel::sync {

/// Equal workers, as a user describes them. Missing members follow from the graph and the job.
struct WorkerGroup {
  std::string name;
  std::int64_t count = 1;
  std::optional<std::string> gpu = {};       ///< its prediction of the graph is the step
  std::optional<double> step_us = {};        ///< wins over `gpu`
  std::optional<double> commit_us = {};      ///< wins over the link
  std::optional<double> link_gb_per_s = {};  ///< to the servers, or to the neighbour
  double host_scale = 1;                     ///< multiplies the host's part of the predicted step
  std::optional<Straggler> straggler = {};
};

/// A job before anything is predicted.
struct SyncPlan {
  std::vector<WorkerGroup> groups = {};
  std::optional<Exchange> exchange = {};
  std::int64_t servers = 1;
  std::optional<double> server_commit_us = {};     ///< wins over the network card
  std::optional<double> server_nic_gb_per_s = {};  ///< per server
  std::optional<double> model_bytes = {};          ///< pushed by one commit, and pulled
};

/// "direct", "servers", "all-reduce".
Result<Exchange> exchange_of(std::string_view name);
std::string_view exchange_name(Exchange exchange);

/// "name:count[:step_us[:commit_us]],...". Errors name the entry.
Result<std::vector<WorkerGroup>> parse_workers(std::string_view text);

/// A JSON file, schema `perfmodel-sync-workers` (docs/sync.md).
Result<SyncPlan> read_sync_plan(const std::filesystem::path& file);

/// A JSON file, schema `perfmodel-loss-model` (docs/sync.md).
Result<LossModel> read_loss_model(const std::filesystem::path& file);

/// A job with everything known, and its assumptions.
struct PlannedJob {
  SyncJob job = {};
  std::vector<std::string> notes = {};
};

/// Steps of workers without `step_us` are predicted: `graph` on their GPU with their host. Commits
/// follow from `model_bytes` (else fp32 gradients of the graph's parameters) and the links:
///
///   direct      push and pull over the worker's link: 2 S / link
///   servers     a server's card is busy for 2 S / nic per commit of the whole model; the worker's
///               own part is the time beyond that on its slower link
///   all-reduce  a ring: 2 (n - 1) / n S / link
///
/// Errors: a worker without a speed; errors of predictions.
Result<PlannedJob> plan_sync_job(const SyncPlan& plan, const ExecutionGraph* graph);

}  // namespace perfmodel::sync
