// Jobs of unlike ranks, searches that several processes share, as users call them.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <string>

#include "program.hpp"

namespace perfmodel::test_support {
namespace unlike_ranks_test {

std::string mlp() {
  static const std::string file = built("unlike_mlp.json", {"mlp", "--batch", "512"});
  return file;
}

Json predicted(Words words) {
  words.insert(words.begin(), {"predict", mlp()});
  return json_of(words);
}

void expect_refused(Words words, int status, const std::string& message) {
  words.insert(words.begin(), {"predict", mlp()});
  expect_error(words, status, message);
}

TEST(UnlikeRanks, KindsAndStragglersAreReported) {
  const Json json =
      predicted({"--gpu", "h100-sxm-80gb:3,v100-sxm2-32gb", "--strategy", "ddp", "--slowdown",
                 "1,1,1,1.5", "--straggler", "uniform:0.1", "--draws", "50"});
  ASSERT_EQ(json["ranks"].size(), 2U);
  EXPECT_EQ(json["ranks"][0]["gpu"], "h100-sxm-80gb");
  EXPECT_EQ(json["ranks"][0]["count"], 3);
  EXPECT_EQ(json["ranks"][1]["slowdown"], 1.5);
  EXPECT_EQ(json["slowest_rank"], 1);
  EXPECT_EQ(json["gpus"], 4);
  EXPECT_GT(json["stragglers"]["p95_us"], json["stragglers"]["mean_us"]);
  EXPECT_EQ(json["stragglers"]["draws"], 50);
  // Equal ranks are the job of --strategy ddp.
  const Json alike = predicted({"--gpu", "t4:4", "--strategy", "ddp"});
  const Json job = predicted({"--gpu", "t4", "--world", "4", "--strategy", "ddp"});
  EXPECT_EQ(alike["e2e_us"], job["e2e_us"]);
}

TEST(UnlikeRanks, MistakesAreOneLine) {
  expect_refused({"--gpu", "t4:2,l4:2", "--strategy", "fsdp"}, 2, "--strategy fsdp");
  expect_refused({"--gpu", "t4:2,l4:2", "--strategy", "ddp", "--slowdown", "1,2"}, 1,
                 "expected one value of --slowdown or one per rank (4), found 2");
  expect_refused({"--gpu", "t4:2,l4:2", "--world", "8", "--strategy", "ddp"}, 1,
                 "expected as many GPUs as --world says (8), found 4");
  expect_refused({"--gpu", "t4:x", "--strategy", "ddp"}, 1, "expected GPUs as NAME or NAME:COUNT");
  expect_refused({"--gpu", "t4:2", "--strategy", "ddp", "--straggler", "often"}, 1,
                 "expected none, lognormal:DEVIATION");
  expect_refused({"--gpu", "t4", "--strategy", "ddp"}, 2, "--world");
}

#ifdef PERFMODEL_MPIRUN

TEST(LayoutMpi, ProcessesGiveTheSameAnswer) {
  const std::string question =
      " layout rank --gpu h100-sxm-80gb --layers 8 --hidden 1024 --heads 8 --feed-forward 4096 "
      "--vocabulary 32000 --sequence 1024 --global-batch 32 --world 16 --json";
  const auto answer = [&](const std::string& front) {
    const std::string file = scratch_file("layout_mpi.json");
    const int status =
        std::system((front + PERFPREDICT_PROGRAM + question + " > " + file + " 2>&1").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 0) << read(file);
    Json json = Json::parse(read(file), nullptr, false);
    json["search"].erase("seconds");
    return json.dump();
  };
  const std::string alone = answer("");
  for (const char* ranks : {"2", "4"}) {
    EXPECT_EQ(answer(std::string(PERFMODEL_MPIRUN) + " --allow-run-as-root --oversubscribe -n " +
                     ranks + " "),
              alone)
        << ranks;
  }
}

#endif

}  // namespace unlike_ranks_test
}  // namespace perfmodel::test_support
