#include "layout/layout_sweep.hpp"

#include <fmt/format.h>

#include <stop_token>

#include "base/decimal_number.hpp"
#include "layout/layout_team.hpp"

namespace perfmodel {
namespace {

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
    return fail(ErrorCode::kImpossible,
                fmt::format("--values: expected factors of the host's time, found \"{}\"", value));
  }
  std::int64_t count = 0;
  if (!read_decimal(value, count) || count < 1) {
    return fail(ErrorCode::kImpossible,
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
    return fail(ErrorCode::kImpossible,
                "expected --measured with one machine and one job (rank, eval, compare), found it "
                "with a sweep");
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
  return fail(ErrorCode::kImpossible, ranking->complete ? nothing_fits(*ranking, gpus)
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
      return fail(ErrorCode::kImpossible, "expected --world (GPUs), found none");
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
