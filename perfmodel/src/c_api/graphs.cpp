// The C interface: predictors, graphs, cancelling.
#include <cstring>
#include <filesystem>

#include "builders/named_models.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "support.hpp"

namespace perfmodel::c_api {

perfmodel_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kIo: return PERFMODEL_ERROR_IO;
    case ErrorCode::kSyntax: return PERFMODEL_ERROR_SYNTAX;
    case ErrorCode::kFormat: return PERFMODEL_ERROR_FORMAT;
    case ErrorCode::kUnknownName: return PERFMODEL_ERROR_UNKNOWN_NAME;
    case ErrorCode::kImpossible: return PERFMODEL_ERROR_IMPOSSIBLE;
    case ErrorCode::kOutOfMemory: return PERFMODEL_ERROR_OUT_OF_MEMORY;
    case ErrorCode::kCancelled: return PERFMODEL_ERROR_CANCELLED;
  }
  return PERFMODEL_ERROR_INTERNAL;
}

namespace {

namespace fs = std::filesystem;

Result<PredictorConfig> predictor_config(const perfmodel_config& given) {
  PredictorConfig config;
  if (given.data_folder) config.data = given.data_folder;
  for (std::size_t i = 0; i < given.gpu_count; ++i) {
    if (given.gpus == nullptr || given.gpus[i] == nullptr) {
      return decline("expected names of GPUs, found NULL");
    }
    config.gpus.emplace_back(given.gpus[i]);
  }
  if (given.models) config.models = given.models;
  if (given.overheads) config.overheads = given.overheads;
  if (given.cached_prices < 0) config.cached_prices = 0;
  if (given.cached_prices > 0) config.cached_prices = static_cast<std::size_t>(given.cached_prices);
  return config;
}

perfmodel_status give(Result<ExecutionGraph> graph, perfmodel_graph** out, perfmodel_error* error,
                      std::shared_ptr<const Trace> trace = nullptr) {
  if (!graph) return failed(error, graph.error());
  auto shared = std::make_shared<const ExecutionGraph>(std::move(*graph));
  *out = new perfmodel_graph{.plain = std::move(shared),
                             .prepared = {},
                             .batch = std::make_shared<const FoundBatch>(),
                             .trace = std::move(trace)};
  return PERFMODEL_OK;
}

}  // namespace
}  // namespace perfmodel::c_api

using namespace perfmodel;
using namespace perfmodel::c_api;

int perfmodel_c_api_version(void) { return PERFMODEL_C_API_VERSION; }

const char* perfmodel_status_text(perfmodel_status status) {
  constexpr const char* kTexts[] = {"ok",
                                    "bad argument",
                                    "unknown version",
                                    "unreadable file",
                                    "broken text",
                                    "wrong format",
                                    "unknown name",
                                    "impossible request",
                                    "out of memory",
                                    "cancelled",
                                    "internal error"};
  unsigned index = 0;  // callers in C may give any number
  static_assert(sizeof index == sizeof status);
  std::memcpy(&index, &status, sizeof index);
  return index < std::size(kTexts) ? kTexts[index] : "unknown status";
}

perfmodel_status perfmodel_predictor_load(int version, const perfmodel_config* config,
                                          perfmodel_predictor** out, perfmodel_error* error) {
  return guarded_new(out, error, {}, [&] {
    if (version < 1 || version > PERFMODEL_C_API_VERSION) {
      return failed(error, PERFMODEL_ERROR_VERSION,
                    "expected a version of the interface that this library knows");
    }
    perfmodel_config given = {};
    given.struct_size = sizeof given;
    if (config != nullptr) {
      if (const auto bad = copy_struct(config, kConfigSize, given, error)) return bad;
    }
    if (given.gpus != nullptr && given.gpu_count == 0) {
      return failed(error, PERFMODEL_ERROR_ARGUMENT, "expected names of GPUs, found none");
    }
    const auto wanted = predictor_config(given);
    if (!wanted) return failed(error, PERFMODEL_ERROR_ARGUMENT, wanted.error().message);
    auto loaded = Predictor::load(*wanted);
    if (!loaded) return failed(error, loaded.error());
    auto gpus = loaded->gpus();
    *out = new perfmodel_predictor{std::move(*loaded), std::move(gpus)};
    return PERFMODEL_OK;
  });
}

void perfmodel_predictor_free(perfmodel_predictor* predictor) { delete predictor; }

size_t perfmodel_gpu_count(const perfmodel_predictor* predictor) {
  return predictor ? predictor->gpus.size() : 0;
}

const char* perfmodel_gpu_name(const perfmodel_predictor* predictor, size_t index) {
  return index < perfmodel_gpu_count(predictor) ? predictor->gpus[index].c_str() : nullptr;
}

perfmodel_status perfmodel_graph_read(const char* file, perfmodel_graph** out,
                                      perfmodel_error* error) {
  return perfmodel_graph_open(file, nullptr, out, nullptr, error);
}

perfmodel_status perfmodel_graph_open(const char* file, const perfmodel_cancel* cancel,
                                      perfmodel_graph** out, perfmodel_place* place,
                                      perfmodel_error* error) {
  if (out == nullptr) return null_argument(error, "out");
  *out = nullptr;
  if (const auto bad = clear_place(place, error)) return bad;
  return guarded(error, {{file, "file"}}, [&] {
    StopRules rules;
    if (cancel) rules.token = cancel->source.get_token();
    const StopScope scope(&rules);
    auto program = program_of(file);
    if (!program) {
      write_place(program.error(), place);
      return failed(error, program.error());
    }
    return give(std::move(program->graph), out, error, std::move(program->trace));
  });
}

perfmodel_status perfmodel_graph_parse(const char* text, size_t size, perfmodel_graph** out,
                                       perfmodel_error* error) {
  return guarded_new(out, error, {{text, "text"}}, [&] {
    return give(parse_execution_graph({text, size}), out, error);
  });
}

perfmodel_status perfmodel_graph_build(const perfmodel_model* model, perfmodel_graph** out,
                                       perfmodel_error* error) {
  return guarded_new(out, error, {{model, "model"}}, [&] {
    perfmodel_model given;
    if (const auto bad = copy_struct(model, kModelSize, given, error)) return bad;
    if (given.family == nullptr) return null_argument(error, "family");
    return give(build_model({.family = given.family,
                             .preset = text_or_empty(given.preset),
                             .batch = given.batch,
                             .sequence = given.sequence,
                             .layers = given.layers,
                             .optimizer = text_or_empty(given.optimizer)}),
                out, error);
  });
}

perfmodel_status perfmodel_graph_prepare(const perfmodel_predictor* predictor,
                                         const perfmodel_graph* graph, perfmodel_graph** out,
                                         perfmodel_error* error) {
  return guarded_new(out, error, {{predictor, "predictor"}, {graph, "graph"}}, [&] {
    auto prepared = predictor->predictor.prepare(RecordedProgram{graph->graph(), graph->trace});
    if (!prepared) return failed(error, prepared.error());
    *out = new perfmodel_graph{
        .plain = {}, .prepared = std::move(*prepared), .batch = {}, .trace = {}};
    return PERFMODEL_OK;
  });
}

void perfmodel_graph_free(perfmodel_graph* graph) { delete graph; }

perfmodel_status perfmodel_graph_batch(const perfmodel_graph* graph, int64_t* batch,
                                       perfmodel_error* error) {
  if (batch == nullptr) return null_argument(error, "batch");
  *batch = 0;
  return guarded(error, {{graph, "graph"}}, [&] {
    const auto found = samples_per_step(graph->graph());
    if (!found) return failed(error, found.error());
    *batch = *found;
    return PERFMODEL_OK;
  });
}

size_t perfmodel_graph_node_count(const perfmodel_graph* graph) {
  return graph ? graph->graph().nodes.size() : 0;
}

perfmodel_status perfmodel_cancel_create(perfmodel_cancel** out, perfmodel_error* error) {
  return guarded_new(out, error, {}, [&] {
    *out = new perfmodel_cancel;
    return PERFMODEL_OK;
  });
}

void perfmodel_cancel_request(perfmodel_cancel* cancel) {
  if (cancel) cancel->source.request_stop();
}

void perfmodel_cancel_free(perfmodel_cancel* cancel) { delete cancel; }
