#include "price_kernel_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/contains.hpp"
#include "base/file_name.hpp"
#include "base/number_text.hpp"
#include "base/stop_point.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "perfmodel/predictors/detail/power.hpp"
#include "study/answer_rows.hpp"

namespace perfmodel {
namespace {

/// Prices a block's rows. It asks for all rows of one family on one GPU together.
class BlockPrices {
 public:
  BlockPrices(const KernelModels& models, const PriceSink& sink) : models_(models), sink_(sink) {}

  /// Takes the rows' work. The answer is the first row's error.
  std::optional<Error> price(KernelTable& table) {
    std::optional<Error> error;
    prices_.assign(table.rows.size(), Price{});
    for (auto& places : groups_) places.clear();
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const KernelRow& row = table.rows[i];
      if (row.gpu < 0) {
        error = row_error(table, row, ErrorCode::kFormat,
                          "expected a GPU in every row, or --gpu, found neither");
        error->json_pointer = "device";
        prices_.resize(i);
        break;
      }
      if (row.network) {
        if (error = price_on_own_network(table, row, prices_[i]); error) {
          prices_.resize(i);
          break;
        }
      } else if (!row.is_free) {
        group_of(row).push_back(static_cast<std::uint32_t>(i));
      }
    }
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      price_group(table, table.gpus[group / kFamilies], groups_[group]);
    }
    for (std::size_t i = 0; i < prices_.size(); ++i) {
      if (std::isfinite(prices_[i].high.count())) continue;
      return row_error(table, table.rows[i], ErrorCode::kImpossible,
                       "expected sizes of a kernel whose time is a number, found larger ones");
    }
    return error;
  }

  std::span<const Price> prices() const { return prices_; }

 private:
  static constexpr std::size_t kFamilies = static_cast<std::size_t>(KernelFamily::kSmall) + 1;
  static constexpr std::size_t kTogether = 256;  // kernels that stay in the second-level cache

  static Error row_error(const KernelTable& table, const KernelRow& row, ErrorCode code,
                         std::string message) {
    return Error{.code = code,
                 .message = std::move(message),
                 .file = table.file,
                 .line = row.line,
                 .column = 1};
  }

  /// The answer is why it has no price.
  std::optional<Error> price_on_own_network(const KernelTable& table, const KernelRow& row,
                                            Price& price) const {
    const Topology topology = sink_.topology
                                  ? *sink_.topology
                                  : topology_for(table.gpus[static_cast<std::size_t>(row.gpu)]);
    auto priced = price_on_network(row.work, topology, *row.network);
    if (!priced) return row_error(table, row, priced.error().code, priced.error().message);
    price = *priced;
    return std::nullopt;
  }

  std::vector<std::uint32_t>& group_of(const KernelRow& row) {
    const std::size_t group =
        static_cast<std::size_t>(row.gpu) * kFamilies + static_cast<std::size_t>(row.work.family);
    if (group >= groups_.size())
      groups_.resize((static_cast<std::size_t>(row.gpu) + 1) * kFamilies);
    return groups_[group];
  }

  void price_group(KernelTable& table, const Gpu& gpu, std::span<const std::uint32_t> places) {
    while (!places.empty()) {
      const auto now = places.first(std::min(places.size(), kTogether));
      places = places.subspan(now.size());
      work_.clear();
      for (const std::uint32_t i : now) work_.push_back(std::move(table.rows[i].work));
      group_prices_.resize(now.size());
      models_.price_many(work_, gpu, group_prices_);
      for (std::size_t i = 0; i < now.size(); ++i) {
        Price& price = prices_[now[i]] = group_prices_[i];
        if (sink_.change) sink_.change(work_[i], gpu, price);
      }
    }
  }

  const KernelModels& models_;
  const PriceSink& sink_;
  std::vector<Price> prices_, group_prices_;
  std::vector<KernelWork> work_;
  std::vector<std::vector<std::uint32_t>> groups_;  // places of rows, by GPU and family
};

/// Facts of a block that go into the report.
struct BlockFacts {
  std::size_t rows = 0, outside = 0;
  std::vector<int> gpus = {}, ops = {};  // as the reader's table numbers them, in the order of
                                         // their first rows
};

/// Adds the number unless it is there. Bit n of `known` says that n < 64 is.
void add_number_once(std::vector<int>& numbers, std::uint64_t& known, int number) {
  const bool is_small = number >= 0 && number < 64;
  if (is_small && (known >> number & 1)) return;
  if (is_small) known |= std::uint64_t{1} << number;
  add_once(numbers, number);
}

BlockFacts facts_of(const KernelTable& table, std::span<const Price> prices) {
  BlockFacts facts{.rows = table.rows.size()};
  std::uint64_t known_gpus = 0, known_ops = 0;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    if (!prices[i].in_range) ++facts.outside;
    add_number_once(facts.gpus, known_gpus, table.rows[i].gpu);
    add_number_once(facts.ops, known_ops, table.rows[i].op);
  }
  return facts;
}

/// Blocks have numbers, in the order of the file. A thread takes one, works on it while others work
/// on theirs, and hands it over after all earlier ones.
class BlockQueue {
 public:
  BlockQueue(KernelTableBlocks& blocks, const PriceSink& sink) : blocks_(blocks), sink_(sink) {}

  /// Until nothing is left, or one has an error.
  void work(KernelTableBlocks::Reader& reader, const KernelModels& models) {
    try {
      BlockPrices prices(models, sink_);
      CsvBlock block;
      std::string text;
      while (const auto number = take(block)) {
        stop_point();
        text.clear();
        KernelTable& table = reader.table();
        std::optional<Error> problem = reader.read(block);
        if (auto earlier = prices.price(table)) problem = std::move(earlier);
        BlockFacts facts;
        if (!problem) {
          sink_.format(table, prices.prices(), text);
          facts = facts_of(table, prices.prices());
        }
        hand_over(*number, std::move(problem), table, facts, text);
      }
    } catch (...) {  // out of memory, or stopped: the others end
      const std::lock_guard lock(order_);
      is_over_ = true;
      turns_.notify_all();
      throw;
    }
  }

  Result<PricedTable> result() {
    if (error_) return Unexpected{std::move(*error_)};
    if (read_error_) return Unexpected{std::move(*read_error_)};
    return std::move(done_);
  }

 private:
  /// Nothing at the end.
  std::optional<std::size_t> take(CsvBlock& block) {
    const std::lock_guard lock(reading_);
    if (is_read_ || is_over()) return std::nullopt;
    const auto more = blocks_.next(block);
    if (more && *more) return taken_++;
    is_read_ = true;
    if (!more) read_error_ = more.error();  // after all blocks that were taken
    return std::nullopt;
  }

  bool is_over() {
    const std::lock_guard lock(order_);
    return is_over_;
  }

  void hand_over(std::size_t number, std::optional<Error> problem, const KernelTable& table,
                 const BlockFacts& facts, std::string_view text) {
    std::unique_lock lock(order_);
    turns_.wait(lock, [&] { return is_over_ || handed_over_ == number; });
    if (is_over_) return;
    if (!problem && !text.empty()) {
      if (auto written = sink_.write(text); !written) problem = written.error();
    }
    if (problem) {
      error_ = std::move(problem);
      is_over_ = true;
    } else {
      add(table, facts);
    }
    ++handed_over_;
    turns_.notify_all();
  }

  void add(const KernelTable& table, const BlockFacts& facts) {
    done_.rows += facts.rows;
    done_.outside += facts.outside;
    for (const int gpu : facts.gpus) {
      const Gpu& own = table.gpus[gpu];
      if (std::ranges::find(done_.gpus, own.name, &Gpu::name) == done_.gpus.end()) {
        done_.gpus.push_back(own);
      }
    }
    for (const int op : facts.ops) add_once(done_.ops, table.ops[op]);
  }

  KernelTableBlocks& blocks_;
  const PriceSink& sink_;
  std::mutex reading_;  // before `order_`, where both are held
  bool is_read_ = false;
  std::size_t taken_ = 0;
  std::optional<Error> read_error_;
  std::mutex order_;
  std::condition_variable turns_;
  bool is_over_ = false;
  std::size_t handed_over_ = 0;
  PricedTable done_;
  std::optional<Error> error_;
};

/// A table of a few blocks is priced before a thread has begun.
std::size_t thread_count(std::size_t asked, const std::filesystem::path& file) {
  constexpr std::uintmax_t kShort = std::uintmax_t{1} << 18;
  std::error_code unknown;
  const bool is_short = std::filesystem::is_regular_file(file, unknown) &&
                        std::filesystem::file_size(file, unknown) < kShort;
  return asked == 0 && is_short ? 1 : study_threads(asked, SIZE_MAX);
}

void add_warnings(PricedTable& priced, const ChosenKernelModels& models) {
  for (const Gpu& gpu : priced.gpus) {
    for (std::string& sentence : stand_ins(gpu)) priced.warnings.push_back(std::move(sentence));
  }
  if (!models.warning.empty()) priced.warnings.push_back(models.warning);
  if (priced.outside > 0) {
    priced.warnings.push_back(
        fmt::format("{} of {} lie outside the range that their model was fitted or checked on",
                    grouped(priced.outside), counted(priced.rows, "row")));
  }
}

}  // namespace

Result<PricedTable> price_kernel_table(const std::filesystem::path& file,
                                       const KernelTableOptions& options,
                                       const KernelModels& models, const PriceSink& sink,
                                       std::size_t threads) {
  PERFMODEL_TRY(blocks, KernelTableBlocks::open(file, options));
  std::vector<KernelTableBlocks::Reader> readers;
  for (std::size_t i = 0; i < thread_count(threads, file); ++i) {
    PERFMODEL_TRY(reader, blocks->reader());
    readers.push_back(std::move(*reader));
  }
  BlockQueue queue(*blocks, sink);
  std::atomic<std::size_t> next = 0;
  work_in_threads(readers.size(), [&] { queue.work(readers[next++], models); });
  PERFMODEL_TRY(done, queue.result());
  if (done->rows == 0) {
    return fail(ErrorCode::kFormat, "expected rows, found only a header", file);
  }
  for (KernelTableBlocks::Reader& reader : readers) {
    add_each_once(done->warnings, reader.table().warnings);
  }
  return done;
}

Result<PricedTable> price_kernels(const KernelsQuestion& question,
                                  const std::filesystem::path& data,
                                  const ChosenKernelModels& models, PriceSink sink) {
  if (question.holds_power()) {
    sink.change = [hold = question.sustained ? sustained : sustained_alone](
                      const KernelWork& work, const Gpu& gpu, Price& price) {
      price = hold(price, work, gpu);
    };
  }
  KernelModels with_topology = models.models;
  std::unique_ptr<KernelModel> collectives;
  if (!question.topology.empty()) {
    PERFMODEL_TRY(topology, TopologyCatalog::builtin().find(question.topology));
    collectives = make_collective_model(*topology);
    with_topology.set(KernelFamily::kCollective, collectives.get());
    sink.topology = std::move(*topology);
  }
  PERFMODEL_TRY(priced, price_kernel_table(question.queries,
                                           {.gpu_folder = data / "gpus",
                                            .gpu = question.gpu,
                                            .op = question.op,
                                            .dtype = question.dtype},
                                           with_topology, sink));
  PERFMODEL_TRY_TO(models.check());
  add_warnings(*priced, models);
  if (sink.topology) {
    for (std::string& sentence : stand_ins(*sink.topology)) {
      priced->warnings.push_back(std::move(sentence));
    }
  }
  return priced;
}

OrderedJson kernels_json(const KernelsQuestion& question, const PricedTable& priced) {
  OrderedJson gpus = OrderedJson::array();
  for (const Gpu& gpu : priced.gpus) gpus.push_back(gpu.name);
  return {{"queries", file_name(question.queries)},
          {"models", question.models},
          {"sustained", question.holds_power()},
          {"gpus", std::move(gpus)},
          {"ops", priced.ops},
          {"rows", priced.rows}};
}

}  // namespace perfmodel
