#include "perfmodel/predictors/topology.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "../scratch.hpp"
#include "graph_fixture.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"

namespace perfmodel {
namespace topology_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path source_data() { return fs::path(PERFMODEL_SOURCE_DIR) / "data"; }

/// A changed copy of the DGX-1 file in a folder of its own.
class TopologyFile {
 public:
  explicit TopologyFile(const std::function<void(Json&)>& change,
                        const std::string& name = "dgx1-v100") {
    folder_ = test_support::scratch() / "topology";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ifstream in(source_data() / "topologies" / "dgx1-v100.json");
    Json document = Json::parse(in);
    change(document);
    std::ofstream(folder_ / (name + ".json")) << document.dump(2);
    file_ = folder_ / (name + ".json");
  }
  ~TopologyFile() { fs::remove_all(folder_); }
  const fs::path& file() const { return file_; }
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_, file_;
};

TEST(Topologies, EveryFileLoadsUnderItsName) {
  const auto catalog = TopologyCatalog::read(source_data() / "topologies");
  ASSERT_TRUE(catalog.has_value()) << to_string(catalog.error());
  EXPECT_EQ(catalog->topologies().size(), 25u);
  for (const Topology& topology : catalog->topologies()) {
    const Topology::Intra& intra = topology.intra;
    EXPECT_LE(intra.ring_channels * intra.channel_bandwidth.value, intra.gpu_bandwidth.value)
        << topology.name;
    EXPECT_LE(intra.all_to_all_bandwidth, intra.gpu_bandwidth) << topology.name;
    EXPECT_LE(intra.p2p_bandwidth, intra.gpu_bandwidth) << topology.name;
    for (const Topology::Curve& curve : topology.curves) {
      EXPECT_LE(curve.bus, intra.gpu_bandwidth) << topology.name;
    }
  }
}

TEST(Topologies, TheLibraryHoldsTheSameFiles) {
  const auto files = TopologyCatalog::read(source_data() / "topologies");
  ASSERT_TRUE(files.has_value()) << to_string(files.error());
  const auto& built_in = TopologyCatalog::builtin().topologies();
  ASSERT_EQ(built_in.size(), files->topologies().size());
  for (std::size_t i = 0; i < built_in.size(); ++i) {
    EXPECT_EQ(built_in[i].name, files->topologies()[i].name);
    EXPECT_EQ(built_in[i].notes, files->topologies()[i].notes);
    EXPECT_EQ(built_in[i].intra.channel_bandwidth, files->topologies()[i].intra.channel_bandwidth);
  }
}

TEST(Topologies, EveryGpuOfTheCatalogueHasOneDefault) {
  const auto gpus = read_gpus(source_data() / "gpus");
  ASSERT_TRUE(gpus.has_value());
  for (const Gpu& gpu : *gpus) {
    const Topology* topology = TopologyCatalog::builtin().default_of(gpu.name);
    ASSERT_NE(topology, nullptr) << gpu.name;
    EXPECT_EQ(topology_for(gpu).name, topology->name);
  }
  for (const Topology& topology : TopologyCatalog::builtin().topologies()) {
    for (const std::string& name : topology.gpus) {
      EXPECT_TRUE(std::ranges::any_of(*gpus, [&](const Gpu& gpu) { return gpu.name == name; }))
          << topology.name << ": " << name;
    }
  }
}

TEST(Topologies, ReadsUnits) {
  const auto topology = TopologyCatalog::builtin().find("DGX1-V100");  // ignoring case
  ASSERT_TRUE(topology.has_value()) << to_string(topology.error());
  EXPECT_EQ(topology->gpus_per_node, 8);
  EXPECT_EQ(topology->generation, NcclGeneration::kVolta);
  EXPECT_EQ(topology->cpu, "intel");
  EXPECT_EQ(to_string(topology->intra.kind), "nvlink-mesh");
  EXPECT_DOUBLE_EQ(topology->intra.gpu_bandwidth.value, 150e9);
  EXPECT_DOUBLE_EQ(topology->intra.channel_bandwidth.value, 20e9);
  EXPECT_FALSE(topology->intra.nvls_channels.has_value());
  ASSERT_TRUE(topology->nic.has_value());
  EXPECT_EQ(topology->nic->count, 4);
  EXPECT_DOUBLE_EQ(topology->nic->bandwidth.value, 12.5e9);
  EXPECT_DOUBLE_EQ(topology->nic->latency.count(), 1);
  EXPECT_DOUBLE_EQ(topology->first_bytes.value, 1048576);
  ASSERT_EQ(topology->curves.size(), 2u);
  EXPECT_EQ(topology->curves[1].ranks, 8);
  EXPECT_NE(topology->calibration.find("vTrain"), std::string::npos);
  EXPECT_EQ(TopologyCatalog::builtin().find("hgx-h100")->intra.nvls_channels, 16);
}

// Most edge-disjoint Hamiltonian cycles through the first n GPUs of the DGX-1's mesh, searched for
// anew from the link counts that the file's notes state; each gives one ring per direction.
TEST(Topologies, RingsOfTheMeshAreThoseOfItsLinks) {
  int links[8][8] = {};
  for (auto [a, b] : {std::pair{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}}) {
    links[a][b] = links[b][a] = 2;
  }
  for (auto [a, b] : {std::pair{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}}) {
    links[a][b] = links[b][a] = 1;
  }
  for (const auto& row : links) EXPECT_EQ(std::accumulate(std::begin(row), std::end(row), 0), 6);
  const std::function<int(int)> cycles = [&](int n) {
    int most = 0;
    std::vector<int> path{0};
    const std::function<void()> extend = [&] {
      const int at = path.back();
      if (static_cast<int>(path.size()) == n) {
        if (links[at][0] == 0) return;
        --links[at][0], --links[0][at];
        most = std::max(most, 1 + cycles(n));
        ++links[at][0], ++links[0][at];
        return;
      }
      for (int next = 1; next < n; ++next) {
        if (links[at][next] == 0 || std::ranges::find(path, next) != path.end()) continue;
        --links[at][next], --links[next][at];
        path.push_back(next);
        extend();
        path.pop_back();
        ++links[at][next], ++links[next][at];
      }
    };
    extend();
    return most;
  };
  const Topology topology = TopologyCatalog::builtin().find("dgx1-v100").value();
  for (int n : {3, 4, 6, 7, 8}) EXPECT_EQ(topology.ring_channels(n), 2 * cycles(n)) << n;
  // No cycle passes GPU 4, which has links to GPU 0 alone among the first five. By hand: one ring
  // goes 0, 4, 0, 1, 2, 3, its reverse 0, 3, 2, 1, 0, 4: GPU 0 hands on, and each direction of the
  // two links 0-4 carries one of them.
  EXPECT_EQ(cycles(5), 0);
  EXPECT_EQ(std::accumulate(links[4], links[4] + 4, 0), links[4][0]);
  EXPECT_EQ(topology.ring_channels(5), links[4][0]);
  EXPECT_EQ(topology.ring_channels(2), 1);
}

TEST(Topologies, FindsByPath) {
  const TopologyFile file([](Json& j) { j["name"] = "mine"; }, "mine");
  const auto topology = TopologyCatalog::builtin().find(file.file().string());
  ASSERT_TRUE(topology.has_value()) << to_string(topology.error());
  EXPECT_EQ(topology->name, "mine");
  const auto missing = TopologyCatalog::builtin().find("/nowhere/at-all.json");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
  EXPECT_EQ(missing.error().message, "expected a readable topology file, found none");
}

TEST(Topologies, UnknownNameListsTheNearest) {
  const auto topology = TopologyCatalog::builtin().find("dgx-h100");
  ASSERT_FALSE(topology.has_value());
  EXPECT_EQ(topology.error().code, ErrorCode::kUnknownName);
  EXPECT_TRUE(topology.error().message.starts_with(
      "expected the name of a known topology or a file, found \"dgx-h100\"; the nearest known are"))
      << topology.error().message;
  EXPECT_NE(topology.error().message.find("hgx-h100"), std::string::npos);
}

TEST(Topologies, ReadsNcclTimes) {
  const Topology topology = TopologyCatalog::builtin().find("gb200-nvl72").value();
  ASSERT_TRUE(topology.nccl.has_value());
  const Topology::NcclTimes& nccl = *topology.nccl;
  EXPECT_DOUBLE_EQ(nccl.base.count(), 7.431);
  EXPECT_DOUBLE_EQ(nccl.low_rate.value, 358e9);
  EXPECT_DOUBLE_EQ(nccl.all_to_all.low_rate.value, 22.63e9);
  ASSERT_EQ(nccl.rates.size(), 3u);
  EXPECT_TRUE(nccl.rates[1].measured);
  EXPECT_FALSE(nccl.rates[2].measured);  // on B200 only
  EXPECT_DOUBLE_EQ(nccl.rates[2].reduce_scatter.value, 715.9e9);
  EXPECT_NE(nccl.calibration.find("aiconfigurator"), std::string::npos);
  EXPECT_FALSE(TopologyCatalog::builtin().find("dgx1-v100")->nccl.has_value());
}

TEST(Topologies, ErrorsNameTheFieldOfNccl) {
  std::ifstream in(source_data() / "topologies" / "hgx-b200.json");
  const Json good = Json::parse(in).at("nccl");
  const auto error = [&](const std::function<void(Json&)>& change) {
    const TopologyFile file([&](Json& j) {
      j["nccl"] = good;
      change(j["nccl"]);
    });
    const auto topology = read_topology(file.file());
    return topology ? "" : topology.error().json_pointer + ": " + topology.error().message;
  };
  EXPECT_EQ(error([](Json&) {}), "");
  EXPECT_EQ(error([](Json& j) { j = nullptr; }), "");
  EXPECT_EQ(error([](Json& j) { j = 3; }), "/nccl: expected an object or null, found 3");
  EXPECT_EQ(error([](Json& j) { j["low"] = 3; }), "/nccl/low: expected no such key, found 3");
  EXPECT_EQ(error([](Json& j) { j.erase("hop_us"); }),
            "/nccl/hop_us: expected this key, found nothing");
  EXPECT_EQ(error([](Json& j) { j["rise"] = 2; }),
            "/nccl/rise: expected a share from 1e-6 to 1, found 2");
  EXPECT_EQ(error([](Json& j) { j["last_bytes"] = 100; }),
            "/nccl/last_bytes: expected at least first_bytes, found 100");
  EXPECT_EQ(error([](Json& j) { j["all_to_all"]["low_gb_per_s"] = -1; }),
            "/nccl/all_to_all/low_gb_per_s: expected a number above 0, found -1");
  EXPECT_EQ(error([](Json& j) { j["rates"] = Json::array(); }),
            "/nccl/rates: expected rates of at least one group, found []");
  EXPECT_EQ(error([](Json& j) { j["rates"][1]["ranks"] = 2; }),
            "/nccl/rates/1/ranks: expected more than 2, at most 8 (gpus_per_node), found 2");
  EXPECT_EQ(error([](Json& j) { j["rates"][0]["measured"] = 1; }),
            "/nccl/rates/0/measured: expected true or false, found 1");
}

struct BadField {
  const char* label;
  std::function<void(Json&)> change;
  const char* pointer;
  const char* message;
};

Json group_curve(const char* op, int ranks, const std::vector<double>& factors) {
  return {{"op", op},
          {"ranks", ranks},
          {"nodes", 1},
          {"first_bytes", 64},
          {"alpha_us", 10},
          {"bus_gb_per_s", 50},
          {"octave_factors", factors}};
}

TEST(Topologies, ErrorsNameTheField) {
  const BadField cases[] = {
      {"missing", [](Json& j) { j.erase("gpus_per_node"); }, "/gpus_per_node",
       "expected this key, found nothing"},
      {"unknown", [](Json& j) { j["intra"]["speed"] = 1; }, "/intra/speed",
       "expected no such key, found 1"},
      {"unknown in root", [](Json& j) { j["rings"] = 1; }, "/rings",
       "expected no such key, found 1"},
      {"schema", [](Json& j) { j["schema"] = "perfmodel-gpu"; }, "/schema",
       "expected \"perfmodel-topology\", found \"perfmodel-gpu\""},
      {"version", [](Json& j) { j["version"] = 2; }, "/version",
       "expected version 1, found 2, which needs a newer program"},
      {"name", [](Json& j) { j["name"] = ""; }, "/name",
       "expected a name of lower-case letters, digits, dashes, dots and underscores, found \"\""},
      {"path", [](Json& j) { j["name"] = "../x"; }, "/name",
       "expected a name of lower-case letters, digits, dashes, dots and underscores, found "
       "\"../x\""},
      {"default", [](Json& j) { j["default_for"] = {"t4"}; }, "/default_for",
       "expected names out of gpus, found [\"t4\"]"},
      {"generation", [](Json& j) { j["generation"] = "turing"; }, "/generation",
       "expected \"volta\", \"ampere\", \"hopper\" or \"blackwell\", found \"turing\""},
      {"kind", [](Json& j) { j["intra"]["kind"] = 3; }, "/intra/kind",
       "expected a string, found 3"},
      {"kind", [](Json& j) { j["intra"]["kind"] = "nvlink"; }, "/intra/kind",
       "expected \"nvswitch\", \"nvlink-mesh\", \"xgmi\" or \"pcie\", found \"nvlink\""},
      {"cpu", [](Json& j) { j["cpu"] = "arm"; }, "/cpu",
       "expected \"intel\", \"amd\" or \"other\", found \"arm\""},
      {"intra", [](Json& j) { j["intra"] = nullptr; }, "/intra", "expected an object, found null"},
      {"text", [](Json& j) { j["intra"]["gpu_gb_per_s"] = "150"; }, "/intra/gpu_gb_per_s",
       "expected a number above 0, found \"150\""},
      {"channels", [](Json& j) { j["intra"]["ring_channels"] = 1.5; }, "/intra/ring_channels",
       "expected an integer above 0, found 1.5"},
      {"nvls", [](Json& j) { j["intra"]["nvls_channels"] = 0; }, "/intra/nvls_channels",
       "expected a number above 0 or null, found 0"},
      {"ll128", [](Json& j) { j["intra"]["ll128"] = 1; }, "/intra/ll128",
       "expected true or false, found 1"},
      {"no share", [](Json& j) { j["nic"]["efficiency"] = 1e-7; }, "/nic/efficiency",
       "expected a share from 1e-6 to 1, found 1e-07"},
      {"share", [](Json& j) { j["intra"]["efficiency"] = 1.5; }, "/intra/efficiency",
       "expected a share from 1e-6 to 1, found 1.5"},
      {"list", [](Json& j) { j["intra"]["ring_channels_by_ranks"] = 6; },
       "/intra/ring_channels_by_ranks", "expected a list or null, found 6"},
      {"entry", [](Json& j) { j["intra"]["ring_channels_by_ranks"][2] = 6; },
       "/intra/ring_channels_by_ranks/2", "expected an object, found 6"},
      {"order", [](Json& j) { j["intra"]["ring_channels_by_ranks"][1]["ranks"] = 2; },
       "/intra/ring_channels_by_ranks/1/ranks",
       "expected more ranks than the entry before, found 2"},
      {"nic", [](Json& j) { j["nic"]["gb_per_s"] = -1; }, "/nic/gb_per_s",
       "expected a number above 0, found -1"},
      {"nic type", [](Json& j) { j["nic"] = 4; }, "/nic", "expected an object or null, found 4"},
      {"no curve", [](Json& j) { j["all_reduce"]["curves"] = Json::array(); }, "/all_reduce/curves",
       "expected at least one curve, found []"},
      {"curve ranks", [](Json& j) { j["all_reduce"]["curves"][1]["ranks"] = 9; },
       "/all_reduce/curves/1/ranks",
       "expected more than 2, at most 8 (gpus_per_node) or, where there is a nic, a multiple of "
       "that, "
       "found 9"},
      {"one factor", [](Json& j) { j["all_reduce"]["curves"][0]["octave_factors"] = {1}; },
       "/all_reduce/curves/0/octave_factors", "expected at least 2 factors, found [1]"},
      {"factor", [](Json& j) { j["all_reduce"]["curves"][0]["octave_factors"][3] = "1"; },
       "/all_reduce/curves/0/octave_factors/3", "expected a number from 1e-6 to 1e6, found \"1\""},
      {"falling", [](Json& j) { j["all_reduce"]["curves"][1]["octave_factors"][1] = 0.5; },
       "/all_reduce/curves/1/octave_factors/1",
       "expected a time that never falls with bytes, found a factor that lowers it: 0.5"},
      {"machine", [](Json& j) { j["gpus_per_machine"] = 3; }, "/gpus_per_machine",
       "expected a divisor of gpus_per_node, found 3"},
      {"group",
       [](Json& j) {
         j["collectives"] = Json::array({group_curve("all_meet", 8, {1, 1})});
       },
       "/collectives/0/op", "expected a collective, such as all_gather, found \"all_meet\""},
      {"nodes of a group",
       [](Json& j) {
         j["collectives"] = Json::array({group_curve("send", 16, {1, 1})});
       },
       "/collectives/0/nodes",
       "expected nodes that hold the ranks, and a nic for more than one, found 1"},
      {"falling group",
       [](Json& j) {
         j["collectives"] = Json::array({group_curve("reduce", 8, {1, 0.1})});
       },
       "/collectives/0/octave_factors/1",
       "expected a time that never falls with bytes, found a factor that lowers it: 0.1"},
      {"sources", [](Json& j) { j["sources"] = Json::array(); }, "/sources",
       "expected at least one source, found []"},
  };
  for (const BadField& bad : cases) {
    const TopologyFile file(bad.change);
    const auto topology = read_topology(file.file());
    ASSERT_FALSE(topology.has_value()) << bad.label;
    EXPECT_EQ(topology.error().json_pointer, bad.pointer) << bad.label;
    EXPECT_EQ(topology.error().message, bad.message) << bad.label;
    EXPECT_EQ(topology.error().file, file.file());
    EXPECT_FALSE(TopologyCatalog::read(file.folder()).has_value());
  }
}

TEST(Topologies, NullIsAllowedForWhatIsAbsent) {
  const TopologyFile file([](Json& j) {
    j["nic"] = nullptr;
    j["all_reduce"] = nullptr;
    j["intra"]["ring_channels_by_ranks"] = nullptr;
  });
  const auto topology = read_topology(file.file());
  ASSERT_TRUE(topology.has_value()) << to_string(topology.error());
  EXPECT_FALSE(topology->nic.has_value());
  EXPECT_TRUE(topology->curves.empty());
  EXPECT_EQ(topology->ring_channels(2), 6);
}

TEST(Topologies, BrokenJsonHasAPosition) {
  const TopologyFile file([](Json&) {});
  std::ofstream(file.file()) << "{\n  \"schema\": oops\n}\n";
  const auto topology = read_topology(file.file());
  ASSERT_FALSE(topology.has_value());
  EXPECT_EQ(topology.error().code, ErrorCode::kSyntax);
  EXPECT_EQ(topology.error().line, 2);
}

TEST(Topologies, FolderErrors) {
  EXPECT_EQ(TopologyCatalog::read("/nowhere/at-all").error().code, ErrorCode::kIo);
  {
    const TopologyFile file([](Json&) {}, "other");
    const auto catalog = TopologyCatalog::read(file.folder());
    ASSERT_FALSE(catalog.has_value());
    EXPECT_EQ(catalog.error().message,
              "expected the name of the file, \"other\", found \"dgx1-v100\"");
  }
  const TopologyFile file([](Json& j) { j["name"] = "copy"; }, "copy");
  fs::copy_file(source_data() / "topologies" / "dgx1-v100.json", file.folder() / "dgx1-v100.json");
  const auto catalog = TopologyCatalog::read(file.folder());
  ASSERT_FALSE(catalog.has_value());
  EXPECT_EQ(catalog.error().json_pointer, "/default_for/0");
  EXPECT_EQ(catalog.error().message,
            "expected one default topology per GPU, found v100-sxm2-16gb, which copy claims too");
}

TEST(Topologies, AnUnknownGenerationOrLinkIsAnErrorOrLikeAnother) {
  const TopologyFile generation([](Json& j) { j["generation"] = "rubin"; });
  const auto refused = read_topology(generation.file());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().json_pointer, "/generation");
  EXPECT_NE(refused.error().message.find("\"blackwell\", found \"rubin\""), std::string::npos)
      << refused.error().message;

  const TopologyFile like([](Json& j) {
    j["generation"] = "rubin";
    j["like"] = "blackwell";
    j["intra"]["kind"] = "light";
    j["intra"]["like"] = "nvswitch";
  });
  const auto topology = read_topology(like.file());
  ASSERT_TRUE(topology) << to_string(topology.error());
  EXPECT_EQ(topology->generation, NcclGeneration::kBlackwell);
  EXPECT_EQ(topology->intra.kind, IntraLink::kNvswitch);
  const auto sentences = stand_ins(*topology);
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_NE(sentences[0].find("generation rubin of topology dgx1-v100 is not known: blackwell"),
            std::string::npos)
      << sentences[0];
  EXPECT_NE(sentences[1].find("link light"), std::string::npos) << sentences[1];

  // DGX-1's own measured curve says nothing about an unknown generation.
  const CollectiveQuery query{.bytes = {64e6}, .ranks = 8};
  const auto known = read_topology(source_data() / "topologies" / "dgx1-v100.json");
  EXPECT_TRUE(collective_time(*known, query)->in_range);
  EXPECT_FALSE(collective_time(*topology, query)->in_range);
  EXPECT_TRUE(stand_ins(*known).empty());
}

TEST(DatasheetTopology, ComesFromTheGpu) {
  Gpu gpu = test_support::round_gpu();  // PCIe, 16 GB/s
  Topology topology = topology_for(gpu);
  EXPECT_EQ(topology.name, "round (data sheet)");
  EXPECT_EQ(topology.intra.kind, IntraLink::kPcie);
  EXPECT_FALSE(topology.intra.ll128);
  EXPECT_NEAR(topology.intra.channel_bandwidth.value, 16e9 * 12 / 15.75, 1);
  EXPECT_FALSE(topology.nic.has_value());
  EXPECT_EQ(topology.generation, NcclGeneration::kAmpere);
  gpu.link_type = "nvlink";
  gpu.link_count = 12;
  gpu.link_bandwidth = {600e9};
  gpu.architecture = test_support::architecture("hopper");
  topology = topology_for(gpu);
  EXPECT_EQ(topology.intra.kind, IntraLink::kNvswitch);
  EXPECT_NEAR(topology.intra.channel_bandwidth.value, 20e9, 1);
  EXPECT_EQ(topology.ring_channels(8), 12);
  EXPECT_EQ(topology.generation, NcclGeneration::kHopper);
  gpu.link_type = "xgmi";
  gpu.vendor = "amd";
  gpu.architecture = test_support::architecture("cdna3");
  topology = topology_for(gpu);
  EXPECT_EQ(topology.intra.kind, IntraLink::kXgmi);
  EXPECT_EQ(topology.generation, NcclGeneration::kAmpere);
  gpu.vendor = "nvidia";
  gpu.architecture = test_support::architecture("maxwell");
  EXPECT_EQ(topology_for(gpu).generation, NcclGeneration::kVolta);
  gpu.architecture = test_support::architecture("blackwell");
  EXPECT_EQ(topology_for(gpu).generation, NcclGeneration::kBlackwell);
}

}  // namespace topology_test
}  // namespace perfmodel
