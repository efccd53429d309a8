// Packs a queue of training jobs onto a mixed pool of GPUs so that the last one ends early. The
// same packer runs twice: with predicted times, and with FLOP over the GPU's peak, as schedulers
// without a model do. DLRMs wait for the host, for tables and for launches: there peaks say little.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "example.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/predictor.hpp"

using namespace perfmodel;

namespace {

struct Job {
  std::string name;
  std::size_t model = 0;  // into the list of models
  std::int64_t batch = 0, steps = 0;
};

// hours[job][GPU]
using Hours = std::vector<std::vector<double>>;

// Jobs of each GPU, by number.
using Packing = std::vector<std::vector<std::size_t>>;

double busy(const Hours& hours, const Packing& packing, std::size_t gpu) {
  double sum = 0;
  for (std::size_t job : packing[gpu]) sum += hours[job][gpu];
  return sum;
}

double makespan(const Hours& hours, const Packing& packing) {
  double last = 0;
  for (std::size_t gpu = 0; gpu < packing.size(); ++gpu) {
    last = std::max(last, busy(hours, packing, gpu));
  }
  return last;
}

// The makespan, smoothed: what also tells whether the second-longest GPU gets shorter.
double load(const Hours& hours, const Packing& packing) {
  double sum = 0;
  for (std::size_t gpu = 0; gpu < packing.size(); ++gpu) {
    sum += std::pow(busy(hours, packing, gpu), 8);
  }
  return sum;
}

// Takes `job` from a GPU and gives it to another.
void move(Packing& packing, std::size_t job, std::size_t from, std::size_t to) {
  std::erase(packing[from], job);
  packing[to].push_back(job);
}

// Longest jobs first, each where it ends earliest; then single jobs move, or two change places, for
// as long as that shortens the longest GPUs.
Packing pack(const Hours& hours, std::size_t gpus) {
  std::vector<std::size_t> order(hours.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::size_t job) { return std::ranges::min(hours[job]); });
  Packing packing(gpus);
  for (std::size_t job : order) {
    std::size_t best = 0;
    for (std::size_t gpu = 1; gpu < gpus; ++gpu) {
      if (busy(hours, packing, gpu) + hours[job][gpu] <
          busy(hours, packing, best) + hours[job][best]) {
        best = gpu;
      }
    }
    packing[best].push_back(job);
  }
  const auto improve = [&](const Packing& changed) {
    if (load(hours, changed) >= load(hours, packing) * (1 - 1e-9)) return false;
    packing = changed;
    return true;
  };
  const auto improve_once = [&] {
    for (std::size_t from = 0; from < gpus; ++from) {
      for (const std::size_t job : packing[from]) {
        for (std::size_t to = 0; to < gpus; ++to) {
          if (to == from) continue;
          Packing moved = packing;
          move(moved, job, from, to);
          if (improve(moved)) return true;
          for (const std::size_t other : packing[to]) {
            Packing swapped = moved;
            move(swapped, other, to, from);
            if (improve(swapped)) return true;
          }
        }
      }
    }
    return false;
  };
  while (improve_once()) {
  }
  return packing;
}

void print(const char* title, const std::vector<std::string>& gpus, const std::vector<Job>& jobs,
           const Hours& hours, const Packing& packing) {
  constexpr double kColumns = 60;
  const double end = makespan(hours, packing);
  std::printf("\n%s: the last job ends after %.1f h\n\n", title, end);
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    std::printf("  %-14s |", gpus[gpu].c_str());
    std::size_t column = 0;
    double until = 0;
    for (std::size_t job : packing[gpu]) {
      until += hours[job][gpu];
      const auto stop = static_cast<std::size_t>(until / end * kColumns);
      std::string bar = jobs[job].name.substr(0, stop > column ? stop - column - 1 : 0);
      bar.resize(stop > column ? stop - column - 1 : 0, '-');
      std::printf("%s%s", bar.c_str(), stop > column ? "|" : "");
      column = std::max(column, stop);
    }
    std::printf("%*s %5.1f h\n", static_cast<int>(kColumns) - static_cast<int>(column), "", until);
  }
}

}  // namespace

int main() {
  const std::vector<std::string> pool = {"a100-sxm-40gb", "a100-sxm-40gb", "h100-sxm-80gb",
                                         "h100-sxm-80gb", "mi250",         "mi250"};
  const Predictor predictor =
      or_exit(Predictor::load({.gpus = {"a100-sxm-40gb", "h100-sxm-80gb", "mi250"}}));

  std::vector<PreparedGraph> models;
  models.push_back(or_exit(predictor.prepare(or_exit(build_dlrm(or_exit(dlrm_preset("mlperf")))))));
  models.push_back(
      or_exit(predictor.prepare(or_exit(build_dlrm(or_exit(dlrm_preset("default")))))));
  GptConfig gpt = or_exit(gpt_preset("gpt2"));
  gpt.batch = 8;
  models.push_back(or_exit(predictor.prepare(or_exit(build_gpt(gpt)))));
  BertConfig bert = or_exit(bert_preset("bert-base"));
  models.push_back(or_exit(predictor.prepare(or_exit(build_bert(bert)))));

  std::vector<Job> jobs;
  for (std::int64_t batch : {512, 2048, 8192, 32768}) {
    jobs.push_back({"ctr" + std::to_string(batch), 0, batch, 1'600'000'000 / (batch + 1024)});
    jobs.push_back({"ads" + std::to_string(batch), 1, batch, 2'000'000'000 / (batch + 1024)});
  }
  for (std::int64_t batch : {2, 8, 16}) {
    jobs.push_back({"gpt" + std::to_string(batch), 2, batch, 300'000 / batch});
    jobs.push_back({"bert" + std::to_string(batch), 3, batch, 600'000 / batch});
  }

  // One question per job and kind of GPU, answered by all cores.
  std::vector<Question> questions;
  for (const Job& job : jobs) {
    for (const std::string& gpu : pool) {
      questions.push_back(
          {.prepared = &models[job.model], .gpu = gpu, .options = {.batch = job.batch}});
    }
  }
  const auto answers = or_exit(predictor.predict_many(questions, {.threads = 0}));

  Hours predicted(jobs.size()), by_flop(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const PreparedGraph& model = models[jobs[i].model];
    const double flop = model_size(model.graph()).matrix_flop * static_cast<double>(jobs[i].batch) /
                        static_cast<double>(model.batch().value());
    for (std::size_t g = 0; g < pool.size(); ++g) {
      const auto& answer = answers[i * pool.size() + g];
      if (!answer) or_exit(answer);
      const auto steps = static_cast<double>(jobs[i].steps);
      predicted[i].push_back(steps * answer->e2e_us / 3.6e9);
      const Gpu gpu = or_exit(predictor.gpu(pool[g]));
      const double peak =
          gpu.peak(DType::kFloat32, gemm_uses_matrix_units(DType::kFloat32, gpu)).value;
      by_flop[i].push_back(steps * flop / peak / 3600);
    }
  }

  std::printf("%-10s %9s %9s", "job", "batch", "steps");
  for (std::size_t g = 0; g < pool.size(); g += 2) std::printf("  %14s", pool[g].c_str());
  std::printf("   [ms per step]\n");
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    std::printf("%-10s %9lld %9lld", jobs[i].name.c_str(), static_cast<long long>(jobs[i].batch),
                static_cast<long long>(jobs[i].steps));
    for (std::size_t g = 0; g < pool.size(); g += 2) {
      std::printf("  %14.2f", predicted[i][g] * 3.6e6 / static_cast<double>(jobs[i].steps));
    }
    std::printf("\n");
  }

  const Packing ours = pack(predicted, pool.size()), theirs = pack(by_flop, pool.size());
  print("Packed by predicted time", pool, jobs, predicted, ours);
  print("Packed by FLOP over peak", pool, jobs, predicted, theirs);
  std::printf("\nThe queue ends %.0f %% earlier, if the predictions hold.\n",
              100 * (1 - makespan(predicted, ours) / makespan(predicted, theirs)));
}
