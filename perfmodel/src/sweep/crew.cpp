#include "crew.hpp"

#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "study/answer_rows.hpp"

namespace perfmodel::sweep {
namespace {

// First word of a rank's message: {kWants, rows of its last chunk} or {kIsDone, predicted, refused,
// too large, failed}.
enum Word : std::uint64_t { kWants = 1, kIsDone = 2 };

std::optional<Result<RowMaker::Row>> row_unless_stopped(RowMaker& maker, std::uint64_t index) {
  try {
    return maker.make(index);
  } catch (const Stopped&) {
    return std::nullopt;
  }
}

}  // namespace

Crew::Crew(const SweepPoints& points, const GraphToolbox& toolbox, const Predictor& predictor,
           const SweepOptions& options, WorkList* list, Result<PartWriter> writer)
    : points_(points),
      predictor_(predictor),
      options_(options),
      list_(list),
      writer_(std::move(writer)),
      graphs_(points.spec(), toolbox) {}

WorkDone Crew::work() {
  std::size_t threads = study_threads(options_.threads, SIZE_MAX);
  if (!writer_) {
    note(writer_.error());
    threads = 0;
  }
  Team* team = options_.team.get();
  if (list_) {
    lead(threads);
  } else {
    at_work_ = threads;
    if (threads > 0) work_in_threads(threads, [this] { run_thread(); });
    const std::uint64_t words[] = {kIsDone, predicted_, refused_, too_large_,
                                   done_.error ? 1U : 0U};
    team->ask(words);
  }
  done_.predicted += predicted_;
  done_.refused += refused_;
  done_.too_large += too_large_;
  done_.stopped = stopped();
  return done_;
}

void Crew::lead(std::size_t threads) {
  using namespace std::chrono_literals;
  Team* team = options_.team.get();
  const std::size_t others = team ? team->size() - 1 : 0;
  std::vector<std::jthread> workers;
  at_work_ = threads;
  const auto work = [this, rules = stop_rules()] {
    const StopScope scope(rules);
    run_thread();
  };
  for (std::size_t i = 0; i < threads; ++i) workers.emplace_back(work);
  while (at_work_ > 0 || ranks_done_ < others) {
    while (auto message = team ? team->receive() : std::nullopt) serve(*message);
    report_progress();
    // Others wait for an answer; a single process only draws a bar.
    std::this_thread::sleep_for(ranks_done_ < others ? 200us : 2000us);
  }
  report_progress();
}

void Crew::serve(const Team::Message& message) {
  std::vector<std::uint64_t> answer;
  if (message.words.at(0) == kIsDone) {
    ++ranks_done_;
    done_.predicted += message.words.at(1);
    done_.refused += message.words.at(2);
    done_.too_large += message.words.at(3);
    done_.failed_ranks += message.words.at(4);
  } else {
    rows_of_others_ += message.words.at(1);
    if (!quit_ && !stopped()) answer = list_->next();
  }
  options_.team->answer(message.rank, answer);
}

void Crew::report_progress() const {
  if (options_.progress) options_.progress(predicted_ + rows_of_others_, list_->rows());
}

// No exception leaves a thread.
void Crew::run_thread() {
  try {
    work_through_chunks();
  } catch (const Stopped&) {
    quit_ = true;
  } catch (const std::bad_alloc&) {
    note({.code = ErrorCode::kOutOfMemory, .message = "out of memory"});
  } catch (const std::exception& problem) {
    note({.code = ErrorCode::kImpossible, .message = problem.what()});
  }
  --at_work_;
}

void Crew::work_through_chunks() {
  RowMaker maker(points_, predictor_, graphs_);
  std::uint64_t rows_done = 0;
  while (!quit_ && !stopped()) {
    const auto chunk = next_chunk(rows_done);
    if (chunk.empty()) return;
    if (auto answered = answer_chunk(chunk, maker); !answered) return note(answered.error());
    rows_done = chunk.size();
  }
}

std::vector<std::uint64_t> Crew::next_chunk(std::uint64_t rows_done) {
  if (list_) return list_->next();
  const std::uint64_t words[] = {kWants, rows_done};
  return options_.team->ask(words);
}

// Answers are kept, even if the chunk cannot be finished.
Result<void> Crew::answer_chunk(const std::vector<std::uint64_t>& chunk, RowMaker& maker) {
  Result<void> outcome;
  std::string rows;
  std::uint64_t predicted = 0, refused = 0, too_large = 0;
  for (const std::uint64_t index : chunk) {
    if (stopped()) break;
    const auto row = row_unless_stopped(maker, index);
    if (!row) break;
    if (!*row) {
      outcome = Unexpected{row->error()};
      break;
    }
    rows += points_.key(index) + "," + (*row)->cells + "\n";
    ++predicted;
    refused += (*row)->refused;
    too_large += (*row)->too_large;
  }
  if (rows.empty()) return outcome;
  const std::lock_guard lock(writing_);
  PERFMODEL_TRY_TO(writer_->append(rows));
  predicted_ += predicted;
  refused_ += refused;
  too_large_ += too_large;
  return outcome;
}

void Crew::note(const Error& error) {
  const std::lock_guard lock(noting_);
  if (!done_.error) done_.error = error;
  quit_ = true;
}

}  // namespace perfmodel::sweep
