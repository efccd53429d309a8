// Each invariant, broken by hand.
#include "program/invariants.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "program/host_program.hpp"

namespace perfmodel {
namespace invariants_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using TaskId = TaskGraph::TaskId;

const TaskName kLetters = [](TaskId task) {
  return std::string("op ") + static_cast<char>('A' + task);
};

// Common parts of all errors of broken invariants.
auto is_bug_of(const std::string& op) { return AllOf(StartsWith("bug: "), HasSubstr(op)); }

std::string message(const Result<void>& result) { return result ? "" : result.error().message; }

// Two consecutive tasks on lane 0, the third on lane 1 waits for the first, 1 us long.
class CheckedSchedule : public ::testing::Test {
 protected:
  CheckedSchedule() {
    graph_.add_task(0, 10, 0);
    graph_.add_task(0, 5, 0);
    graph_.add_task(1, 2, 0);
    graph_.add_edge(0, 2, 1);
    schedule_ = run_schedule(graph_).value();
  }

  std::string checked(const CheckedTasks& tasks = {}) const {
    return message(check_schedule(graph_, schedule_, kLetters, tasks));
  }

  TaskGraph graph_;
  Schedule schedule_;
};

TEST_F(CheckedSchedule, OfTheSchedulerIsSound) { EXPECT_EQ(checked(), ""); }

TEST_F(CheckedSchedule, TasksOfOneLaneDoNotOverlap) {
  schedule_.start_us[1] = 9;
  EXPECT_THAT(checked(), is_bug_of("op B"));
  EXPECT_EQ(checked({.overlap_us = 1}), "");
  EXPECT_THAT(checked({.overlap_us = 0.5}), is_bug_of("op B"));
}

TEST_F(CheckedSchedule, NoTaskStartsBeforeWhatItWaitsFor) {
  schedule_.start_us[2] = 10.5;  // 10 + 1 us
  EXPECT_THAT(checked(), AllOf(is_bug_of("op C"), HasSubstr("op A")));
  EXPECT_EQ(checked({.first_edge = 1}), "");
}

TEST_F(CheckedSchedule, EdgesThatWereDroppedMayBeBroken) {
  schedule_.start_us[2] = 10.5;
  schedule_.dropped_edges = 1;
  EXPECT_EQ(checked(), "");
}

TEST_F(CheckedSchedule, TimesAreNumbersAndRunForwards) {
  schedule_.end_us[2] = 10;  // before its start
  EXPECT_THAT(checked(), is_bug_of("op C"));
  schedule_.start_us[2] = std::nan("");
  EXPECT_THAT(checked(), is_bug_of("op C"));
}

TEST_F(CheckedSchedule, LeavesOutEarlierTasks) {
  schedule_.start_us[1] = 9;
  EXPECT_EQ(checked({.first = 2}), "");
}

TEST_F(CheckedSchedule, StreamsDoNotWorkLongerThanTheSpan) {
  EXPECT_EQ(message(check_spans(graph_, schedule_, 0, 2, kLetters)), "");
  schedule_.end_us = {10, 10, 13};  // lane 0 works for 15 us
  EXPECT_THAT(message(check_spans(graph_, schedule_, 0, 2, kLetters)), is_bug_of("op B"));
  EXPECT_EQ(message(check_spans(graph_, schedule_, 0, 2, kLetters, 1)), "");
}

// ---- one rank
// ----------------------------------------------------------------------------------

// A writer on stream 1 and its reader on stream 0, launched by ops that take 1 us each.
class CheckedProgram : public ::testing::Test {
 protected:
  static constexpr std::int64_t kMemory = 7;

  CheckedProgram() {
    graph_.tensors.push_back(
        {.storage_id = kMemory, .device = {.kind = Device::Kind::kGpu, .index = 0}});
    graph_.arguments.push_back({.kind = Argument::Kind::kTensor, .index = 0});
    program_.steps = {{.name = "step"}};
  }

  std::int32_t add_node(const std::string& name, bool reads, bool writes) {
    Node node{.id = static_cast<std::int64_t>(graph_.nodes.size()),
              .name = graph_.names.intern(name)};
    node.inputs_count = reads;
    node.outputs_count = writes;
    graph_.nodes.push_back(node);
    const auto index = static_cast<std::int32_t>(graph_.nodes.size()) - 1;
    program_.items.push_back({.node = index, .subject = index});
    return index;
  }

  Launch& launch(std::int32_t node, std::int32_t stream, double device_us, Term term) {
    const auto kernel = static_cast<std::int32_t>(program_.kernels.size());
    program_.kernels.push_back({.price = {.time = Microseconds(device_us)}});
    program_.instructions.push_back(
        {.item = node,
         .what =
             Launch{.term = term, .stream = stream, .host_us = 1, .kernel = kernel, .node = node}});
    return std::get<Launch>(program_.instructions.back().what);
  }

  void add_copy() {
    const std::int32_t node = add_node("aten::copy_", false, true);
    launch(node, 1, 50, Term::kCopy).record = node;
  }
  void add_collective() {
    const std::int32_t node = add_node("record_param_comms", true, true);
    Launch& made = launch(node, 1, 50, Term::kCollective);
    made.record = node;
    made.collective = program_.add(CollectiveLaunch{});
  }
  void await(std::int32_t record) {
    program_.instructions.push_back({.item = record, .what = DeviceWait{.record = record}});
  }
  void add_reader() { launch(add_node("aten::add", true, false), 0, 5, Term::kKernel); }

  void schedule() {
    tasks_ = std::make_unique<ProgramTasks>(program_, table_, 0, task_graph_);
    tasks_->add_pass();
    schedule_ = run_schedule(task_graph_).value();
  }

  CheckedRank rank() const {
    return {.graph = &graph_,
            .program = &program_,
            .tasks = tasks_.get(),
            .task_graph = &task_graph_,
            .schedule = &schedule_,
            .name = [this](TaskId task) {
              return std::string(
                  graph_.name(graph_.nodes[static_cast<std::size_t>(task_graph_.op(task))]));
            }};
  }

  std::string readers() {
    schedule();
    return message(check_readers(rank()));
  }

  ExecutionGraph graph_;
  HostProgram program_;
  OverheadTable table_;
  TaskGraph task_graph_;
  std::unique_ptr<ProgramTasks> tasks_;
  Schedule schedule_;
};

TEST_F(CheckedProgram, ReadersOfACopyStartAfterIt) {
  add_copy();
  add_reader();
  EXPECT_THAT(readers(), AllOf(is_bug_of("aten::add starts"), HasSubstr("aten::copy_")));
}

TEST_F(CheckedProgram, ReadersOfACollectiveStartAfterIt) {
  add_collective();
  add_reader();
  EXPECT_THAT(readers(), AllOf(is_bug_of("aten::add starts"), HasSubstr("record_param_comms")));
}

TEST_F(CheckedProgram, ACollectiveReadsWhatItsRecordSays) {
  add_copy();
  const std::int32_t record = add_node("record_param_comms", true, true);
  Launch& made = launch(add_node("nccl:all_reduce", false, false), 2, 5, Term::kCollective);
  made.record = record;
  made.collective = program_.add({.waits_for_caller = false});
  EXPECT_THAT(readers(), AllOf(is_bug_of("nccl:all_reduce starts"), HasSubstr("aten::copy_")));
}

TEST_F(CheckedProgram, KernelsThatOthersWaitForReadTheirOwnInputs) {
  add_copy();
  launch(add_node("aten::add", true, false), 0, 5, Term::kKernel).record = 1 << 30;  // no node
  EXPECT_THAT(readers(), AllOf(is_bug_of("aten::add starts"), HasSubstr("aten::copy_")));
}

TEST_F(CheckedProgram, ReadersThatWaitAreSound) {
  add_copy();
  await(0);
  add_reader();
  EXPECT_EQ(readers(), "");
}

TEST_F(CheckedProgram, OnlyTheFirstReaderIsLookedAt) {
  add_collective();
  await(0);
  add_reader();
  add_reader();
  EXPECT_EQ(readers(), "");
}

TEST_F(CheckedProgram, CopiesOnTheMainStreamNeedNoWait) {
  launch(add_node("aten::copy_", false, true), 0, 50, Term::kCopy);
  add_reader();
  EXPECT_EQ(readers(), "");
}

TEST_F(CheckedProgram, MemoryThatIsWrittenAnewIsNotTheCopys) {
  add_copy();
  launch(add_node("aten::mm", false, true), 0, 5, Term::kKernel);
  add_reader();
  EXPECT_EQ(readers(), "");
}

TEST_F(CheckedProgram, NoStreamHasMoreWorkThanAStepHolds) {
  add_copy();  // 50 us
  add_reader();
  schedule();
  EXPECT_EQ(message(check_pace(rank(), {.e2e_us = 50})), "");
  EXPECT_EQ(message(check_pace(rank(), {.e2e_us = 49.96})), "");  // steady to 0.1 %
  EXPECT_THAT(message(check_pace(rank(), {.e2e_us = 49})), is_bug_of("aten::copy_"));
}

TEST_F(CheckedProgram, TheDeviceIsActiveNoLongerThanTheStep) {
  add_copy();
  add_reader();
  schedule();
  EXPECT_THAT(message(check_pace(rank(), {.e2e_us = 52, .gpu_active_us = 53})),
              is_bug_of("aten::copy_"));  // it ends last
}

// ---- figures
// -----------------------------------------------------------------------------------

Prediction sound() {
  Prediction made{.e2e_us = 10,
                  .gpu_active_us = 6,
                  .gpu_idle_us = 4,
                  .cpu_us = 7,
                  .wait_us = 3,
                  .kernel_sum_us = 6,
                  .compute_kernel_us = 4,
                  .comm_kernel_us = 2};
  const auto set = [&](Term term, double us) {
    made.terms_us[static_cast<std::size_t>(term)] = us;
  };
  set(Term::kT1, 3);
  set(Term::kT4, 4);
  set(Term::kKernel, 4);
  set(Term::kCollective, 2);
  made.ops.push_back({.id = 3, .name = "aten::mm", .kernels = {{.name = "gemm"}}});
  return made;
}

TEST(CheckedFigures, OfASoundPredictionPass) {
  EXPECT_EQ(message(check_times(sound())), "");
  EXPECT_EQ(message(check_sums(sound(), 100)), "");
}

TEST(CheckedFigures, AreNumbersAndNotNegative) {
  Prediction made = sound();
  made.gpu_active_us = -1;
  EXPECT_THAT(message(check_times(made)), is_bug_of("active time"));
  made = sound();
  made.terms_us[static_cast<std::size_t>(Term::kT5)] = std::nan("");
  EXPECT_THAT(message(check_times(made, "rank 2: ")), is_bug_of("rank 2: T5"));
}

TEST(CheckedFigures, OfKernelsAreNumbersAndNotNegative) {
  Prediction made = sound();
  made.ops[0].kernels[0].price.time = Microseconds(-1);
  EXPECT_THAT(message(check_times(made)), AllOf(is_bug_of("aten::mm"), HasSubstr("gemm")));
  made = sound();
  made.ops[0].host_us = std::numeric_limits<double>::infinity();
  EXPECT_THAT(message(check_times(made)), is_bug_of("aten::mm"));
}

TEST(CheckedFigures, AddUpToTheStep) {
  Prediction made = sound();
  made.wait_us = 2;
  EXPECT_THAT(message(check_sums(made, 100)), is_bug_of("the step is 10.000 us"));
  made = sound();
  made.terms_us[static_cast<std::size_t>(Term::kT1)] = 2;
  EXPECT_THAT(message(check_sums(made, 100)), is_bug_of("T1 to TX are 6.000 us"));
  made = sound();
  made.terms_us[static_cast<std::size_t>(Term::kKernel)] = 5;
  EXPECT_THAT(message(check_sums(made, 100)), is_bug_of("the sum of kernels is 6.000 us"));
}

TEST(CheckedFigures, MayBeRoundedFarFromTheBeginning) {
  Prediction made = sound();
  made.wait_us += 0.1;
  EXPECT_THAT(message(check_sums(made, 1e9)), is_bug_of("the step"));
  EXPECT_EQ(message(check_sums(made, 1e12)), "");
}

}  // namespace invariants_test
}  // namespace perfmodel
