// Tables as frameworks list them, and what recorded indices say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>

#include "../scratch.hpp"
#include "sharding/index_statistics.hpp"
#include "sharding/study_file.hpp"
#include "sharding/table_lists.hpp"

namespace perfmodel::sharding {
namespace sharding_table_lists_test {

using testing::ElementsAre;
using testing::HasSubstr;

std::filesystem::path written(const std::string& name, const std::string& text) {
  const std::filesystem::path file = test_support::scratch() / name;
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

std::string problem_of(const std::string& text) {
  const auto read = read_table_list(written("list.json", text));
  return read ? "" : read.error().json_pointer + " " + read.error().message;
}

constexpr const char* kTorchrec = R"({"tables": [
  {"name": "user", "num_embeddings": 1000, "embedding_dim": 64, "feature_names": ["u", "v"],
   "data_type": "FP16", "pooling": "SUM"},
  {"name": "clicks", "num_embeddings": 5000, "embedding_dim": 32, "feature_names": ["c"],
   "data_type": "DataType.FP32", "pooling": "PoolingType.NONE"}],
 "constraints": {"user": {"pooling_factors": [3, 5.5], "num_poolings": [1, 2],
                          "batch_sizes": [512, 64], "sharding_types": ["ROW_WISE", "table_wise"],
                          "compute_kernels": ["fused_uvm_caching"], "min_partition": 32,
                          "cache_params": {"load_factor": 0.25, "algorithm": null}}}})";

TEST(TableLists, TorchrecsOwnConfigurations) {
  const auto study = read_table_list(written("list.json", kTorchrec));
  ASSERT_TRUE(study) << study.error().message;
  ASSERT_EQ(study->tables.size(), 2u);
  const ShardedTable &user = study->tables[0], &clicks = study->tables[1];
  EXPECT_EQ(user.rows, 1000);
  EXPECT_EQ(user.element_bytes, 2);
  ASSERT_EQ(user.features.size(), 2u);
  EXPECT_EQ(user.features[1].pooling_factor, 5.5);
  EXPECT_EQ(user.features[1].poolings, 2);
  EXPECT_EQ(user.features[0].batch, 512);
  EXPECT_THAT(user.rules.types, ElementsAre(ShardingType::kRowWise, ShardingType::kTableWise));
  EXPECT_THAT(user.rules.kernels, ElementsAre(ComputeKernel::kFusedUvmCaching));
  EXPECT_EQ(user.least_columns, 32);
  EXPECT_EQ(user.cache.load_factor, 0.25);
  EXPECT_TRUE(user.pooled);
  EXPECT_FALSE(clicks.pooled);
  EXPECT_FALSE(study->launch);  // eager
  EXPECT_THAT(study->warnings, ElementsAre(HasSubstr("1 of 2 tables have no pooling_factors")));
}

TEST(TableLists, WrongListsSayWhere) {
  EXPECT_THAT(problem_of(R"([{"name": "a", "num_embeddings": 0, "embedding_dim": 4}])"),
              HasSubstr("/0/num_embeddings expected a whole number"));
  EXPECT_THAT(problem_of(R"([{"name": "a", "num_embeddings": 9, "embedding_dim": 4,
                              "data_type": "FP12"}])"),
              HasSubstr("/0/data_type expected a data type, the nearest is \"FP"));
  EXPECT_THAT(problem_of(R"({"tables": [{"name": "a", "num_embeddings": 9, "embedding_dim": 4}],
                             "constraints": {"b": {}}})"),
              HasSubstr("some for \"b\""));
  EXPECT_THAT(problem_of(R"({"tables": [{"name": "a", "num_embeddings": 9, "embedding_dim": 4}],
                             "constraints": {"a": {"pooling_factors": [1, 2]}}})"),
              HasSubstr("a number for each of the table's 1 features"));
  EXPECT_THAT(problem_of(R"([{"name": "a", "num_embeddings": 9, "embedding_dim": 4},
                             {"name": "a", "num_embeddings": 9, "embedding_dim": 4}])"),
              HasSubstr("a name of its own"));
}

TEST(TableLists, HugectrModels) {
  const auto study = read_table_list(written("model.json", R"({
    "solver": {"batchsize": 65536, "gpu": [[0, 1, 2, 3], [4, 5, 6, 7]]},
    "optimizer": {"type": "Adam"},
    "layers": [
      {"name": "data", "type": "Data", "sparse": [
        {"top": "data1", "slot_num": 2, "nnz_per_slot": [1, 9]}]},
      {"name": "emb", "type": "LocalizedSlotSparseEmbeddingHash", "bottom": "data1", "top": "e",
       "sparse_embedding_hparam": {"embedding_vec_size": 128, "slot_size_array": [100, 4000]}},
      {"name": "fc", "type": "InnerProduct"}]})"));
  ASSERT_TRUE(study) << study.error().message;
  ASSERT_EQ(study->tables.size(), 2u);
  EXPECT_EQ(study->tables[1].rows, 4000);
  EXPECT_EQ(study->tables[1].dim, 128);
  EXPECT_EQ(study->tables[1].features[0].pooling_factor, 5);  // the mean of both slots
  EXPECT_EQ(study->tables[1].optimizer, TableOptimizer::kAdam);
  EXPECT_EQ(study->world, 8);
  EXPECT_EQ(study->batch_per_rank, 8192);
  EXPECT_TRUE(study->network.hierarchical);
  EXPECT_TRUE(study->network.fuses_layers);
}

TEST(TableLists, CsvColumnsInAnyOrderByAnyName) {
  const auto study = read_sharding_study(written(
      "t.csv", "embedding_dim,pooling_factor,name,num_embeddings\n64,3,a,100\n16,1.5,b,7\n"));
  ASSERT_TRUE(study) << study.error().message;
  EXPECT_EQ(study->tables[1].name, "b");
  EXPECT_EQ(study->tables[1].dim, 16);
  EXPECT_EQ(study->tables[0].rows, 100);
  const auto twice =
      read_sharding_study(written("u.csv", "table,name,rows,dim,pooling\na,a,1,4,1\n"));
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr("expected one column table, found name beside it"));
}

TEST(IndexStatistics, PoolingHistograms) {
  EXPECT_DOUBLE_EQ(*mean_pooling(std::vector<double>{2, 4, 0, 2}), 10.0 / 8);
  EXPECT_FALSE(mean_pooling(std::vector<double>{5}));
  EXPECT_FALSE(mean_pooling(std::vector<double>{1, -1}));
}

template <class Integer>
std::string npy(const std::string& type, const std::vector<Integer>& indices) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" +
                       std::to_string(indices.size()) + ",), }";
  header.resize(118, ' ');
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size());
  text += '\0';
  text += header;
  text.append(reinterpret_cast<const char*>(indices.data()), indices.size() * sizeof(Integer));
  return text;
}

TEST(IndexStatistics, SamplesOfIndices) {
  const std::vector<std::int64_t> indices = {7, 7, 7, 7, 2, 2, 9};
  for (const auto& file :
       {written("i.npy", npy("<i8", indices)), written("i.csv", "index\n7\n7\n7\n7\n2\n2\n9\n")}) {
    const auto sample = read_index_sample(file);
    ASSERT_TRUE(sample) << sample.error().message;
    EXPECT_EQ(sample->lookups, 7);
    EXPECT_EQ(sample->touched_rows, 3);
    EXPECT_EQ(sample->largest, 9);
    ASSERT_EQ(sample->histogram.buckets.size(), 3u);  // up to 1, 2, 4 reads
    EXPECT_DOUBLE_EQ(sample->histogram.buckets[2].lookups, 4.0 / 7);
  }
  EXPECT_THAT(read_index_sample(written("j.npy", npy<std::int64_t>("<f8", {1}))).error().message,
              HasSubstr("expected indices of type <i8, <i4 or <u4"));
  std::string cut = npy("<i8", indices);
  cut.resize(cut.size() - 8);
  EXPECT_THAT(read_index_sample(written("k.npy", cut)).error().message,
              HasSubstr("the end of the file"));
  EXPECT_THAT(
      read_index_sample(written("l.npy", npy<std::int32_t>("<i4", {3, -1}))).error().message,
      HasSubstr("found -1"));
}

// Draws from a law give back the law.
TEST(IndexStatistics, FitsTheExponentOfALaw) {
  for (const double exponent : {0.6, 1.0, 1.3}) {
    const double rows = 20'000, lookups = 400'000;
    double norm = 0;
    for (double k = 1; k <= rows; ++k) norm += std::pow(k, -exponent);
    std::vector<std::int32_t> indices;
    for (int k = 1; k <= static_cast<int>(rows); ++k) {
      const double reads = lookups * std::pow(k, -exponent) / norm;
      for (int i = 0; i < static_cast<int>(std::lround(reads)); ++i) indices.push_back(k);
    }
    const auto sample = read_index_sample(written("z.npy", npy("<i4", indices)));
    ASSERT_TRUE(sample);
    const RowSkew skew =
        fitted_skew(sample->histogram, rows, static_cast<double>(sample->touched_rows));
    EXPECT_NEAR(skew.exponent, exponent, 0.03);
  }
}

TEST(IndexStatistics, AccessHistogramsHaveToSum) {
  const std::string head = "reuse_gt,reuse_le,frac_unique_rows,frac_lookups\n";
  const auto good = read_access_histograms(written("a.csv", head + "0,1,0.6,0.2\n1,,0.4,0.8\n"));
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->front().buckets.size(), 2u);
  EXPECT_THAT(
      read_access_histograms(written("b.csv", head + "0,1,0.6,0.2\n1,,0.4,0.7\n")).error().message,
      HasSubstr("expected frac_lookups that sum to 1, found a sum of 0.9"));
  EXPECT_THAT(
      read_access_histograms(written("c.csv", head + "0,1,0.6,0.2\n2,,0.4,0.8\n")).error().message,
      HasSubstr("expected 1, where the range before ends"));
}

}  // namespace sharding_table_lists_test
}  // namespace perfmodel::sharding
