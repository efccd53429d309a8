// Relations between plans of random recommenders.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "../perfmodel/random_studies.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"
#include "relations.hpp"
#include "sharding/torchrec_step.hpp"

namespace perfmodel::sharding {
namespace plans_relations_test {

using random_studies::Studies;

constexpr double kRounding = 1e-9;
// The host's parts of a step are differences of predicted steps, whose waits do not grow evenly.
constexpr double kMostGainOfStep = 0.01;

struct Asked {
  ShardingStudy study;
  std::vector<TablePlacement> plan;
  Topology topology;
};

Asked asked(Studies& studies) {
  Asked made{.study = studies.study()};
  made.topology = topology_for(find_gpu(made.study.gpu, relations::data() / "gpus").value());
  made.study.local_world = std::min<std::int64_t>(*made.study.world, made.topology.gpus_per_node);
  made.plan = studies.plan(made.study);
  return made;
}

/// Kernels and exchanges alone, or with TorchRec's step and its host.
Result<BatchTime> answer(const Asked& to, bool step) {
  static const OverheadTable host =
      read_overheads(relations::data() / "overheads" / "reference.json").value();
  const Gpu gpu = find_gpu(to.study.gpu, relations::data() / "gpus").value();
  BatchOptions options;
  if (step) {
    auto needs = torchrec_step(to.study, gpu, to.topology, options, host, Launching::kEager);
    if (!needs) return Unexpected{needs.error()};
    options.step = *needs;
  }
  const auto model = BatchModel::make(to.study, gpu, to.topology, options);
  if (!model) return Unexpected{model.error()};
  return model->time(to.plan);
}

double time_us(const Asked& to, bool step) {
  const auto time = answer(to, step);
  EXPECT_TRUE(time) << to_string(time.error());
  return time ? time->predicted_us : 0;
}

TEST(PlanRelations, OrderAndNamesOfTablesDoNotMatter) {
  Studies studies(66);
  relations::Random random(66);
  for (std::size_t i = 0; i < 60 * relations::effort(); ++i) {
    const Asked question = asked(studies);
    std::vector<std::size_t> order(question.plan.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random.bits());
    Asked other = question;
    for (std::size_t t = 0; t < order.size(); ++t) {
      other.study.tables[t] = question.study.tables[order[t]];
      other.study.tables[t].name = "table " + std::to_string(t);
      other.plan[t] = question.plan[order[t]];
    }
    for (const bool step : {false, true}) {
      const double before_us = time_us(question, step);
      EXPECT_NEAR(time_us(other, step), before_us, 1e-6 * before_us) << "study " << i;
    }
  }
}

struct Addition {
  const char* words;
  std::function<void(Asked&)> make;
};

TEST(PlanRelations, MoreWorkAndSlowerNetworksAreNeverFaster) {
  const std::vector<Addition> additions = {
      {"twice the batch", [](Asked& to) { *to.study.batch_per_rank *= 2; }},
      {"twice the ids",
       [](Asked& to) {
         for (auto& table : to.study.tables) table.features[0].pooling_factor *= 2;
       }},
      {"ten times the rows",
       [](Asked& to) {
         for (auto& table : to.study.tables) table.rows *= 10;
       }},
      {"slower links",
       [](Asked& to) {
         Topology::Intra& link = to.topology.intra;
         for (auto* rate :
              {&link.channel_bandwidth, &link.p2p_bandwidth, &link.all_to_all_bandwidth}) {
           rate->value /= 2;
         }
       }},
      {"slower NICs",
       [](Asked& to) {
         if (to.topology.nic) to.topology.nic->bandwidth.value /= 2;
       }},
      {"late ranks", [](Asked& to) { to.study.network.peer_us += 20; }},
  };
  Studies studies(67);
  relations::Random random(67);
  for (std::size_t i = 0; i < 200 * relations::effort(); ++i) {
    Asked question = asked(studies);
    const bool step = random.below(4) == 0;
    const double less_us = time_us(question, step);
    const Addition& addition = random.of(additions);
    addition.make(question);
    EXPECT_GE(time_us(question, step), less_us * (1 - (step ? kMostGainOfStep : kRounding)))
        << "study " << i << (step ? ", with its step, " : ", ") << addition.words;
  }
}

TEST(PlanRelations, OneGpuExchangesNothingAndMemoryAddsUp) {
  Studies studies(68);
  for (std::size_t i = 0; i < 60 * relations::effort(); ++i) {
    Asked question = asked(studies);
    question.study.world = question.study.local_world = 1;
    for (TablePlacement& placement : question.plan)
      placement.ranks.assign(placement.ranks.size(), 0);
    const auto time = answer(question, i % 4 == 0);
    ASSERT_TRUE(time) << to_string(time.error());
    for (const BatchPart part :
         {BatchPart::kIdExchange, BatchPart::kVectorExchange, BatchPart::kGradientExchange,
          BatchPart::kAllReduce, BatchPart::kFirstReduce, BatchPart::kTableReduce}) {
      EXPECT_EQ(time->ranks[0].parts[part], 0) << to_string(part) << " of study " << i;
    }
    EXPECT_LE(time->low_us, time->predicted_us);
    EXPECT_GE(time->high_us, time->predicted_us);
  }
}

}  // namespace plans_relations_test
}  // namespace perfmodel::sharding
