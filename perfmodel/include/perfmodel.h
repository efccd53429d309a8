/* perfmodel: predicts the time of a training step on a GPU. The C interface, libperfmodel_c.
 *
 *   perfmodel_predictor* predictor = NULL;
 *   perfmodel_graph* graph = NULL;
 *   perfmodel_totals totals = {.struct_size = sizeof totals};
 *   perfmodel_error error;
 *   if (perfmodel_predictor_load(PERFMODEL_C_API_VERSION, NULL, &predictor, &error) ||
 *       perfmodel_graph_read("dlrm.json.gz", &graph, &error) ||
 *       perfmodel_predict(predictor, graph, "h100-sxm-80gb", NULL, &totals, &error))
 *     fprintf(stderr, "%s\n", error.message);
 *   else
 *     printf("%.1f us\n", totals.e2e_us);
 *   perfmodel_graph_free(graph);
 *   perfmodel_predictor_free(predictor);
 *
 * Rules for all functions
 *
 * Errors. Functions that can fail return a perfmodel_status, 0 for success. The last parameter,
 * `perfmodel_error* error`, is the caller's memory for a message, or NULL. A failure fills it, a
 * success empties it. There is no state per thread or process, and failing needs no memory:
 * PERFMODEL_ERROR_OUT_OF_MEMORY leaves every handle as it was. No C++ exception gets out. A failed
 * function sets its results (`*out`) to NULL.
 *
 * NULL. Any pointer may be NULL without a crash: optional ones say so, others give
 * PERFMODEL_ERROR_ARGUMENT, free functions do nothing. Freed handles must not be used again.
 *
 * Structs that callers fill begin with `size_t struct_size`: set it to sizeof of the struct and all
 * else to zero; zero is the default of every field. Later versions add fields at the end, so that
 * callers compiled with an older header keep working. A size that this library does not know is
 * PERFMODEL_ERROR_VERSION.
 *
 * Text is UTF-8 with a NUL at its end. The library copies what it keeps. Returned text belongs to
 * its handle and lives as long.
 *
 * Threads. A handle never changes, so any number of threads may use it at once; perfmodel_cancel
 * may be requested from any thread, too. Free each handle once, after its last use, in any order: a
 * handle does not need the ones it was made from.
 *
 * Units. Microseconds (`_us`), of one training step in steady state.
 */
#ifndef PERFMODEL_H
#define PERFMODEL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PERFMODEL_C_API __attribute__((visibility("default")))
#else
#define PERFMODEL_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header. It grows when a function or field is added; the soname of the library
 * changes when one is taken away. */
#define PERFMODEL_C_API_VERSION 8

/* Version of the running library. It is never older than the header it was compiled with. */
PERFMODEL_C_API int perfmodel_c_api_version(void);

struct perfmodel_cancel;

/* ---- Errors ---------------------------------------------------------------------------------- */

typedef enum perfmodel_status {
  PERFMODEL_OK = 0,
  PERFMODEL_ERROR_ARGUMENT = 1,      /* a NULL where none may be, an empty list, an option of
                                        perfmodel_ask that its command does not take */
  PERFMODEL_ERROR_VERSION = 2,       /* a version or struct size that this library does not know */
  PERFMODEL_ERROR_IO = 3,            /* a file cannot be opened or read */
  PERFMODEL_ERROR_SYNTAX = 4,        /* text that is no JSON, or compressed data that is broken */
  PERFMODEL_ERROR_FORMAT = 5,        /* JSON of another shape than the format's */
  PERFMODEL_ERROR_UNKNOWN_NAME = 6,  /* an unknown GPU, topology, family or preset */
  PERFMODEL_ERROR_IMPOSSIBLE = 7,    /* a request that the input cannot answer */
  PERFMODEL_ERROR_OUT_OF_MEMORY = 8, /* an allocation failed; nothing is held back */
  PERFMODEL_ERROR_CANCELLED = 9,     /* the caller asked it to stop */
  PERFMODEL_ERROR_INTERNAL = 10      /* a bug of the library */
} perfmodel_status;

/* "out of memory", ...; "unknown status" for any other number. Never NULL. */
PERFMODEL_C_API const char* perfmodel_status_text(perfmodel_status status);

#define PERFMODEL_MESSAGE_SIZE 1024

/* One line: what was expected, what was found, where ("file:line:column: /pointer: message").
 * Longer ones end in "...". */
typedef struct perfmodel_error {
  char message[PERFMODEL_MESSAGE_SIZE];
} perfmodel_error;

/* The same in parts, for callers that show the place. Longer texts are cut. Since version 5. */
typedef struct perfmodel_place {
  size_t struct_size;
  int64_t line, column;                 /* from 1; 0: unknown */
  char file[PERFMODEL_MESSAGE_SIZE];    /* empty: none */
  char pointer[PERFMODEL_MESSAGE_SIZE]; /* "/nodes/17/id"; empty: none */
  char message[PERFMODEL_MESSAGE_SIZE]; /* without these */
} perfmodel_place;

/* ---- Predictor ------------------------------------------------------------------------------- */

/* GPUs, kernel models and host overheads, loaded once. */
typedef struct perfmodel_predictor perfmodel_predictor;

typedef struct perfmodel_config {
  size_t struct_size;
  const char* data_folder; /* NULL: $PERFMODEL_DATA, else share/perfmodel/data next to the library
                              or the program, else the build's own data */
  const char* const* gpus; /* names, aliases or files; NULL: all of the data folder */
  size_t gpu_count;
  const char* models;    /* "learned" (NULL), "heuristic", "roofline" or a model file */
  const char* overheads; /* "reference" (NULL: one host for every GPU), "measured" (the table
                            recorded with each GPU) or the file of a table */
  /* Kernel prices remembered per GPU (192 bytes each), allocated with the first question about it.
   * 0: 65,536. Negative: none. */
  int64_t cached_prices;
} perfmodel_config;

/* Reads all files now (some 10 ms). `version` is PERFMODEL_C_API_VERSION of the caller's header;
 * `config` may be NULL. The result belongs to the caller. */
PERFMODEL_C_API perfmodel_status perfmodel_predictor_load(int version,
                                                          const perfmodel_config* config,
                                                          perfmodel_predictor** out,
                                                          perfmodel_error* error);
PERFMODEL_C_API void perfmodel_predictor_free(perfmodel_predictor* predictor);

/* GPUs that were loaded, sorted by name. 0 and NULL for a NULL predictor; NULL beyond the last. */
PERFMODEL_C_API size_t perfmodel_gpu_count(const perfmodel_predictor* predictor);
PERFMODEL_C_API const char* perfmodel_gpu_name(const perfmodel_predictor* predictor, size_t index);

/* ---- Graphs ---------------------------------------------------------------------------------- */

/* The ops of one training step of one rank. */
typedef struct perfmodel_graph perfmodel_graph;

/* Reads an execution graph of PyTorch, .json or .json.gz, or a Kineto trace in its place.
 * perfmodel_graph_prepare keeps a trace's host times and, if the trace has no shapes, its kernel
 * times. Unprepared, a trace gets the predictor's host, and one without shapes cannot be predicted
 * (PERFMODEL_ERROR_IMPOSSIBLE). */
PERFMODEL_C_API perfmodel_status perfmodel_graph_read(const char* file, perfmodel_graph** out,
                                                      perfmodel_error* error);

/* The same for callers that may stop it, or that show the place of an error. `cancel` and `place`
 * may be NULL. Since version 5. */
PERFMODEL_C_API perfmodel_status perfmodel_graph_open(const char* file,
                                                      const struct perfmodel_cancel* cancel,
                                                      perfmodel_graph** out, perfmodel_place* place,
                                                      perfmodel_error* error);

/* The same from `size` bytes of JSON text in memory (not compressed, no NUL needed). */
PERFMODEL_C_API perfmodel_status perfmodel_graph_parse(const char* text, size_t size,
                                                       perfmodel_graph** out,
                                                       perfmodel_error* error);

typedef struct perfmodel_model {
  size_t struct_size;
  const char* family;    /* bert, dlrm, gpt, inception, llama, mlp, opt, resnet, t5 or vgg */
  const char* preset;    /* "mlperf", "gpt2-xl", ...; NULL: a small usual one */
  int64_t batch;         /* samples per step; 0: the preset's. So for the others */
  int64_t sequence;      /* tokens per sample; transformers alone */
  int64_t layers;        /* transformers alone */
  const char* optimizer; /* none, sgd, momentum, adagrad, adam, adamw; DLRM: sgd, adagrad,
                            rowwise_adagrad, adam; NULL: the preset's */
} perfmodel_model;

/* Builds the graph of a model without a recording, like `perfpredict build`. */
PERFMODEL_C_API perfmodel_status perfmodel_graph_build(const perfmodel_model* model,
                                                       perfmodel_graph** out,
                                                       perfmodel_error* error);

/* Makes a copy of `graph` that holds everything its answers share. Use it for more than a few
 * questions about one graph. Only this predictor can answer questions about the copy. */
PERFMODEL_C_API perfmodel_status perfmodel_graph_prepare(const perfmodel_predictor* predictor,
                                                         const perfmodel_graph* graph,
                                                         perfmodel_graph** out,
                                                         perfmodel_error* error);
PERFMODEL_C_API void perfmodel_graph_free(perfmodel_graph* graph);

/* Samples per step of the graph. PERFMODEL_ERROR_IMPOSSIBLE if its inputs do not show them;
 * `*batch` is 0 then. */
PERFMODEL_C_API perfmodel_status perfmodel_graph_batch(const perfmodel_graph* graph, int64_t* batch,
                                                       perfmodel_error* error);

/* Nodes of the graph; 0 for NULL. */
PERFMODEL_C_API size_t perfmodel_graph_node_count(const perfmodel_graph* graph);

/* ---- Cancelling ------------------------------------------------------------------------------ */

typedef struct perfmodel_cancel perfmodel_cancel;

PERFMODEL_C_API perfmodel_status perfmodel_cancel_create(perfmodel_cancel** out,
                                                         perfmodel_error* error);
/* Ends all predictions that were given `cancel`, now and later, with PERFMODEL_ERROR_CANCELLED.
 * From any thread, any number of times; takes no locks that wait. NULL: does nothing. */
PERFMODEL_C_API void perfmodel_cancel_request(perfmodel_cancel* cancel);
/* Call it after every call that uses `cancel` has returned. */
PERFMODEL_C_API void perfmodel_cancel_free(perfmodel_cancel* cancel);

/* ---- Predictions ----------------------------------------------------------------------------- */

typedef struct perfmodel_options {
  size_t struct_size;
  int64_t batch;        /* samples per step instead of the graph's; 0: as it is */
  int64_t sequence;     /* tokens per sample instead of the graph's; 0: as it is */
  int64_t world;        /* ranks, for `strategy` and for collectives of no recorded size */
  const char* topology; /* a name; NULL: the GPU's usual node */
  const char*
      strategy;        /* "ddp" or "fsdp": run the graph of one rank on `world` ranks. NULL: none */
  double interference; /* collectives' time on the wire is multiplied by it; 0 is 1 */
  int keep_ops;        /* not 0: the prediction holds ops, kernels and the critical path (slower);
                          only of use with perfmodel_predict_full */
  const perfmodel_cancel* cancel; /* NULL: none */
  double host_scale; /* the host's own time is multiplied by it, above 1 is slower; 0 is 1 */
  /* Since version 6: kernels' time, collectives apart, is multiplied by it; 0 is 1. */
  double device_scale;
  /* Since version 7. Not 0: with strategy ddp, all gradients are reduced after the backward pass,
   * in one buffer per type (Apex). */
  int delay_allreduce;
  /* Since version 7. Above 1: the graph is one rank of a pipeline of so many stages on `world`
   * ranks; the slowest stage gives the figures. 0 is 1. */
  int64_t stages;
  /* Since version 8. Not 0: only times. e2e_low_us and e2e_high_us are e2e_us, all bytes of the
   * answer are 0, no warning says that the step does not fit; takes half the time. */
  int times_only;
} perfmodel_options;

/* Figures of one step. `struct_size` is the caller's and stays. */
typedef struct perfmodel_totals {
  size_t struct_size;
  double e2e_us;            /* host wall time of the step */
  double gpu_active_us;     /* union of all device work */
  double gpu_idle_us;       /* e2e_us - gpu_active_us, at least 0 */
  double cpu_us;            /* host busy */
  double wait_us;           /* host waiting for the device */
  double kernel_sum_us;     /* compute_kernel_us + comm_kernel_us; streams overlap */
  double compute_kernel_us; /* copies and sets included */
  double comm_kernel_us;
  double exposed_comm_us; /* collectives while no other device work runs */
  /* Host overheads, sums by term: T1 between ops, T2 before and T3 after the device calls of an op,
   * T4 the calls, T5 between calls, TX ops without device calls. */
  double t1_us, t2_us, t3_us, t4_us, t5_us, tx_us;
  double modelled_time_fraction; /* share of the time in ops with models, 0 to 1 */
  int64_t iterations;            /* steps that the graph holds; figures are their mean */
  int64_t warning_count;
  /* Since version 2. Samples per second of the whole job: the batch of one GPU times the GPUs
   * (`world` with a strategy, else the largest group of the graph's collectives). 0: the graph's
   * inputs do not show the batch. */
  double samples_per_s;
  double samples_per_s_per_gpu;
  int64_t gpus;
  /* GPU memory that one rank holds however large its batch is: parameters, tables, gradients,
   * optimizer state; and the device's memory. */
  double static_bytes;
  double device_bytes;
  /* Since version 3. Nine of ten steps take between these two, given the errors of kernel prices
   * and the pace of another host. */
  double e2e_low_us;
  double e2e_high_us;
  double energy_j; /* per GPU and step; 0: its power limit is not known */
  /* GPU memory of one rank: tensors kept for the backward pass, the most that PyTorch's allocator
   * hands out and reserves, and the need of the process with its context. If the last is above
   * device_bytes the step does not fit, and a warning says so. */
  double activation_bytes;
  double peak_allocated_bytes;
  double peak_reserved_bytes;
  double needed_bytes;
} perfmodel_totals;

/* The time of one step of `graph` on `gpu` (name, alias or title, any case). `options` may be NULL;
 * on failure `totals` is all zeros except struct_size. */
PERFMODEL_C_API perfmodel_status perfmodel_predict(const perfmodel_predictor* predictor,
                                                   const perfmodel_graph* graph, const char* gpu,
                                                   const perfmodel_options* options,
                                                   perfmodel_totals* totals,
                                                   perfmodel_error* error);

/* Finds the `host_scale` and `device_scale` with which the step described by `options` takes
 * `measured_us` on `gpu`. Predictions of other batches, GPUs and ranks start from the truth if they
 * use these scales. Scales in `options` are ignored. Both results are 0 on failure. Since version
 * 6. */
PERFMODEL_C_API perfmodel_status perfmodel_match_step(const perfmodel_predictor* predictor,
                                                      const perfmodel_graph* graph, const char* gpu,
                                                      const perfmodel_options* options,
                                                      double measured_us, double* host_scale,
                                                      double* device_scale, perfmodel_error* error);

/* One of many questions. */
typedef struct perfmodel_question {
  size_t struct_size;
  const perfmodel_graph* graph;
  const char* gpu;
  const perfmodel_options* options; /* NULL: defaults */
} perfmodel_question;

/* totals[i], statuses[i] and errors[i] answer questions[i]; the caller owns all arrays, each of
 * `count`; `errors` may be NULL. struct_size of the first question and of the first total hold for
 * their arrays. `threads` 0: as many as the machine runs at once. `cancel` may be NULL; it ends the
 * call, and unanswered questions get status PERFMODEL_ERROR_CANCELLED.
 *
 * The call fails as a whole, and answers nothing, for NULLs, an empty array (count 0) and unknown
 * sizes. An error of a single question shows in its status alone. */
PERFMODEL_C_API perfmodel_status perfmodel_predict_many(
    const perfmodel_predictor* predictor, const perfmodel_question* questions, size_t count,
    size_t threads, const perfmodel_cancel* cancel, perfmodel_totals* totals,
    perfmodel_status* statuses, perfmodel_error* errors, perfmodel_error* error);

/* ---- Predictions in full --------------------------------------------------------------------- */

typedef struct perfmodel_prediction perfmodel_prediction;

/* Like perfmodel_predict, with the whole answer. The result belongs to the caller. */
PERFMODEL_C_API perfmodel_status perfmodel_predict_full(
    const perfmodel_predictor* predictor, const perfmodel_graph* graph, const char* gpu,
    const perfmodel_options* options, perfmodel_prediction** out, perfmodel_error* error);
PERFMODEL_C_API void perfmodel_prediction_free(perfmodel_prediction* prediction);

PERFMODEL_C_API perfmodel_status perfmodel_prediction_totals(const perfmodel_prediction* prediction,
                                                             perfmodel_totals* totals,
                                                             perfmodel_error* error);

/* 0 for NULL; NULL beyond the last. */
PERFMODEL_C_API size_t perfmodel_warning_count(const perfmodel_prediction* prediction);
PERFMODEL_C_API const char* perfmodel_warning(const perfmodel_prediction* prediction, size_t index);

/* A few sentences: what bounds the step. NULL for NULL. */
PERFMODEL_C_API const char* perfmodel_explanation(const perfmodel_prediction* prediction);
/* "host", "gemm", "collective", ..., and the share of the step during which it works, 0 to 1. NULL
 * and 0 for NULL. */
PERFMODEL_C_API const char* perfmodel_bound(const perfmodel_prediction* prediction);
PERFMODEL_C_API double perfmodel_bound_share(const perfmodel_prediction* prediction);

typedef struct perfmodel_op {
  size_t struct_size;
  int64_t id;       /* node id in the graph */
  const char* name; /* lives as long as the prediction */
  int32_t thread;
  double start_us, host_us, wait_us;
  size_t kernel_count;
} perfmodel_op;

typedef struct perfmodel_kernel {
  size_t struct_size;
  const char* name;   /* lives as long as the prediction; so do the others */
  const char* family; /* "gemm", "embedding", ... */
  const char* model;  /* the model that priced it */
  int32_t stream;     /* 0: the main compute stream */
  int32_t in_range;   /* 0: outside the sizes that its model was checked on */
  double start_us, time_us, low_us, high_us, waiting_us;
} perfmodel_kernel;

/* Ops in the order in which the host runs them, and the kernels of each; none without `keep_ops`.
 * PERFMODEL_ERROR_ARGUMENT beyond the last. */
PERFMODEL_C_API size_t perfmodel_op_count(const perfmodel_prediction* prediction);
PERFMODEL_C_API perfmodel_status perfmodel_op_at(const perfmodel_prediction* prediction,
                                                 size_t index, perfmodel_op* op,
                                                 perfmodel_error* error);
PERFMODEL_C_API perfmodel_status perfmodel_kernel_at(const perfmodel_prediction* prediction,
                                                     size_t op_index, size_t kernel_index,
                                                     perfmodel_kernel* kernel,
                                                     perfmodel_error* error);

/* ---- Layouts of parallel training -------------------------------------------------------------
 */

/* Prices layouts of transformers on one kind of machine. A layer is priced once for each distinct
 * shard (some 10 ms) and remembered; every further layout takes some 10 us. Since version 4. */
typedef struct perfmodel_layout_pricer perfmodel_layout_pricer;

/* `gpu`: name, alias or title. `topology`: a name; NULL: the GPU's usual node. The result belongs
 * to the caller and no longer needs the predictor. */
PERFMODEL_C_API perfmodel_status perfmodel_layout_pricer_create(
    const perfmodel_predictor* predictor, const char* gpu, const char* topology,
    perfmodel_layout_pricer** out, perfmodel_error* error);
PERFMODEL_C_API void perfmodel_layout_pricer_free(perfmodel_layout_pricer* pricer);

/* A decoder-only transformer and the work of one optimizer step. */
typedef struct perfmodel_layout_job {
  size_t struct_size;
  const char* model; /* "llama3-70b", ...; NULL: the sizes below */
  /* 0: the model's. Without a model all but kv_heads (as many as heads) are needed. */
  int64_t layers, hidden, heads, kv_heads, feed_forward, vocabulary;
  int gated; /* three products per feed-forward layer: 1 yes, -1 no (of sizes alone: a GPT), 0 the
                model's (yes) */
  int tied;  /* the output layer shares the embedding: the same (0: no) */
  int64_t sequence;       /* tokens per sequence; 0: the model's */
  int64_t global_batch;   /* sequences per optimizer step */
  const char* precision;  /* bf16 (NULL), fp16, fp8, fp4, fp32 */
  const char* attention;  /* flash (NULL), eager, fa2, fa3, fa4, cudnn, triton */
  const char* optimizer;  /* adamw (NULL), adamw-8bit, sgd */
  const char* grad_dtype; /* fp32 (NULL), bf16 */
  const char* software;   /* megatron (NULL), nanotron, fsdp, ... */
  double dropout;
  /* Since version 6: inputs of linear layers are kept in fp8; host memory of a node, at most
   * [bytes; 0: no limit]; what its CPUs move for an offloaded optimizer [GB/s; 0: 109]. */
  int fp8_activations;
  double host_memory_bytes, host_gb_per_s;
  /* Since version 7: part of the optimizer that `offload` takes [0: all]; what a node's NVMe drives
   * move [GB/s], which optimizer-nvme needs. */
  double optimizer_offload_fraction, nvme_gb_per_s;
} perfmodel_layout_job;

/* How a job is spread over GPUs; ranks are numbered tp first, then dp, then pp. */
typedef struct perfmodel_layout {
  size_t struct_size;
  int64_t world;           /* GPUs; 0: the product of the parts */
  int64_t dp, tp, pp;      /* 0: dp is the rest of world, the others 1 */
  int64_t vp, micro_batch; /* chunks of layers per stage, sequences per microbatch; 0: 1 */
  const char* zero;        /* none (NULL), 1, 2, 3, fsdp, hsdp */
  /* none (NULL), selective, full, op, N (each Nth layer), block:N, uniform:N, or parts joined by
   * +: core_attn, moe_act, layernorm, mla_up_proj, mlp, moe, shared_experts */
  const char* recompute;
  const char* schedule;  /* 1f1b (NULL), gpipe, zb-h1, zb-v, dualpipe */
  int sequence_parallel; /* 1 yes, -1 no, 0 where tp is above 1 */
  /* Since version 6: none, optimizer, optimizer+parameters, activations, ... A search takes NULL
   * for none, or for all of them if nothing fits without. */
  const char* offload;
  /* Since version 7: ranks that share a sequence, and those that share experts (of dp x cp x tp).
   * 0: 1; a search tries all that divide. */
  int64_t cp, ep;
} perfmodel_layout;

/* A layout and its price. Texts live as long as the library. */
typedef struct perfmodel_layout_answer {
  size_t struct_size;
  double step_ms, low_ms, high_ms;
  double tokens_per_s_per_gpu;
  double mfu, hfu; /* share of the precision's dense peak, 0 to 1; hfu counts recomputation */
  double allocated_bytes, reserved_bytes; /* peak of the worst rank, without the context */
  double weight_bytes, gradient_bytes, optimizer_bytes, activation_bytes;
  double device_bytes;                     /* usable by a program */
  double bubble_share, exposed_comm_share; /* shares of the step, 0 to 1 */
  const char* limit; /* compute, host, tensor_parallel, ...: the largest part of the step */
  int64_t dp, tp, pp, vp, micro_batch;
  const char *zero, *recompute;
  int sequence_parallel;
  int fits;
  /* Since version 6: host memory of the fullest node, all its ranks together. */
  double host_bytes;
  const char* offload;
  int64_t cp, ep; /* since version 7 */
} perfmodel_layout_answer;

/* The time and memory of one layout. PERFMODEL_ERROR_IMPOSSIBLE: parts that do not divide, more
 * GPUs than the topology can connect, a type that the GPU lacks. On failure `answer` is all zeros
 * except struct_size. */
PERFMODEL_C_API perfmodel_status perfmodel_layout_predict(const perfmodel_layout_pricer* pricer,
                                                          const perfmodel_layout_job* job,
                                                          const perfmodel_layout* layout,
                                                          perfmodel_layout_answer* answer,
                                                          perfmodel_error* error);

/* The fastest layouts of `within->world` GPUs that fit, fastest first: `*count` of them, at most
 * `room`. Every other field that `within` sets is kept. struct_size of the first answer holds for
 * the array. PERFMODEL_ERROR_IMPOSSIBLE: none divides, or none fits (the message names the least
 * memory found). `cancel` may be NULL. */
PERFMODEL_C_API perfmodel_status perfmodel_layout_rank(
    const perfmodel_layout_pricer* pricer, const perfmodel_layout_job* job,
    const perfmodel_layout* within, const perfmodel_cancel* cancel,
    perfmodel_layout_answer* answers, size_t room, size_t* count, perfmodel_error* error);

/* ---- Collectives ------------------------------------------------------------------------------
 */

/* One collective between GPUs that enter it together. Since version 7. */
typedef struct perfmodel_collective_question {
  size_t struct_size;
  const char* op; /* all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather,
                     scatter, send, recv */
  /* As nccl-tests counts them. All-reduce, broadcast, reduce, send, recv: the buffer; all-gather:
   * the gathered output; reduce-scatter, all-to-all: what one GPU puts in; gather, scatter: all
   * that the root holds. */
  double bytes;
  int64_t world; /* GPUs that take part, 2 or more; 2 of send and recv */
  int64_t nodes; /* that they are spread over evenly; 0: as few as hold them */
} perfmodel_collective_question;

/* time_us = latency_us + wire_us. Texts live as long as the library. */
typedef struct perfmodel_collective_answer {
  size_t struct_size;
  double time_us, low_us, high_us, latency_us, wire_us;
  double bus_gb_per_s;       /* nccl-tests' busbw, 1e9 bytes per second */
  double algorithm_gb_per_s; /* nccl-tests' algbw: bytes / time */
  double wire_bytes;         /* that the busiest GPU sends */
  const char* algorithm;     /* Ring, Tree, NVLS, NVLSTree, Pairwise: what NCCL takes */
  const char* protocol;      /* LL, LL128, Simple */
  int64_t nodes;
  int in_range; /* 1: within the sizes and groups that the topology's figures were fitted to */
} perfmodel_collective_answer;

/* How long NCCL takes on `topology` (a name; NULL: what the GPU usually sits in). Some
 * microseconds; opens no file. PERFMODEL_ERROR_UNKNOWN_NAME: op, gpu, topology;
 * PERFMODEL_ERROR_IMPOSSIBLE: bytes below 0 or not finite, worlds and nodes that the topology
 * cannot tie together. `answer` is the caller's and all zeros (except struct_size) on failure.
 * Since version 7. */
PERFMODEL_C_API perfmodel_status perfmodel_collective(const perfmodel_predictor* predictor,
                                                      const char* gpu, const char* topology,
                                                      const perfmodel_collective_question* question,
                                                      perfmodel_collective_answer* answer,
                                                      perfmodel_error* error);

/* ---- Commands ---------------------------------------------------------------------------------
 */

/* The answer of a command of perfpredict. */
typedef struct perfmodel_answer perfmodel_answer;

typedef struct perfmodel_ask_options {
  size_t struct_size;
  const perfmodel_cancel* cancel; /* NULL: none */
  int64_t timeout_ms;             /* ends it with PERFMODEL_ERROR_CANCELLED; 0: none */
  size_t max_answer_bytes;        /* PERFMODEL_ERROR_IMPOSSIBLE beyond; 0: any number */
} perfmodel_ask_options;

/* Runs a command of perfpredict within this process. `request` is `size` bytes of JSON, at most
 * 64 MiB:
 *
 *   {"command": "whatif", "arguments": ["gpt2.json"],
 *    "options": {"gpus": ["a100-sxm-80gb", "h100-sxm-80gb"], "batch": [8, 16], "max_batch": true}}
 *
 * `options` are its flags by name, in this order, "_" or "-" within names: true sets a flag, false
 * clears one that has a --no- form, null is none, a list is a list of values, or the flag several
 * times. The answer is the document that the command prints with --json, to the byte; of a command
 * without --json, a JSON string: the text that it prints.
 *
 * Any number of threads may ask at once. A call ends within some 100 ms of a request to cancel it.
 * Nothing is printed and no signal is touched; files that options name are written. Standard input
 * ("-") is refused, and so are the commands serve, train, eval, man and completion. `options` and
 * `place` may be NULL. The result belongs to the caller.
 *
 * One exception to the rules above: out of memory may end the process, since commands write their
 * documents with nlohmann's JSON, which allocates even when it frees. Since version 5. */
PERFMODEL_C_API perfmodel_status perfmodel_ask(const char* request, size_t size,
                                               const perfmodel_ask_options* options,
                                               perfmodel_answer** out, perfmodel_place* place,
                                               perfmodel_error* error);
/* UTF-8 with a NUL at its end; `size` (may be NULL) is without it. NULL for NULL. */
PERFMODEL_C_API const char* perfmodel_answer_text(const perfmodel_answer* answer, size_t* size);
/* The warnings that the command line would print on standard error, one line each. */
PERFMODEL_C_API size_t perfmodel_answer_message_count(const perfmodel_answer* answer);
PERFMODEL_C_API const char* perfmodel_answer_message(const perfmodel_answer* answer, size_t index);
PERFMODEL_C_API void perfmodel_answer_free(perfmodel_answer* answer);

#ifdef __cplusplus
}
#endif

#endif /* PERFMODEL_H */
