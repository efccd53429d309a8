#include "layout/layout_sweep.hpp"

#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/decimal_number.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/sweep/detail/team.hpp"

namespace perfmodel {
namespace {

using Words = sweep::Team::Words;
using Predictions = std::unordered_map<std::int64_t, LayoutPrediction>;

// Messages of a rank: {kPrices, number, prediction, number, prediction, ...} or {kShardIsDone}.
enum LayoutMessage : std::uint64_t { kPrices = 1, kShardIsDone = 2 };

constexpr std::size_t kWordsPerMessage = 1 << 14;

/// Writes predictions as words.
class WordWriter {
 public:
  explicit WordWriter(Words& words) : words_(words) {}
  void operator()(double& value) { words_.push_back(std::bit_cast<std::uint64_t>(value)); }
  void operator()(bool& value) { words_.push_back(value); }
  void operator()(LayoutTerm& value) { words_.push_back(static_cast<std::uint64_t>(value)); }
  void operator()(std::size_t& value) { words_.push_back(value); }
  void operator()(std::int64_t& value) { words_.push_back(static_cast<std::uint64_t>(value)); }
  void operator()(std::string& text) {
    words_.push_back(text.size());
    for (std::size_t i = 0; i < text.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<std::size_t>(8, text.size() - i));
      words_.push_back(word);
    }
  }

 private:
  Words& words_;
};

/// Reads them in the same order.
class WordReader {
 public:
  WordReader(const Words& words, std::size_t first) : words_(words), next_(first) {}
  bool at_end() const { return next_ >= words_.size(); }
  std::uint64_t take() { return words_.at(next_++); }
  void operator()(double& value) { value = std::bit_cast<double>(take()); }
  void operator()(bool& value) { value = take() != 0; }
  void operator()(LayoutTerm& value) { value = static_cast<LayoutTerm>(take()); }
  void operator()(std::size_t& value) { value = take(); }
  void operator()(std::int64_t& value) { value = static_cast<std::int64_t>(take()); }
  void operator()(std::string& text) {
    text.resize(take());
    for (std::size_t i = 0; i < text.size(); i += 8) {
      const std::uint64_t word = take();
      std::memcpy(text.data() + i, &word, std::min<std::size_t>(8, text.size() - i));
    }
  }

 private:
  const Words& words_;
  std::size_t next_;
};

template <class Visit>
void each_member(LayoutPrediction& made, Visit&& visit) {
  for (double* value : {&made.step_ms,
                        &made.low_ms,
                        &made.high_ms,
                        &made.tokens_per_s_per_gpu,
                        &made.mfu,
                        &made.hfu,
                        &made.allocated_bytes,
                        &made.reserved_bytes,
                        &made.weight_bytes,
                        &made.gradient_bytes,
                        &made.optimizer_bytes,
                        &made.activation_bytes,
                        &made.logit_bytes,
                        &made.working_bytes,
                        &made.gathered_bytes,
                        &made.program_bytes,
                        &made.allocator_bytes,
                        &made.device_bytes,
                        &made.bubble_share,
                        &made.exposed_comm_share,
                        &made.host_bytes,
                        &made.host_weight_bytes,
                        &made.host_gradient_bytes,
                        &made.host_optimizer_bytes,
                        &made.host_activation_bytes,
                        &made.host_pinned_bytes}) {
    visit(*value);
  }
  for (double& term : made.terms_ms) visit(term);
  visit(made.fullest_stage);
  visit(made.software);
  visit(made.attention);
  visit(made.fits);
  visit(made.limit);
  std::size_t stages = made.stage_layers.size();
  visit(stages);
  made.stage_layers.resize(stages);
  for (std::int64_t& layers : made.stage_layers) visit(layers);
  std::size_t warnings = made.warnings.size();
  visit(warnings);
  made.warnings.resize(warnings);
  for (std::string& warning : made.warnings) visit(warning);
}

void take_prices(const Words& words, Predictions& known) {
  for (WordReader reader(words, 1); !reader.at_end();) {
    const auto number = static_cast<std::int64_t>(reader.take());
    each_member(known[number], reader);
  }
}

/// The work of the other ranks: prices of a shard go to rank 0 as they are found.
Result<LayoutRanking> price_shard(const LayoutPricer& pricer, const LayoutJob& job,
                                  std::int64_t gpus, const LayoutSpace& space,
                                  LayoutSearchOptions options, sweep::Team& team) {
  Words words = {kPrices};
  const auto send = [&] {
    if (words.size() > 1) team.ask(words);
    words = {kPrices};
  };
  options.progress = {};
  options.priced = [&](std::int64_t number, const LayoutPrediction& prediction) {
    words.push_back(static_cast<std::uint64_t>(number));
    LayoutPrediction copy = prediction;
    each_member(copy, WordWriter(words));
    if (words.size() >= kWordsPerMessage) send();
  };
  const auto ranking = rank_layouts(pricer, job, gpus, space, options);
  send();
  const std::uint64_t done[] = {kShardIsDone};
  team.ask(done);
  return LayoutRanking{};
}

// `rank_layouts` by all ranks of a team: each prices its shard, rank 0 searches all with these
// prices and has the answer that it would have alone, to the byte. The other ranks get an empty
// one, and no error: rank 0 meets it too.
Result<LayoutRanking> rank_layouts_together(const LayoutPricer& pricer, const LayoutJob& job,
                                            std::int64_t gpus, const LayoutSpace& space,
                                            const LayoutSearchOptions& options, sweep::Team& team) {
  using namespace std::chrono_literals;
  LayoutSearchOptions own = options;
  own.shard = team.rank();
  own.shards = team.size();
  if (team.rank() > 0) return price_shard(pricer, job, gpus, space, own, team);

  Predictions mine, known;
  own.priced = [&](std::int64_t number, const LayoutPrediction& prediction) {
    mine.emplace(number, prediction);
  };
  own.progress = {};
  std::atomic<bool> at_work = true;
  std::jthread worker([&] {
    // Its error is met again below.
    const auto ranking = rank_layouts(pricer, job, gpus, space, own);
    at_work = false;
  });
  for (std::size_t others = team.size() - 1; at_work || others > 0;) {
    while (const auto message = team.receive()) {
      if (message->words.at(0) == kShardIsDone) {
        --others;
      } else {
        take_prices(message->words, known);
      }
      team.answer(message->rank, {});
    }
    std::this_thread::sleep_for(200us);
  }
  worker.join();
  known.merge(mine);
  LayoutSearchOptions all = options;
  all.known = [&](std::int64_t number) -> const LayoutPrediction* {
    const auto found = known.find(number);
    return found == known.end() ? nullptr : &found->second;
  };
  return rank_layouts(pricer, job, gpus, space, all);
}

Result<LayoutInputs> at_value(LayoutInputs inputs, const std::string& axis,
                              const std::string& value) {
  if (axis == "gpu") {
    inputs.machine.gpu = value;
    return inputs;
  }
  if (axis == "topology") {
    inputs.machine.topology = value;
    return inputs;
  }
  if (axis == "host") {
    double scale = 0;
    if (read_decimal(value, scale) && scale > 0) {
      inputs.machine.host_scale = scale;
      return inputs;
    }
    return decline(
        fmt::format("--values: expected factors of the host's time, found \"{}\"", value));
  }
  std::int64_t count = 0;
  if (!read_decimal(value, count) || count < 1) {
    return decline(
        fmt::format("--values: expected whole numbers of at least 1, found \"{}\"", value));
  }
  (axis == "world"          ? inputs.world
   : axis == "global-batch" ? inputs.global_batch
                            : inputs.sequence) = count;
  return inputs;
}

// Fills `row`; an error where no layout was found.
Result<void> find_best_layout(const Predictor& predictor, const LayoutInputs& inputs,
                              const LayoutRunHooks& hooks, LayoutSweepRow& row) {
  PERFMODEL_TRY(question, layout_question(inputs));
  PERFMODEL_TRY(space, layout_space(inputs));
  if (!inputs.measured.empty()) {
    return decline(
        "expected --measured with one machine and one job (rank, eval, compare), found it with a "
        "sweep");
  }
  PERFMODEL_TRY(pricer, LayoutPricer::make(predictor, inputs.machine));
  LayoutRunHooks quiet = hooks;
  quiet.progress = {};
  PERFMODEL_TRY(ranking, search_layouts(*pricer, question->job, *inputs.world, *space, 1, quiet));
  row.complete = ranking->complete;
  row.best = ranking->best.front();
  return {};
}

}  // namespace

Result<LayoutRanking> search_layouts(const LayoutPricer& pricer, const LayoutJob& job,
                                     std::int64_t gpus, const LayoutSpace& space, std::size_t keep,
                                     const LayoutRunHooks& hooks, sweep::Team* team) {
  std::stop_source stop;
  LayoutSearchOptions options{.keep = keep, .cancel = stop.get_token()};
  options.progress = [&](std::int64_t done, std::int64_t all) {
    if (hooks.is_stopped()) stop.request_stop();
    if (hooks.progress) {
      hooks.progress(static_cast<std::size_t>(done), static_cast<std::size_t>(all));
    }
  };
  auto ranking = team ? rank_layouts_together(pricer, job, gpus, space, options, *team)
                      : rank_layouts(pricer, job, gpus, space, options);
  if (!ranking || !ranking->best.empty() || (team && team->rank() > 0)) return ranking;
  return decline(ranking->complete ? nothing_fits(*ranking, gpus)
                                   : "stopped before a layout was found");
}

Result<std::vector<LayoutSweepRow>> sweep_layouts(const Predictor& predictor,
                                                  const LayoutInputs& inputs,
                                                  const std::string& axis,
                                                  const std::vector<std::string>& values,
                                                  const LayoutRunHooks& hooks) {
  std::vector<LayoutSweepRow> rows;
  std::optional<Error> first_error;
  bool any = false;
  hooks.progress(0, values.size());
  for (const std::string& value : values) {
    PERFMODEL_TRY(at, at_value(inputs, axis, value));
    if (!at->world) {
      return decline("expected --world (GPUs), found none");
    }
    LayoutSweepRow row{.value = value, .gpus = *at->world};
    if (auto found = find_best_layout(predictor, *at, hooks, row); found) {
      any = true;
      if (!row.complete) row.error = "its search was stopped: the best until then";
    } else {
      row.error = found.error().message;
      if (!first_error) first_error = found.error();
    }
    rows.push_back(std::move(row));
    if (hooks.is_stopped()) break;
    hooks.progress(rows.size(), values.size());
  }
  if (!any && first_error) return Unexpected{*first_error};
  return rows;
}

}  // namespace perfmodel
