/* The C interface as a C program sees it: answers, errors, NULLs, versions. */
#include <perfmodel.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                                   \
    }                                                                               \
  } while (0)

static perfmodel_error error;

/* The status, and a message that holds `text`. */
#define CHECK_FAILS(call, wanted, text)                                                 \
  do {                                                                                  \
    const perfmodel_status got = (call);                                                \
    if (got != (wanted) || strstr(error.message, text) == NULL) {                       \
      fprintf(stderr, "%s:%d: %s: status %d, \"%s\"\n", __FILE__, __LINE__, #call, got, \
              error.message);                                                           \
      ++failures;                                                                       \
    }                                                                                   \
  } while (0)

static const char* const kGpus[] = {"a100-sxm-40gb", "h100-sxm-80gb"};

static perfmodel_predictor* load(void) {
  perfmodel_config config = {.struct_size = sizeof config};
  perfmodel_predictor* predictor = NULL;
  config.gpus = kGpus;
  config.gpu_count = 2;
  if (perfmodel_predictor_load(PERFMODEL_C_API_VERSION, &config, &predictor, &error)) {
    fprintf(stderr, "load: %s\n", error.message);
  }
  return predictor;
}

static perfmodel_graph* build(const char* family, int64_t batch) {
  perfmodel_model model = {.struct_size = sizeof model};
  perfmodel_graph* graph = NULL;
  model.family = family;
  model.batch = batch;
  if (perfmodel_graph_build(&model, &graph, &error)) fprintf(stderr, "build: %s\n", error.message);
  return graph;
}

static void check_versions(void) {
  perfmodel_predictor* predictor = (perfmodel_predictor*)&error;
  perfmodel_config config = {.struct_size = sizeof config};
  CHECK(perfmodel_c_api_version() == PERFMODEL_C_API_VERSION);
  CHECK_FAILS(perfmodel_predictor_load(0, NULL, &predictor, &error), PERFMODEL_ERROR_VERSION,
              "version");
  CHECK(predictor == NULL);
  CHECK_FAILS(perfmodel_predictor_load(PERFMODEL_C_API_VERSION + 1, NULL, &predictor, &error),
              PERFMODEL_ERROR_VERSION, "version");
  config.struct_size = 0;
  CHECK_FAILS(perfmodel_predictor_load(1, &config, &predictor, &error), PERFMODEL_ERROR_VERSION,
              "struct_size");
  config.struct_size = sizeof config + 8;
  CHECK_FAILS(perfmodel_predictor_load(1, &config, &predictor, &error), PERFMODEL_ERROR_VERSION,
              "struct_size");
  CHECK(strcmp(perfmodel_status_text(PERFMODEL_ERROR_OUT_OF_MEMORY), "out of memory") == 0);
  CHECK(strcmp(perfmodel_status_text((perfmodel_status)99), "unknown status") == 0);
}

static void check_loading(void) {
  perfmodel_predictor* predictor = NULL;
  perfmodel_config config = {.struct_size = sizeof config};
  const char* unknown[] = {"a100-sxm-41gb"};
  const char* none[] = {NULL};
  CHECK_FAILS(perfmodel_predictor_load(1, &config, NULL, &error), PERFMODEL_ERROR_ARGUMENT, "out");
  config.gpus = unknown;
  CHECK_FAILS(perfmodel_predictor_load(1, &config, &predictor, &error), PERFMODEL_ERROR_ARGUMENT,
              "found none");
  config.gpu_count = 1;
  CHECK_FAILS(perfmodel_predictor_load(1, &config, &predictor, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "a100-sxm-41gb");
  config.gpus = none;
  CHECK_FAILS(perfmodel_predictor_load(1, &config, &predictor, &error), PERFMODEL_ERROR_ARGUMENT,
              "NULL");
  config.gpus = NULL;
  config.gpu_count = 0;
  config.data_folder = "/nonexistent";
  CHECK(perfmodel_predictor_load(1, &config, &predictor, &error) != PERFMODEL_OK);
  CHECK(strstr(error.message, "/nonexistent") != NULL);
  CHECK(predictor == NULL);
}

static void check_graphs(const perfmodel_predictor* predictor) {
  perfmodel_graph* graph = NULL;
  perfmodel_model model = {.struct_size = sizeof model};
  int64_t batch = -1;
  CHECK_FAILS(perfmodel_graph_read(NULL, &graph, &error), PERFMODEL_ERROR_ARGUMENT, "file");
  CHECK_FAILS(perfmodel_graph_read("x", NULL, &error), PERFMODEL_ERROR_ARGUMENT, "out");
  CHECK_FAILS(perfmodel_graph_read("/nonexistent.json", &graph, &error), PERFMODEL_ERROR_IO,
              "/nonexistent.json");
  CHECK_FAILS(perfmodel_graph_parse("{\"nodes\": [{]}", 14, &graph, &error), PERFMODEL_ERROR_SYNTAX,
              "graph:1:");
  CHECK_FAILS(perfmodel_graph_parse("{}", 2, &graph, &error), PERFMODEL_ERROR_FORMAT, "nodes");
  CHECK_FAILS(perfmodel_graph_parse("", 0, &graph, &error), PERFMODEL_ERROR_SYNTAX, "");
  CHECK_FAILS(perfmodel_graph_parse(NULL, 4, &graph, &error), PERFMODEL_ERROR_ARGUMENT, "text");
  CHECK_FAILS(perfmodel_graph_build(NULL, &graph, &error), PERFMODEL_ERROR_ARGUMENT, "model");
  CHECK_FAILS(perfmodel_graph_build(&model, &graph, &error), PERFMODEL_ERROR_ARGUMENT, "family");
  model.family = "dlrn";
  CHECK_FAILS(perfmodel_graph_build(&model, &graph, &error), PERFMODEL_ERROR_UNKNOWN_NAME, "dlrm");
  model.family = "dlrm";
  model.sequence = 128;
  CHECK_FAILS(perfmodel_graph_build(&model, &graph, &error), PERFMODEL_ERROR_IMPOSSIBLE,
              "sequence");
  model.sequence = 0;
  model.batch = -5;
  CHECK_FAILS(perfmodel_graph_build(&model, &graph, &error), PERFMODEL_ERROR_IMPOSSIBLE, "-5");
  CHECK(graph == NULL);
  CHECK_FAILS(perfmodel_graph_prepare(predictor, NULL, &graph, &error), PERFMODEL_ERROR_ARGUMENT,
              "graph");
  CHECK_FAILS(perfmodel_graph_batch(NULL, &batch, &error), PERFMODEL_ERROR_ARGUMENT, "graph");
  CHECK(batch == 0);
  CHECK(perfmodel_graph_node_count(NULL) == 0);

  graph = build("dlrm", 512);
  CHECK(perfmodel_graph_batch(graph, &batch, NULL) == PERFMODEL_OK && batch == 512);
  CHECK(perfmodel_graph_node_count(graph) > 100);
  perfmodel_graph_free(graph);
}

/* A product of 256 x 256 matrices that took 40 us, with its host, with shapes and without. */
static void check_trace(const perfmodel_predictor* predictor, const char* gpu, int has_shapes) {
  const char* const file = "c_api_test_trace.json";
  perfmodel_graph *graph = NULL, *prepared = NULL;
  perfmodel_totals totals = {.struct_size = sizeof totals};
  perfmodel_options other = {.struct_size = sizeof other, .batch = 8};
  FILE* out = fopen(file, "w");
  CHECK(out != NULL);
  fprintf(out,
          "{\"deviceProperties\": [{\"id\": 0, \"name\": \"Tesla T4\"}], \"traceEvents\": ["
          "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 1, "
          "\"ts\": 10, \"dur\": 30, \"args\": {%s}},"
          "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, "
          "\"tid\": 1, \"ts\": 15, \"dur\": 5, \"args\": {\"correlation\": 1}},"
          "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"sgemm\", \"pid\": 0, \"tid\": 7, "
          "\"ts\": 22, "
          "\"dur\": 40, \"args\": {\"correlation\": 1, \"device\": 0, \"stream\": 7}}]}",
          has_shapes
              ? "\"Input Dims\": [[256, 256], [256, 256]], \"Input type\": [\"float\", \"float\"]"
              : "");
  fclose(out);
  CHECK(perfmodel_graph_read(file, &graph, &error) == PERFMODEL_OK);
  remove(file);
  CHECK(perfmodel_graph_node_count(graph) > 0);
  if (!has_shapes) {
    CHECK_FAILS(perfmodel_predict(predictor, graph, gpu, NULL, &totals, &error),
                PERFMODEL_ERROR_IMPOSSIBLE, "expected a prepared graph");
  }
  CHECK(perfmodel_graph_prepare(predictor, graph, &prepared, &error) == PERFMODEL_OK);
  CHECK(perfmodel_predict(predictor, prepared, gpu, NULL, &totals, &error) == PERFMODEL_OK);
  CHECK(totals.kernel_sum_us > 0 && totals.t4_us > 0);
  CHECK_FAILS(perfmodel_predict(predictor, prepared, gpu, &other, &totals, &error),
              PERFMODEL_ERROR_IMPOSSIBLE,
              has_shapes ? "name its size: --batch OLD=NEW" : "record_shapes=True");
  perfmodel_graph_free(prepared);
  perfmodel_graph_free(graph);
}

static void check_nulls(const perfmodel_predictor* predictor, const perfmodel_graph* graph) {
  perfmodel_totals totals = {.struct_size = sizeof totals};
  perfmodel_prediction* prediction = NULL;
  perfmodel_op op = {.struct_size = sizeof op};
  perfmodel_kernel kernel = {.struct_size = sizeof kernel};
  CHECK_FAILS(perfmodel_predict(NULL, graph, kGpus[0], NULL, &totals, &error),
              PERFMODEL_ERROR_ARGUMENT, "predictor");
  CHECK_FAILS(perfmodel_predict(predictor, NULL, kGpus[0], NULL, &totals, &error),
              PERFMODEL_ERROR_ARGUMENT, "graph");
  CHECK_FAILS(perfmodel_predict(predictor, graph, NULL, NULL, &totals, &error),
              PERFMODEL_ERROR_ARGUMENT, "gpu");
  CHECK_FAILS(perfmodel_predict(predictor, graph, kGpus[0], NULL, NULL, &error),
              PERFMODEL_ERROR_ARGUMENT, "totals");
  CHECK(perfmodel_predict(NULL, NULL, NULL, NULL, NULL, NULL) == PERFMODEL_ERROR_ARGUMENT);
  CHECK_FAILS(perfmodel_predict_full(predictor, graph, NULL, NULL, &prediction, &error),
              PERFMODEL_ERROR_ARGUMENT, "gpu");
  CHECK_FAILS(perfmodel_prediction_totals(NULL, &totals, &error), PERFMODEL_ERROR_ARGUMENT,
              "prediction");
  CHECK_FAILS(perfmodel_op_at(NULL, 0, &op, &error), PERFMODEL_ERROR_ARGUMENT, "prediction");
  CHECK_FAILS(perfmodel_kernel_at(NULL, 0, 0, &kernel, &error), PERFMODEL_ERROR_ARGUMENT,
              "prediction");
  CHECK(perfmodel_warning_count(NULL) == 0 && perfmodel_warning(NULL, 0) == NULL);
  CHECK(perfmodel_explanation(NULL) == NULL && perfmodel_bound(NULL) == NULL);
  CHECK(perfmodel_bound_share(NULL) == 0 && perfmodel_op_count(NULL) == 0);
  CHECK(perfmodel_gpu_count(NULL) == 0 && perfmodel_gpu_name(NULL, 0) == NULL);
  perfmodel_predictor_free(NULL);
  perfmodel_graph_free(NULL);
  perfmodel_prediction_free(NULL);
  perfmodel_cancel_free(NULL);
  perfmodel_cancel_request(NULL);
}

static void check_predict(const perfmodel_predictor* predictor, const perfmodel_graph* graph) {
  perfmodel_totals first = {.struct_size = sizeof first}, again = {.struct_size = sizeof again};
  perfmodel_options options = {.struct_size = sizeof options};
  perfmodel_graph* prepared = NULL;
  CHECK(perfmodel_predict(predictor, graph, "H100-SXM-80GB", NULL, &first, &error) == 0);
  CHECK(first.e2e_us > 0 && first.gpu_active_us > 0 && first.struct_size == sizeof first);
  CHECK(first.gpu_idle_us == first.e2e_us - first.gpu_active_us);
  CHECK(first.e2e_low_us > 0 && first.e2e_low_us <= first.e2e_us);
  CHECK(first.e2e_high_us >= first.e2e_us && first.energy_j > 0);
  CHECK(first.kernel_sum_us == first.compute_kernel_us + first.comm_kernel_us);
  CHECK(first.t1_us > 0 && first.t4_us > 0 && first.modelled_time_fraction > 0.9);
  CHECK(error.message[0] == '\0');

  CHECK(perfmodel_graph_prepare(predictor, graph, &prepared, &error) == 0);
  CHECK(perfmodel_predict(predictor, prepared, kGpus[1], &options, &again, &error) == 0);
  CHECK(memcmp(&first, &again, sizeof first) == 0);
  options.batch = 4096;
  CHECK(perfmodel_predict(predictor, prepared, kGpus[1], &options, &again, &error) == 0);
  CHECK(again.gpu_active_us > first.gpu_active_us);
  perfmodel_graph_free(prepared);

  CHECK_FAILS(perfmodel_predict(predictor, graph, "h100-sxm-81gb", NULL, &again, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "h100-sxm-80gb");
  CHECK(again.e2e_us == 0 && again.struct_size == sizeof again);
  options.struct_size = sizeof options + 1;
  CHECK_FAILS(perfmodel_predict(predictor, graph, kGpus[0], &options, &again, &error),
              PERFMODEL_ERROR_VERSION, "struct_size");
  options.struct_size = sizeof options;
  options.batch = -1;
  CHECK_FAILS(perfmodel_predict(predictor, graph, kGpus[0], &options, &again, &error),
              PERFMODEL_ERROR_IMPOSSIBLE, "negative");
  options.batch = 0;
  options.strategy = "zero";
  options.world = 8;
  CHECK_FAILS(perfmodel_predict(predictor, graph, kGpus[0], &options, &again, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "fsdp");
  options.strategy = "ddp";
  options.topology = "moebius-ring";
  CHECK_FAILS(perfmodel_predict(predictor, graph, kGpus[0], &options, &again, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "moebius-ring");
  options.topology = NULL;
  options.interference = -2;
  CHECK_FAILS(perfmodel_predict(predictor, graph, kGpus[0], &options, &again, &error),
              PERFMODEL_ERROR_IMPOSSIBLE, "interference");
  /* A caller of version 1 gets the fields that it knows, and nothing behind them. */
  memset(&again, 0x5A, sizeof again);
  again.struct_size = offsetof(perfmodel_totals, samples_per_s);
  CHECK(perfmodel_predict(predictor, graph, kGpus[0], NULL, &again, &error) == 0);
  CHECK(again.e2e_us > 0 && again.e2e_us < 1e9 && again.iterations == 1);
  memset(&first, 0x5A, sizeof first);
  CHECK(memcmp(&again.samples_per_s, &first.samples_per_s,
               sizeof again - offsetof(perfmodel_totals, samples_per_s)) == 0);
  again.struct_size = 4;
  CHECK_FAILS(perfmodel_predict(predictor, graph, kGpus[0], NULL, &again, &error),
              PERFMODEL_ERROR_VERSION, "struct_size");
}

static void check_ranks(const perfmodel_predictor* predictor) {
  perfmodel_graph* resnet = build("resnet", 32);
  perfmodel_totals alone = {.struct_size = sizeof alone}, ranks = {.struct_size = sizeof ranks};
  perfmodel_options options = {.struct_size = sizeof options};
  options.world = 8;
  options.strategy = "ddp";
  CHECK(perfmodel_predict(predictor, resnet, kGpus[0], NULL, &alone, &error) == 0);
  CHECK(perfmodel_predict(predictor, resnet, kGpus[0], &options, &ranks, &error) == 0);
  CHECK(alone.comm_kernel_us == 0 && ranks.comm_kernel_us > 0);
  perfmodel_totals times = {.struct_size = sizeof times};
  options.times_only = 1;
  CHECK(perfmodel_predict(predictor, resnet, kGpus[0], &options, &times, &error) == 0);
  CHECK(times.e2e_us == ranks.e2e_us && times.e2e_low_us == times.e2e_us && times.needed_bytes == 0);
  perfmodel_totals delayed = {.struct_size = sizeof delayed};
  options.delay_allreduce = 1;
  CHECK(perfmodel_predict(predictor, resnet, kGpus[0], &options, &delayed, &error) == 0);
  CHECK(delayed.exposed_comm_us > ranks.exposed_comm_us);
  options.stages = 4;
  CHECK_FAILS(perfmodel_predict(predictor, resnet, kGpus[0], &options, &delayed, &error),
              PERFMODEL_ERROR_IMPOSSIBLE, "stages: expected no strategy, found one");
  perfmodel_graph_free(resnet);
}

static void check_full(const perfmodel_predictor* predictor) {
  perfmodel_graph* graph = build("dlrm", 2048);
  perfmodel_prediction* prediction = NULL;
  perfmodel_options options = {.struct_size = sizeof options};
  perfmodel_totals totals = {.struct_size = sizeof totals}, plain = {.struct_size = sizeof plain};
  perfmodel_op op = {.struct_size = sizeof op};
  perfmodel_kernel kernel = {.struct_size = sizeof kernel};
  double kernels_us = 0;
  size_t i, k;
  options.keep_ops = 1;
  CHECK(perfmodel_predict(predictor, graph, kGpus[0], NULL, &plain, &error) == 0);
  CHECK(perfmodel_predict_full(predictor, graph, kGpus[0], &options, &prediction, &error) == 0);
  perfmodel_graph_free(graph); /* the prediction does not need it */
  CHECK(perfmodel_prediction_totals(prediction, &totals, &error) == 0);
  CHECK(totals.e2e_us == plain.e2e_us && totals.gpu_active_us == plain.gpu_active_us);
  CHECK(strstr(perfmodel_explanation(prediction), "One step takes") != NULL);
  CHECK(perfmodel_bound(prediction) != NULL && perfmodel_bound_share(prediction) > 0);
  CHECK(perfmodel_warning_count(prediction) == (size_t)totals.warning_count);
  CHECK(totals.gpus == 1 && totals.samples_per_s == totals.samples_per_s_per_gpu);
  CHECK(totals.static_bytes > 0 && totals.device_bytes > totals.static_bytes);
  CHECK(totals.peak_allocated_bytes > totals.static_bytes && totals.activation_bytes > 0);
  CHECK(totals.peak_reserved_bytes >= totals.peak_allocated_bytes);
  CHECK(totals.needed_bytes >= totals.peak_reserved_bytes);
  CHECK(perfmodel_warning(prediction, perfmodel_warning_count(prediction)) == NULL);
  CHECK(perfmodel_op_count(prediction) > 20);
  for (i = 0; i < perfmodel_op_count(prediction); ++i) {
    CHECK(perfmodel_op_at(prediction, i, &op, &error) == 0 && op.name[0] != '\0');
    for (k = 0; k < op.kernel_count; ++k) {
      CHECK(perfmodel_kernel_at(prediction, i, k, &kernel, &error) == 0);
      CHECK(kernel.low_us <= kernel.time_us && kernel.time_us <= kernel.high_us);
      CHECK(kernel.name[0] != '\0' && kernel.family[0] != '\0' && kernel.model[0] != '\0');
      kernels_us += kernel.time_us;
    }
  }
  CHECK(kernels_us > 0.999 * totals.kernel_sum_us && kernels_us < 1.001 * totals.kernel_sum_us);
  CHECK_FAILS(perfmodel_op_at(prediction, i, &op, &error), PERFMODEL_ERROR_ARGUMENT, "index");
  CHECK_FAILS(perfmodel_kernel_at(prediction, 0, 1u << 20, &kernel, &error),
              PERFMODEL_ERROR_ARGUMENT, "index");
  perfmodel_prediction_free(prediction);
}

enum { kMany = 40 };

static void check_many(const perfmodel_predictor* predictor, const perfmodel_graph* graph) {
  static perfmodel_question questions[kMany];
  static perfmodel_options options[kMany];
  static perfmodel_totals totals[kMany];
  static perfmodel_status statuses[kMany];
  static perfmodel_error errors[kMany];
  perfmodel_cancel* cancel = NULL;
  int i;
  for (i = 0; i < kMany; ++i) {
    options[i].struct_size = sizeof options[i];
    options[i].batch = 64 * (i + 1);
    questions[i].struct_size = sizeof questions[i];
    questions[i].graph = graph;
    questions[i].gpu = i == 7 ? "abacus" : kGpus[i % 2];
    questions[i].options = &options[i];
    totals[i].struct_size = sizeof totals[i];
  }
  questions[3].graph = NULL;
  options[5].batch = -1;
  CHECK(perfmodel_predict_many(predictor, questions, kMany, 2, NULL, totals, statuses, errors,
                               &error) == PERFMODEL_OK);
  for (i = 0; i < kMany; ++i) {
    perfmodel_totals one = {.struct_size = sizeof one};
    const perfmodel_status status = perfmodel_predict(predictor, questions[i].graph,
                                                      questions[i].gpu, &options[i], &one, &error);
    CHECK(statuses[i] == status && memcmp(&totals[i], &one, sizeof one) == 0);
    CHECK(strcmp(errors[i].message, error.message) == 0);
  }
  CHECK(statuses[3] == PERFMODEL_ERROR_ARGUMENT && statuses[5] == PERFMODEL_ERROR_IMPOSSIBLE);
  CHECK(statuses[7] == PERFMODEL_ERROR_UNKNOWN_NAME && statuses[8] == PERFMODEL_OK);

  CHECK_FAILS(
      perfmodel_predict_many(predictor, questions, 0, 1, NULL, totals, statuses, NULL, &error),
      PERFMODEL_ERROR_ARGUMENT, "at least one");
  CHECK_FAILS(perfmodel_predict_many(predictor, NULL, 1, 1, NULL, totals, statuses, NULL, &error),
              PERFMODEL_ERROR_ARGUMENT, "questions");
  CHECK_FAILS(
      perfmodel_predict_many(predictor, questions, 1, 1, NULL, NULL, statuses, NULL, &error),
      PERFMODEL_ERROR_ARGUMENT, "totals");
  CHECK_FAILS(perfmodel_predict_many(predictor, questions, 1, 1, NULL, totals, NULL, NULL, &error),
              PERFMODEL_ERROR_ARGUMENT, "statuses");

  CHECK(perfmodel_cancel_create(&cancel, &error) == PERFMODEL_OK);
  perfmodel_cancel_request(cancel);
  CHECK(perfmodel_predict_many(predictor, questions, kMany, 1, cancel, totals, statuses, NULL,
                               &error) == PERFMODEL_OK);
  CHECK(statuses[0] == PERFMODEL_ERROR_CANCELLED && totals[0].e2e_us == 0);
  options[0].cancel = cancel;
  CHECK_FAILS(perfmodel_predict(predictor, graph, kGpus[0], &options[0], &totals[0], &error),
              PERFMODEL_ERROR_CANCELLED, "cancel");
  perfmodel_cancel_free(cancel);
}

static void check_layouts(const perfmodel_predictor* predictor) {
  perfmodel_layout_pricer* pricer = NULL;
  perfmodel_layout_job job = {.struct_size = sizeof job};
  perfmodel_layout layout = {.struct_size = sizeof layout};
  perfmodel_layout_answer answer = {.struct_size = sizeof answer}, again = answer;
  perfmodel_layout_answer best[5];
  perfmodel_cancel* cancel = NULL;
  size_t count = 7, i;
  best[0].struct_size = sizeof best[0];
  CHECK_FAILS(perfmodel_layout_pricer_create(predictor, "abacus", NULL, &pricer, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "abacus");
  CHECK(pricer == NULL);
  CHECK_FAILS(perfmodel_layout_pricer_create(predictor, kGpus[0], "nowhere", &pricer, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "nowhere");
  CHECK_FAILS(perfmodel_layout_pricer_create(NULL, kGpus[0], NULL, &pricer, &error),
              PERFMODEL_ERROR_ARGUMENT, "predictor");
  CHECK(perfmodel_layout_pricer_create(predictor, kGpus[0], NULL, &pricer, &error) == 0);
  if (pricer == NULL) return;
  job.model = "gpt2";
  job.global_batch = 64;
  layout.world = 8;
  layout.tp = 2;
  layout.zero = "1";
  CHECK(perfmodel_layout_predict(pricer, &job, &layout, &answer, &error) == 0);
  CHECK(answer.dp == 4 && answer.tp == 2 && answer.pp == 1 && answer.micro_batch == 1);
  CHECK(answer.low_ms <= answer.step_ms && answer.step_ms <= answer.high_ms);
  CHECK(answer.mfu > 0 && answer.mfu < 1 && answer.hfu == answer.mfu && answer.fits);
  CHECK(answer.reserved_bytes >= answer.allocated_bytes && answer.allocated_bytes > 0);
  CHECK(answer.device_bytes > answer.reserved_bytes && answer.limit[0] != '\0');
  CHECK(strcmp(answer.zero, "1") == 0 && strcmp(answer.recompute, "none") == 0);
  CHECK(perfmodel_layout_predict(pricer, &job, &layout, &again, &error) == 0);
  CHECK(memcmp(&answer, &again, sizeof answer) == 0);
  CHECK(answer.host_bytes == 0 && strcmp(answer.offload, "none") == 0);
  CHECK(answer.cp == 1 && answer.ep == 1);
  layout.cp = 2;
  CHECK(perfmodel_layout_predict(pricer, &job, &layout, &again, &error) == 0);
  CHECK(again.cp == 2 && again.dp == 2 && again.step_ms != answer.step_ms);
  layout.cp = 0;
  layout.offload = "zero-offload";
  job.host_memory_bytes = 1;
  CHECK(perfmodel_layout_predict(pricer, &job, &layout, &again, &error) == 0);
  CHECK(again.host_bytes > 1 && !again.fits && strcmp(again.offload, "optimizer") == 0);
  job.host_memory_bytes = -1;
  CHECK_FAILS(perfmodel_layout_predict(pricer, &job, &layout, &again, &error),
              PERFMODEL_ERROR_IMPOSSIBLE, "host_memory");
  job.host_memory_bytes = 0;
  layout.offload = NULL;
  layout.tp = 5;
  CHECK_FAILS(perfmodel_layout_predict(pricer, &job, &layout, &again, &error),
              PERFMODEL_ERROR_IMPOSSIBLE, "world");
  CHECK(again.step_ms == 0 && again.limit == NULL && again.struct_size == sizeof again);
  layout.zero = "7";
  layout.tp = 0;
  CHECK_FAILS(perfmodel_layout_predict(pricer, &job, &layout, &again, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "zero");
  layout.zero = NULL;
  job.struct_size = 3;
  CHECK_FAILS(perfmodel_layout_predict(pricer, &job, &layout, &again, &error),
              PERFMODEL_ERROR_VERSION, "struct_size");
  job.struct_size = sizeof job;
  CHECK_FAILS(perfmodel_layout_predict(pricer, NULL, &layout, &again, &error),
              PERFMODEL_ERROR_ARGUMENT, "job");
  layout.micro_batch = 4;
  CHECK(perfmodel_layout_rank(pricer, &job, &layout, NULL, best, 5, &count, &error) == 0);
  CHECK(count == 5);
  for (i = 0; i < count; ++i) {
    CHECK(best[i].dp * best[i].tp * best[i].pp * best[i].cp == 8);
    CHECK(best[i].micro_batch == 4 && best[i].fits);
    CHECK(i == 0 || best[i].step_ms >= best[i - 1].step_ms);
  }
  layout.world = 0;
  CHECK_FAILS(perfmodel_layout_rank(pricer, &job, &layout, NULL, best, 5, &count, &error),
              PERFMODEL_ERROR_IMPOSSIBLE, "world");
  CHECK(count == 0);
  CHECK_FAILS(perfmodel_layout_rank(pricer, &job, &layout, NULL, best, 0, &count, &error),
              PERFMODEL_ERROR_ARGUMENT, "room");
  layout.world = 8;
  CHECK(perfmodel_cancel_create(&cancel, &error) == PERFMODEL_OK);
  perfmodel_cancel_request(cancel);
  CHECK_FAILS(perfmodel_layout_rank(pricer, &job, &layout, cancel, best, 5, &count, &error),
              PERFMODEL_ERROR_CANCELLED, "cancel");
  perfmodel_cancel_free(cancel);
  perfmodel_layout_pricer_free(pricer);
  perfmodel_layout_pricer_free(NULL);
}

static void check_collectives(const perfmodel_predictor* predictor) {
  perfmodel_collective_question question = {.struct_size = sizeof question};
  perfmodel_collective_answer answer = {.struct_size = sizeof answer};
  perfmodel_collective_answer whole = {.struct_size = sizeof whole};
  question.op = "all_gather";
  question.bytes = 64 << 20;
  question.world = 16;
  CHECK(perfmodel_collective(predictor, kGpus[0], "hgx-h100", &question, &answer, &error) == 0);
  CHECK(answer.nodes == 2 && answer.low_us <= answer.time_us && answer.time_us <= answer.high_us);
  CHECK(answer.time_us == answer.latency_us + answer.wire_us);
  CHECK(answer.wire_bytes == question.bytes * 15 / 16 && strcmp(answer.algorithm, "Ring") == 0);
  question.op = "all_reduce";
  CHECK(perfmodel_collective(predictor, kGpus[0], "hgx-h100", &question, &whole, &error) == 0);
  CHECK(whole.time_us > answer.time_us && whole.wire_bytes == 2 * answer.wire_bytes);
  CHECK_FAILS(perfmodel_collective(predictor, kGpus[0], "nowhere", &question, &answer, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "nowhere");
  CHECK(answer.time_us == 0 && answer.algorithm == NULL && answer.struct_size == sizeof answer);
  CHECK_FAILS(perfmodel_collective(predictor, "abacus", NULL, &question, &answer, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "abacus");
  question.op = "all_reduse";
  CHECK_FAILS(perfmodel_collective(predictor, kGpus[0], NULL, &question, &answer, &error),
              PERFMODEL_ERROR_UNKNOWN_NAME, "all_reduce");
  question.op = "all_reduce";
  question.world = 1;
  CHECK_FAILS(perfmodel_collective(predictor, kGpus[0], NULL, &question, &answer, &error),
              PERFMODEL_ERROR_IMPOSSIBLE, "world");
  CHECK_FAILS(perfmodel_collective(predictor, NULL, NULL, &question, &answer, &error),
              PERFMODEL_ERROR_ARGUMENT, "gpu");
}

static perfmodel_status ask(const char* request, const perfmodel_ask_options* options,
                            perfmodel_answer** answer, perfmodel_place* place) {
  return perfmodel_ask(request, strlen(request), options, answer, place, &error);
}

static void check_ask(void) {
  static const char kGemm[] =
      "{\"command\": \"gemm\", \"arguments\": [64, 64, 64], \"options\": {\"gpu\": "
      "\"v100-sxm2-32gb\"}}";
  perfmodel_ask_options options = {.struct_size = sizeof options};
  perfmodel_place place = {.struct_size = sizeof place};
  perfmodel_answer* answer = NULL;
  perfmodel_cancel* cancel = NULL;
  size_t size = 0;
  CHECK(ask(kGemm, NULL, &answer, NULL) == PERFMODEL_OK);
  CHECK(strstr(perfmodel_answer_text(answer, &size), "\"schema\": \"perfmodel-gemm\"") != NULL);
  CHECK(size == strlen(perfmodel_answer_text(answer, NULL)));
  CHECK(perfmodel_answer_message(answer, perfmodel_answer_message_count(answer)) == NULL);
  perfmodel_answer_free(answer);

  options.max_answer_bytes = 10;
  CHECK_FAILS(ask(kGemm, &options, &answer, &place), PERFMODEL_ERROR_IMPOSSIBLE, "10 bytes");
  CHECK(answer == NULL);
  options.max_answer_bytes = 0;
  CHECK(perfmodel_cancel_create(&cancel, &error) == PERFMODEL_OK);
  perfmodel_cancel_request(cancel);
  options.cancel = cancel;
  CHECK_FAILS(ask(kGemm, &options, &answer, &place), PERFMODEL_ERROR_CANCELLED, "cancelled");
  perfmodel_cancel_free(cancel);

  CHECK_FAILS(
      ask("{\"command\": \"memory\", \"arguments\": [\"no/graph.json\"]}", NULL, &answer, &place),
      PERFMODEL_ERROR_IO, "no/graph.json");
  CHECK(strcmp(place.file, "no/graph.json") == 0 && place.line == 0 && place.message[0] != 0);
  CHECK_FAILS(ask("{\"command\": \"gemm\", \"options\": {\"gpuu\": 3}}", NULL, &answer, &place),
              PERFMODEL_ERROR_ARGUMENT, "--gpu");
  CHECK(strcmp(place.pointer, "/options/gpuu") == 0);
  // Whatever text comes back: one line that can be printed.
  CHECK_FAILS(ask("{\"command\": \"gpus\", \"arguments\": [\"\\u0014t4\"]}", NULL, &answer, &place),
              PERFMODEL_ERROR_UNKNOWN_NAME, "?t4");
  CHECK_FAILS(ask("-1e+309", NULL, &answer, &place), PERFMODEL_ERROR_SYNTAX, "too large");
  CHECK_FAILS(ask("{\"command\": ", NULL, &answer, &place), PERFMODEL_ERROR_SYNTAX, "JSON");
  CHECK_FAILS(ask("{\"command\": \"gemm\", \"more\": 1}", NULL, &answer, &place),
              PERFMODEL_ERROR_FORMAT, "/more");
  CHECK_FAILS(ask("{\"command\": \"gemm\", \"options\": {\"help\": 1}}", NULL, &answer, &place),
              PERFMODEL_ERROR_FORMAT, "/options/help");
  CHECK_FAILS(ask("{\"command\": \"serve\"}", NULL, &answer, &place), PERFMODEL_ERROR_FORMAT,
              "serve");
  CHECK_FAILS(ask("{\"command\": \"trace\", \"arguments\": [\"-\"]}", NULL, &answer, &place),
              PERFMODEL_ERROR_FORMAT, "/arguments/0");
  CHECK_FAILS(perfmodel_ask(NULL, 0, NULL, &answer, NULL, &error), PERFMODEL_ERROR_ARGUMENT,
              "request");
  CHECK_FAILS(perfmodel_ask(kGemm, 1, NULL, NULL, NULL, &error), PERFMODEL_ERROR_ARGUMENT, "out");
  options.struct_size = 3;
  CHECK_FAILS(ask(kGemm, &options, &answer, NULL), PERFMODEL_ERROR_VERSION, "struct_size");
  place.struct_size = 3;
  CHECK_FAILS(ask(kGemm, NULL, &answer, &place), PERFMODEL_ERROR_VERSION, "struct_size");
  CHECK(perfmodel_answer_text(NULL, &size) == NULL && size == 0);
  CHECK(perfmodel_answer_message_count(NULL) == 0);
  perfmodel_answer_free(NULL);
}

int main(void) {
  perfmodel_predictor* predictor;
  perfmodel_graph* graph;
  check_versions();
  check_loading();
  predictor = load();
  if (predictor == NULL) return 1;
  CHECK(perfmodel_gpu_count(predictor) == 2);
  CHECK(strcmp(perfmodel_gpu_name(predictor, 0), kGpus[0]) == 0);
  CHECK(perfmodel_gpu_name(predictor, 2) == NULL);
  graph = build("dlrm", 256);
  check_graphs(predictor);
  check_trace(predictor, kGpus[0], 1);
  check_trace(predictor, kGpus[0], 0);
  check_nulls(predictor, graph);
  check_predict(predictor, graph);
  check_ranks(predictor);
  check_full(predictor);
  check_many(predictor, graph);
  check_layouts(predictor);
  check_collectives(predictor);
  check_ask();
  perfmodel_predictor_free(predictor); /* before its graph: any order will do */
  perfmodel_graph_free(graph);
  printf(failures ? "%d checks failed\n" : "all checks passed\n", failures);
  return failures != 0;
}
