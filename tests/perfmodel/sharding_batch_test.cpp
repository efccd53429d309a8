#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"
#include "price/index_skew.hpp"
#include "sharding/batch_schedule.hpp"

namespace perfmodel::sharding {
namespace sharding_batch_test {

using testing::HasSubstr;
using Type = ShardingType;

Gpu gpu_of(const std::string& name) {
  return find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
}

Topology topology_of(const std::string& name) {
  return TopologyCatalog::builtin().find(name).value();
}

ShardedTable table(std::int64_t rows, std::int64_t dim, double pooling) {
  ShardedTable made;
  made.name = "t";
  made.rows = rows;
  made.dim = dim;
  made.features = {{.pooling_factor = pooling}};
  return made;
}

// Four tables on 2 hosts of 4 GPUs.
ShardingStudy small_study() {
  ShardingStudy study;
  study.tables = {table(1'000'000, 64, 10), table(50'000, 64, 1), table(3'000'000, 64, 4),
                  table(1'000, 64, 2)};
  for (std::size_t t = 0; t < study.tables.size(); ++t) {
    study.tables[t].name = "t" + std::to_string(t);
  }
  study.dense = DensePart{.bottom_mlp = {13, 512, 64}, .top_mlp = {512, 256, 1}};
  study.world = 8;
  study.local_world = 4;
  study.batch_per_rank = 1024;
  return study;
}

BatchModel model_of(const ShardingStudy& study, const BatchOptions& options = {}) {
  auto model = BatchModel::make(study, gpu_of("a100-sxm-80gb"), topology_of("dgx-a100"), options);
  EXPECT_TRUE(model) << model.error().message;
  return *model;
}

double sum(const BatchTime& time, Load load) {
  return std::accumulate(time.ranks.begin(), time.ranks.end(), 0.0,
                         [&](double all, const BatchRank& rank) { return all + rank.load[load]; });
}

constexpr TablePlacement kCopy{.type = Type::kDataParallel, .kernel = ComputeKernel::kDense};

std::vector<TablePlacement> whole_tables(const ShardingStudy& study) {
  std::vector<TablePlacement> plan;
  for (std::size_t t = 0; t < study.tables.size(); ++t) {
    plan.push_back(
        {.type = Type::kTableWise, .ranks = {static_cast<std::int64_t>(t) % *study.world}});
  }
  return plan;
}

// However a table is cut, all ids of all samples are looked up, and all of its vectors are sent.
TEST(ShardingBatch, IdsAndVectorsAreConserved) {
  ShardingStudy study = small_study();
  study.tables = {table(1'000'000, 64, 10)};
  const BatchModel model = model_of(study);
  const double ids = 8 * 1024 * 10, vectors = 8.0 * 1024 * 64 * 4;
  struct Case {
    TablePlacement placement;
    double lookups, vector_bytes;
  };
  const std::vector<std::int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<Case> cases = {
      {{.type = Type::kTableWise, .ranks = {3}}, ids, vectors},
      {{.type = Type::kColumnWise, .ranks = {0, 5, 6, 7}, .least_columns = 16}, 4 * ids, vectors},
      {{.type = Type::kTableColumnWise, .ranks = {5, 6}, .least_columns = 32}, 2 * ids, vectors},
      {{.type = Type::kRowWise}, ids, 0},  // partial sums are reduced: counted for the job
      {{.type = Type::kRowSplit, .ranks = {1, 2}}, ids, 2 * vectors},
      {kCopy, ids, 0}};
  for (const Case& one : cases) {
    const auto time = model.time(std::vector{one.placement});
    ASSERT_TRUE(time) << time.error().message;
    // Blocks of rows: the busiest has one row's share more, 1e-6 of the ids.
    EXPECT_NEAR(sum(*time, Load::kForwardIds) / one.lookups, 1, 1e-5)
        << to_string(one.placement.type);
    EXPECT_DOUBLE_EQ(sum(*time, Load::kVectorBytes), one.vector_bytes)
        << to_string(one.placement.type);
  }
  for (const auto& [type, ranks] :
       {std::pair{Type::kTableRowWise, std::vector<std::int64_t>{4, 5, 6, 7}},
        {Type::kHostRowSplit, all}}) {
    const auto time = model.time(std::vector<TablePlacement>{{.type = type, .ranks = ranks}});
    ASSERT_TRUE(time) << time.error().message;
    EXPECT_NEAR(sum(*time, Load::kForwardIds) / ids, 1, 1e-5);
    EXPECT_DOUBLE_EQ(sum(*time, Load::kHostSumBytes), static_cast<double>(ranks.size()) * vectors);
  }
}

TEST(ShardingBatch, MemoryIsThatOfTheShards) {
  ShardingStudy study = small_study();
  study.free_share = 0.1;
  study.tables[0].optimizer = TableOptimizer::kAdam;
  const BatchModel model = model_of(study);
  const auto time = model.time(whole_tables(study));
  ASSERT_TRUE(time);
  EXPECT_DOUBLE_EQ(time->ranks[0].memory.weights, 1e6 * 64 * 4);
  EXPECT_DOUBLE_EQ(time->ranks[0].memory.optimizer, 1e6 * 64 * 8);  // two states of fp32
  EXPECT_DOUBLE_EQ(time->ranks[1].memory.optimizer, 50'000 * 4);    // row-wise Adagrad
  // Ids of two batches, vectors and their gradients.
  EXPECT_DOUBLE_EQ(time->ranks[1].memory.buffers, 2 * 8192 * 8 + 2 * 8192.0 * 64 * 4);
  EXPECT_DOUBLE_EQ(time->ranks[7].memory.weights, 0);
  EXPECT_DOUBLE_EQ(time->ranks[7].memory.reserve, 8e9);
  EXPECT_GT(time->ranks[7].memory.dense, 0);
  EXPECT_TRUE(time->ranks_over_memory.empty());
  study.tables[2].rows = 400'000'000;
  const auto large = model_of(study).time(whole_tables(study));
  EXPECT_THAT(large->ranks_over_memory, testing::ElementsAre(2));
}

// The exchange of vectors waits for the slowest lookups, hides the bottom MLP and is hidden by it.
TEST(ShardingBatch, PartsFollowEachOther) {
  const ShardingStudy study = small_study();
  const auto time = model_of(study, {.device_factor = 1}).time(whole_tables(study));
  ASSERT_TRUE(time);
  const auto at = [&](std::size_t rank, BatchPart part) { return time->ranks[rank].parts[part]; };
  double lookups = 0, backward = 0;
  for (std::size_t r = 0; r < 8; ++r) {
    lookups = std::max(lookups, at(r, BatchPart::kLookupForward));
    backward = std::max(backward, at(r, BatchPart::kLookupBackward));
  }
  const double middle =
      lookups + std::max(at(0, BatchPart::kVectorExchange), at(0, BatchPart::kBottomForward)) +
      at(0, BatchPart::kTopForward) + at(0, BatchPart::kTopBackward);
  const double exchanged = middle + at(0, BatchPart::kGradientExchange);
  const double bottom = middle + at(0, BatchPart::kBottomBackward);
  const double reduced = std::max(exchanged, bottom) + at(0, BatchPart::kAllReduce);
  const double end =
      std::max(std::max(exchanged, bottom) + backward, reduced) + at(0, BatchPart::kDenseOptimizer);
  EXPECT_NEAR(time->predicted_us, end, 1e-9 * end);
  double critical = 0;
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    critical += time->critical[static_cast<BatchPart>(i)];
  }
  EXPECT_NEAR(critical, time->predicted_us, 1e-9 * end);
  // A rank without tables waits for the others.
  EXPECT_DOUBLE_EQ(at(7, BatchPart::kLookupForward), 0);
  EXPECT_GE(time->ranks[7].waiting_us, lookups);
  EXPECT_LT(time->low_us, time->predicted_us);
  EXPECT_GT(time->high_us, time->predicted_us);
}

TEST(ShardingBatch, ExchangesAreThoseOfTheTopology) {
  ShardingStudy study = small_study();
  study.world = study.local_world = 8;
  const BatchModel model = model_of(study, {.device_factor = 1});
  const Topology topology = topology_of("dgx-a100");
  const auto rows = model.time(std::vector<TablePlacement>(4, {.type = Type::kRowWise}));
  ASSERT_TRUE(rows);
  const double bytes = 4 * 8 * 1024.0 * 64 * 4;
  EXPECT_DOUBLE_EQ(
      rows->ranks[0].parts[BatchPart::kVectorExchange],
      collective_time(topology,
                      {.kind = CollectiveKind::kReduceScatter, .bytes = {bytes}, .ranks = 8})
          ->time.count());
  EXPECT_DOUBLE_EQ(
      rows->ranks[0].parts[BatchPart::kGradientExchange],
      collective_time(topology, {.kind = CollectiveKind::kAllGather, .bytes = {bytes}, .ranks = 8})
          ->time.count());
  const auto copies = model.time(std::vector<TablePlacement>(4, kCopy));
  ASSERT_TRUE(copies);
  EXPECT_DOUBLE_EQ(copies->ranks[0].parts[BatchPart::kVectorExchange], 0);
  const double gradients = model.dense().gradient_bytes + (1e6 + 5e4 + 3e6 + 1e3) * 64 * 4;
  EXPECT_DOUBLE_EQ(
      copies->ranks[0].parts[BatchPart::kAllReduce],
      collective_time(topology,
                      {.kind = CollectiveKind::kAllReduce, .bytes = {gradients}, .ranks = 8})
          ->time.count());
  // Half the bytes on the wire, and no exchange on one GPU.
  ShardingStudy half = study;
  for (ShardedTable& one : half.tables) one.forward_wire_bytes = one.backward_wire_bytes = 2;
  const auto whole = model.time(whole_tables(study));
  const auto halved = model_of(half, {.device_factor = 1}).time(whole_tables(half));
  EXPECT_LT(halved->ranks[0].parts[BatchPart::kVectorExchange],
            whole->ranks[0].parts[BatchPart::kVectorExchange]);
  study.world = study.local_world = 1;
  const auto alone = model_of(study).time(whole_tables(study));
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_DOUBLE_EQ(alone->ranks[0].parts[BatchPart::kVectorExchange], 0);
  EXPECT_DOUBLE_EQ(alone->ranks[0].parts[BatchPart::kAllReduce], 0);
}

// Vectors that go in 2 bytes of 4 are read and written once more on each side.
TEST(ShardingBatch, CastsForTheWireMoveBothTypes) {
  ShardingStudy study = small_study();
  study.tables = {table(1'000'000, 64, 10)};
  std::vector<TablePlacement> plan = whole_tables(study);
  const BatchModel model = model_of(study, {.device_factor = 1});
  const BatchTime own = model.time(plan).value();
  plan[0].settings.wire_bytes = 2;
  const BatchTime half = model.time(plan).value();
  const auto owner = static_cast<std::size_t>(plan[0].ranks[0]);
  const double elements = 1024 * 64;  // elements of a rank's samples
  EXPECT_DOUBLE_EQ(sum(half, Load::kVectorBytes), sum(own, Load::kVectorBytes) / 2);
  for (const Load load : {Load::kForwardDramBytes, Load::kBackwardDramBytes}) {
    const auto more = [&](std::size_t rank) {
      return half.ranks[rank].load[load] - own.ranks[rank].load[load];
    };
    EXPECT_NEAR(more(owner), (8 + 1) * elements * (4 + 2), 1);
    EXPECT_NEAR(more((owner + 1) % 8), elements * (4 + 2), 1);
  }
}

// KeyedJaggedTensors of variable batches: owners see the samples of all ranks, and the others wait
// for the rank that has most.
TEST(ShardingBatch, BatchesOfOneFeatureMayDifferByRank) {
  ShardingStudy study = small_study();
  study.tables = {table(1'000'000, 64, 10)};
  const BatchTime even = model_of(study).time(whole_tables(study)).value();
  study.tables[0].features[0].rank_batches = {4096, 4096, 0, 0, 0, 0, 0, 0};
  const BatchTime uneven = model_of(study).time(whole_tables(study)).value();
  EXPECT_EQ(sum(uneven, Load::kIdBytes), sum(even, Load::kIdBytes));
  const std::vector<TablePlacement> copies = {
      {.type = Type::kDataParallel, .kernel = ComputeKernel::kDense}};
  EXPECT_EQ(model_of(study).time(copies)->ranks[0].load[Load::kForwardIds], 4096 * 10);
  study.tables[0].features[0].rank_batches.pop_back();
  const auto gpu = gpu_of("h100-sxm-80gb");
  const auto refused = BatchModel::make(study, gpu, topology_for(gpu));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              testing::HasSubstr("expected a batch of each of 8 ranks, found 7"));
}

// Single tables may have the settings that the software allows.
TEST(ShardingNetwork, SettingsOfTablesAreThoseOfTheSoftware) {
  EXPECT_EQ(ExchangeSoftware::parse("hugectr,flat")->settings,
            SearchedSettings{.deduplication = true});
  EXPECT_EQ(ExchangeSoftware::parse("torchrec")->settings, SearchedSettings{.cache_share = true});
  EXPECT_EQ(ExchangeSoftware::parse("plain")->settings,
            (SearchedSettings{.deduplication = true, .cache_share = true, .wire = true}));
}

// The busiest block of rows has the most frequent row besides its share of the others.
TEST(ShardingBatch, SkewMakesBlocksOfRowsUneven) {
  ShardingStudy study = small_study();
  study.tables = {table(1'000'000, 64, 10)};
  study.tables[0].skew = {.exponent = 1.2};
  const auto time = model_of(study).time(std::vector<TablePlacement>{{.type = Type::kRowWise}});
  ASSERT_TRUE(time);
  const double first = IndexSkew({.rows = 1e6, .exponent = 1.2}).top_mass(1);
  EXPECT_NEAR(time->ranks[0].load[Load::kForwardIds], 8 * 1024 * 10 * (first + (1 - first) / 8), 1);
  // Fewer distinct rows: less memory traffic on the way back.
  ShardingStudy even = study;
  even.tables[0].skew = {};
  const auto plain = model_of(even).time(whole_tables(even));
  const auto skewed = model_of(study).time(whole_tables(study));
  EXPECT_LT(skewed->ranks[0].load[Load::kBackwardDramBytes],
            plain->ranks[0].load[Load::kBackwardDramBytes]);
}

TEST(ShardingBatch, DistinctIdsAreExchangedOnce) {
  ShardingStudy study = small_study();
  study.tables = {table(1'000'000, 64, 50)};
  study.tables[0].skew = {.exponent = 1.2};
  const auto plain = model_of(study, {.device_factor = 1}).time(whole_tables(study)).value();
  study.tables[0].deduplicated = true;
  const auto time = model_of(study, {.device_factor = 1}).time(whole_tables(study)).value();
  const double distinct = IndexSkew({.rows = 1e6, .exponent = 1.2}).unique_rows(1024 * 50);
  EXPECT_LT(distinct, 1024 * 50 / 4);
  EXPECT_NEAR(sum(time, Load::kIdBytes), 8 * distinct * 12, 1);  // an id and a length
  EXPECT_NEAR(sum(time, Load::kVectorBytes), 8 * distinct * 64 * 4, 100);
  EXPECT_LT(time.ranks[0].parts[BatchPart::kIdExchange],
            plain.ranks[0].parts[BatchPart::kIdExchange]);
  EXPECT_LT(time.ranks[0].parts[BatchPart::kLookupForward],
            plain.ranks[0].parts[BatchPart::kLookupForward]);
  // Pooling is done at home: a rank without the table works for its own samples.
  EXPECT_GT(time.ranks[7].parts[BatchPart::kLookupForward], 0);
  // Blocks of rows have no sums to reduce then: vectors of ids are exchanged.
  const auto rows = model_of(study).time(std::vector<TablePlacement>{{.type = Type::kRowWise}});
  EXPECT_GT(rows->ranks[0].load[Load::kVectorBytes], 0);
}

// Each distinct id is one row: blocks of rows get equal parts, however skewed the ids are.
TEST(ShardingBatch, DistinctIdsOfBlocksOfRowsFallWithSkew) {
  ShardingStudy study = small_study();
  study.tables = {table(1'000'000, 64, 50)};
  study.tables[0].deduplicated = true;
  double ids = 1e300, vectors = 1e300;
  for (const double exponent : {0.0, 0.5, 0.9, 1.1, 1.3, 1.6}) {
    study.tables[0].skew = {.exponent = exponent};
    const auto time =
        model_of(study).time(std::vector<TablePlacement>{{.type = Type::kRowWise}}).value();
    const double distinct = IndexSkew({.rows = 1e6, .exponent = exponent}).unique_rows(1024 * 50);
    EXPECT_NEAR(time.ranks[0].load[Load::kIdBytes], distinct * 12, 1) << exponent;
    EXPECT_LT(time.ranks[0].load[Load::kIdBytes], ids) << exponent;
    EXPECT_LT(time.ranks[0].load[Load::kVectorBytes], vectors) << exponent;
    ids = time.ranks[0].load[Load::kIdBytes];
    vectors = time.ranks[0].load[Load::kVectorBytes];
  }
}

// 1,000 rows of 1e6 have copies: their lookups stay at home, their gradients are all-reduced.
TEST(ShardingBatch, HotRowsStayAtHome) {
  ShardingStudy study = small_study();
  study.tables = {table(1'000'000, 64, 1)};
  study.tables[0].skew = {.exponent = 1.1};
  study.tables[0].deduplicated = true;  // a vector per id, as in HugeCTR's hybrid embedding
  const std::vector<TablePlacement> rows = {{.type = Type::kRowWise}};
  const auto plain = model_of(study, {.device_factor = 1}).time(rows).value();
  study.tables[0].hot_rows = 1000;
  const auto hybrid = model_of(study, {.device_factor = 1}).time(rows).value();
  const IndexSkew law({.rows = 1e6, .exponent = 1.1});
  const double cold = 1024 * (1 - law.top_mass(1000));
  const double distinct =
      IndexSkew({.rows = 1e6 - 1000, .exponent = 1.1, .shift = 1000}).unique_rows(cold);
  EXPECT_LT(distinct, 500);
  EXPECT_NEAR(sum(hybrid, Load::kIdBytes), 8 * distinct * 12, 1);
  EXPECT_NEAR(sum(hybrid, Load::kVectorBytes), 8 * distinct * 64 * 4, 100);
  EXPECT_LT(sum(hybrid, Load::kVectorBytes), 0.7 * sum(plain, Load::kVectorBytes));
  EXPECT_GT(hybrid.ranks[0].parts[BatchPart::kAllReduce],
            plain.ranks[0].parts[BatchPart::kAllReduce]);
  // A copy and its gradient.
  EXPECT_NEAR(hybrid.ranks[0].memory.weights - plain.ranks[0].memory.weights, 2 * 1000 * 64 * 4, 1);
}

// ---- how software exchanges ---------------------------------------------------------------------

ShardingStudy on_hosts(const std::string& network) {
  ShardingStudy study = small_study();
  study.network = ExchangeSoftware::parse(network).value();
  return study;
}

// Two hosts of four: b bytes of each rank inside the host, then what the host has for the other
// one, b from each of four ranks, shared by them.
TEST(ShardingNetwork, VectorsGoInsideTheHostFirst) {
  const ShardingStudy flat = on_hosts("plain"), two_steps = on_hosts("plain,hierarchical");
  ShardingStudy few = flat;
  few.batch_per_rank = 16;  // small messages: fewer of them count
  ShardingStudy few_in_steps = two_steps;
  few_in_steps.batch_per_rank = 16;
  const auto us = [](const ShardingStudy& study) {
    return model_of(study, {.device_factor = 1})
        .time(whole_tables(study))
        .value()
        .ranks[0]
        .parts[BatchPart::kVectorExchange];
  };
  // The faster of both ways is taken, so that it is never slower.
  EXPECT_LE(us(two_steps), us(flat));
  EXPECT_LE(us(few_in_steps), us(few));
  const Topology dgx = topology_of("dgx-a100");
  const double bytes = 8 * 16 * 64 * 4.0;  // rank 0, one table
  const double inside =
      collective_time(dgx, {.kind = CollectiveKind::kAllToAll, .bytes = {bytes}, .ranks = 4})
          ->time.count();
  EXPECT_GT(us(few_in_steps), inside);
}

TEST(ShardingNetwork, AllReduceInOneKernelAndBesideExchanges) {
  ShardingStudy study = small_study();
  study.world = study.local_world = 8;
  const auto time = [&](const std::string& network) {
    study.network = ExchangeSoftware::parse(network).value();
    return model_of(study, {.device_factor = 1}).time(whole_tables(study)).value();
  };
  const auto rings = time("plain"), one_shot = time("plain,one-shot"),
             beside = time("plain,overlap");
  const double bytes =
      rings.ranks[0].parts[BatchPart::kAllReduce] > 0 ? model_of(study).dense().gradient_bytes : 0;
  const double rate = topology_of("dgx-a100").intra.all_to_all_bandwidth.value * 1e-6;
  EXPECT_NEAR(one_shot.ranks[0].parts[BatchPart::kAllReduce],
              std::min(rings.ranks[0].parts[BatchPart::kAllReduce], 8 + 7 * bytes / rate), 1e-6);
  EXPECT_LE(beside.predicted_us, rings.predicted_us);
}

TEST(ShardingNetwork, LateRanksAndMessagesGrowWithTheRanks) {
  const auto us = [](const std::string& network) {
    const ShardingStudy study = on_hosts(network);
    return model_of(study, {.device_factor = 1})
        .time(whole_tables(study))
        .value()
        .ranks[0]
        .parts[BatchPart::kVectorExchange];
  };
  const double plain = us("plain");
  EXPECT_NEAR(us("plain,peer-us=2") - plain, 2 * 7, 1e-9);
  EXPECT_NEAR(us("plain,straggler-us=10") - plain, 10 * std::sqrt(2 * std::log(8.0)), 1e-9);
  EXPECT_GT(us("plain,nics=2"), plain);  // eight in a DGX A100
}

TEST(ShardingNetwork, CardsThatCannotReadEachOtherTakeTwice) {
  ShardingStudy study = small_study();
  study.world = study.local_world = 4;
  const auto us = [&](const std::string& network) {
    study.network = ExchangeSoftware::parse(network).value();
    auto model = BatchModel::make(study, gpu_of("a100-pcie-80gb"), topology_of("pcie-gen4"),
                                  {.device_factor = 1});
    EXPECT_TRUE(model) << model.error().message;
    return model->time(whole_tables(study)).value().ranks[0].parts[BatchPart::kVectorExchange];
  };
  EXPECT_GT(us("plain,no-p2p"), 1.5 * us("plain"));
}

TEST(ShardingNetwork, NamesAreChecked) {
  const auto problem = [](const std::string& text) {
    const auto parsed = ExchangeSoftware::parse(text);
    return parsed ? "" : parsed.error().message;
  };
  EXPECT_THAT(problem("hugectl"), HasSubstr("expected plain, torchrec or hugectr"));
  EXPECT_THAT(problem("plain,peer-us=-1"), HasSubstr("found \"peer-us=-1\""));
  EXPECT_THAT(problem("plain,nics=0"), HasSubstr("nics=0"));
  EXPECT_EQ(problem("hugectr,flat,nics=4,peer-us=0.5"), "");
  EXPECT_TRUE(ExchangeSoftware::parse("hugectr")->hierarchical);
  EXPECT_FALSE(ExchangeSoftware::parse("hugectr,flat")->hierarchical);
}

// The host is counted per batch, per kind of exchange and per table.
TEST(ShardingBatch, AnEagerHostIsAFloor) {
  StepNeeds step;
  step.batch.host(BatchPart::kTopForward) = 50'000;
  step.kinds[StepNeeds::kVectors].once.host(BatchPart::kIdSizes) = 300;
  step.kinds[StepNeeds::kVectors].table.host(BatchPart::kIdSizes) = 20;
  step.kinds[StepNeeds::kSums].once.host(BatchPart::kSplit) = 400;
  step.kinds[StepNeeds::kSums].table.host(BatchPart::kSplit) = 10;
  const ShardingStudy study = small_study();
  std::vector<TablePlacement> plan = whole_tables(study);
  EXPECT_DOUBLE_EQ(model_of(study, {.step = step}).time(plan)->host_us, 50'000 + 300 + 4 * 20);
  plan[0] = {.type = Type::kRowWise};
  const auto time = model_of(study, {.step = step}).time(plan);
  EXPECT_DOUBLE_EQ(time->host_us, 50'000 + 300 + 3 * 20 + 400 + 10);
  EXPECT_GE(time->predicted_us, time->host_us);
  const double given = model_of(study, {.host_us = 90'000, .step = step}).time(plan)->predicted_us;
  EXPECT_DOUBLE_EQ(given, 90'000);
}

// A step is as long as its parts on the device and its waits if the host keeps ahead, and a wait
// keeps the device from working ahead.
TEST(ShardingBatch, TheHostWaitsForTheDevice) {
  const auto us = [](double host_us, double wait_us) {
    BatchTime batch;
    batch.ranks.resize(1);
    batch.ranks[0].parts[BatchPart::kTopBackward] = 100;
    batch.ranks[0].parts[BatchPart::kTopForward] = 100;
    batch.step.emplace();
    batch.step->host(BatchPart::kTopBackward) = 10;
    batch.step->host(BatchPart::kTopForward) = host_us;
    batch.step->wait(HostWait::kIndexForward) = wait_us;
    batch.step->wait(HostWait::kIdSizes) = 5;
    schedule_batch(batch, {});
    double sum = 0;
    for (std::size_t i = 0; i < kBatchParts; ++i) sum += batch.critical[static_cast<BatchPart>(i)];
    EXPECT_DOUBLE_EQ(sum, batch.predicted_us);
    return batch.predicted_us;
  };
  EXPECT_DOUBLE_EQ(us(10, 0), 100 + 100 + 5);
  EXPECT_DOUBLE_EQ(us(150, 0), 200 + 5);              // launched while the first part runs
  EXPECT_DOUBLE_EQ(us(150, 20), 100 + 20 + 150 + 5);  // launched after it
}

TEST(ShardingBatch, SequencesExchangeAVectorPerId) {
  ShardingStudy study = small_study();
  study.tables = {table(1'000'000, 64, 10)};
  study.tables[0].pooled = false;
  const auto whole = model_of(study).time(whole_tables(study)).value();
  const auto rows =
      model_of(study).time(std::vector<TablePlacement>{{.type = Type::kRowWise}}).value();
  const double bytes = 8 * 1024 * 10.0 * 64 * 4;
  EXPECT_DOUBLE_EQ(sum(whole, Load::kVectorBytes), bytes);
  EXPECT_NEAR(sum(rows, Load::kVectorBytes) / bytes, 1, 1e-5);
}

TEST(ShardingBatch, RowsInHostMemoryCrossTheLink) {
  ShardingStudy study = small_study();
  study.tables = {table(10'000'000, 64, 10)};
  const auto price = [&](ComputeKernel kernel) {
    return model_of(study)
        .time(
            std::vector<TablePlacement>{{.type = Type::kTableWise, .kernel = kernel, .ranks = {0}}})
        .value();
  };
  const BatchTime hbm = price(ComputeKernel::kFused), uvm = price(ComputeKernel::kFusedUvm),
                  cached = price(ComputeKernel::kFusedUvmCaching);
  EXPECT_GT(uvm.predicted_us, cached.predicted_us);
  EXPECT_GT(cached.predicted_us, hbm.predicted_us);
  EXPECT_DOUBLE_EQ(uvm.ranks[0].memory.weights, 0);
  EXPECT_DOUBLE_EQ(uvm.ranks[0].host_bytes, 1e7 * 64 * 4 + 1e7 * 4);
  // A fifth of the rows, their places and a map; four fifths of uniform ids miss.
  EXPECT_DOUBLE_EQ(cached.ranks[0].memory.cache, 2e6 * (64 * 4 + 20) + 1e7 * 4);
  EXPECT_NEAR(cached.ranks[0].load[Load::kForwardLinkBytes], 2 * 0.8 * 81920 * 256, 1e4);
  // Without that pipeline rows are not fetched ahead, whatever a table's cache says.
  study.tables[0].cache.prefetches = true;
  EXPECT_EQ(price(ComputeKernel::kFusedUvmCaching).predicted_us, cached.predicted_us);
  study.tables[0].cache.prefetches = false;
  study.pipeline = TorchrecSettings::Pipeline::kPrefetchSparseDist;
  const BatchTime ahead = price(ComputeKernel::kFusedUvmCaching);
  EXPECT_DOUBLE_EQ(ahead.ranks[0].load[Load::kForwardLinkBytes], 0);
  EXPECT_LT(ahead.predicted_us, cached.predicted_us);
  study.tables[0].cache.load_factor = 1;
  EXPECT_NEAR(price(ComputeKernel::kFusedUvmCaching).ranks[0].load[Load::kPrefetchLinkBytes], 0, 1);
}

TEST(ShardingBatch, PipelinedIdsHide) {
  ShardingStudy study = small_study();
  study.pipeline = TorchrecSettings::Pipeline::kNone;
  const auto exposed = model_of(study, {.device_factor = 1}).time(whole_tables(study)).value();
  study.pipeline = TorchrecSettings::Pipeline::kSparseDist;
  const auto hidden = model_of(study, {.device_factor = 1}).time(whole_tables(study)).value();
  const double ids = exposed.ranks[0].parts[BatchPart::kIdExchange];
  EXPECT_GT(ids, 0);
  EXPECT_NEAR(exposed.predicted_us - hidden.predicted_us, ids, 0.1 * ids);
}

TEST(ShardingBatch, HashedArraysAreReducedNotExchanged) {
  ShardingStudy study = small_study();
  study.hashed = HashedArray{.elements = 27e6, .chunk = 32};
  const std::vector<TablePlacement> plan(
      4, {.type = Type::kDataParallel, .kernel = ComputeKernel::kHashed});
  const auto reference = model_of(study, {.device_factor = 1}).time(plan);
  ASSERT_TRUE(reference) << reference.error().message;
  const BatchRank& rank = reference->ranks[5];
  EXPECT_DOUBLE_EQ(rank.parts[BatchPart::kVectorExchange], 0);
  EXPECT_DOUBLE_EQ(rank.memory.weights, 2 * 27e6 * 4);  // and a dense gradient
  EXPECT_DOUBLE_EQ(rank.memory.optimizer, 27e6 * 4);
  // 335 bytes per id and column, and the pass over the array.
  const double ids = 1024 * (10 + 1 + 4 + 2);
  EXPECT_DOUBLE_EQ(rank.load[Load::kBackwardDramBytes],
                   335 * ids * 64 + 4 * 27e6 * 4 + 2 * 27e6 * 4);
  study.hashed->reference_kernel = false;
  const auto better = model_of(study, {.device_factor = 1}).time(plan).value();
  EXPECT_LT(better.predicted_us, reference->predicted_us);
  // Chunks of one column read a sector each, eight times the bytes.
  study.hashed->chunk = 1;
  const auto scattered = model_of(study, {.device_factor = 1}).time(plan).value();
  EXPECT_GT(scattered.ranks[0].load[Load::kForwardL2Bytes],
            4 * better.ranks[0].load[Load::kForwardL2Bytes]);
}

TEST(ShardingBatch, SoftwareThatTakesTablesOneByOne) {
  const ShardingStudy study = small_study();
  const auto fused = model_of(study).time(whole_tables(study)).value();
  const auto one_by_one =
      model_of(study, {.software = TableSoftware::kPerTable}).time(whole_tables(study)).value();
  EXPECT_GT(one_by_one.predicted_us, fused.predicted_us + 250);
}

// Each rank splits and joins the vectors of tables that others look up, too.
TEST(ShardingBatch, OneByOneEveryRankHandlesEveryTable) {
  ShardingStudy study = small_study();
  const auto idle_rank_us = [&] {
    const BatchModel model = model_of(study, {.software = TableSoftware::kPerTable});
    return model.dense().top_forward_us + model.dense().top_backward_us;
  };
  const double few = idle_rank_us();
  study.dense.reset();
  const double alone = idle_rank_us();
  EXPECT_NEAR(alone, 9.5 * static_cast<double>(study.tables.size()), 1e-9);
  EXPECT_GT(few, alone);
  study.tables.insert(study.tables.end(), 10, study.tables.front());
  EXPECT_NEAR(idle_rank_us() - alone, 95, 1e-9);
  study.world = study.local_world = 1;
  EXPECT_EQ(idle_rank_us(), 0);
}

// NVLink joins the machines of a rack.
TEST(ShardingBatch, ARackIsOneHost) {
  ShardingStudy study = small_study();
  for (const auto& [world, given, host] :
       {std::tuple{64, 4, 64}, {128, 4, 64}, {144, 0, 72}, {10, 0, 10}, {64, 32, 32}}) {
    study.world = world;
    study.local_world = given == 0 ? std::nullopt : std::optional<std::int64_t>(given);
    const auto model = BatchModel::make(study, gpu_of("gb200"), topology_of("gb200-nvl72"));
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->local_world(), host) << world << " by " << given;
  }
}

TEST(ShardingBatch, TheHostSetsAFloor) {
  const ShardingStudy study = small_study();
  EXPECT_DOUBLE_EQ(model_of(study, {.host_us = 1e6}).time(whole_tables(study))->predicted_us, 1e6);
}

TEST(ShardingBatch, ZeroedPartsGain) {
  const ShardingStudy study = small_study();
  const BatchModel model = model_of(study, {.device_factor = 2});
  const BatchTime time = model.time(whole_tables(study)).value();
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    const auto part = static_cast<BatchPart>(i);
    const double without = model.time_without(time, part).value();
    EXPECT_LE(without, time.predicted_us) << to_string(part);
    // The time on the critical path is the most that can be gained.
    EXPECT_GE(without, time.predicted_us - 2 * time.critical[part] - 1e-6) << to_string(part);
  }
}

TEST(ShardingBatch, RefusesWhatCannotBe) {
  const auto message = [](const ShardingStudy& study, const std::string& topology = "dgx-a100") {
    const auto model = BatchModel::make(study, gpu_of("a100-sxm-80gb"), topology_of(topology), {});
    return model ? std::string("made") : model.error().message;
  };
  ShardingStudy study = small_study();
  EXPECT_EQ(message(study), "made");
  study.world.reset();
  EXPECT_EQ(message(study), "expected a world and a batch of at least 1, found none");
  study = small_study();
  study.local_world = 3;
  EXPECT_THAT(message(study), HasSubstr("found 8 ranks, 3 per host"));
  study = small_study();
  study.tables[1].features[0].pooling_factor = 0;
  EXPECT_EQ(message(study), "table t1: expected a pooling factor above 0, found 0 x 1");
  study = small_study();
  study.tables[0].dim = 128;
  EXPECT_EQ(message(study),
            "table t0: expected 64 columns, as dot products take vectors of one width "
            "(--interaction cat or dcn take any), found 128");
  study = small_study();
  study.dense->top_mlp.clear();
  EXPECT_EQ(message(study), "dense part: expected widths of a top MLP, found none");
  study = small_study();
  study.dense->dtype = "float7";
  EXPECT_EQ(message(study),
            "dense part: expected float32, tf32, float16 or bfloat16, found float7");
  study = small_study();
  study.dense->cross_layers = 1025;
  EXPECT_EQ(message(study), "dense part: expected 1 to 1024 cross layers, found 1025");
  study = small_study();
  study.dense->pool_stride = 0;
  EXPECT_EQ(message(study), "dense part: expected 1 to 16777216 elements per pool, found 0");
  study = small_study();
  const BatchModel model = model_of(study);
  const auto refused = [&](std::vector<TablePlacement> plan) {
    const auto time = model.time(plan);
    return time ? std::string("priced") : time.error().message;
  };
  std::vector<TablePlacement> plan = whole_tables(study);
  plan.pop_back();
  EXPECT_EQ(refused(plan), "expected placements of 4 tables, found 3");
  plan = whole_tables(study);
  plan[0].type = Type::kDataParallel;
  EXPECT_THAT(refused(plan), HasSubstr("expected the dense or the hashed kernel"));
  plan[0] = {.type = Type::kDataParallel, .kernel = ComputeKernel::kHashed};
  EXPECT_EQ(refused(plan), "table t0: expected a study with a hashed array, found none");
  plan[0] = {.type = Type::kTableWise, .ranks = {8}};
  EXPECT_EQ(refused(plan), "table t0: expected ranks from 0 to 7, found 8");
}

}  // namespace sharding_batch_test
}  // namespace perfmodel::sharding
