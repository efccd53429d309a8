#include "service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include <unistd.h>

#include "answers.hpp"
#include "ask_command.hpp"
#include "base/budget.hpp"
#include "builders/named_models.hpp"
#include "data_hash.hpp"
#include "deadlines.hpp"
#include "graph_folder.hpp"
#include "graph_store.hpp"
#include "json/recording_json.hpp"
#include "latencies.hpp"
#include "layout/layout_inputs.hpp"
#include "optimize/advice_json.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/job_duration.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/optimize.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/version.hpp"
#include "request.hpp"
#include "request_log.hpp"
#include "rewrites/rewrite_input.hpp"
#include "rewrites/rewrite_options.hpp"
#include "whatif/job_duration_results.hpp"

namespace perfmodel::serve {
namespace {

namespace fs = std::filesystem;

// Answers for which no memory is left to write them.
constexpr const char* kNoMemory =
    R"({"id":null,"error":{"code":"out_of_memory","message":"out of memory"}})";

const char* code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kIo: return "io";
    case ErrorCode::kSyntax: return "syntax";
    case ErrorCode::kFormat: return "format";
    case ErrorCode::kUnknownName: return "unknown_name";
    case ErrorCode::kImpossible: return "impossible";
    case ErrorCode::kOutOfMemory: return "out_of_memory";
    case ErrorCode::kCancelled: return "cancelled";
  }
  return "internal";
}

bool is_below(const fs::path& file, const fs::path& folder) {
  const fs::path relative = file.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

// The file, with links followed, if the caller may open it. The caller does not even learn whether
// files elsewhere exist.
Result<fs::path> allowed_file(const std::string& name, const Caller& caller,
                              std::uintmax_t max_bytes) {
  if (!caller.any_file && caller.folder.empty()) {
    return decline("expected the graph itself: this server opens no files for its clients");
  }
  std::error_code failure;
  fs::path file = name;
  if (!caller.any_file) {
    const fs::path folder = fs::canonical(caller.folder, failure);
    if (!failure) file = fs::canonical(folder / name, failure);
    if (failure || !is_below(file, folder)) {
      return fail(ErrorCode::kIo, "expected a file below the allowed folder, found none");
    }
  }
  if (!fs::is_regular_file(file, failure)) {  // a pipe would hold the thread for good
    return fail(ErrorCode::kIo, "expected a file, found none");
  }
  const std::uintmax_t bytes = fs::file_size(file, failure);
  if (failure || bytes > max_bytes) {
    return decline(
        fmt::format("expected a file of at most {} MiB, found a larger one", max_bytes >> 20));
  }
  return file;
}

// Pages that this process holds in memory; 0: the system does not tell.
std::uint64_t resident_bytes() {
  std::uint64_t all = 0, resident = 0;
  std::ifstream statm("/proc/self/statm");
  if (!(statm >> all >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

bool makes_or_searches(Op op) {
  return op == Op::kLoad || op == Op::kBuild || op == Op::kLayoutRank || op == Op::kOptimize ||
         op == Op::kAsk;
}

Unexpected no_graph(const std::string& name) {
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected the name of a loaded graph, found \"{}\"", name));
}

ModelRequest model_of(const Request& request) {
  return {.family = request.family,
          .preset = request.preset,
          .batch = request.batch,
          .sequence = request.sequence,
          .layers = request.layers,
          .optimizer = request.optimizer};
}

// Everything except the graph that an answer to `predict` or `explain` depends on.
std::string question_key(const Request& request) {
  return fmt::format("{}\n{}\n{}\n{} {} {} {} {} {} {} {} {}", request.gpu, request.topology,
                     rewrite_line(request.rewrites), request.batch, request.sequence, request.world,
                     request.strategy ? static_cast<int>(*request.strategy) : -1,
                     request.delay_allreduce, request.stages, request.interference,
                     request.host_scale, request.device_scale);
}

// The elements of a list in JSON text; an empty text is no list.
template <class Value>
Result<std::vector<Value>> list_of(std::string_view text, const char* key, const char* expected) {
  if (text.empty()) return std::vector<Value>();
  const Json list = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<Value> made;
  for (const Json& item : list) {
    const bool good =
        std::is_same_v<Value, std::string> ? item.is_string() : item.is_number_integer();
    if (!good) return fail(ErrorCode::kFormat, fmt::format("/{}: expected {}", key, expected));
    made.push_back(item.get<Value>());
  }
  return made;
}

Result<JobDurationQuestion> job_duration_question(const Request& request, std::stop_token cancel) {
  constexpr std::size_t kMostRows = 10'000;
  PERFMODEL_TRY(gpus, list_of<std::string>(request.gpus, "gpus", "names of GPUs"));
  PERFMODEL_TRY(worlds, list_of<std::int64_t>(request.worlds, "worlds", "whole numbers"));
  if (gpus->size() * worlds->size() > kMostRows) {
    return decline(fmt::format("expected at most {} rows of gpus and worlds, found {}", kMostRows,
                               gpus->size() * worlds->size()));
  }
  JobDurationQuestion made{.gpus = std::move(*gpus),
                           .samples = request.samples,
                           .tokens = request.tokens,
                           .ask = request,
                           .threads = 0};
  if (!worlds->empty()) made.worlds = std::move(*worlds);
  made.ask.cancel = std::move(cancel);
  return made;
}

Json latency_json(const Latencies& latencies) {
  return {{"requests", latencies.count()},
          {"p50_us", latencies.quantile_us(0.5)},
          {"p99_us", latencies.quantile_us(0.99)},
          {"most_us", latencies.most_us()}};
}

Result<RecordedProgram> as_program(Result<ExecutionGraph> graph) {
  if (!graph) return Unexpected{std::move(graph.error())};
  return RecordedProgram{std::move(*graph), nullptr};
}

}  // namespace

struct Service::State {
  Predictor predictor;
  ServiceOptions options;
  GraphStore graphs;
  RequestLog log = {};
  std::optional<Deadlines> deadlines;
  std::mutex layouts;
  std::map<std::string, LayoutPricer> layout_pricers;  ///< one per machine
  std::atomic<std::uint64_t> requests = 0, errors = 0, refusals_repeated = 0;
  Latencies quick, costly;
  Backlog backlog;

  // Refusals of a graph are kept and repeated without a new try: an impossible batch costs as much
  // as a possible one.
  struct Refusal {
    std::weak_ptr<const PreparedGraph> graph;
    Error error;
  };
  std::mutex refusals_mutex;
  std::map<std::string, Refusal> refusals;  ///< by graph and question

  // A scheduler asks about the same jobs and machines again, at other lengths: their steps are
  // kept.
  struct KnownDuration {
    std::weak_ptr<const PreparedGraph> graph;
    JobDuration row;
  };
  std::mutex durations_mutex;
  std::map<std::string, KnownDuration> durations;  ///< by graph, question, GPU and world
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();

  Result<Json> run(const Request& request, const Caller& caller, std::stop_token cancel);
  Result<Json> keep(const std::string& name, Result<RecordedProgram> program,
                    const std::stop_token& cancel);
  Result<Json> load(const Request& request, const Caller& caller, const std::stop_token& cancel);
  std::optional<Error> known_refusal(const Request& request,
                                     const std::shared_ptr<const PreparedGraph>& graph);
  void remember_refusal(const Request& request, const std::shared_ptr<const PreparedGraph>& graph,
                        const Error& error);
  Json health() const;
  Result<PreparedGraph> rewritten(const PreparedGraph& graph, const Request& request) const;
  Result<Prediction> predict_graph(const PreparedGraph& graph, const Request& request,
                                   AskOptions asked) const;
  Result<Json> predict(const Request& request, std::stop_token cancel);
  Result<LayoutPricer> layout_pricer(const Request& request);
  Result<Json> layout(const Request& request);
  Result<Json> layout_rank(const Request& request, std::stop_token cancel);
  Result<Json> optimize(const Request& request, std::stop_token cancel);
  std::vector<JobDuration> known_durations(const std::vector<std::string>& keys,
                                           const std::shared_ptr<const PreparedGraph>& graph);
  Result<std::vector<JobDuration>> find_durations(
      const JobDurationQuestion& asked, const std::string& question,
      const std::shared_ptr<const PreparedGraph>& graph);
  Result<Json> duration(const Request& request, std::stop_token cancel);
  Result<std::string> ask(const Request& request, const Caller& caller, std::stop_token cancel,
                          bool& bad_request);
  Json stats() const;
  bool is_costly(const Request& request) const;
  std::string answer(std::string& line, const Caller& caller, Clock::time_point arrived);
};

// Each step ends once the client stops waiting: a graph that was made too late is not prepared, one
// that was prepared too late is not kept.
Result<Json> Service::State::keep(const std::string& name, Result<RecordedProgram> program,
                                  const std::stop_token& cancel) {
  if (!program) return Unexpected{program.error()};
  if (cancel.stop_requested()) return fail(ErrorCode::kCancelled, "cancelled");
  PERFMODEL_TRY(prepared, predictor.prepare(std::move(*program)));
  if (cancel.stop_requested()) return fail(ErrorCode::kCancelled, "cancelled");
  Json result = {{"name", name},
                 {"nodes", prepared->graph().nodes.size()},
                 {"batch", prepared->batch() ? Json(*prepared->batch()) : Json(nullptr)},
                 {"warnings", prepared->graph().warnings}};
  if (is_from_trace(prepared->graph())) {
    result["recording"] = recording_json<Json>(prepared->graph().recording);
  }
  PERFMODEL_TRY_TO(graphs.put(name, std::move(*prepared)));
  if (!options.state.empty()) {
    const StopScope to_its_end(nullptr);
    const auto graph = graphs.find(name);
    const GraphFolder folder(options.state);
    const auto kept = graph ? folder.put(name, graph->graph()) : Result<void>();
    if (!kept) {
      folder.remove(name);  // else a restart would have the graph that this one replaced
      result["warnings"].push_back("a restart will not have this graph: " +
                                   to_string(kept.error()));
    }
  }
  return result;
}

Result<Json> Service::State::load(const Request& request, const Caller& caller,
                                  const std::stop_token& cancel) {
  if (!request.inline_graph.empty()) {
    return keep(request.name, as_program(parse_execution_graph(request.inline_graph, request.name)),
                cancel);
  }
  if (auto model = graph_of_name(request.file)) {
    // A restart knows the graph, not the name: the answers about other batches are to stay.
    if (*model && !options.state.empty()) (*model)->source = "built";
    return keep(request.name, as_program(std::move(*model)), cancel);
  }
  PERFMODEL_TRY(file, allowed_file(request.file, caller, options.max_file_bytes));
  return keep(request.name, read_recorded_program(*file), cancel);
}

std::optional<Error> Service::State::known_refusal(
    const Request& request, const std::shared_ptr<const PreparedGraph>& graph) {
  const std::string key = request.graph + '\n' + question_key(request);
  const std::lock_guard lock(refusals_mutex);
  const auto known = refusals.find(key);
  if (known == refusals.end() || known->second.graph.lock() != graph) return std::nullopt;
  ++refusals_repeated;
  return known->second.error;
}

void Service::State::remember_refusal(const Request& request,
                                      const std::shared_ptr<const PreparedGraph>& graph,
                                      const Error& error) {
  constexpr std::size_t kMostRefusals = 4096;
  if (error.code != ErrorCode::kImpossible) return;
  const std::string key = request.graph + '\n' + question_key(request);
  const std::lock_guard lock(refusals_mutex);
  if (refusals.size() >= kMostRefusals) refusals.clear();
  refusals.insert_or_assign(key, Refusal{graph, error});
}

// Sizes come before all other rewrites.
Result<PreparedGraph> Service::State::rewritten(const PreparedGraph& graph,
                                                const Request& request) const {
  if (is_from_trace(graph.graph())) {
    return decline("/rewrites: expected a graph that was no trace, found the graph of a trace");
  }
  std::vector<NamedRewrite> rewrites = request.rewrites;
  for (const auto& [name, size] :
       {std::pair{"sequence", request.sequence}, std::pair{"batch", request.batch}}) {
    if (size > 0) rewrites.insert(rewrites.begin(), rewrite_of(name, std::to_string(size)).value());
  }
  PERFMODEL_TRY(made, rewrite_input(graph.graph(), rewrites));
  return predictor.prepare(std::move(*made));
}

Result<Prediction> Service::State::predict_graph(const PreparedGraph& graph, const Request& request,
                                                 AskOptions asked) const {
  if (request.rewrites.empty()) return predictor.predict(graph, request.gpu, asked);
  PERFMODEL_TRY(made, rewritten(graph, request));
  asked.batch = asked.sequence = 0;  // the graph has them
  asked.launching = launching_of(request.rewrites);
  return predictor.predict(*made, request.gpu, asked);
}

Result<Json> Service::State::predict(const Request& request, std::stop_token cancel) {
  const auto graph = graphs.find(request.graph);
  if (!graph) return no_graph(request.graph);
  AskOptions asked = request;
  asked.keep_ops = request.keep_ops || request.op == Op::kExplain;
  asked.cancel = std::move(cancel);
  if (request.op == Op::kMatchStep) {
    PERFMODEL_TRY(scales, predictor.match_step(*graph, request.gpu, request.measured_us, asked));
    return Json{{"host_scale", scales->host}, {"device_scale", scales->device}};
  }
  if (auto refused = known_refusal(request, graph)) return Unexpected{std::move(*refused)};
  auto prediction = predict_graph(*graph, request, std::move(asked));
  if (!prediction) {
    remember_refusal(request, graph, prediction.error());
    return Unexpected{prediction.error()};
  }
  if (request.op == Op::kPredict) return prediction_json(*prediction);
  PERFMODEL_TRY(explanation, predictor.explain(*prediction));
  prediction->ops.clear();
  Json json = prediction_json(*prediction);
  json["explanation"] = explanation_json(*explanation);
  return json;
}

Result<LayoutPricer> Service::State::layout_pricer(const Request& request) {
  constexpr std::size_t kMostMachines = 64;
  // Names from clients are never file names.
  if (!request.topology.empty()) {
    PERFMODEL_TRY(known, TopologyCatalog::builtin().named(request.topology));
  }
  if (request.layout.software.find_first_of("/.") != std::string::npos) {
    return fail(ErrorCode::kUnknownName, "software: expected a known name, found another");
  }
  const std::string key =
      fmt::format("{}\n{}\n{}", request.gpu, request.topology, request.host_scale);
  const std::lock_guard lock(layouts);
  const auto known = layout_pricers.find(key);
  if (known != layout_pricers.end()) return known->second;
  PERFMODEL_TRY(pricer, LayoutPricer::make(predictor, {.gpu = request.gpu,
                                                       .topology = request.topology,
                                                       .host_scale = request.host_scale}));
  if (layout_pricers.size() >= kMostMachines) layout_pricers.clear();
  return layout_pricers.emplace(key, std::move(*pricer)).first->second;
}

Result<Json> Service::State::layout(const Request& request) {
  PERFMODEL_TRY(question, layout_question(request.layout));
  PERFMODEL_TRY(parts, layout_of(request.layout));
  PERFMODEL_TRY(pricer, layout_pricer(request));
  PERFMODEL_TRY(prediction, pricer->predict(question->job, *parts));
  return layout_answer({*parts, std::move(*prediction)}, question->notes);
}

Result<Json> Service::State::layout_rank(const Request& request, std::stop_token cancel) {
  PERFMODEL_TRY(question, layout_question(request.layout));
  PERFMODEL_TRY(space, layout_space(request.layout));
  PERFMODEL_TRY(pricer, layout_pricer(request));
  PERFMODEL_TRY(ranking, rank_layouts(*pricer, question->job, request.world, *space,
                                      {.keep = static_cast<std::size_t>(request.top),
                                       .cancel = std::move(cancel)}));
  if (!ranking->complete) return fail(ErrorCode::kCancelled, "cancelled");
  if (ranking->best.empty()) {
    return decline(nothing_fits(*ranking, request.world));
  }
  return ranking_answer(*ranking, question->notes);
}

Result<Json> Service::State::optimize(const Request& request, std::stop_token cancel) {
  const auto graph = graphs.find(request.graph);
  if (!graph) return no_graph(request.graph);
  OptimizeOptions asked{.world = std::max<std::int64_t>(request.world, 1),
                        .time_budget_s = request.time_budget_s,
                        .graph_file = request.graph,
                        .predict_flags = " --gpu " + request.gpu};
  if (!request.topology.empty()) asked.predict_flags += " --topology " + request.topology;
  asked.machine_flags = asked.predict_flags;
  asked.topology = request.topology;
  if (request.memory_limit_gb > 0) asked.memory_limit_bytes = 1e9 * request.memory_limit_gb;
  for (std::string_view rest = request.allow; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    asked.allow.emplace_back(one);
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
  if (!request.objective.empty()) {
    PERFMODEL_TRY(objective, advice_objective(request.objective));
    asked.objective = *objective;
  }
  PERFMODEL_TRY(advice, predictor.optimize(*graph, request.gpu, asked,
                                           {.topology = request.topology,
                                            .interference = request.interference,
                                            .host_scale = request.host_scale,
                                            .device_scale = request.device_scale,
                                            .cancel = std::move(cancel)}));
  return advice_json(*advice);
}

// The rows of a question that are known of this graph; empty: not all.
std::vector<JobDuration> Service::State::known_durations(
    const std::vector<std::string>& keys, const std::shared_ptr<const PreparedGraph>& graph) {
  const std::lock_guard lock(durations_mutex);
  std::vector<JobDuration> rows;
  for (const std::string& key : keys) {
    const auto known = durations.find(key);
    if (known == durations.end() || known->second.graph.lock() != graph) return {};
    rows.push_back(known->second.row);
  }
  return rows;
}

Result<std::vector<JobDuration>> Service::State::find_durations(
    const JobDurationQuestion& asked, const std::string& question,
    const std::shared_ptr<const PreparedGraph>& graph) {
  constexpr std::size_t kMostDurations = 16'384;
  PERFMODEL_TRY_TO(check_question(asked));
  std::vector<std::string> keys;
  for (const std::string& gpu : asked.gpus) {
    for (const std::int64_t world : asked.worlds) {
      keys.push_back(fmt::format("{}\n{}\n{}", question, gpu, world));
    }
  }
  if (auto rows = known_durations(keys, graph); !rows.empty()) return rows;
  PERFMODEL_TRY(rows, job_durations(predictor, *graph, asked));
  const std::lock_guard lock(durations_mutex);
  if (durations.size() + keys.size() > kMostDurations) durations.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    durations.insert_or_assign(keys[i], KnownDuration{graph, (*rows)[i]});
  }
  return rows;
}

Result<Json> Service::State::duration(const Request& request, std::stop_token cancel) {
  const auto graph = graphs.find(request.graph);
  if (!graph) return no_graph(request.graph);
  PERFMODEL_TRY(asked, job_duration_question(request, std::move(cancel)));
  if (asked->gpus.empty()) asked->gpus = predictor.gpus();
  PERFMODEL_TRY(rows, find_durations(*asked, request.graph + '\n' + question_key(request), graph));
  for (JobDuration& row : *rows) set_steps(*asked, row);
  return Json{{"rows", json_list(*rows, kJobDurationFields, true)}};
}

// The text of the result. `bad_request`: the error is how the command was asked for.
Result<std::string> Service::State::ask(const Request& request, const Caller& caller,
                                        std::stop_token cancel, bool& bad_request) {
  if (!options.run_command) {
    return decline("expected a server with commands, found one without");
  }
  PERFMODEL_TRY(
      prepared,
      prepare_command(
          request, caller, [this](const std::string& name) { return graphs.find(name); }, cancel));
  if (cancel.stop_requested()) return fail(ErrorCode::kCancelled, "cancelled");
  PERFMODEL_TRY(answered, options.run_command(prepared->question));
  bad_request = answered->is_bad_request;
  if (answered->error) return Unexpected{*answered->error};
  PERFMODEL_TRY(outputs, read_outputs(request.outputs, prepared->folder));
  Json kept;
  if (!request.name.empty()) {
    if (!prepared->folder.has(request.name)) {
      return decline("/name: expected a command that writes a graph, found one that wrote none");
    }
    const Caller own{.folder = prepared->folder.path()};
    PERFMODEL_TRY(file, allowed_file(request.name, own, options.max_file_bytes));
    PERFMODEL_TRY(done, keep(request.name, read_recorded_program(*file), cancel));
    kept = std::move(*done);
  }
  return command_result(*answered, kept, *outputs);
}

Json Service::State::stats() const {
  const auto cache = predictor.cache_report();
  const std::chrono::duration<double> up = std::chrono::steady_clock::now() - began;
  return {{"uptime_s", up.count()},
          {"requests", requests.load()},
          {"errors", errors.load()},
          {"graphs", graphs.count()},
          {"graph_bytes", graphs.bytes()},
          {"prices", cache.prices},
          {"price_bytes", cache.bytes},
          {"resident_bytes", resident_bytes()},
          {"waiting", backlog.quick.load()},
          {"waiting_costly", backlog.costly.load()},
          {"refusals_repeated", refusals_repeated.load()},
          {"log_lines_lost", log.lost()},
          {"quick", latency_json(quick)},
          {"costly", latency_json(costly)}};
}

// Answer to a probe: that the server answers at all, and the lengths of its queues.
Json Service::State::health() const {
  return {{"status", "ok"},
          {"waiting", backlog.quick.load()},
          {"waiting_costly", backlog.costly.load()}};
}

Result<Json> Service::State::run(const Request& request, const Caller& caller,
                                 std::stop_token cancel) {
  switch (request.op) {
    case Op::kPing:
      return Json{
          {"protocol", kProtocolVersion},
          {"program",
           {{"version", program_version()}, {"git", git_revision()}, {"data", data_hash()}}}};
    case Op::kGpus: return Json{{"gpus", predictor.gpus()}};
    case Op::kStats: return stats();
    case Op::kHealth: return health();
    case Op::kLoad: return load(request, caller, cancel);
    case Op::kBuild: return keep(request.name, as_program(build_model(model_of(request))), cancel);
    case Op::kUnload:
      if (!graphs.remove(request.name)) return no_graph(request.name);
      if (!options.state.empty()) GraphFolder(options.state).remove(request.name);
      return Json{{"name", request.name}};
    case Op::kPredict:
    case Op::kExplain:
    case Op::kMatchStep: return predict(request, std::move(cancel));
    case Op::kLayout: return layout(request);
    case Op::kLayoutRank: return layout_rank(request, std::move(cancel));
    case Op::kOptimize: return optimize(request, std::move(cancel));
    case Op::kDuration: return duration(request, std::move(cancel));
    case Op::kAsk: break;  // answers with text
  }
  return decline("expected an operation");
}

bool Service::State::is_costly(const Request& request) const {
  constexpr std::size_t kManyNodes = 5000;
  if (makes_or_searches(request.op)) return true;
  // Some dozens of predictions.
  if (request.op == Op::kMatchStep || request.op == Op::kDuration) return true;
  if (request.op != Op::kPredict && request.op != Op::kExplain) return false;
  if (!request.rewrites.empty()) return true;
  const auto graph = graphs.find(request.graph);
  return graph && graph->graph().nodes.size() > kManyNodes;
}

std::string Service::State::answer(std::string& line, const Caller& caller,
                                   Clock::time_point arrived) {
  Request request;
  bool costs_much = false;
  std::string_view op;
  std::string code_of_error;
  const auto timed = [&](std::string line_of_answer) {
    const std::chrono::duration<double, std::micro> took = Clock::now() - arrived;
    (costs_much ? costly : quick).add(took.count());
    log.add({caller.name, op, code_of_error, took.count(), line_of_answer.size()});
    return line_of_answer;
  };
  const auto refuse = [&](const std::string& code, const std::string& message) {
    ++errors;
    code_of_error = code;
    return timed(error_line(request.id, code, message));
  };
  try {
    if (const auto problem = parse_request(line, request)) {
      return refuse(problem->code, problem->message);
    }
    op = op_name(request);
    costs_much = is_costly(request);
    std::stop_source source;
    const std::stop_callback forward(caller.gone, [&source] { source.request_stop(); });
    std::optional<Deadlines::Guard> deadline;
    if (deadlines) {
      deadline.emplace(*deadlines, Deadlines::Clock::now() + options.timeout, source);
    }
    bool bad_request = false;
    const auto failed = [&](const Error& error) {
      if (error.code == ErrorCode::kCancelled && !caller.gone.stop_requested()) {
        return refuse("timeout", fmt::format("expected an answer within {} ms, found none",
                                             options.timeout.count()));
      }
      return refuse(bad_request ? "bad_request" : code_of(error.code), to_string(error));
    };
    const StopRules rules{.token = source.get_token(), .deadline = {}};
    const StopScope scope(&rules);
    try {
      if (request.op == Op::kAsk) {
        const auto text = ask(request, caller, source.get_token(), bad_request);
        return text ? timed(result_line(request.id, std::string_view(*text)))
                    : failed(text.error());
      }
      const auto result = run(request, caller, source.get_token());
      return result ? timed(result_line(request.id, *result)) : failed(result.error());
    } catch (const Stopped&) {
      return failed({.code = ErrorCode::kCancelled, .message = "cancelled"});
    }
  } catch (const OverBudget& over) {
    return refuse("impossible", over.what());
  } catch (const std::bad_alloc&) {
    return refuse("out_of_memory", "out of memory");
  } catch (const std::exception& error) {
    return refuse("internal", error.what());
  }
}

Service::Service(Predictor predictor, const ServiceOptions& options)
    : state_(new State{.predictor = std::move(predictor),
                       .options = options,
                       .graphs = {options.max_graphs, options.max_graph_bytes}}) {
  if (options.timeout.count() > 0) state_->deadlines.emplace();
}

Service::~Service() = default;

Result<void> Service::open() {
  if (!state_->options.log.empty()) PERFMODEL_TRY_TO(state_->log.open(state_->options.log));
  if (state_->options.state.empty()) return {};
  PERFMODEL_TRY(kept, GraphFolder(state_->options.state).all());
  for (const auto& [name, file] : *kept) {
    auto prepared = [&, &path = file]() -> Result<PreparedGraph> {
      PERFMODEL_TRY(program, read_recorded_program(path));
      return state_->predictor.prepare(std::move(*program));
    }();
    if (!prepared) return Unexpected{prepared.error()};
    PERFMODEL_TRY_TO(state_->graphs.put(name, std::move(*prepared)));
  }
  return {};
}

std::string Service::answer(std::string line, const Caller& caller,
                            Clock::time_point arrived) noexcept {
  try {
    ++state_->requests;
    return state_->answer(line, caller, arrived);
  } catch (...) {
    ++state_->errors;
  }
  try {
    return kNoMemory;
  } catch (...) {
    return {};  // as no answer
  }
}

bool Service::is_costly(const std::string& line) const noexcept {
  constexpr std::size_t kLongLine = std::size_t{1} << 16;
  if (line.size() > kLongLine) return true;
  try {
    std::string copy = line;
    Request request;
    return !parse_request(copy, request) && state_->is_costly(request);  // errors are quick
  } catch (...) {
    return true;  // no memory: not in the way of others
  }
}

Backlog& Service::backlog() noexcept { return state_->backlog; }

std::string Service::answer_too_large(std::size_t limit, const Caller& caller,
                                      Clock::time_point arrived) noexcept {
  constexpr const char* kCode = "too_large";
  ++state_->requests;
  ++state_->errors;
  try {
    std::string line = error_line(
        kCode, fmt::format("expected a line of at most {} bytes, found a longer one", limit));
    const std::chrono::duration<double, std::micro> took = Clock::now() - arrived;
    state_->log.add({caller.name, {}, kCode, took.count(), line.size()});
    return line;
  } catch (...) {
    return {};
  }
}

}  // namespace perfmodel::serve
