// The C interface: layouts of parallel training.
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/each_name.hpp"
#include "layout/layout_inputs.hpp"
#include "perfmodel/layout.hpp"
#include "support.hpp"

struct perfmodel_layout_pricer {
  perfmodel::LayoutPricer pricer;
};

namespace perfmodel::c_api {
namespace {

// Sizes of the structs in version 4.
inline constexpr std::size_t kLayoutJobSize = offsetof(perfmodel_layout_job, fp8_activations);
inline constexpr std::size_t kLayoutSize = offsetof(perfmodel_layout, offload);
inline constexpr std::size_t kLayoutAnswerSize = offsetof(perfmodel_layout_answer, host_bytes);

// 0: not given.
std::optional<std::int64_t> given(std::int64_t number) {
  return number == 0 ? std::nullopt : std::optional(number);
}
std::optional<double> given(double number) {
  return number == 0 ? std::nullopt : std::optional(number);
}
std::optional<bool> given(int choice) {
  return choice == 0 ? std::nullopt : std::optional(choice > 0);
}
std::string given(const char* text) { return text_or_empty(text); }

#define PERFMODEL_GIVE(from, name) ask.name = given(from.name)

LayoutAsk ask_of(const perfmodel_layout_job& job, const perfmodel_layout& layout) {
  LayoutAsk ask{.dropout = job.dropout};
  PERFMODEL_EACH(PERFMODEL_GIVE, job, model, layers, hidden, heads, kv_heads, feed_forward,
                 vocabulary, gated, tied, software, global_batch, sequence, precision, attention,
                 optimizer, grad_dtype, fp8_activations, optimizer_offload_fraction, nvme_gb_per_s,
                 host_gb_per_s);
  PERFMODEL_EACH(PERFMODEL_GIVE, layout, world, dp, tp, pp, vp, cp, ep, micro_batch, zero,
                 recompute, offload, sequence_parallel, schedule);
  return ask;
}

// Lives as long as the process: answers are plain structs.
const char* kept_words(std::string words) {
  static std::mutex mutex;
  static std::set<std::string> kept;
  const std::lock_guard lock(mutex);
  return kept.insert(std::move(words)).first->c_str();
}

perfmodel_layout_answer answer_of(const ParallelLayout& layout,
                                  const LayoutPrediction& prediction) {
  perfmodel_layout_answer answer = {};
  PERFMODEL_COPY(answer, prediction, step_ms, low_ms, high_ms, tokens_per_s_per_gpu, mfu, hfu,
                 allocated_bytes, reserved_bytes, weight_bytes, gradient_bytes, optimizer_bytes,
                 activation_bytes, device_bytes, bubble_share, exposed_comm_share, fits,
                 host_bytes);
  PERFMODEL_COPY(answer, layout, dp, tp, pp, vp, cp, ep, micro_batch, sequence_parallel);
  answer.limit = to_string(prediction.limit).data();  // literals
  answer.zero = to_string(layout.zero).data();
  answer.recompute = kept_words(to_string(layout.recompute));
  answer.offload = to_string(layout.offload).data();
  return answer;
}

/// A caller's job and layout, read.
struct AskedLayout {
  LayoutJob job;
  LayoutAsk parts;
};

// Returns PERFMODEL_OK, or the fault in the caller's structs.
perfmodel_status read_layout(const perfmodel_layout_job* job, const perfmodel_layout* layout,
                             AskedLayout& asked, perfmodel_error* error) {
  perfmodel_layout_job given_job;
  perfmodel_layout given_layout;
  if (const auto bad = copy_struct(job, kLayoutJobSize, given_job, error)) return bad;
  if (const auto bad = copy_struct(layout, kLayoutSize, given_layout, error)) return bad;
  if (!(given_job.dropout >= 0 && given_job.dropout < 1)) {
    return failed(error, PERFMODEL_ERROR_IMPOSSIBLE,
                  "dropout: expected at least 0, below 1, found another");
  }
  asked.parts = ask_of(given_job, given_layout);
  auto question = layout_question(asked.parts);
  if (!question) return failed(error, question.error());
  asked.job = std::move(question->job);
  asked.job.host_memory_bytes = given_job.host_memory_bytes;
  return PERFMODEL_OK;
}

}  // namespace
}  // namespace perfmodel::c_api

using namespace perfmodel;
using namespace perfmodel::c_api;

perfmodel_status perfmodel_layout_pricer_create(const perfmodel_predictor* predictor,
                                                const char* gpu, const char* topology,
                                                perfmodel_layout_pricer** out,
                                                perfmodel_error* error) {
  return guarded_new(out, error, {{predictor, "predictor"}, {gpu, "gpu"}}, [&] {
    auto pricer =
        LayoutPricer::make(predictor->predictor, {.gpu = gpu, .topology = text_or_empty(topology)});
    if (!pricer) return failed(error, pricer.error());
    *out = new perfmodel_layout_pricer{std::move(*pricer)};
    return PERFMODEL_OK;
  });
}

void perfmodel_layout_pricer_free(perfmodel_layout_pricer* pricer) { delete pricer; }

perfmodel_status perfmodel_layout_predict(const perfmodel_layout_pricer* pricer,
                                          const perfmodel_layout_job* job,
                                          const perfmodel_layout* layout,
                                          perfmodel_layout_answer* answer, perfmodel_error* error) {
  if (const auto bad = clear_struct(answer, "answer", kLayoutAnswerSize, error)) return bad;
  return guarded(error, {{pricer, "pricer"}, {job, "job"}, {layout, "layout"}}, [&] {
    AskedLayout asked;
    if (const auto bad = read_layout(job, layout, asked, error)) return bad;
    const auto named = layout_of(asked.parts);
    if (!named) return failed(error, named.error());
    const auto prediction = pricer->pricer.predict(asked.job, *named);
    if (!prediction) return failed(error, prediction.error());
    write_struct(answer_of(*named, *prediction), answer);
    return PERFMODEL_OK;
  });
}

perfmodel_status perfmodel_layout_rank(const perfmodel_layout_pricer* pricer,
                                       const perfmodel_layout_job* job,
                                       const perfmodel_layout* within,
                                       const perfmodel_cancel* cancel,
                                       perfmodel_layout_answer* answers, size_t room, size_t* count,
                                       perfmodel_error* error) {
  if (count == nullptr) return null_argument(error, "count");
  *count = 0;
  const Arguments needed = {
      {pricer, "pricer"}, {job, "job"}, {within, "within"}, {answers, "answers"}};
  return guarded(error, needed, [&] {
    if (room == 0) {
      return failed(error, PERFMODEL_ERROR_ARGUMENT, "expected room for an answer, found none");
    }
    if (const auto bad = check_room(answers, kLayoutAnswerSize, error)) return bad;
    AskedLayout asked;
    if (const auto bad = read_layout(job, within, asked, error)) return bad;
    if (!asked.parts.world) {
      return failed(error, PERFMODEL_ERROR_IMPOSSIBLE, "world: expected GPUs, found none");
    }
    const auto space = layout_space(asked.parts);
    if (!space) return failed(error, space.error());
    LayoutSearchOptions options{.keep = room};
    if (cancel) options.cancel = cancel->source.get_token();
    const std::int64_t world = *asked.parts.world;
    const auto ranking = rank_layouts(pricer->pricer, asked.job, world, *space, options);
    if (!ranking) return failed(error, ranking.error());
    if (!ranking->complete) return failed(error, PERFMODEL_ERROR_CANCELLED, "cancelled");
    if (ranking->best.empty()) {
      return failed(error, PERFMODEL_ERROR_IMPOSSIBLE, nothing_fits(*ranking, world));
    }
    // The caller's structs, of the caller's size, follow each other.
    const std::size_t step = answers->struct_size;
    auto* at = reinterpret_cast<char*>(answers);
    for (const RankedLayout& one : ranking->best) {
      perfmodel_layout_answer answer = answer_of(one.layout, one.prediction);
      answer.struct_size = step;
      std::memcpy(at, &answer, step);
      at += step;
      ++*count;
    }
    return PERFMODEL_OK;
  });
}
