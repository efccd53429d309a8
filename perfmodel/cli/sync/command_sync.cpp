#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/read_files.hpp"
#include "sync/sync_workers.hpp"
#include "sync_report.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::int64_t kCommitsPerWorker = 1000;
constexpr double kMostPeriodS = 1e9;

struct SyncArguments {
  std::string cases, workers, graph, exchange, straggler, staleness = "3", loss_model, plot;
  std::vector<std::string> schemes = {"all"}, gpus;
  std::vector<double> host_scale, links, slowdowns, rates;
  std::optional<double> server_nic, server_commit_us, model_bytes;
  std::optional<std::int64_t> servers, tau, target_updates;
  double period_s = 60;
  std::uint64_t seed = 0;
  ReadOptions reading;
  bool full = false, json = false;
};

Unexpected impossible_sync(std::string message) {
  return fail(ErrorCode::kImpossible, std::move(message));
}

// --- files of cases ----------------------------------------------------------------------------

Result<void> answer_measured(const SyncArguments& arguments, const sync::SyncCases& read,
                             const sync::LossModel& loss) {
  const auto constants = sync::fit_servers(read.measured);
  if (!constants) return Unexpected{constants.error()};
  const auto compared = sync::compare_runs(read.measured, *constants, loss);
  if (!compared) return Unexpected{compared.error()};
  if (arguments.json) {
    return print_document(measured_sync_json(*constants, *compared, read.warnings));
  }
  return print_report(measured_sync_text(*constants, *compared, bold_allowed()));
}

Result<void> answer_cases(const SyncArguments& arguments, const sync::LossModel& loss) {
  const auto read = sync::read_sync_cases(arguments.cases);
  if (!read) return Unexpected{read.error()};
  for (const std::string& warning : read->warnings) warn(warning);
  if (!read->measured.empty() && !read->cases.empty()) {
    return impossible_sync(
        fmt::format("{}: expected cases of one kind, found timelines and measured runs",
                    file_name(arguments.cases)));
  }
  if (!read->measured.empty()) return answer_measured(arguments, *read, loss);
  std::vector<AnsweredCase> answers;
  for (const sync::SyncCase& one : read->cases) {
    auto run = sync::run_sync(one.job, one.settings, one.target, loss);
    if (!run) {
      Error error = run.error();
      error.message = fmt::format("case \"{}\": {}", one.id, error.message);
      return Unexpected{std::move(error)};
    }
    answers.push_back({one, std::move(*run)});
  }
  if (arguments.json) return print_document(sync_cases_json(answers, read->warnings));
  return print_report(sync_cases_text(answers, bold_allowed()));
}

// --- workers -----------------------------------------------------------------------------------

// One value for all ranks, or one per rank.
Result<double> of_rank(const std::vector<double>& values, const char* flag, std::size_t rank,
                       std::size_t ranks) {
  if (values.size() == 1) return values.front();
  if (values.size() == ranks) return values[rank];
  return impossible_sync(fmt::format("expected one value of {} or one per rank ({}), found {}",
                                     flag, ranks, values.size()));
}

Result<sync::SyncPlan> read_plan(const SyncArguments& arguments) {
  if (!arguments.gpus.empty()) {
    sync::SyncPlan plan;
    for (std::size_t i = 0; i < arguments.gpus.size(); ++i) {
      plan.groups.push_back({.name = fmt::format("rank {} ({})", i, file_name(arguments.gpus[i])),
                             .gpu = arguments.gpus[i]});
    }
    return plan;
  }
  const std::filesystem::path file = arguments.workers;
  std::error_code ignored;
  if (file.extension() == ".json" || std::filesystem::is_regular_file(file, ignored)) {
    return sync::read_sync_plan(file);
  }
  auto groups = sync::parse_workers(arguments.workers);
  if (!groups) return Unexpected{groups.error()};
  return sync::SyncPlan{.groups = std::move(*groups)};
}

// Values per rank need a group per rank.
void one_group_per_rank(sync::SyncPlan& plan) {
  std::vector<sync::WorkerGroup> ranks;
  for (const sync::WorkerGroup& group : plan.groups) {
    for (std::int64_t i = 0; i < group.count; ++i) {
      ranks.push_back(group);
      sync::WorkerGroup& rank = ranks.back();
      if (!rank.gpu && !rank.step_us) rank.gpu = group.name;
      if (group.count > 1) rank.name = fmt::format("{}/{}", group.name, i);
      rank.count = 1;
    }
  }
  plan.groups = std::move(ranks);
}

Result<void> apply_flags(const SyncArguments& arguments, sync::SyncPlan& plan) {
  if (arguments.host_scale.size() > 1 || arguments.links.size() > 1) one_group_per_rank(plan);
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    sync::WorkerGroup& group = plan.groups[i];
    if (!arguments.host_scale.empty()) {
      const auto scale = of_rank(arguments.host_scale, "--host-scale", i, plan.groups.size());
      if (!scale) return Unexpected{scale.error()};
      group.host_scale = *scale;
    }
    if (!arguments.links.empty()) {
      const auto link = of_rank(arguments.links, "--link-gb-per-s", i, plan.groups.size());
      if (!link) return Unexpected{link.error()};
      group.link_gb_per_s = *link;
    }
    if (!arguments.straggler.empty() && !group.straggler) {
      const auto straggler = sync::Straggler::parse(arguments.straggler);
      if (!straggler) return Unexpected{straggler.error()};
      group.straggler = *straggler;
    }
  }
  if (!arguments.exchange.empty()) {
    const auto exchange = sync::exchange_of(arguments.exchange);
    if (!exchange) return Unexpected{exchange.error()};
    plan.exchange = *exchange;
  }
  if (arguments.servers) plan.servers = *arguments.servers;
  if (arguments.server_nic) plan.server_nic_gb_per_s = arguments.server_nic;
  if (arguments.server_commit_us) plan.server_commit_us = arguments.server_commit_us;
  if (arguments.model_bytes) plan.model_bytes = arguments.model_bytes;
  const bool of_servers = arguments.servers || arguments.server_nic || arguments.server_commit_us;
  if (of_servers && plan.exchange != sync::Exchange::kServers) {
    return impossible_sync(
        "expected --exchange servers beside flags of servers, found " +
        std::string(exchange_name(plan.exchange.value_or(sync::Exchange::kDirect))));
  }
  return {};
}

Result<std::vector<sync::Scheme>> asked_schemes(const SyncArguments& arguments,
                                                sync::Exchange exchange,
                                                std::vector<std::string>& notes) {
  std::vector<sync::Scheme> schemes;
  for (const std::string& name : arguments.schemes) {
    if (name != "all") {
      const auto scheme = sync::scheme_of(name);
      if (!scheme) return Unexpected{scheme.error()};
      schemes.push_back(*scheme);
      continue;
    }
    for (std::size_t i = 0; i < sync::scheme_names().size(); ++i) {
      const auto scheme = static_cast<sync::Scheme>(i);
      const bool alone = scheme == sync::Scheme::kAsp || scheme == sync::Scheme::kSsp ||
                         scheme == sync::Scheme::kAdsp;
      if (exchange == sync::Exchange::kAllReduce && alone) continue;
      schemes.push_back(scheme);
    }
    if (exchange == sync::Exchange::kAllReduce) {
      notes.emplace_back("asp, ssp and adsp have no all-reduce: their workers do not meet");
    }
  }
  return schemes;
}

Result<std::optional<std::int64_t>> parse_staleness(const std::string& text) {
  if (text == "inf") return std::optional<std::int64_t>();
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 0) {
    return impossible_sync("expected --staleness inf or a whole number from 0, found \"" + text +
                           "\"");
  }
  return std::optional(value);
}

Result<SyncSchemeReport> run_scheme(const SyncArguments& arguments, const sync::SyncJob& job,
                                    sync::Scheme scheme, const sync::LossModel& loss) {
  const auto staleness = parse_staleness(arguments.staleness);
  if (!staleness) return Unexpected{staleness.error()};
  sync::SchemeSettings settings{.scheme = scheme,
                                .tau = arguments.tau.value_or(40),
                                .staleness = *staleness,
                                .period_us = arguments.period_s * 1e6};
  const bool given =
      scheme == sync::Scheme::kAdsp ? !arguments.rates.empty() : arguments.tau.has_value();
  if (given) {
    if (!arguments.rates.empty()) settings.commits_per_period = arguments.rates;
  } else {
    auto found = sync::tuned(job, settings, loss);
    if (!found) return Unexpected{found.error()};
    settings = std::move(*found);
  }
  const auto commits = arguments.target_updates.value_or(
      kCommitsPerWorker * static_cast<std::int64_t>(job.workers.size()));
  auto run = sync::run_sync(job, settings, {.commits = commits}, loss);
  if (!run) return Unexpected{run.error()};
  const auto reached = sync::time_to_target(job, settings, *run, loss);
  if (!reached) return Unexpected{reached.error()};
  return SyncSchemeReport{std::move(settings), std::move(*run), *reached};
}

Result<std::vector<SyncSchemeReport>> run_schemes(const SyncArguments& arguments,
                                                  const sync::SyncJob& job,
                                                  const std::vector<sync::Scheme>& schemes,
                                                  const sync::LossModel& loss) {
  std::vector<SyncSchemeReport> reports;
  for (const sync::Scheme scheme : schemes) {
    auto report = run_scheme(arguments, job, scheme, loss);
    if (!report) return Unexpected{report.error()};
    reports.push_back(std::move(*report));
  }
  return reports;
}

Result<sync::PlannedJob> plan_job(const SyncArguments& arguments) {
  auto plan = read_plan(arguments);
  if (!plan) return Unexpected{plan.error()};
  if (auto applied = apply_flags(arguments, *plan); !applied) return Unexpected{applied.error()};
  std::optional<ExecutionGraph> graph;
  if (!arguments.graph.empty()) {
    auto read = read_graph_file(arguments.graph, arguments.reading);
    if (!read) return Unexpected{read.error()};
    graph = std::move(*read);
  }
  return sync::plan_sync_job(*plan, graph ? &*graph : nullptr);
}

Result<void> compare_schemes(const SyncArguments& arguments, const sync::LossModel& loss) {
  auto planned = plan_job(arguments);
  if (!planned) return Unexpected{planned.error()};
  SyncReport report{.job = std::move(planned->job),
                    .loss = loss,
                    .schemes = {},
                    .sweep = {},
                    .notes = std::move(planned->notes)};
  report.job.seed = arguments.seed;
  const auto schemes = asked_schemes(arguments, report.job.exchange, report.notes);
  if (!schemes) return Unexpected{schemes.error()};
  auto made = run_schemes(arguments, report.job, *schemes, loss);
  if (!made) return Unexpected{made.error()};
  report.schemes = std::move(*made);
  std::vector<double> slowdowns = arguments.slowdowns;
  if (slowdowns.empty() && !arguments.plot.empty()) slowdowns = {1, 2, 3, 4, 6, 8};
  for (const double slowdown : slowdowns) {
    sync::SyncJob slowed = report.job;
    slowed.workers.back().step_us *= slowdown;
    auto point = run_schemes(arguments, slowed, *schemes, loss);
    if (!point) return Unexpected{point.error()};
    report.sweep.push_back({slowdown, std::move(*point)});
  }
  if (!arguments.plot.empty()) {
    const auto svg = sync_svg(report);
    if (!svg) return Unexpected{svg.error()};
    if (auto written = write_file(arguments.plot, *svg); !written) return written;
  }
  if (arguments.json) return print_document(sync_json(report));
  return print_report(sync_text(report, arguments.full, bold_allowed()));
}

Result<void> run_sync_command(const SyncArguments& arguments) {
  sync::LossModel loss;
  if (!arguments.loss_model.empty()) {
    auto read = sync::read_loss_model(arguments.loss_model);
    if (!read) return Unexpected{read.error()};
    loss = std::move(*read);
  }
  if (!arguments.cases.empty()) return answer_cases(arguments, loss);
  return compare_schemes(arguments, loss);
}

void check_sync_flags(const SyncArguments& arguments) {
  const int sources = static_cast<int>(!arguments.cases.empty()) +
                      static_cast<int>(!arguments.workers.empty()) +
                      static_cast<int>(!arguments.gpus.empty());
  if (sources != 1) {
    bad_usage("sync", fmt::format("expected one of CASES, --workers and --gpu, "
                                  "found {}",
                                  sources == 0 ? "none" : "several"));
  }
}

void add_workers_flags(CommandParser app, SyncArguments& arguments) {
  app.add_option("--workers", arguments.workers,
                 "Workers: a file (docs/sync.md), or name:count[:step_us[:commit_us]],...; a name "
                 "without a step is a GPU that runs --graph")
      .type_name("FILE|LIST");
  app.add_option("--graph", arguments.graph, "Graph of one worker's step").type_name("GRAPH");
  app.add_option("--gpu", arguments.gpus, "Instead of --workers: the GPU of each rank")
      .delimiter(',')
      .type_name("NAME,...");
  app.add_option("--host-scale", arguments.host_scale,
                 "Multiplies the host's time: one value, or one per rank")
      .delimiter(',')
      .check(at_least(0))
      .type_name("X,...");
  app.add_option("--link-gb-per-s", arguments.links,
                 "Bandwidth of the workers' links: one value, or one per rank")
      .delimiter(',')
      .check(at_least(1e-9))
      .type_name("X,...");
  app.add_option("--straggler", arguments.straggler,
                 "Distribution of step times: lognormal:DEVIATION, uniform:SHARE, "
                 "exponential:SHARE, pause:PROBABILITY:FACTOR")
      .type_name("TEXT");
  app.add_option("--seed", arguments.seed, "Seed of the stragglers (default: 0)").type_name("N");
  app.add_option("--exchange", arguments.exchange, "What commits pass through (default: direct)")
      .type_name("{direct,servers,all-reduce}");
  app.add_option("--servers", arguments.servers,
                 "Parameter servers, each with an equal part of the model")
      .check(between(1, 1e6))
      .type_name("N");
  app.add_option("--server-gb-per-s", arguments.server_nic, "Bandwidth of each server's card")
      .check(at_least(1e-9))
      .type_name("X");
  app.add_option("--server-commit-us", arguments.server_commit_us,
                 "Time that one server alone takes for a commit of the whole model")
      .check(at_least(0))
      .type_name("US");
  app.add_option("--model-bytes", arguments.model_bytes,
                 "What a commit moves (default: fp32 gradients of the graph)")
      .check(at_least(1))
      .type_name("N");
}

void add_scheme_flags(CommandParser app, SyncArguments& arguments) {
  app.add_option("--scheme", arguments.schemes,
                 "bsp, asp, ssp, local_sgd, adacomm, adsp, or all (the default)")
      .delimiter(',')
      .type_name("NAME,...");
  app.add_option("--target-updates", arguments.target_updates,
                 "Commits of all workers to run to (default: 1,000 per worker)")
      .check(between(1, 1e9))
      .type_name("N");
  app.add_option("--tau", arguments.tau,
                 "Steps per commit of local_sgd (default: 40) and first ones of adacomm (default: "
                 "found)")
      .check(between(1, 1e9))
      .type_name("N");
  app.add_option("--staleness", arguments.staleness,
                 "Steps that ssp lets a worker be ahead, or inf (default: 3)")
      .type_name("S");
  app.add_option("--period", arguments.period_s, "Period of adsp and adacomm in seconds")
      .capture_default_str()
      .check(between(1e-9, kMostPeriodS))
      .type_name("SECONDS");
  app.add_option("--commits-per-period", arguments.rates,
                 "Rate of adsp: one value, or one per worker (default: found)")
      .delimiter(',')
      .check(at_least(1e-9))
      .type_name("N,...");
  app.add_option("--loss-model", arguments.loss_model,
                 "Steps to the target as a function of tau and staleness (docs/sync.md)")
      .type_name("FILE");
  app.add_option("--slowest", arguments.slowdowns,
                 "Sweep: the last worker's steps take so many times as long")
      .delimiter(',')
      .check(at_least(1e-6))
      .type_name("X,...");
  app.add_option("--plot", arguments.plot, "Draw the sweep (default: 1,2,3,4,6,8) as SVG")
      .type_name("FILE");
}

}  // namespace

Command sync_command(CommandParser parent) {
  auto arguments = std::make_shared<SyncArguments>();
  const CommandParser app = parent.add_subcommand(
      "sync", "Synchronisation of mixed workers: BSP, ASP, SSP, local SGD, ADACOMM, ADSP");
  app.add_option("cases", arguments->cases,
                 "Timelines to be computed, or measured runs of a job whose BSP run gives the "
                 "constants of the others (docs/sync.md)")
      .type_name("CASES");
  add_workers_flags(app, *arguments);
  add_scheme_flags(app, *arguments);
  app.add_flag("--full", arguments->full, "A table of the workers under each scheme");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.callback([arguments] { check_sync_flags(*arguments); });
  return {app, [arguments] { return run_sync_command(*arguments); }};
}

}  // namespace perfmodel::cli
