#include "perfmodel/sweep/run_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>
#include <utility>

#include "crew.hpp"
#include "fingerprint.hpp"
#include "folder_lock.hpp"
#include "parts_index.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "perfmodel/predictor.hpp"
#include "work_list.hpp"

namespace perfmodel::sweep {
namespace fs = std::filesystem;
namespace {

// A sweep goes from graph to graph, so that a price is asked for again soon or never.
constexpr std::size_t kCachedPrices = std::size_t{1} << 14;

// In small sweeps, every thread gets some of the chunks. The number of threads must not count:
// shards have to agree.
std::uint64_t chunk_rows(const SweepPoints& points, const SweepOptions& options) {
  constexpr std::uint64_t kLeast = 8, kMost = 128, kChunksPerShard = 32;
  if (options.chunk_rows > 0) return options.chunk_rows;
  return std::clamp(points.count() / (kChunksPerShard * options.shards), kLeast, kMost);
}

fs::path parts_folder(const fs::path& output) {
  fs::path folder = output;
  return folder += ".parts";
}

std::string part_name(const SweepOptions& options) {
  std::string name;
  if (options.shards > 1) name = fmt::format("shard-{:04}-", options.shard + 1);
  return fmt::format("{}rank-{:04}.csv.gz", name, options.team ? options.team->rank() : 0);
}

// Inputs of rows other than their keys.
Result<std::string> settings_fingerprint(const SweepSpec& spec, const SweepOptions& options) {
  Fingerprint made;
  made.add("perfmodel-sweep-rows 2");
  made.add(options.version);
  const auto add = [&made](const fs::path& name) -> Result<void> {
    std::error_code ignored;
    if (fs::is_regular_file(name, ignored)) return made.add_file(name);
    made.add(name.string());
    return {};
  };
  PERFMODEL_TRY_TO(add(spec.models));
  made.add(std::to_string(spec.host_scale));
  PERFMODEL_TRY_TO(add(spec.overheads));
  for (const char* folder : {"architectures", "gpus", "models", "overheads"}) {
    PERFMODEL_TRY_TO(made.add_folder(options.data / folder));
  }
  return made.text();
}

class Run {
 public:
  Run(const SweepSpec& spec, const GraphToolbox& toolbox, SweepOptions options)
      : toolbox_(toolbox),
        options_(std::move(options)),
        folder_(parts_folder(options_.output)),
        points_(spec),
        chunks_(points_, chunk_rows(points_, options_)) {
    report_.rows = points_.count();
    report_.chunks = chunks_.count();
    for (const GpuChoice& gpu : spec.gpus)
      std::ranges::copy(gpu.stand_ins, std::back_inserter(report_.warnings));
  }

  Result<SweepReport> run() {
    auto ready = set_up();
    if (options_.dry_run) {
      if (ready && leads()) note_missing();
      return ready ? Result<SweepReport>(report_) : Unexpected{ready.error()};
    }
    PERFMODEL_TRY_TO(agree(ready));
    PERFMODEL_TRY_TO(work());
    const bool last = leads();
    options_.team.reset();  // waits for the others, which are done
    if (last) PERFMODEL_TRY_TO(finish());
    return report_;
  }

 private:
  bool leads() const { return !options_.team || options_.team->rank() == 0; }

  Result<void> set_up() {
    if (options_.data.empty()) {
      PERFMODEL_TRY(data, find_data_folder());
      options_.data = std::move(*data);
    }
    PERFMODEL_TRY(fingerprint, settings_fingerprint(points_.spec(), options_));
    fingerprint_ = std::move(*fingerprint);
    if (!options_.dry_run) PERFMODEL_TRY_TO(load());
    if (!leads()) return {};
    if (!options_.dry_run) {
      PERFMODEL_TRY(lock, FolderLock::share(folder_));
      lock_ = std::move(*lock);
      // Before, not after all is predicted.
      PERFMODEL_TRY_TO(OutputFile::create(options_.output));
    }
    PERFMODEL_TRY_TO(count_parts());
    report_.finished_before = index_.rows;
    report_.torn_bytes = index_.torn_bytes;
    return {};
  }

  Result<void> load() {
    const SweepSpec& spec = points_.spec();
    PredictorConfig config{.data = options_.data,
                           .models = spec.models,
                           .overheads = spec.overheads,
                           .read_models = true,  // before the first row
                           .cached_prices = kCachedPrices};
    for (const GpuChoice& gpu : spec.gpus) config.gpus.push_back(gpu.asked);
    PERFMODEL_TRY(predictor, Predictor::load(config));
    predictor_ = std::move(*predictor);
    return {};
  }

  Result<void> count_parts() {
    PERFMODEL_TRY(index, index_parts(folder_, points_, fingerprint_));
    index_ = std::move(*index);
    report_.foreign = index_.foreign;
    report_.repeated = index_.repeated;
    return {};
  }

  // All ranks wait until all are ready for the same work.
  Result<void> agree(const Result<void>& ready) {
    if (!options_.team) return ready;
    Fingerprint mine;
    mine.add(fingerprint_);
    mine.add(points_.text());
    const auto all = options_.team->gather(ready ? mine.value() | 1 : 0);
    const Unexpected quiet = fail(ErrorCode::kCancelled, "another rank has failed");
    if (!ready) return leads() || all[0] != 0 ? ready : Result<void>(quiet);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      if (!leads()) return quiet;
      if (all[rank] == 0) return fail(ErrorCode::kCancelled, "another rank has failed");
      return decline(fmt::format(
          "expected the same spec, graphs and data for all ranks, found others on rank {}", rank));
    }
    return all[0] == 0 ? Result<void>(quiet) : Result<void>();
  }

  Result<void> work() {
    std::optional<WorkList> list;
    if (leads()) list.emplace(chunks_, index_.finished, options_.shard, options_.shards);
    // A process that has nothing to do leaves no part.
    const bool idle = list && list->rows() == 0;
    if (idle && !options_.team) return {};
    Crew crew(points_, toolbox_, *predictor_, options_, list ? &*list : nullptr,
              PartWriter::open(folder_ / part_name(options_), fingerprint_));
    const WorkDone done = crew.work();
    report_.predicted = done.predicted;
    report_.refused = done.refused;
    report_.too_large = done.too_large;
    report_.stopped = done.stopped;
    if (done.error) return Unexpected{*done.error};
    if (done.failed_ranks > 0) {
      return decline(
          fmt::format("expected all ranks to finish, found {} that failed; what is finished is "
                      "kept, and the same command goes on",
                      done.failed_ranks));
    }
    return {};
  }

  void note_missing() {
    report_.missing = report_.rows - index_.rows;
    if (report_.missing > 0 && options_.shards > 1) {
      report_.missing_shards = shards_with_gaps(chunks_, index_.finished, options_.shards);
    }
  }

  Result<void> finish() {
    PERFMODEL_TRY_TO(count_parts());
    note_missing();
    if (report_.missing > 0) return {};
    switch (lock_->take_alone()) {
      case FolderLock::Alone::kOthersAtWork: report_.others_at_work = true; return {};
      case FolderLock::Alone::kGone: report_.merged = true; return {};
      case FolderLock::Alone::kYes: break;
    }
    PERFMODEL_TRY_TO(merge_parts(index_, points_, options_.output));
    report_.merged = true;
    if (options_.keep_parts) return {};
    for (const fs::path& part : index_.parts) {
      std::error_code ignored;
      fs::remove(part, ignored);
    }
    lock_->remove_folder();
    return {};
  }

  const GraphToolbox& toolbox_;
  SweepOptions options_;
  fs::path folder_;
  SweepPoints points_;
  Chunks chunks_;
  std::string fingerprint_;
  std::optional<Predictor> predictor_;
  std::optional<FolderLock> lock_;
  PartsIndex index_;
  SweepReport report_;
};

}  // namespace

Result<SweepReport> run_sweep(const SweepSpec& spec, const GraphToolbox& toolbox,
                              SweepOptions options) {
  if (SweepPoints(spec).count() == 0) {
    return decline("expected at least one row, found none");
  }
  if (options.shard >= options.shards) {
    return decline(fmt::format("expected one of {} shards, found number {}", options.shards,
                               options.shard + 1));
  }
  try {
    return Run(spec, toolbox, std::move(options)).run();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "out of memory");
  }
}

}  // namespace perfmodel::sweep
