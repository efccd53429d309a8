// Which GPUs should hold the tables of a DLRM? Compares the best way to cut and place them on 8
// GPUs with one table after the other on the next GPU, and shows the waits of the batch.
#include <cstdio>
#include <string>
#include <vector>

#include "example.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/sharding/rank_plans.hpp"

using namespace perfmodel;
using namespace perfmodel::sharding;

namespace {

void print(const char* title, const BatchTime& time) {
  const BatchRank& slowest = time.ranks[time.limiting_rank];
  std::printf("%-12s %9.3f ms per batch   slowest lookups on rank %zu: %7.3f ms, %5.1f GB\n", title,
              time.predicted_us / 1e3, time.limiting_rank,
              slowest.parts[BatchPart::kLookupForward] / 1e3, slowest.memory.total() / 1e9);
}

}  // namespace

int main() {
  // MLPerf's tables: a few large ones, many small ones.
  const DlrmConfig dlrm = or_exit(dlrm_preset("mlperf"));
  ShardingStudy study;
  study.world = 8;
  study.batch_per_rank = 8192;
  for (const EmbeddingTable& table : dlrm.tables) {
    ShardedTable made;
    made.name = "t" + std::to_string(study.tables.size());
    made.rows = table.num_rows;
    made.dim = table.dim;
    made.features = {{.pooling_factor = table.pooling_factor}};
    study.tables.push_back(std::move(made));
  }
  study.dense = DensePart{.bottom_mlp = dlrm.bottom_mlp, .top_mlp = dlrm.top_mlp};

  const Gpu gpu = or_exit(find_gpu("h100-sxm-80gb", or_exit(find_data_folder()) / "gpus"));
  const Topology node = topology_for(gpu);
  const BatchModel model = or_exit(BatchModel::make(study, gpu, node));

  std::vector<TablePlacement> in_turn;
  for (std::size_t i = 0; i < study.tables.size(); ++i) {
    in_turn.push_back(
        {.type = ShardingType::kTableWise, .ranks = {static_cast<std::int64_t>(i) % *study.world}});
  }
  std::printf("%zu tables on %lld x %s (%s), %lld samples per GPU\n\n", study.tables.size(),
              static_cast<long long>(*study.world), gpu.name.c_str(), node.name.c_str(),
              static_cast<long long>(*study.batch_per_rank));
  print("in turn", or_exit(model.time(in_turn)));

  const RankedPlans found = or_exit(rank_plans(model, {.time_budget_s = 2}));
  const RankedPlan& best = found.plans.front();
  print("best found", best.time);
  std::printf("%-12s %9.3f ms\n\n", "lower bound", found.lower_bound_us / 1e3);
  for (std::size_t i = 0; i < study.tables.size(); ++i) {
    const TablePlacement& placement = best.placements[i];
    std::printf("  %-4s %9lld x %-4lld %-17s", study.tables[i].name.c_str(),
                static_cast<long long>(study.tables[i].rows),
                static_cast<long long>(study.tables[i].dim),
                std::string(to_string(placement.type)).c_str());
    for (std::int64_t rank : placement.ranks) std::printf(" %lld", static_cast<long long>(rank));
    std::printf("\n");
  }
  const PlanAdvice advice = or_exit(advise(model, best.placements, best.time));
  std::printf("\nIt waits most for: %s. Without that, %.3f ms less.\n",
              std::string(to_string(advice.bottleneck)).c_str(), advice.free_gain_us / 1e3);
  if (!advice.fix.empty()) {
    std::printf("What would help: %s, %.3f ms.\n", advice.fix.c_str(), advice.fix_gain_us / 1e3);
  }
}
