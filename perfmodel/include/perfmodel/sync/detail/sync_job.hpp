#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel::sync {

/// When a worker may go on, and when it commits its gradients (or its parameters).
enum class Scheme {
  kBsp,       ///< bulk synchronous: every step is committed, and all wait for all
  kAsp,       ///< asynchronous: every step is committed, no worker waits
  kSsp,       ///< stale synchronous: no worker is `staleness` steps or more ahead of the slowest
  kLocalSgd,  ///< `tau` local steps, then all commit together (federated averaging)
  kAdacomm,   ///< local SGD whose tau falls with the loss (Wang & Joshi 2019)
  kAdsp,      ///< a fixed rate of commits per worker, no waits (Hu et al. 2020)
};

/// "bsp", "asp", "ssp", "local_sgd", "adacomm", "adsp", in the order of `Scheme`.
const std::vector<std::string_view>& scheme_names();
std::string_view scheme_name(Scheme scheme);
/// Also "fedavg" and "local-sgd". Error: an unknown name.
Result<Scheme> scheme_of(std::string_view name);

/// Random changes of a worker's steps: each step takes `step_us` times an independent factor.
struct Straggler {
  enum class Kind {
    kNone,
    kLognormal,    ///< mean 1, `spread` is the deviation of the logarithm
    kUniform,      ///< from 1 - spread to 1 + spread
    kExponential,  ///< 1 + an exponential delay of mean `spread`
    kPause,        ///< `factor` with probability `spread`, else 1
  };
  Kind kind = Kind::kNone;
  double spread = 0, factor = 1;

  /// "none", "lognormal:0.2", "uniform:0.1", "exponential:0.3", "pause:0.01:5". Error: others, and
  /// figures that no such distribution has.
  static Result<Straggler> parse(std::string_view text);
  double mean() const;
};

/// One of the workers that train one model together.
struct Worker {
  std::string name;
  double step_us = 0;    ///< one local step (mini-batch), its commit not included; above 0
  double commit_us = 0;  ///< the part of a commit that this worker's own link and host take
  Straggler straggler = {};
};

/// The path of a commit.
enum class Exchange {
  kDirect,     ///< a commit takes the worker's `commit_us`, without contention
  kServers,    ///< parameter servers, whose network cards the workers share
  kAllReduce,  ///< one collective of all, which begins when the last worker is ready
};

/// Parameter servers. The model is cut into equal parts, one per server. A server serves one commit
/// at a time, in the order in which they arrive; a commit has ended when all servers served it.
struct Servers {
  std::int64_t count = 1;
  double commit_us = 0;  ///< a server's time to commit the whole model alone (push and pull)
};

struct SyncJob {
  std::vector<Worker> workers = {};
  Exchange exchange = Exchange::kDirect;
  Servers servers = {};    ///< for Exchange::kServers
  std::uint64_t seed = 0;  ///< for the stragglers
};

/// Steps that a scheme needs to a target, as a share of those that synchronous steps need:
///
///   steps(tau, sigma) = steps_to_target (1 + tau_cost (tau - 1) + staleness_cost sigma)
///
/// with tau steps per commit and sigma commits of others between a worker's pull and its commit.
/// The loss falls as ADSP assumes, loss(x) = 1 / (a2 x + b) + c over x synchronous steps. The
/// linear dependence follows the bound of Wang & Joshi (2019, theorem 1) in tau and holds only for
/// small costs.
struct LossModel {
  double steps_to_target = 5420;  ///< by all workers together
  double tau_cost = 0.0141, staleness_cost = 0.0141;
  double first_loss = 1, target_loss = 0.1, limit_loss = 0;
  /// Source of the figures; the defaults come from one measured job.
  std::string source =
      "ADSP's CIFAR-10 job of three workers (5,420 synchronous steps, 8,400 with tau 40); the cost "
      "of staleness is assumed to equal tau's";

  double factor(double tau, double sigma) const {
    return 1 + tau_cost * (tau - 1) + staleness_cost * sigma;
  }
  double loss(double synchronous_steps) const;
};

struct SchemeSettings {
  Scheme scheme = Scheme::kBsp;
  /// Local SGD: steps per commit. ADACOMM: steps per commit at the beginning.
  std::int64_t tau = 1;
  /// SSP. Nothing: no bound. 0 and 1 both mean lockstep: under the rule "own steps less the slowest
  /// worker's are below `staleness`" no worker could begin with 0.
  std::optional<std::int64_t> staleness = 1;
  double period_us = 60e6;  ///< ADSP: over which commits are counted. ADACOMM: of one tau
  /// ADSP: per worker, or one for all.
  std::vector<double> commits_per_period = {1};
};

/// When a run ends: at whichever comes first.
struct SyncTarget {
  std::optional<std::int64_t> rounds = {};   ///< commits of each worker
  std::optional<std::int64_t> commits = {};  ///< by all workers together
  double horizon_us = std::numeric_limits<double>::infinity();
  /// Synchronous steps' worth of progress; ADACOMM alone, whose tau changes on the way.
  std::optional<double> progress = {};
};

struct WorkerRun {
  /// Steps that ended in time: with their commit under BSP, ASP and SSP, else without.
  std::int64_t steps = 0;
  std::int64_t commits = 0;
  double compute_us = 0, commit_us = 0;
  double waiting_us = 0;  ///< for other workers, at barriers and in queues of servers
};

struct SyncRun {
  double time_us = 0;
  std::vector<WorkerRun> workers = {};
  /// [s]: commits that found s commits of other workers since their worker had begun the steps in
  /// them. All 0 where commits are joint.
  std::vector<std::int64_t> staleness = {};
  /// Time between a worker's commits (of joint commits: of a round) over the steps between them:
  /// mean over steps, and quantiles over commits.
  double step_mean_us = 0, step_median_us = 0, step_p95_us = 0;
  std::vector<std::int64_t> taus = {};  ///< ADACOMM: of its rounds

  std::int64_t steps() const;
  std::int64_t commits() const;
  double steps_per_s() const;
  double waiting_share() const;  ///< mean over workers
  double mean_staleness() const;
  double mean_tau() const;  ///< steps per commit, over all workers
};

}  // namespace perfmodel::sync
