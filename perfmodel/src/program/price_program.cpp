#include "price_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "given_times.hpp"
#include "perfmodel/predictors/detail/power.hpp"
#include "rewrites/attention_support.hpp"
#include "warm_inputs.hpp"

namespace perfmodel {

Price asked_price(const KernelQuestion& question, const Gpu& gpu, const PredictOptions& options,
                  const KernelModel* job_collectives) {
  const KernelWork& work = question.work;
  if (question.traced) {
    const Microseconds time(question.traced->us * question.growth);
    return {
        .time = time, .low = time, .high = time, .bound = Bound::kMeasured, .model = "as-traced"};
  }
  if (question.of_job) return job_collectives->price(work, gpu);
  const bool remembered = options.prices && work.family != KernelFamily::kCollective;
  Price price = remembered ? options.prices->price(work) : options.models->price(work, gpu);
  if (question.tasks > 1) scale(price, question.tasks);
  return price;
}

void keep_share(Price& price, double share) {
  constexpr Microseconds kLeastKernel(2);
  if (share == 1 || price.bound == Bound::kMeasured) return;
  for (Microseconds* time : {&price.time, &price.low, &price.high}) {
    *time = std::min(*time, std::max(kLeastKernel, *time * share));
  }
}

void lengthen(Price& price, double us) {
  for (Microseconds* time : {&price.time, &price.low, &price.high}) {
    *time = std::max(Microseconds(0), *time + Microseconds(us));
  }
}

namespace {

// The recorded time less the model's transfer on the GPU of the trace was waiting. This waiting
// stays on another GPU or with other sizes, for which the transfer is priced.
void keep_recorded_wait(const KernelQuestion& question, const Gpu& gpu,
                        const PredictOptions& options, PredictedKernel& kernel) {
  const KernelTimes::Time* traced = question.traced;
  const KernelWork& work = question.work;
  if (!traced || !traced->collective || work.family != KernelFamily::kCollective ||
      !(work.bytes_read.value > 0)) {
    return;
  }
  const Gpu& recorded_on = *options.kernel_times->alone_on;
  KernelQuestion transfer = question;
  transfer.traced = nullptr;
  const Price there = asked_price(transfer, recorded_on, options, nullptr);
  kernel.recorded_wait_us = std::max(0.0, traced->us - there.time.count() / question.growth);
  if (recorded_on.name == gpu.name && question.growth == 1) return;
  kernel.price = asked_price(transfer, gpu, options, nullptr);
  lengthen(kernel.price, kernel.recorded_wait_us);
}

// A factor on the time of a kernel applies to its work, too.
void note_energy(const KernelQuestion& question, const Gpu& gpu, PredictedKernel& kernel) {
  const double tasks = question.tasks;
  kernel.energy = kernel_energy(question.work, gpu, kernel.price.time / tasks);
  kernel.energy.flop_j *= tasks;
  kernel.energy.dram_j *= tasks;
}

void scale_energy(double asked_us, PredictedKernel& kernel) {
  if (kernel.price.bound == Bound::kMeasured || asked_us <= 0) return;
  const double factor = kernel.price.time.count() / asked_us;
  kernel.energy.flop_j *= factor;
  kernel.energy.dram_j *= factor;
}

/// Whether it is a product whose scales, of 8 bits as well, the matrix units apply to blocks of a
/// few numbers (MXFP8): op(a, b, scales of a, ...).
bool scales_blocks(const ExecutionGraph& graph, const KernelQuestion& question) {
  if (question.traced || question.node < 0 || question.work.dtype != DType::kFloat8) return false;
  const auto& node = graph.node(question.node);
  const auto inputs = graph.inputs(node);
  return graph.name(node).starts_with("aten::_scaled_") && inputs.size() > 2 &&
         inputs[2].kind == Argument::Kind::kTensor &&
         graph.tensors[inputs[2].index].dtype == DType::kFloat8;
}

/// Block scales came to the matrix units of both vendors together with types of 4 bits.
bool lacks_block_scales(const Gpu& gpu) {
  return has_matrix_units(DType::kFloat8, gpu) && !has_matrix_units(DType::kFloat4, gpu);
}

/// One sentence per type that the GPU's matrix units lack, and per attention that PyTorch has not
/// on the GPU. Prices are out of range if they are for another type or for such attention.
std::vector<std::string> lacking_units(const ExecutionGraph& graph,
                                       std::span<const KernelQuestion> questions, const Gpu& gpu,
                                       std::vector<PredictedKernel>& kernels) {
  std::map<DType, std::size_t> stopped, slowed;  // kernels of the type
  std::map<std::string, std::size_t> attention;  // calls by reason
  std::size_t block_scaled = 0, tf32 = 0;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const KernelQuestion& question = questions[i];
    const KernelWork& work = question.work;
    if (question.traced) continue;
    if (lacks_units(work, gpu)) ++stopped[work.dtype];
    if (computes_in_fp32(work, gpu)) ++slowed[work.dtype];
    if (work.family == KernelFamily::kAttention && question.node >= 0) {
      const std::string reason = lacks_attention(graph, graph.node(question.node), gpu);
      if (!reason.empty()) {
        ++attention[reason];
        kernels[i].price.in_range = false;
      }
    }
    if (lacks_block_scales(gpu) && scales_blocks(graph, question)) {
      ++block_scaled;
      kernels[i].price.in_range = false;
    }
    if (graph.allow_tf32 && work.family == KernelFamily::kGemm && work.dtype == DType::kFloat32) {
      ++tf32;
    }
  }
  std::vector<std::string> sentences;
  const auto counted = [](std::size_t count) {
    return count == 1 ? "1 kernel" : fmt::format("{} kernels", count);
  };
  const auto tell = [&](const std::map<DType, std::size_t>& counts, std::string_view what) {
    for (const auto& [dtype, count] : counts) {
      sentences.push_back(
          fmt::format("{} has no matrix units for {}: {} that multiply in it {}, out of range",
                      gpu.name, to_string(dtype), counted(count), what));
    }
  };
  for (const auto& [reason, calls] : attention) {
    sentences.push_back(lacking_calls(reason, calls) +
                        " and are priced as if they could, out of range");
  }
  tell(stopped, "could not run there and are priced as if in wider types");
  tell(slowed, "are priced at the rate of fp32");
  if (block_scaled > 0) {
    sentences.push_back(fmt::format(
        "{} has no matrix units for block scales of 8 bits (mxfp8): {} that multiply with them "
        "could not run there and are priced as products with scales of fp32, out of range",
        gpu.name, counted(block_scaled)));
  }
  const Gpu::Peaks& peaks = gpu.peak_tflop_per_s;
  if (tf32 > 0 && !peaks.tf32_matrix) {
    sentences.push_back(
        fmt::format("{} has no matrix units for TF32: {} that may multiply in it run in fp32",
                    gpu.name, counted(tf32)));
  } else if (tf32 > 0 && peaks.fp32_matrix) {  // PyTorch on ROCm, Context::allowTF32CuBLAS
    sentences.push_back(
        fmt::format("{} multiplies in TF32 only if HIPBLASLT_ALLOW_TF32 is 1: {} that ask for it "
                    "are priced in fp32",
                    gpu.name, counted(tf32)));
  }
  return sentences;
}

/// Kernels that are priced together, which is faster.
struct Asked {
  std::vector<KernelWork> work;
  std::vector<std::size_t> places;
};

/// As `asked_price`.
void set_prices(const std::vector<KernelQuestion>& questions, const Gpu& gpu,
                const PredictOptions& options, const KernelModel* job_collectives,
                HostProgram& program) {
  Asked cached, plain;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const KernelQuestion& question = questions[i];
    Price& price = program.kernels[i].price;
    if (question.traced || question.of_job) {
      price = asked_price(question, gpu, options, job_collectives);
      continue;
    }
    const bool remembered = options.prices && question.work.family != KernelFamily::kCollective;
    if (remembered && options.prices->find(question.work, price)) {
      if (question.tasks > 1) scale(price, question.tasks);
      continue;
    }
    Asked& asked = remembered ? cached : plain;
    asked.work.push_back(question.work);
    asked.places.push_back(i);
  }
  for (const Asked* asked : {&cached, &plain}) {
    if (asked->work.empty()) continue;
    std::vector<Price> prices(asked->work.size());
    asked == &cached ? options.prices->price_many(asked->work, prices)
                     : options.models->price_many(asked->work, gpu, prices);
    for (std::size_t i = 0; i < prices.size(); ++i) {
      const std::size_t place = asked->places[i];
      if (questions[place].tasks > 1) scale(prices[i], questions[place].tasks);
      program.kernels[place].price = prices[i];
    }
  }
}

}  // namespace

void price_program(const ExecutionGraph& graph, const Gpu& gpu, const PredictOptions& options,
                   LoweredProgram& lowered) {
  HostProgram& program = lowered.program;
  const auto& questions = lowered.questions;
  set_prices(questions, gpu, options, lowered.job_collectives.get(), program);
  take_warm_inputs(graph, questions, gpu, program.kernels);
  if (options.keeps_recorded_waits()) {
    for (std::size_t i = 0; i < questions.size(); ++i) {
      keep_recorded_wait(questions[i], gpu, options, program.kernels[i]);
    }
  }
  std::vector<double> asked_us(questions.size());
  for (std::size_t i = 0; i < questions.size(); ++i) {
    note_energy(questions[i], gpu, program.kernels[i]);
    asked_us[i] = program.kernels[i].price.time.count();
  }
  program.coverage.lacking_units = lacking_units(graph, questions, gpu, program.kernels);
  if (lowered.nodes_say_times) {
    scale_as_told(graph, questions, program.kernels);
    for (const ProgramItem& item : program.items) {
      const auto of_item = [&](auto& all) {
        return std::span(all).subspan(item.first_kernel, item.kernels);
      };
      give_times(graph, of_item(questions), of_item(program.kernels));
    }
  }
  for (std::size_t i = 0; i < questions.size(); ++i) {
    keep_share(program.kernels[i].price, questions[i].share);
    scale_energy(asked_us[i], program.kernels[i]);
  }
}

}  // namespace perfmodel
