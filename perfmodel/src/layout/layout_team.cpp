#include "layout/layout_team.hpp"

#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

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

}  // namespace

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

}  // namespace perfmodel
