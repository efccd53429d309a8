#include "price_program.hpp"

#include <algorithm>
#include <utility>

#include "given_times.hpp"

namespace perfmodel {

Price asked_price(const KernelQuestion& question, const Gpu& gpu, const PredictOptions& options,
                  const KernelModel* job_collectives) {
  const KernelWork& work = question.work;
  if (question.traced) {
    const Microseconds time(question.traced->us);
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

HostProgram price_program(const ExecutionGraph& graph, const Gpu& gpu,
                          const PredictOptions& options, LoweredProgram lowered) {
  HostProgram program = std::move(lowered.program);
  const auto& questions = lowered.questions;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    program.kernels[i].price =
        asked_price(questions[i], gpu, options, lowered.job_collectives.get());
  }
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
  }
  return program;
}

}  // namespace perfmodel
