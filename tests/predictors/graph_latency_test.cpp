#include "tables/graph_latency.hpp"
#include "../scratch.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

namespace perfmodel {
namespace graph_latency_test {

namespace fs = std::filesystem;

const fs::path kGpus = fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";

class GraphLatencies : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) {
    const fs::path file = folder_ / name;
    std::ofstream(file) << text;
    return file;
  }
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  KernelTable table(const std::string& rows) {
    auto read = read_kernel_table(
        write("ops.csv",
              "graph,node_idx,node,kind,stage,fused,repeat,op,b,m,n,k,rows,cols,in_elems,"
              "out_elems,bytes\n" +
                  rows),
        {.gpu_folder = kGpus});
    EXPECT_TRUE(read.has_value()) << to_string(read.error());
    return read ? *read : KernelTable{};
  }

  // Every mem row takes its bytes in microseconds: node times can be read off the table.
  static Microseconds bytes_as_time(const KernelRow&, const KernelWork& work, const Gpu&) {
    return Microseconds{work.bytes().value};
  }

  // One way 0.72 x 100 GB/s = 72,000 bytes per microsecond.
  static Gpu linked_gpu() {
    Gpu gpu;
    gpu.name = "literal";
    gpu.link_bandwidth = {200e9};
    return gpu;
  }

  GraphLatency latency(const std::string& rows, const GraphSpec& spec) {
    const auto latencies = graph_latencies(table(rows), {&spec, 1}, linked_gpu(), bytes_as_time);
    EXPECT_TRUE(latencies.has_value()) << to_string(latencies.error());
    return latencies ? latencies->at(0) : GraphLatency{};
  }

  fs::path folder_ = test_support::scratch() / "graph_latency";
};

TEST_F(GraphLatencies, SumsRepeatedNodesOfThePhase) {
  const std::string rows =
      "g,1,a,x,fw,0,1,mem,,,,,,,,,10\n"
      "g,2,b,x,fw,0,3,mem,,,,,,,,,100\n"
      "g,2,b,x,bw,0,3,mem,,,,,,,,,200\n"
      "g,2,b,x,acc,0,3,mem,,,,,,,,,7\n";
  EXPECT_DOUBLE_EQ(latency(rows, {.graph = "g"}).total.count(), 310);
  const GraphLatency training = latency(rows, {.graph = "g", .training = true});
  EXPECT_DOUBLE_EQ(training.forward.count(), 310);
  EXPECT_DOUBLE_EQ(training.backward.count(), 621);
  EXPECT_DOUBLE_EQ(training.total.count(), 931);
}

TEST_F(GraphLatencies, AFusedNodeIsOneKernel) {
  const std::string rows =
      "g,1,a,fused,fw,1,2,add,,,,,4,8,40,32,\n"
      "g,1,a,fused,fw,1,2,softmax,,,,,4,8,40,32,\n"
      "g,2,b,x,fw,0,1,mem,,,,,,,,,5\n";
  // 4 bytes x (40 in + 32 out), twice.
  EXPECT_DOUBLE_EQ(
      latency(rows, {.graph = "g", .aggregate = GraphAggregate::kSumFused}).total.count(), 581);
}

TEST_F(GraphLatencies, BlockingAllReducesMoveThreeBuffers) {
  const GraphLatency result = latency(
      "g,1,a,x,fw,0,2,mem,,,,,,,,,10\n"
      "g,2,b,allreduce,fw,0,2,allreduce,,,,,,,,,240000\n",
      {.graph = "g"});
  EXPECT_NEAR(result.communication.count(), 20, 1e-9);  // 2 x 3 x 240,000 / 72,000
  EXPECT_NEAR(result.total.count(), 40, 1e-9);
}

TEST_F(GraphLatencies, AsynchronousAllReducesHideBehindTheBackwardPass) {
  // Backward from the last node: b of 10, its reduce of 3 x 24,000 / 72,000 = 1; then a of 2 and
  // its reduce of 10, which starts at 12 or when the other has ended.
  const GraphSpec spec{.graph = "g", .training = true, .aggregate = GraphAggregate::kOverlapDp};
  const std::string rows =
      "g,1,ga,allreduce,bw,0,1,allreduce_async,,,,,,,,,240000\n"
      "g,2,a,x,fw,0,1,mem,,,,,,,,,4\n"
      "g,2,a,x,bw,0,1,mem,,,,,,,,,2\n"
      "g,3,gb,allreduce,bw,0,1,allreduce_async,,,,,,,,,24000\n"
      "g,4,b,x,bw,0,1,mem,,,,,,,,,10\n";
  EXPECT_NEAR(latency(rows, spec).total.count(), 4 + 12 + 10, 1e-9);
  // A first node that computes for longer than the links are busy hides them.
  EXPECT_NEAR(latency(rows + "g,0,z,x,bw,0,1,mem,,,,,,,,,50\n", spec).total.count(), 4 + 62, 1e-9);
}

TEST_F(GraphLatencies, LayersComeAsOftenAsTheyRepeatInTheBackwardPass) {
  // Three layers of 1 us, each followed by a reduce of 10 us: 1 + 3 x 10.
  const std::string rows =
      "g,1,ga,allreduce,bw,0,3,allreduce_async,,,,,,,,,240000\n"
      "g,2,a,x,bw,0,3,mem,,,,,,,,,1\n";
  EXPECT_NEAR(
      latency(rows, {.graph = "g", .training = true, .aggregate = GraphAggregate::kOverlapDp})
          .total.count(),
      31, 1e-9);
}

TEST_F(GraphLatencies, PipelinesFillAndDrain) {
  // First 3, eight layers of 10 (two per stage), last 5, transfers of 1.
  const std::string rows =
      "g,1,p,x,fw,0,1,mem,,,,,,,,,3\n"
      "g,2,l,x,fw,0,8,mem,,,,,,,,,10\n"
      "g,3,s,sendrecv,fw,0,1,sendrecv,,,,,,,,,72000\n"
      "g,4,e,x,fw,0,1,mem,,,,,,,,,5\n";
  GraphSpec spec{.graph = "g", .aggregate = GraphAggregate::kPipeline};
  EXPECT_NEAR(latency(rows, spec).total.count(), 3 + 80 + 5 + 3, 1e-9);
  spec.micro_batches = 4;  // three more at the pace of the slowest stage, 20 + 5
  EXPECT_NEAR(latency(rows, spec).total.count(), 91 + 3 * 25, 1e-9);
}

TEST_F(GraphLatencies, WhatCannotBePricedIsAnError) {
  const KernelTable ops = table("g,1,s,sendrecv,fw,0,1,sendrecv,,,,,,,,,72000\n");
  const GraphSpec known{.graph = "g"}, unknown{.graph = "h"};
  const auto none = graph_latencies(ops, {&unknown, 1}, linked_gpu(), bytes_as_time);
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(to_string(none.error()).find("graph h"), std::string::npos);
  Gpu lonely = linked_gpu();
  lonely.link_bandwidth = {};
  const auto links = graph_latencies(ops, {&known, 1}, lonely, bytes_as_time);
  ASSERT_FALSE(links.has_value());
  EXPECT_NE(links.error().message.find("links"), std::string::npos);
}

TEST_F(GraphLatencies, ReadersNameWhatIsWrong) {
  const std::string head = "graph,model,phase,seq,batch,option,n_layer,num_nodes,aggregate\n";
  const auto specs = [&](const std::string& rows) {
    const auto read = read_graph_specs(write("graphs.csv", rows));
    return read ? "" : to_string(read.error());
  };
  EXPECT_EQ(specs(head + "g,m,train,8,2,pp4_4,24,9,pipeline\n"), "");
  EXPECT_NE(specs(head + "g,m,train,8,2,none,24,9,pipeline\n").find(":2:15: option"),
            std::string::npos);
  EXPECT_NE(specs(head + "g,m,train,8,2,none,24,9,product\n").find("aggregate: expected sum"),
            std::string::npos);
  EXPECT_NE(specs(head + "g,m,test,8,2,none,24,9,sum\n").find("phase: expected inf or train"),
            std::string::npos);
  EXPECT_NE(specs("graph,model\ng,m\n").find("phase: expected this column"), std::string::npos);
  EXPECT_NE(specs(head).find("only a header"), std::string::npos);

  const auto labels = [&](const std::string& rows) {
    const auto read = read_measured_graphs(write("e2e.csv", rows), kGpus);
    return read ? "" : to_string(read.error());
  };
  const std::string e2e = "device,model,phase,option,graph,measured_ms,roofline_ms\n";
  EXPECT_EQ(labels(e2e + "T4,m,inf,none,g,2.5,\n"), "");
  EXPECT_NE(labels(e2e + "T400,m,inf,none,g,2.5,\n").find(":2:1: device: "), std::string::npos);
  const std::string path = (kGpus / "t4.json").string();  // only a flag may name a file
  EXPECT_NE(labels(e2e + path + ",m,inf,none,g,2.5,\n").find(":2:1: device: expected the name of"),
            std::string::npos);
  EXPECT_NE(labels(e2e + "T4,m,inf,none,g,nan,\n").find("measured_ms: expected a number above 0"),
            std::string::npos);
}

// ---- public data -------------------------------------------------------------------------------

class PublicGraphs : public testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
    if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
    const fs::path folder = fs::path(root) / "neusight";
    auto ops = read_kernel_table(folder / "opgraphs.csv.gz", {.gpu_folder = kGpus});
    auto specs = read_graph_specs(folder / "graphs.csv");
    auto labels = read_measured_graphs(folder / "e2e_train_gpus.csv", kGpus);
    ASSERT_TRUE(ops.has_value()) << to_string(ops.error());
    ASSERT_TRUE(specs.has_value()) << to_string(specs.error());
    ASSERT_TRUE(labels.has_value()) << to_string(labels.error());
    ops_ = std::move(*ops);
    specs_ = std::move(*specs);
    labels_ = std::move(*labels);
    read_published(folder / "devices.csv");
  }

  // The figures that NeuSight and its baselines used.
  void read_published(const fs::path& file) {
    std::ifstream in(file);
    std::string line, name;
    std::map<std::string, std::size_t> columns;
    std::getline(in, line);
    for (std::stringstream header(line); std::getline(header, name, ',');) {
      columns.emplace(name, columns.size());
    }
    while (std::getline(in, line)) {
      std::vector<std::string> cells;
      for (std::stringstream row(line); std::getline(row, name, ',');) cells.push_back(name);
      Gpu gpu;
      gpu.name = cells[columns.at("id")];
      gpu.peak_tflop_per_s.fp32 = std::stod(cells[columns.at("pub_fp32_gflops")]) / 1e3;
      gpu.dram_bandwidth = {std::stod(cells[columns.at("pub_mem_bw_gbps")]) * 1e9};
      gpu.link_bandwidth = {600e9};
      const auto found = find_gpu(gpu.name, kGpus);
      ASSERT_TRUE(found.has_value()) << to_string(found.error());
      published_[found->name] = gpu;
    }
  }

  // max(FLOP / peak, bytes / bandwidth); the published baseline counts a GB/s as 2^30 bytes for
  // GEMMs and pure movement, as 1e9 for vector kernels.
  Microseconds published_roofline(const KernelRow& row, const KernelWork& work,
                                  const Gpu& gpu) const {
    Gpu counted = gpu;
    const std::string& op = ops_.ops[static_cast<std::size_t>(row.op)];
    if (work.family == KernelFamily::kGemm || op == "mem") {
      counted.dram_bandwidth = {gpu.dram_bandwidth.value * 1.073741824};
    }
    return KernelModels::roofline().price(work, counted).time;
  }

  const GraphSpec& spec(const std::string& graph) const {
    return *std::ranges::find(specs_, graph, &GraphSpec::graph);
  }

  KernelTable ops_;
  std::vector<GraphSpec> specs_;
  MeasuredGraphs labels_;
  std::map<std::string, Gpu> published_;
};

TEST_F(PublicGraphs, ThePublishedRooflineComesOutOfThePublishedFigures) {
  int compared = 0;
  for (const MeasuredGraph& label : labels_.rows) {
    if (std::isnan(label.roofline_ms) || label.option != "none") continue;
    const Gpu& gpu = published_.at(labels_.gpus[static_cast<std::size_t>(label.gpu)].name);
    const auto latency = graph_latencies(
        ops_, {&spec(label.graph), 1}, gpu,
        [this](const auto&... arguments) { return published_roofline(arguments...); });
    ASSERT_TRUE(latency.has_value()) << to_string(latency.error());
    EXPECT_NEAR(latency->front().total.count() / 1e3 / label.roofline_ms, 1, 1e-5)
        << gpu.name << " " << label.graph;
    ++compared;
  }
  EXPECT_EQ(compared, 38);
}

TEST_F(PublicGraphs, EveryGraphGetsALatency) {
  ASSERT_EQ(specs_.size(), 38u);
  const auto gpu = find_gpu("a100-sxm-40gb", kGpus);
  ASSERT_TRUE(gpu.has_value());
  const auto latencies = graph_latencies(
      ops_, specs_, *gpu, [](const KernelRow&, const KernelWork& work, const Gpu& on) {
        return KernelModels::roofline().price(work, on).time;
      });
  ASSERT_TRUE(latencies.has_value()) << to_string(latencies.error());
  std::map<std::string, double> total;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const GraphLatency& latency = latencies->at(i);
    EXPECT_GT(latency.total.count(), 1000) << specs_[i].graph;
    EXPECT_EQ(latency.backward.count() > 0, specs_[i].training) << specs_[i].graph;
    total[specs_[i].graph] = latency.total.count();
  }
  // Fusion saves memory traffic; four GPUs need between a quarter and all of one GPU's time; one
  // micro-batch keeps one GPU busy at a time, four fill the pipeline.
  EXPECT_LT(total["bert_large-inf-512-8-fusion"], total["bert_large-inf-512-8"]);
  const double alone = total["gpt2_large-train-1024-4"];
  for (const char* option : {"dp4", "tp4"}) {
    EXPECT_GT(total["gpt2_large-train-1024-4-" + std::string(option)], alone / 4) << option;
    EXPECT_LT(total["gpt2_large-train-1024-4-" + std::string(option)], alone / 2) << option;
  }
  EXPECT_NEAR(total["gpt2_large-train-1024-4-pp4_1"] / alone, 1, 0.01);
  EXPECT_NEAR(total["gpt3_xl-train-2048-4-pp4_4"] / total["gpt3_xl-train-2048-4-pp4_1"], 7.0 / 16,
              0.1);
}

}  // namespace graph_latency_test
}  // namespace perfmodel
