#include "sync/sync_workers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/decimal_number.hpp"
#include "base/impossible.hpp"
#include "base/secrets.hpp"
#include "base/split.hpp"
#include "files/json_file.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel::sync {
namespace {

constexpr std::array<std::string_view, 3> kExchanges = {"direct", "servers", "all-reduce"};
constexpr std::int64_t kMostWorkers = 100'000;
constexpr double kMost = 1e15, kGradientBytes = 4;

template <class Number>
std::optional<Number> whole_text(std::string_view text) {
  Number value = 0;
  return read_decimal(text, value) ? std::optional(value) : std::nullopt;
}

Result<WorkerGroup> parse_group(std::string_view text) {
  const auto parts = split(text, ':');
  const auto refuse = [&] {
    return impossible(fmt::format("workers as name:count[:step_us[:commit_us]], at most {} of "
                                  "them, times above 0",
                                  kMostWorkers),
                      fmt::format("\"{}\"", text));
  };
  if (parts.size() > 4 || parts[0].empty()) return refuse();
  WorkerGroup group{.name = std::string(parts[0])};
  if (parts.size() > 1) {
    const auto count = whole_text<std::int64_t>(parts[1]);
    if (!count || *count < 1 || *count > kMostWorkers) return refuse();
    group.count = *count;
  }
  if (parts.size() > 2) {
    group.step_us = whole_text<double>(parts[2]);
    if (!group.step_us || !(*group.step_us > 0 && *group.step_us < kMost)) return refuse();
  }
  if (parts.size() > 3) {
    group.commit_us = whole_text<double>(parts[3]);
    if (!group.commit_us || !(*group.commit_us >= 0 && *group.commit_us < kMost)) return refuse();
  }
  return group;
}

WorkerGroup parse_group_object(const Json& object, const std::string& pointer,
                               std::optional<Error>& error) {
  ObjectReader reader(object, pointer, error);
  WorkerGroup group{.name = shown_text(reader.string("name"))};
  if (reader.has("count")) group.count = reader.whole_number("count", 1);
  if (group.count > kMostWorkers) reader.reject("count", "at most 100,000 workers");
  if (reader.has("gpu")) group.gpu = reader.string("gpu");
  if (reader.has("step_us")) group.step_us = reader.positive("step_us");
  if (reader.has("host_scale")) group.host_scale = reader.positive("host_scale");
  if (reader.has("commit_us")) {
    group.commit_us = reader.number_below("commit_us", kMost, "a number of at least 0");
  }
  if (reader.has("link_gb_per_s")) group.link_gb_per_s = reader.positive("link_gb_per_s");
  if (reader.has("straggler")) {
    const auto straggler = Straggler::parse(reader.string("straggler"));
    if (straggler) {
      group.straggler = *straggler;
    } else {
      reader.reject("straggler", "a distribution such as \"lognormal:0.2\"");
    }
  }
  reader.finish();
  return group;
}

void parse_servers(const Json& object, SyncPlan& plan, std::optional<Error>& error) {
  ObjectReader reader(object, "/servers", error);
  plan.servers = reader.whole_number("count", 1);
  if (reader.has("commit_us")) {
    plan.server_commit_us = reader.number_below("commit_us", kMost, "a number of at least 0");
  }
  if (reader.has("nic_gb_per_s")) plan.server_nic_gb_per_s = reader.positive("nic_gb_per_s");
  reader.finish();
}

SyncPlan parse_plan(const Json& document, std::optional<Error>& error) {
  SyncPlan plan;
  ObjectReader root(document, "", error);
  root.expect_schema(schemas::kSyncWorkers);
  if (root.has("exchange")) {
    if (const auto exchange = exchange_of(root.string("exchange"))) {
      plan.exchange = *exchange;
    } else {
      root.reject("exchange", fmt::format("one of {}", fmt::join(kExchanges, ", ")));
    }
  }
  if (root.has("servers")) {
    if (const Json* servers = root.object("servers")) parse_servers(*servers, plan, error);
  }
  if (root.has("model_bytes")) plan.model_bytes = root.positive("model_bytes");
  const Json* list = root.array("workers");
  root.finish();
  if (list && list->empty()) root.reject("workers", "at least one worker");
  for (std::size_t i = 0; list && i < list->size() && !error; ++i) {
    plan.groups.push_back(parse_group_object((*list)[i], fmt::format("/workers/{}", i), error));
  }
  return plan;
}

LossModel parse_loss(const Json& document, std::optional<Error>& error) {
  LossModel loss;
  ObjectReader root(document, "", error);
  root.expect_schema(schemas::kLossModel);
  loss.steps_to_target = root.positive("steps_to_target");
  constexpr const char* kWanted = "a number of at least 0";
  loss.tau_cost = root.number_below("tau_cost", kMost, kWanted);
  loss.staleness_cost = root.number_below("staleness_cost", kMost, kWanted);
  for (const auto& [key, value] :
       {std::pair{"first_loss", &loss.first_loss}, {"target_loss", &loss.target_loss}}) {
    if (root.has(key)) *value = root.positive(key);
  }
  if (root.has("limit_loss")) loss.limit_loss = root.number_below("limit_loss", kMost, kWanted);
  if (!(loss.first_loss > loss.target_loss && loss.target_loss > loss.limit_loss)) {
    root.fail_at("", "first_loss above target_loss above limit_loss",
                 fmt::format("{}, {}, {}", loss.first_loss, loss.target_loss, loss.limit_loss));
  }
  loss.source = root.has("source") ? root.string("source") : "the given loss model";
  root.finish();
  return loss;
}

// Predicted steps by GPU and host.
class StepTimes {
 public:
  StepTimes(const SyncPlan& plan, const ExecutionGraph* graph) : graph_(graph) {
    std::set<std::string> names;
    for (const WorkerGroup& group : plan.groups) {
      if (!group.step_us && graph) names.insert(gpu_of(group));
    }
    config_.gpus.assign(names.begin(), names.end());
  }

  Result<double> of(const WorkerGroup& group, std::vector<std::string>& notes) {
    if (group.step_us) return *group.step_us;
    if (!graph_) {
      return impossible(fmt::format("a speed of worker \"{}\": name:count:step_us, or a graph and "
                                    "the name of its GPU",
                                    group.name),
                        "none");
    }
    const auto key = std::pair(gpu_of(group), group.host_scale);
    if (const auto at = known_.find(key); at != known_.end()) return at->second;
    if (!predictor_) {
      PERFMODEL_TRY(loaded, Predictor::load(config_));
      predictor_ = std::move(*loaded);
    }
    PERFMODEL_TRY(made, predictor_->predict(*graph_, key.first, {.host_scale = key.second}));
    for (const std::string& warning : made->warnings) {
      notes.push_back(fmt::format("{}: {}", group.name, warning));
    }
    return known_.emplace(key, made->e2e_us).first->second;
  }

 private:
  static std::string gpu_of(const WorkerGroup& group) { return group.gpu.value_or(group.name); }

  const ExecutionGraph* graph_;
  PredictorConfig config_;
  std::optional<Predictor> predictor_;
  std::map<std::pair<std::string, double>, double> known_;
};

double seconds_to_us(double seconds) { return seconds * 1e6; }

double link_us(double bytes, double gb_per_s) { return seconds_to_us(bytes / (gb_per_s * 1e9)); }

// Computes the times of commits from bytes and links, unless times are given.
class CommitTimes {
 public:
  CommitTimes(const SyncPlan& plan, const ExecutionGraph* graph, Exchange exchange,
              std::vector<std::string>& notes)
      : exchange_(exchange), servers_(plan.servers) {
    for (const WorkerGroup& group : plan.groups) workers_ += static_cast<double>(group.count);
    bytes_ = plan.model_bytes;
    if (!bytes_ && graph) {
      bytes_ = kGradientBytes * static_cast<double>(model_size(*graph).parameters);
      notes.push_back(
          fmt::format("a commit moves {:.4g} MB: fp32 gradients of the graph's "
                      "parameters (--model-bytes says otherwise)",
                      *bytes_ / 1e6));
    }
  }

  Result<double> of_server(const SyncPlan& plan, std::vector<std::string>& notes) {
    if (plan.server_commit_us) return server_us_ = *plan.server_commit_us;
    if (plan.server_nic_gb_per_s) {
      if (!bytes_) return no_bytes("the servers' network cards");
      return server_us_ = link_us(2 * *bytes_, *plan.server_nic_gb_per_s);
    }
    notes.emplace_back("the servers take no time: neither a card nor a time per commit is given");
    return 0.0;
  }

  Result<double> of(const WorkerGroup& group, std::vector<std::string>& notes) const {
    if (group.commit_us) return *group.commit_us;
    if (!group.link_gb_per_s) {
      notes.push_back(
          fmt::format("commits of \"{}\" take no time of its own: neither a link nor a "
                      "time per commit is given",
                      group.name));
      return 0.0;
    }
    if (!bytes_) return no_bytes(fmt::format("the link of \"{}\"", group.name));
    switch (exchange_) {
      case Exchange::kDirect: return link_us(2 * *bytes_, *group.link_gb_per_s);
      case Exchange::kServers:
        return std::max(0.0, link_us(2 * *bytes_, *group.link_gb_per_s) -
                                 server_us_ / static_cast<double>(servers_));
      case Exchange::kAllReduce:
        return link_us(2 * (workers_ - 1) / workers_ * *bytes_, *group.link_gb_per_s);
    }
    return 0.0;
  }

 private:
  static Unexpected no_bytes(const std::string& what) {
    return impossible(fmt::format("model_bytes or a graph with {}", what), "none");
  }

  Exchange exchange_;
  std::int64_t servers_;
  double workers_ = 0, server_us_ = 0;
  std::optional<double> bytes_;
};

}  // namespace

Result<Exchange> exchange_of(std::string_view name) {
  const auto* const at = std::ranges::find(kExchanges, name);
  if (at != kExchanges.end()) return static_cast<Exchange>(at - kExchanges.begin());
  return impossible(fmt::format("one of {}", fmt::join(kExchanges, ", ")),
                    fmt::format("\"{}\"", name));
}

std::string_view exchange_name(Exchange exchange) {
  return kExchanges[static_cast<std::size_t>(exchange)];
}

Result<std::vector<WorkerGroup>> parse_workers(std::string_view text) {
  std::vector<WorkerGroup> groups;
  for (const std::string_view part : split(text, ',')) {
    PERFMODEL_TRY(group, parse_group(part));
    groups.push_back(std::move(*group));
  }
  return groups;
}

Result<SyncPlan> read_sync_plan(const std::filesystem::path& file) {
  return read_json_file(file, "file of workers", parse_plan);
}

Result<LossModel> read_loss_model(const std::filesystem::path& file) {
  return read_json_file(file, "loss model", parse_loss);
}

Result<PlannedJob> plan_sync_job(const SyncPlan& plan, const ExecutionGraph* graph) {
  PlannedJob made;
  made.job.exchange = plan.exchange.value_or(Exchange::kDirect);
  StepTimes steps(plan, graph);
  CommitTimes commits(plan, graph, made.job.exchange, made.notes);
  if (made.job.exchange == Exchange::kServers) {
    PERFMODEL_TRY(server_us, commits.of_server(plan, made.notes));
    made.job.servers = {.count = plan.servers, .commit_us = *server_us};
  }
  for (const WorkerGroup& group : plan.groups) {
    PERFMODEL_TRY(step_us, steps.of(group, made.notes));
    PERFMODEL_TRY(commit_us, commits.of(group, made.notes));
    if (static_cast<std::int64_t>(made.job.workers.size()) + group.count > kMostWorkers) {
      return impossible("at most 100,000 workers", "more");
    }
    for (std::int64_t i = 0; i < group.count; ++i) {
      made.job.workers.push_back(
          {.name = group.count == 1 ? group.name : fmt::format("{}/{}", group.name, i),
           .step_us = *step_us,
           .commit_us = *commit_us,
           .straggler = group.straggler.value_or(Straggler{})});
    }
  }
  return made;
}

}  // namespace perfmodel::sync
