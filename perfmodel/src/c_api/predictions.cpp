// The C interface: questions and answers.
#include <algorithm>
#include <memory>

#include "base/each_name.hpp"
#include "base/stop_point.hpp"
#include "perfmodel/detail/match_step.hpp"
#include "support.hpp"

namespace perfmodel::c_api {
namespace {

// Answers that predict_many holds at a time.
constexpr std::size_t kChunk = 4096;

// Sets a factor of which 0 leaves the default, 1.
perfmodel_status set_factor(double given, double most, std::string_view name, double& factor,
                            perfmodel_error* error) {
  if (given != 0) factor = given;
  if (factor > 0 && factor <= most) return PERFMODEL_OK;
  return failed(error, PERFMODEL_ERROR_IMPOSSIBLE,
                "expected " + std::string(name) + " above 0 (0: 1), found another number");
}

// Reads a caller's options, which may be NULL. Returns PERFMODEL_OK, or the fault in them.
perfmodel_status ask_options(const perfmodel_options* given, AskOptions& asked,
                             perfmodel_error* error) {
  if (given == nullptr) return PERFMODEL_OK;
  perfmodel_options options;
  if (const auto bad = copy_struct(given, kOptionsSize, options, error)) return bad;
  if (options.batch < 0 || options.sequence < 0 || options.world < 0) {
    return failed(error, PERFMODEL_ERROR_IMPOSSIBLE,
                  "expected batch, sequence and world of at least 1 (0: the graph's), found a "
                  "negative one");
  }
  if (options.stages != 0) asked.stages = options.stages;
  asked.delay_allreduce = options.delay_allreduce != 0;
  asked.batch = options.batch;
  asked.sequence = options.sequence;
  asked.world = options.world;
  if (options.topology) asked.topology = options.topology;
  if (options.strategy) {
    const std::string_view name = options.strategy;
    if (name != "ddp" && name != "fsdp") {
      return failed(error, PERFMODEL_ERROR_UNKNOWN_NAME,
                    "expected the strategy ddp or fsdp, found \"" + std::string(name) + "\"");
    }
    asked.strategy = name == "ddp" ? ParallelStrategy::kDdp : ParallelStrategy::kFsdp;
  }
  asked.keep_ops = options.keep_ops != 0;
  asked.times_only = options.times_only != 0;
  if (options.cancel) asked.cancel = options.cancel->source.get_token();
  if (const auto bad =
          set_factor(options.interference, 1e6, "an interference", asked.interference, error)) {
    return bad;
  }
  if (const auto bad = set_factor(options.host_scale, kMostHostScale, "a scale of the host",
                                  asked.host_scale, error)) {
    return bad;
  }
  return set_factor(options.device_scale, kMostHostScale, "a scale of the device",
                    asked.device_scale, error);
}

perfmodel_totals totals_of(const Prediction& prediction) {
  const auto term = [&](Term which) {
    return prediction.terms_us[static_cast<std::size_t>(which)];
  };
  perfmodel_totals totals = {};
  PERFMODEL_COPY(totals, prediction, e2e_us, gpu_active_us, gpu_idle_us, cpu_us, wait_us,
                 kernel_sum_us, compute_kernel_us, comm_kernel_us, e2e_low_us, e2e_high_us);
  PERFMODEL_COPY(totals, prediction.memory, device_bytes, activation_bytes, peak_allocated_bytes,
                 peak_reserved_bytes);
  totals.exposed_comm_us = prediction.communication.exposed_us;
  totals.t1_us = term(Term::kT1);
  totals.t2_us = term(Term::kT2);
  totals.t3_us = term(Term::kT3);
  totals.t4_us = term(Term::kT4);
  totals.t5_us = term(Term::kT5);
  totals.tx_us = term(Term::kTx);
  totals.modelled_time_fraction = prediction.coverage.modelled_time_fraction;
  totals.iterations = static_cast<std::int64_t>(prediction.iterations.size());
  totals.warning_count = static_cast<std::int64_t>(prediction.warnings.size());
  totals.samples_per_s = prediction.samples_per_s().value_or(0);
  totals.samples_per_s_per_gpu = prediction.samples_per_s_per_gpu().value_or(0);
  totals.gpus = prediction.ranks;
  totals.static_bytes = prediction.memory.static_bytes();
  totals.energy_j = prediction.energy_j.value_or(0);
  totals.needed_bytes = prediction.memory.needed_bytes();
  return totals;
}

// A Predictor knows the batch of prepared graphs and of questions that name one.
void find_batch(const perfmodel_graph& graph, const AskOptions& options,
                Result<Prediction>& answer) {
  if (options.stages > 1 || !answer || answer->batch || !graph.plain) return;
  answer->batch = graph.batch->of(*graph.plain);
}

Result<Prediction> ask(const perfmodel_predictor& predictor, const perfmodel_graph& graph,
                       const char* gpu, const AskOptions& options) {
  const StopRules rules{.token = options.cancel, .deadline = {}};
  const StopScope scope(&rules);
  auto answer = graph.prepared ? predictor.predictor.predict(*graph.prepared, gpu, options)
                               : predictor.predictor.predict(*graph.plain, gpu, options);
  find_batch(graph, options, answer);
  return answer;
}

// The i-th of an array whose elements have the size that the caller's header says.
template <class Struct>
Struct* element(Struct* first, std::size_t i) {
  using Byte = std::conditional_t<std::is_const_v<Struct>, const char, char>;
  return reinterpret_cast<Struct*>(reinterpret_cast<Byte*>(first) + i * first->struct_size);
}

// One chunk of perfmodel_predict_many.
class Chunk {
 public:
  Chunk(perfmodel_totals* totals, perfmodel_status* statuses, perfmodel_error* errors)
      : totals_(totals), statuses_(statuses), errors_(errors) {}

  Result<void> answer(const perfmodel_predictor& predictor, const perfmodel_question* first,
                      std::size_t begin, std::size_t end, const AskManyOptions& options) {
    questions_.clear();
    indices_.clear();
    for (std::size_t i = begin; i < end; ++i) add(*element(first, i), i);
    if (questions_.empty()) return {};
    PERFMODEL_TRY(answers, predictor.predictor.predict_many(questions_, options));
    for (std::size_t k = 0; k < answers->size(); ++k) {
      find_batch(*element(first, indices_[k])->graph, questions_[k].options, (*answers)[k]);
      write((*answers)[k], indices_[k]);
    }
    return {};
  }

  void write(const perfmodel_totals& from, perfmodel_status status, std::size_t i) {
    statuses_[i] = status;
    perfmodel_totals* to = element(totals_, i);
    to->struct_size = totals_->struct_size;
    write_struct(from, to);
  }

  perfmodel_error* error(std::size_t i) const { return errors_ ? errors_ + i : nullptr; }

 private:
  void add(const perfmodel_question& given, std::size_t i) {
    Question question;
    write_message(error(i), "");
    perfmodel_status bad = check_given({{given.graph, "graph"}, {given.gpu, "gpu"}}, error(i));
    if (!bad) bad = ask_options(given.options, question.options, error(i));
    if (bad) return write({}, bad, i);
    question.options.keep_ops = false;
    question.graph = given.graph->plain.get();
    question.prepared = given.graph->prepared ? &*given.graph->prepared : nullptr;
    question.gpu = given.gpu;
    questions_.push_back(question);
    indices_.push_back(i);
  }

  void write(const Result<Prediction>& answer, std::size_t i) {
    if (answer) return write(totals_of(*answer), PERFMODEL_OK, i);
    write({}, failed(error(i), answer.error()), i);
  }

  perfmodel_totals* totals_;
  perfmodel_status* statuses_;
  perfmodel_error* errors_;
  std::vector<Question> questions_;
  std::vector<std::size_t> indices_;
};

}  // namespace
}  // namespace perfmodel::c_api

using namespace perfmodel;
using namespace perfmodel::c_api;

perfmodel_status perfmodel_predict(const perfmodel_predictor* predictor,
                                   const perfmodel_graph* graph, const char* gpu,
                                   const perfmodel_options* options, perfmodel_totals* totals,
                                   perfmodel_error* error) {
  if (const auto bad = clear_struct(totals, "totals", kTotalsSize, error)) return bad;
  return guarded(error, {{predictor, "predictor"}, {graph, "graph"}, {gpu, "gpu"}}, [&] {
    AskOptions asked;
    if (const auto bad = ask_options(options, asked, error)) return bad;
    asked.keep_ops = false;
    const auto prediction = ask(*predictor, *graph, gpu, asked);
    if (!prediction) return failed(error, prediction.error());
    write_struct(totals_of(*prediction), totals);
    return PERFMODEL_OK;
  });
}

perfmodel_status perfmodel_match_step(const perfmodel_predictor* predictor,
                                      const perfmodel_graph* graph, const char* gpu,
                                      const perfmodel_options* options, double measured_us,
                                      double* host_scale, double* device_scale,
                                      perfmodel_error* error) {
  const Arguments needed = {{predictor, "predictor"},
                            {graph, "graph"},
                            {gpu, "gpu"},
                            {host_scale, "host_scale"},
                            {device_scale, "device_scale"}};
  return guarded(error, needed, [&] {
    *host_scale = *device_scale = 0;
    AskOptions asked;
    if (const auto bad = ask_options(options, asked, error)) return bad;
    asked.keep_ops = false;
    asked.times_only = true;
    const auto scales = match_step(measured_us, [&](const StepScales& at) {
      asked.host_scale = at.host;
      asked.device_scale = at.device;
      return ask(*predictor, *graph, gpu, asked);
    });
    if (!scales) return failed(error, scales.error());
    *host_scale = scales->host;
    *device_scale = scales->device;
    return PERFMODEL_OK;
  });
}

perfmodel_status perfmodel_predict_many(const perfmodel_predictor* predictor,
                                        const perfmodel_question* questions, size_t count,
                                        size_t threads, const perfmodel_cancel* cancel,
                                        perfmodel_totals* totals, perfmodel_status* statuses,
                                        perfmodel_error* errors, perfmodel_error* error) {
  const Arguments needed = {{predictor, "predictor"},
                            {questions, "questions"},
                            {totals, "totals"},
                            {statuses, "statuses"}};
  return guarded(error, needed, [&] {
    if (count == 0) {
      return failed(error, PERFMODEL_ERROR_ARGUMENT, "expected at least one question, found none");
    }
    if (const auto bad = check_room(questions, kQuestionSize, error)) return bad;
    if (const auto bad = check_room(totals, kTotalsSize, error)) return bad;
    AskManyOptions options{.threads = threads};
    if (cancel) options.cancel = cancel->source.get_token();
    Chunk chunk(totals, statuses, errors);
    for (std::size_t i = 0; i < count; ++i) {  // should memory end before all are answered
      chunk.write({}, PERFMODEL_ERROR_OUT_OF_MEMORY, i);
      write_message(chunk.error(i), "out of memory");
    }
    for (std::size_t begin = 0; begin < count; begin += kChunk) {
      const auto done =
          chunk.answer(*predictor, questions, begin, std::min(count, begin + kChunk), options);
      if (!done) return failed(error, done.error());
    }
    return PERFMODEL_OK;
  });
}

perfmodel_status perfmodel_predict_full(const perfmodel_predictor* predictor,
                                        const perfmodel_graph* graph, const char* gpu,
                                        const perfmodel_options* options,
                                        perfmodel_prediction** out, perfmodel_error* error) {
  return guarded_new(out, error, {{predictor, "predictor"}, {graph, "graph"}, {gpu, "gpu"}}, [&] {
    AskOptions asked;
    if (const auto bad = ask_options(options, asked, error)) return bad;
    auto prediction = ask(*predictor, *graph, gpu, asked);
    if (!prediction) return failed(error, prediction.error());
    auto explanation = predictor->predictor.explain(*prediction);
    if (!explanation) return failed(error, explanation.error());
    auto full = std::make_unique<perfmodel_prediction>(
        perfmodel_prediction{*graph, std::move(*prediction), std::move(*explanation), {}});
    for (const PredictedOp& op : full->prediction.ops) {
      full->keep(op.name);
      for (const PredictedKernel& kernel : op.kernels) {
        full->keep(to_string(kernel.family));
        full->keep(kernel.price.model);
      }
    }
    *out = full.release();
    return PERFMODEL_OK;
  });
}

void perfmodel_prediction_free(perfmodel_prediction* prediction) { delete prediction; }

perfmodel_status perfmodel_prediction_totals(const perfmodel_prediction* prediction,
                                             perfmodel_totals* totals, perfmodel_error* error) {
  if (const auto bad = clear_struct(totals, "totals", kTotalsSize, error)) return bad;
  return guarded(error, {{prediction, "prediction"}}, [&] {
    write_struct(totals_of(prediction->prediction), totals);
    return PERFMODEL_OK;
  });
}

size_t perfmodel_warning_count(const perfmodel_prediction* prediction) {
  return prediction ? prediction->prediction.warnings.size() : 0;
}

const char* perfmodel_warning(const perfmodel_prediction* prediction, size_t index) {
  if (index >= perfmodel_warning_count(prediction)) return nullptr;
  return prediction->prediction.warnings[index].c_str();
}

const char* perfmodel_explanation(const perfmodel_prediction* prediction) {
  return prediction ? prediction->explanation.text.c_str() : nullptr;
}

const char* perfmodel_bound(const perfmodel_prediction* prediction) {
  return prediction ? prediction->explanation.bound.c_str() : nullptr;
}

double perfmodel_bound_share(const perfmodel_prediction* prediction) {
  return prediction ? prediction->explanation.bound_share : 0;
}

size_t perfmodel_op_count(const perfmodel_prediction* prediction) {
  return prediction ? prediction->prediction.ops.size() : 0;
}

perfmodel_status perfmodel_op_at(const perfmodel_prediction* prediction, size_t index,
                                 perfmodel_op* op, perfmodel_error* error) {
  if (const auto bad = clear_struct(op, "op", kOpSize, error)) return bad;
  if (prediction == nullptr) return null_argument(error, "prediction");
  if (index >= prediction->prediction.ops.size()) {
    return failed(error, PERFMODEL_ERROR_ARGUMENT, "expected an index below the number of ops");
  }
  write_message(error, "");
  const PredictedOp& from = prediction->prediction.ops[index];
  perfmodel_op answer = {};
  answer.id = from.id;
  answer.name = prediction->kept(from.name);
  answer.thread = from.thread;
  answer.start_us = from.start_us;
  answer.host_us = from.host_us;
  answer.wait_us = from.wait_us;
  answer.kernel_count = from.kernels.size();
  write_struct(answer, op);
  return PERFMODEL_OK;
}

perfmodel_status perfmodel_kernel_at(const perfmodel_prediction* prediction, size_t op_index,
                                     size_t kernel_index, perfmodel_kernel* kernel,
                                     perfmodel_error* error) {
  if (const auto bad = clear_struct(kernel, "kernel", kKernelSize, error)) return bad;
  if (prediction == nullptr) return null_argument(error, "prediction");
  const auto& ops = prediction->prediction.ops;
  if (op_index >= ops.size() || kernel_index >= ops[op_index].kernels.size()) {
    return failed(error, PERFMODEL_ERROR_ARGUMENT, "expected an index below the number of kernels");
  }
  write_message(error, "");
  const PredictedKernel& from = ops[op_index].kernels[kernel_index];
  perfmodel_kernel answer = {};
  answer.name = from.name.c_str();
  answer.family = prediction->kept(to_string(from.family));
  answer.model = prediction->kept(from.price.model);
  answer.stream = from.stream;
  answer.in_range = from.price.in_range;
  answer.start_us = from.start_us;
  answer.time_us = from.price.time.count();
  answer.low_us = from.price.low.count();
  answer.high_us = from.price.high.count();
  answer.waiting_us = from.waiting_us;
  write_struct(answer, kernel);
  return PERFMODEL_OK;
}
