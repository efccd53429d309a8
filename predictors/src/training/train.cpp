#include "train.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "intervals.hpp"
#include "price/learned/learned_model.hpp"
#include "price/learned/model_file.hpp"
#include "sampling.hpp"

namespace perfmodel::training {
namespace {

using learned::LearnedModel;
using Samples = std::vector<Sample>;

bool has_model(const KernelWork& work) {
  return learned::feature_set(work.family, work.dtype) != nullptr;
}

Sample sample_of(const KernelTable& table, const KernelRow& row) {
  return {.row = &row,
          .gpu = &table.gpus[row.gpu],
          .op = &table.ops[row.op],
          .has_launch_cost = table.has_launch_cost};
}

bool is_measured(const KernelRow& row) {
  return row.gpu >= 0 && !row.is_free && !row.is_l2_warm && row.measured_us > 0;
}

/// The rows of one model.
struct Group {
  KernelFamily family = KernelFamily::kGemm;
  DType dtype = DType::kFloat32;
  bool tf32 = false;
  Samples fitted, launches;
};

/// The op; products by their scaling too, which other kernels do.
std::string kernel_of(const Sample& sample) {
  const auto* gemm = std::get_if<GemmShape>(&sample.row->work.shape);
  return gemm ? fmt::format("{} {}", *sample.op, to_string(gemm->scaling)) : *sample.op;
}

/// Marks the rows of chips that another table measured more of.
void mark_minor_campaigns(Group& group, std::span<const KernelTable> tables) {
  const auto table_of = [&](const Sample& sample) {
    for (std::size_t i = 0; i < tables.size(); ++i) {
      if (sample.row >= tables[i].rows.data() &&
          sample.row < tables[i].rows.data() + tables[i].rows.size()) {
        return i;
      }
    }
    return tables.size();
  };
  // Tables that share an op belong to one campaign only if they share no chip; each op counts
  // separately.
  std::map<std::tuple<std::string, std::string, std::size_t>, std::size_t> counts;
  for (const Sample& sample : group.fitted) {
    ++counts[{learned::chip_of(*sample.gpu), kernel_of(sample), table_of(sample)}];
  }
  for (Sample& sample : group.fitted) {
    const std::string chip = learned::chip_of(*sample.gpu), kernel = kernel_of(sample);
    const std::size_t own = counts[{chip, kernel, table_of(sample)}];
    for (std::size_t table = 0; table < tables.size(); ++table) {
      const auto at = counts.find({chip, kernel, table});
      if (at != counts.end() && at->second > own) sample.common_only = true;
    }
  }
}

std::vector<Group> group_rows(std::span<const KernelTable> tables, const TrainOptions& options) {
  std::map<std::tuple<KernelFamily, DType, bool>, Group> groups;
  for (const KernelTable& table : tables) {
    std::set<std::pair<int, int>> has_paper_rows;  // by GPU and op
    for (const KernelRow& row : table.rows) {
      if (row.paper_train) has_paper_rows.insert({row.gpu, row.op});
    }
    for (const KernelRow& row : table.rows) {
      if (!is_measured(row) || !has_model(row.work)) continue;
      if (options.family && row.work.family != *options.family) continue;
      const Gpu& gpu = table.gpus[row.gpu];
      const bool tf32 = learned::is_tf32(row.work, gpu);
      Group& group = groups[{row.work.family, row.work.dtype, tf32}];
      group.family = row.work.family;
      group.dtype = row.work.dtype;
      group.tf32 = tf32;
      const bool is_fitted = options.rows == RowChoice::kAll              ? true
                             : options.rows == RowChoice::kTrain          ? !row.is_llm_shape
                             : has_paper_rows.contains({row.gpu, row.op}) ? row.paper_train
                                                                          : true;
      if (is_fitted) group.fitted.push_back(sample_of(table, row));
      if (is_fitted || !row.is_llm_shape) group.launches.push_back(sample_of(table, row));
    }
  }
  std::vector<Group> result;
  for (auto& [key, group] : groups) {
    if (group.fitted.empty()) continue;
    mark_minor_campaigns(group, tables);
    result.push_back(std::move(group));
  }
  return result;
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Equal for the same kernel on every GPU.
std::uint64_t shape_key(const Sample& sample) {
  std::uint64_t key = std::hash<std::string>{}(*sample.op);
  const auto add = [&](double value) {
    key = mix(key ^ static_cast<std::uint64_t>(std::llround(value)));
  };
  const KernelWork& work = sample.row->work;
  add(work.bytes_read.value);
  add(work.bytes_written.value);
  add(work.flop.value);
  if (const auto* g = std::get_if<GemmShape>(&work.shape)) {
    for (auto size : {g->batch, g->m, g->n, g->k}) add(static_cast<double>(size));
    const int kind = static_cast<int>(g->scaling) + (g->quantizes_a ? 4 : 0);
    if (kind > 0) add(kind);
  } else if (const auto* r = std::get_if<RowShape>(&work.shape)) {
    add(static_cast<double>(r->cols));
  } else if (const auto* c = std::get_if<ConvolutionShape>(&work.shape)) {
    for (auto size : {c->n, c->c, c->k, c->h, c->w, c->r, c->s, c->stride}) {
      add(static_cast<double>(size));
    }
    add(static_cast<double>(c->pass));
  } else if (const auto* e = std::get_if<EmbeddingShape>(&work.shape)) {
    for (double size : {e->num_rows, e->dim, e->pooling_factor, 1e3 * e->zipf_exponent}) add(size);
  } else if (const auto* copy = std::get_if<CopyShape>(&work.shape)) {
    add(static_cast<double>(copy->kind) + (copy->pageable ? 8 : 0));
    add(static_cast<double>(copy->run_bytes));
  } else if (const auto* a = std::get_if<AttentionShape>(&work.shape)) {
    for (auto size : {a->batch, a->heads, a->kv_heads, a->seq_q, a->seq_k, a->head_dim}) {
      add(static_cast<double>(size));
    }
    add(static_cast<double>(a->kernel) + (a->causal ? 8 : 0) + (a->writes_cache ? 16 : 0));
  } else if (const auto* x = std::get_if<ExpertsShape>(&work.shape)) {
    for (auto size : {x->tokens, x->hidden, x->inter, x->experts, x->topk}) {
      add(static_cast<double>(size));
    }
    add(1e3 * x->power_law + static_cast<double>(x->kernel));
    add(static_cast<double>(x->routing));
  } else if (const auto* l = std::get_if<LinearAttentionShape>(&work.shape)) {
    for (auto size : {l->batch, l->seq, l->k_heads, l->k_dim, l->v_heads, l->v_dim, l->filter}) {
      add(static_cast<double>(size));
    }
    add(static_cast<double>(l->kernel));
  }
  return key;
}

/// Shards of one layer are powers of two of each other.
std::int64_t odd_part(std::int64_t size) {
  while (size > 0 && size % 2 == 0) size /= 2;
  return size;
}

/// Sizes that a campaign holds while it sweeps the rest: the weights of a product (batch, n, k; m
/// is swept), the heads of attention (heads of keys are swept), the layer of experts on any number
/// of GPUs. 0: the family has no sweeps.
std::uint64_t sweep_key(const Sample& sample) {
  std::uint64_t key = std::hash<std::string>{}(*sample.op);
  const auto add = [&](auto... sizes) {
    ((key = mix(key ^ static_cast<std::uint64_t>(sizes))), ...);
  };
  const KernelWork& work = sample.row->work;
  if (const auto* g = std::get_if<GemmShape>(&work.shape)) {
    add(g->batch, g->n, g->k);
  } else if (const auto* a = std::get_if<AttentionShape>(&work.shape)) {
    add(a->heads, a->head_dim);
  } else if (const auto* x = std::get_if<ExpertsShape>(&work.shape)) {
    add(x->hidden, odd_part(x->inter), x->experts, x->topk);
  } else if (const auto* l = std::get_if<LinearAttentionShape>(&work.shape)) {
    add(l->k_heads, l->v_heads);
  } else {
    return 0;
  }
  return key;
}

/// Sweeps of more than a few shapes. Their rows are neighbours, nearly the same measurement: a row
/// kept out of one says nothing about new shapes.
std::set<std::uint64_t> sweeps_of(const Samples& samples) {
  constexpr std::size_t kFewest = 8;
  std::map<std::uint64_t, std::set<std::uint64_t>> shapes;
  for (const Sample& sample : samples) {
    if (const std::uint64_t key = sweep_key(sample)) shapes[key].insert(shape_key(sample));
  }
  std::set<std::uint64_t> sweeps;
  for (const auto& [key, of_sweep] : shapes) {
    if (of_sweep.size() >= kFewest) sweeps.insert(key);
  }
  return sweeps;
}

template <class Keep>
std::pair<Samples, Samples> split(const Samples& samples, Keep is_kept_out) {
  std::pair<Samples, Samples> parts;  // fitted, kept out
  for (std::size_t i = 0; i < samples.size(); ++i) {
    (is_kept_out(i, samples[i]) ? parts.second : parts.first).push_back(samples[i]);
  }
  return parts;
}

/// A kept-out kernel's price with what its campaign adds to it.
struct Outcome {
  Price price;
  double measured_us = 0, predicted_us = 0;  ///< launch cost included
  double kernel_us = 0;                      ///< measured, launch cost taken off
  bool above_floor = true;
  Knowledge knowledge = Knowledge::kNone;
  int distance = 0;
};

Outcome outcome_of(const LearnedModel& model, const Sample& sample) {
  Outcome outcome;
  const KernelWork& work = sample.row->work;
  outcome.price = KernelModels::heuristic().price(work, *sample.gpu);
  model.refine(work, *sample.gpu, outcome.price, &outcome.distance);
  outcome.knowledge = model.knowledge(*sample.gpu);
  outcome.measured_us = sample.row->measured_us;
  const learned::LaunchCost* cost =
      sample.has_launch_cost ? model.launch_cost(sample.gpu->name, *sample.op) : nullptr;
  const double time = outcome.price.time.count();
  outcome.predicted_us = cost ? cost->measured(time) : time;
  outcome.above_floor = !cost || outcome.measured_us > 1.15 * cost->floor_us;
  outcome.kernel_us = outcome.measured_us - (cost ? cost->dispatch_us : 0);
  return outcome;
}

std::vector<Outcome> outcomes_of(const LearnedModel& model, const Samples& samples) {
  std::vector<Outcome> outcomes;
  outcomes.reserve(samples.size());
  for (const Sample& sample : samples) outcomes.push_back(outcome_of(model, sample));
  return outcomes;
}

Validation validation_of(const std::vector<Outcome>& outcomes, const Samples& samples) {
  Validation validation;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    validation.measured_us.push_back(outcomes[i].measured_us);
    validation.predicted_us.push_back(outcomes[i].predicted_us);
    validation.gpus.push_back(samples[i].gpu->name);
    validation.ops.push_back(*samples[i].op);
  }
  return validation;
}

/// Mean absolute error of kernel times, rows above the launch floor.
double kernel_error(const std::vector<Outcome>& outcomes) {
  double sum = 0, count = 0;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.above_floor) continue;
    sum += std::abs(outcome.price.time.count() / outcome.kernel_us - 1);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

/// Rows at the floor say nothing about a kernel's time.
KeptOutRows rows_above_floor(const std::vector<Outcome>& outcomes, const Samples& samples) {
  KeptOutRows rows;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].above_floor) continue;
    const std::uint64_t sweep = sweep_key(samples[i]);
    rows.push_back({.gpu = samples[i].gpu->name,
                    .architecture = samples[i].gpu->architecture.name,
                    .vendor = samples[i].gpu->vendor,
                    .distance = outcomes[i].distance,
                    .ratio = outcomes[i].kernel_us / outcomes[i].price.time.count(),
                    .unit = sweep != 0 ? sweep : shape_key(samples[i])});
  }
  return rows;
}

/// Rows that neither trees nor quantiles saw: quantiles of four fifths of `calibrating`, rows of
/// the fifth, five times. By GPU.
std::map<std::string, Share> cross_shares(const KeptOutRows& rows, const KeptOutRows& calibrating) {
  constexpr std::uint64_t kParts = 5;
  std::map<std::string, Share> shares;
  for (std::uint64_t part = 0; part < kParts; ++part) {
    const auto is_own = [&](const KeptOutRow& row) { return mix(row.unit) % kParts == part; };
    KeptOutRows others;
    std::ranges::remove_copy_if(calibrating, std::back_inserter(others), is_own);
    const learned::LevelIntervals intervals = board_intervals(others);
    for (const KeptOutRow& row : rows) {
      if (is_own(row)) shares[row.gpu].add(share_inside({row}, intervals));
    }
  }
  return shares;
}

/// The strongest simple rival: another GPU's measured time of the same kernel times one constant.
void add_ratio_baseline(LeftOut& left, const Samples& own, const Samples& others) {
  std::map<std::string, std::map<std::uint64_t, double>> times;
  for (const Sample& sample : others) {
    times[sample.gpu->name][shape_key(sample)] = sample.row->measured_us;
  }
  double sum = 0;
  int count = 0;
  for (const auto& [gpu, by_shape] : times) {
    std::vector<double> x, measured;
    for (const Sample& sample : own) {
      const auto at = by_shape.find(shape_key(sample));
      if (at == by_shape.end()) continue;
      x.push_back(at->second);
      measured.push_back(sample.row->measured_us);
    }
    constexpr std::size_t kFewest = 20;
    if (x.size() < kFewest) continue;
    const auto ratio = best_constant_ratio(x, measured);
    if (!ratio) continue;
    for (double& value : x) value *= *ratio;
    const ErrorSummary summary = summary_of(measured, x);
    sum += summary.mape;
    ++count;
    left.ratio_mapes[gpu] = summary.mape;
    if (left.best_ratio.rows == 0 || summary.mape < left.best_ratio.mape) {
      left.best_ratio = summary;
      left.best_ratio_gpu = gpu;
    }
  }
  left.mean_ratio_mape = count ? sum / count : 0;
}

LeftOut left_out_of(const std::string& gpu, const Samples& own, const Samples& others,
                    const std::vector<Outcome>& outcomes) {
  LeftOut left{.gpu = gpu};
  std::vector<double> measured, learned, heuristic, roofline;
  Samples above;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!outcomes[i].above_floor) continue;
    above.push_back(own[i]);
    const KernelWork& work = own[i].row->work;
    measured.push_back(outcomes[i].kernel_us);
    learned.push_back(outcomes[i].price.time.count());
    heuristic.push_back(KernelModels::heuristic().price(work, *own[i].gpu).time.count());
    roofline.push_back(KernelModels::roofline().price(work, *own[i].gpu).time.count());
  }
  left.learned = summary_of(measured, learned);
  left.heuristic = summary_of(measured, heuristic);
  left.roofline = summary_of(measured, roofline);
  if (const auto constant = best_constant_ratio(roofline, measured)) {
    for (double& us : roofline) us *= *constant;
    left.scaled_roofline = summary_of(measured, roofline);
  }
  add_ratio_baseline(left, above, others);
  return left;
}

Recipe chosen_recipe(const Group& group, const TrainOptions& options) {
  if (options.recipe) return *options.recipe;
  const Gpu& first = *group.fitted.front().gpu;
  const auto all = [&](auto is_like_first) {
    return std::ranges::all_of(group.fitted,
                               [&](const Sample& sample) { return is_like_first(*sample.gpu); });
  };
  const bool one_gpu = all([&](const Gpu& gpu) { return gpu.name == first.name; });
  const bool one_chip =
      all([&](const Gpu& gpu) { return learned::chip_of(gpu) == learned::chip_of(first); });
  Recipe recipe = one_chip && learned::monotone_set(group.family, group.dtype)
                      ? monotone_recipe(kHeuristicPowers[0], kMonotoneDepths[0])
                  : one_gpu ? one_gpu_recipe()
                            : recipe_of(group.family);
  recipe.seed = options.seed;
  return recipe;
}

std::string name_of(const Group& group) {
  return fmt::format("{}-{}", to_string(group.family),
                     learned::arithmetic_name(group.dtype, group.tf32));
}

using Gpus = std::map<std::string, const Gpu*>;        ///< by name
using LeftOutRows = std::map<Knowledge, KeptOutRows>;  ///< by level of knowledge

learned::LevelIntervals& intervals_of(LearnedModel& model, Knowledge level) {
  return model.intervals[static_cast<std::size_t>(level)];
}

/// A factor of two where nothing is known.
void complete_ranges(LearnedModel& model) {
  for (learned::LevelIntervals& level : model.intervals) {
    for (learned::Interval& interval : level.any) {
      if (interval.rows == 0 && interval.low == 1 && interval.high == 1) {
        interval = {.low = 0.5, .high = 2, .rows = 0};
      }
    }
  }
  complete(model.intervals);
}

void set_coverage(Validation& kept, const KeptOutRows& rows, const KeptOutRows& all) {
  Share share;
  for (const auto& [gpu, own] : cross_shares(rows, all)) share.add(own);
  kept.coverage = share.value();
  kept.coverage_rows = share.rows;
}

bool has_one_architecture(const Gpus& gpus) {
  return std::ranges::all_of(gpus, [&](const auto& entry) {
    return entry.second->architecture.name == gpus.begin()->second->architecture.name;
  });
}

/// Boards that one fit leaves out, and how near the remaining ones are.
struct LeftOutSet {
  std::set<std::string> boards;
  Knowledge level = Knowledge::kNone;
  bool operator<(const LeftOutSet& other) const { return boards < other.boards; }
};

/// A board alone where another one has its chip; all boards of a chip where the architecture has
/// another chip; all of an architecture.
std::set<LeftOutSet> left_out_sets(const Gpus& gpus, const TrainOptions& options) {
  std::set<LeftOutSet> sets;
  if (gpus.size() < 2 || !options.leaves_gpus_out) return sets;
  for (const auto& [name, gpu] : gpus) {
    LeftOutSet board{{name}, Knowledge::kChip}, chip{{}, Knowledge::kArchitecture},
        architecture{{}, Knowledge::kNone};
    for (const auto& [other_name, other] : gpus) {
      if (learned::chip_of(*other) == learned::chip_of(*gpu)) chip.boards.insert(other_name);
      if (other->architecture.name == gpu->architecture.name) {
        architecture.boards.insert(other_name);
      }
    }
    if (chip.boards.size() > 1) sets.insert(board);
    if (architecture.boards.size() > chip.boards.size()) sets.insert(chip);
    if (architecture.boards.size() < gpus.size()) sets.insert(architecture);
  }
  return sets;
}

struct Judged {
  LearnedModel model;
  std::map<std::string, Samples> own;  ///< by GPU
  Samples others;
};

/// Share of the common trees to trust on GPUs of this level: best mean over the GPUs.
double choose_trust(std::vector<Judged>& all) {
  double best = std::numeric_limits<double>::infinity(), chosen = 0.5;
  for (double trust : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    double sum = 0;
    for (Judged& judged : all) {
      judged.model.sibling_trust = judged.model.unseen_trust = trust;
      for (const auto& [gpu, own] : judged.own) {
        sum += kernel_error(outcomes_of(judged.model, own));
      }
    }
    if (sum < best) {
      best = sum;
      chosen = trust;
    }
  }
  for (Judged& judged : all) judged.model.sibling_trust = judged.model.unseen_trust = chosen;
  return chosen;
}

KeptOutRows all_rows(const LeftOutRows& left_out) {
  KeptOutRows all;
  for (const auto& [level, rows] : left_out) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

/// The share of a GPU's rows that is inside the intervals that the other GPUs give.
double coverage_by_others(const LearnedModel& model, const LeftOutRows& left_out, Knowledge level,
                          const std::string& gpu, const KeptOutRows& own) {
  const auto others = [&](const KeptOutRows& rows) {
    KeptOutRows kept;
    std::ranges::copy_if(rows, std::back_inserter(kept),
                         [&](const KeptOutRow& row) { return row.gpu != gpu; });
    return kept;
  };
  std::array<learned::LevelIntervals, kKnowledgeLevels> levels;
  constexpr auto kBoard = static_cast<std::size_t>(Knowledge::kBoard);
  levels[kBoard] = model.intervals[kBoard];
  learned::LevelIntervals& intervals = levels[static_cast<std::size_t>(level)];
  intervals = left_out_intervals(others(left_out.at(level)), others(all_rows(left_out)),
                                 level == Knowledge::kArchitecture);
  complete(levels);
  return share_inside(own, intervals).value();
}

/// Coverage for a GPU by the intervals that all GPUs give, and by those that the others give.
void check_left_out_ranges(const LearnedModel& model, const LeftOutRows& left_out,
                           ModelReport& report) {
  for (const Knowledge level : {Knowledge::kChip, Knowledge::kArchitecture, Knowledge::kNone}) {
    if (!left_out.contains(level)) continue;
    const KeptOutRows& all = left_out.at(level);
    std::set<std::string> names;
    for (const KeptOutRow& row : all) names.insert(row.gpu);
    for (const std::string& name : names) {
      KeptOutRows own;
      std::ranges::copy_if(all, std::back_inserter(own),
                           [&](const KeptOutRow& row) { return row.gpu == name; });
      const Share share = share_inside(own, model.intervals[static_cast<std::size_t>(level)]);
      RangeCheck check{.level = level,
                       .gpu = name,
                       .rows = share.rows,
                       .inside = share.value(),
                       .by_others = {}};
      if (names.size() > 1) check.by_others = coverage_by_others(model, left_out, level, name, own);
      for (auto* list : {&report.left_out, &report.farther_left_out}) {
        for (LeftOut& left : *list) {
          if (left.gpu != name || left.level != level) continue;
          left.coverage = check.by_others.value_or(0);
        }
      }
      report.ranges.push_back(check);
    }
  }
}

/// The entry of each GPU whose fit knew most goes to `left_out`.
void move_nearest(const Gpus& gpus, ModelReport& report) {
  auto& farther = report.farther_left_out;
  for (const auto& [name, gpu] : gpus) {
    auto nearest = farther.end();
    for (auto at = farther.begin(); at != farther.end(); ++at) {
      const bool is_nearer = nearest == farther.end() || at->level > nearest->level;
      if (at->gpu == name && is_nearer) nearest = at;
    }
    if (nearest == farther.end()) continue;
    report.left_out.push_back(std::move(*nearest));
    farther.erase(nearest);
  }
}

std::string card_of(const ModelReport& report, const TrainOptions& options) {
  auto card = nlohmann::json::parse(options.card, nullptr, false);
  if (!card.is_object()) card = nlohmann::json::object();
  const auto round = [](double x) { return std::round(x * 1e4) / 1e4; };
  const auto& recipe = report.recipe;
  card["rows"] = {{"read", report.rows}, {"fitted", report.fitted_rows}};
  card["recipe"] = {{"rounds", recipe.rounds},
                    {"chip_rounds", recipe.has_chip_trees ? recipe.chip_rounds : 0},
                    {"depth", recipe.depth},
                    {"eta", recipe.eta},
                    {"subsample", recipe.subsample},
                    {"columns", recipe.columns},
                    {"min_child_weight", recipe.min_child_weight},
                    {"lambda", recipe.lambda},
                    {"seed", recipe.seed}};
  if (recipe.one_gpu) card["recipe"]["one_gpu"] = true;
  if (recipe.monotone) card["recipe"]["heuristic_power"] = recipe.heuristic_power;
  if (std::isfinite(recipe.most_log_ratio)) {
    card["recipe"]["most_log_ratio"] = recipe.most_log_ratio;
  }
  if (!options.validate) return card.dump();
  const auto kept = [&](const Validation& validation) {
    const ErrorSummary s = validation.errors();
    return nlohmann::json{{"rows", s.rows},
                          {"mape", round(s.mape)},
                          {"geomean_ape", round(s.geomean_ape)},
                          {"coverage", round(validation.coverage)}};
  };
  card["errors"] = {{"random_rows", kept(report.random)}, {"new_shapes", kept(report.grouped)}};
  for (const LeftOut& left : report.left_out) {
    card["errors"]["gpu_left_out"][left.gpu] = {{"rows", left.learned.rows},
                                                {"mape", round(left.learned.mape)},
                                                {"heuristic_mape", round(left.heuristic.mape)},
                                                {"roofline_mape", round(left.roofline.mape)},
                                                {"best_ratio_mape", round(left.best_ratio.mape)},
                                                {"coverage", round(left.coverage)},
                                                {"level", to_string(left.level)}};
  }
  for (const RangeCheck& check : report.ranges) {
    card["errors"]["in_range"][std::string(to_string(check.level))][check.gpu] =
        round(check.inside);
  }
  return card.dump();
}

/// Everything about one model: choose, validate, fit.
class Trainer {
 public:
  Trainer(const Group& group, const TrainOptions& options) : group_(group), options_(options) {
    for (const Sample& sample : group.fitted) gpus_.emplace(sample.gpu->name, sample.gpu);
    sweeps_ = sweeps_of(group.fitted);
    report_.recipe = chosen_recipe(group, options);
    report_.gpus = gpus_.size();
  }

  Result<LearnedModel> run() {
    if (options_.tries_grid) {
      if (auto error = choose_recipe()) return Unexpected{*error};
    }
    if (report_.recipe.monotone && !options_.recipe) choose_monotone_recipe();
    auto model = fit_rows(group_.fitted, "fitting");
    if (!model) return model;
    report_.name = model->name;
    report_.rows = group_.launches.size();
    report_.fitted_rows = group_.fitted.size();
    complete_ranges(*model);
    if (options_.validate) validate(*model);
    model->card = card_of(report_, options_);
    return model;
  }

  ModelReport take_report() { return std::move(report_); }

 private:
  Result<LearnedModel> fit_rows(const Samples& rows, const std::string& what) {
    if (options_.progress) {
      const int total = options_.validate
                            ? 2 + folds() + static_cast<int>(left_out_sets(gpus_, options_).size())
                            : 1;
      options_.progress(fmt::format("{} {}: {}", to_string(group_.family),
                                    learned::arithmetic_name(group_.dtype, group_.tf32), what),
                        done_++, total);
    }
    Samples launches;
    std::set<std::string> names;
    for (const Sample& sample : rows) names.insert(sample.gpu->name);
    for (const Sample& sample : group_.launches) {
      if (names.contains(sample.gpu->name)) launches.push_back(sample);
    }
    return fit(rows, report_.recipe, launches);
  }

  static constexpr std::uint64_t kParts = 5;

  bool is_kept_out(std::uint64_t key, std::uint64_t salt, int part = 0) const {
    return mix(key ^ mix(salt ^ report_.recipe.seed)) % kParts == static_cast<std::uint64_t>(part);
  }

  /// The unit that is kept out together with a row: its sweep, else the row `alone`.
  std::uint64_t unit_of(const Sample& sample, std::uint64_t alone) const {
    const std::uint64_t key = sweep_key(sample);
    return sweeps_.contains(key) ? key : alone;
  }

  /// How many fifths of the rows are kept out in turn: all if there are few rows or sweeps.
  int folds() const {
    constexpr std::size_t kMany = 5000, kManySweeps = 40;
    const bool few_rows = report_.recipe.one_gpu && group_.fitted.size() < kMany;
    const bool few_sweeps = !sweeps_.empty() && sweeps_.size() < kManySweeps;
    return few_rows || few_sweeps ? static_cast<int>(kParts) : 1;
  }

  std::optional<Error> choose_recipe() {
    const auto parts = split(group_.fitted, [&](std::size_t, const Sample& sample) {
      return is_kept_out(unit_of(sample, shape_key(sample)), 2);
    });
    const Recipe base = report_.recipe;
    double best = std::numeric_limits<double>::infinity();
    Recipe chosen = base;
    for (int depth : {4, base.depth}) {
      for (int rounds : {base.rounds / 2, base.rounds}) {
        report_.recipe = base;
        report_.recipe.depth = depth;
        report_.recipe.rounds = report_.recipe.chip_rounds = rounds;
        const auto model =
            fit_rows(parts.first, fmt::format("grid, depth {}, {} rounds", depth, rounds));
        if (!model) return model.error();
        const Validation kept = validation_of(outcomes_of(*model, parts.second), parts.second);
        const double error = kept.errors().mape;
        if (error < best) {
          best = error;
          chosen = report_.recipe;
        }
      }
    }
    report_.recipe = chosen;
    return std::nullopt;
  }

  /// By the mean error over the shapes of each fifth, fitted on the others; deeper trees and lower
  /// powers of the heuristic only where that gains.
  void choose_monotone_recipe() {
    double best = std::numeric_limits<double>::infinity();
    Recipe chosen = report_.recipe;
    for (const double power : kHeuristicPowers) {
      for (const int depth : kMonotoneDepths) {
        Recipe recipe = monotone_recipe(power, depth);
        recipe.seed = report_.recipe.seed;
        const double error = kept_out_error(recipe);
        constexpr double kGain = 0.97;
        if (error >= kGain * best) continue;
        best = error;
        chosen = recipe;
      }
    }
    report_.recipe = chosen;
  }

  double kept_out_error(const Recipe& recipe) const {
    double sum = 0;
    for (int part = 0; part < static_cast<int>(kParts); ++part) {
      const auto parts = split(group_.fitted, [&](std::size_t, const Sample& sample) {
        return is_kept_out(shape_key(sample), 3, part);
      });
      const auto model = fit(parts.first, recipe);
      if (!model) return std::numeric_limits<double>::infinity();
      sum += kernel_error(outcomes_of(*model, parts.second)) *
             static_cast<double>(parts.second.size());
    }
    return sum / static_cast<double>(group_.fitted.size());
  }

  /// If a part of the rows alone has nothing to fit (very few rows, one GPU at its power limit),
  /// its errors stay unknown and its intervals as wide as without validation.
  void validate(LearnedModel& model) {
    const KeptOutRows random = keep_random_rows_out();
    const KeptOutRows grouped = keep_shapes_out();
    KeptOutRows all = random;
    all.insert(all.end(), grouped.begin(), grouped.end());
    set_coverage(report_.random, random, all);
    set_coverage(report_.grouped, grouped, all);
    if (!all.empty()) intervals_of(model, Knowledge::kBoard) = board_intervals(all);
    leave_gpus_out(model);
    complete_ranges(model);
    for (const auto& [gpu, share] : cross_shares(all, all)) {
      report_.ranges.push_back({.level = Knowledge::kBoard,
                                .gpu = gpu,
                                .rows = share.rows,
                                .inside = share.value(),
                                .by_others = {}});
    }
    check_left_out_ranges(model, left_out_rows_, report_);
  }

  KeptOutRows keep_random_rows_out() {
    std::vector<Outcome> outcomes;
    Samples kept;
    for (int part = 0; part < folds(); ++part) {
      const auto parts = split(group_.fitted, [&](std::size_t i, const Sample& sample) {
        return is_kept_out(unit_of(sample, i), 1, part);
      });
      const auto fitted = fit_rows(parts.first, "random rows kept out");
      if (!fitted) continue;
      for (const Outcome& outcome : outcomes_of(*fitted, parts.second)) outcomes.push_back(outcome);
      kept.insert(kept.end(), parts.second.begin(), parts.second.end());
    }
    report_.random = validation_of(outcomes, kept);
    return rows_above_floor(outcomes, kept);
  }

  KeptOutRows keep_shapes_out() {
    const auto parts = split(group_.fitted, [&](std::size_t, const Sample& sample) {
      return is_kept_out(unit_of(sample, shape_key(sample)), 2);
    });
    const auto fitted = fit_rows(parts.first, "shapes kept out");
    if (!fitted) return {};
    const std::vector<Outcome> outcomes = outcomes_of(*fitted, parts.second);
    report_.grouped = validation_of(outcomes, parts.second);
    return rows_above_floor(outcomes, parts.second);
  }

  std::optional<Judged> judge(const LeftOutSet& set, const LearnedModel& whole) {
    auto parts = split(group_.fitted, [&](std::size_t, const Sample& sample) {
      return set.boards.contains(sample.gpu->name);
    });
    const Recipe recipe = report_.recipe;
    // No chip of the others is of this architecture, else.
    report_.recipe.has_chip_trees &= set.level != Knowledge::kNone;
    auto fitted = fit_rows(parts.first, fmt::format("{} left out", fmt::join(set.boards, ", ")));
    report_.recipe = recipe;
    if (!fitted) return std::nullopt;
    // The host's part is a fact of the campaign, not of the kernel.
    fitted->launch_costs = whole.launch_costs;
    Judged judged{.model = std::move(*fitted), .own = {}, .others = std::move(parts.first)};
    for (const Sample& sample : parts.second) judged.own[sample.gpu->name].push_back(sample);
    return judged;
  }

  void leave_gpus_out(LearnedModel& model) {
    if (has_one_architecture(gpus_)) model.unseen_trust = 0;  // other architectures are unknown
    std::map<Knowledge, std::vector<Judged>> by_level;
    for (const LeftOutSet& set : left_out_sets(gpus_, options_)) {
      if (auto judged = judge(set, model)) by_level[set.level].push_back(std::move(*judged));
    }
    for (auto& [level, all] : by_level) {
      const double trust = choose_trust(all);
      if (level == Knowledge::kNone) model.sibling_trust = model.unseen_trust = trust;
      if (level == Knowledge::kArchitecture) model.sibling_trust = trust;
      for (const Judged& judged : all) {
        for (const auto& [gpu, own] : judged.own) {
          const std::vector<Outcome> outcomes = outcomes_of(judged.model, own);
          LeftOut left = left_out_of(gpu, own, judged.others, outcomes);
          left.level = level;
          report_.farther_left_out.push_back(std::move(left));
          const KeptOutRows rows = rows_above_floor(outcomes, own);
          left_out_rows_[level].insert(left_out_rows_[level].end(), rows.begin(), rows.end());
        }
      }
    }
    for (const auto& [level, rows] : left_out_rows_) {
      intervals_of(model, level) =
          left_out_intervals(rows, all_rows(left_out_rows_), level == Knowledge::kArchitecture);
    }
    move_nearest(gpus_, report_);
  }

  const Group& group_;
  std::set<std::uint64_t> sweeps_;
  const TrainOptions& options_;
  ModelReport report_;
  Gpus gpus_;
  LeftOutRows left_out_rows_;
  int done_ = 0;
};

/// Identifies a model's inputs: its rows, options and recipe, and this version of the program.
std::uint64_t fingerprint_of(const Group& group, const TrainOptions& options) {
  std::uint64_t key = std::hash<std::string>{}(name_of(group));
  for (const Samples* samples : {&group.fitted, &group.launches}) {
    for (const Sample& sample : *samples) {
      key = mix(key ^ shape_key(sample));
      key = mix(key ^ std::bit_cast<std::uint64_t>(sample.row->measured_us));
      key = mix(key ^ std::hash<std::string>{}(sample.gpu->name));
    }
  }
  const Recipe recipe = chosen_recipe(group, options);
  for (double part : {static_cast<double>(recipe.rounds), static_cast<double>(recipe.chip_rounds),
                      static_cast<double>(recipe.depth), recipe.eta, recipe.subsample,
                      recipe.columns, recipe.min_child_weight, recipe.lambda, recipe.most_log_ratio,
                      static_cast<double>(recipe.seed), static_cast<double>(options.seed),
                      recipe.has_chip_trees ? 1.0 : 0.0, recipe.one_gpu ? 1.0 : 0.0,
                      recipe.monotone ? recipe.heuristic_power : 0.0, options.validate ? 1.0 : 0.0,
                      options.leaves_gpus_out ? 1.0 : 0.0, options.tries_grid ? 1.0 : 0.0}) {
    key = mix(key ^ std::bit_cast<std::uint64_t>(part));
  }
  return mix(key ^ std::hash<std::string>{}(options.card));
}

/// A finished model's file next to the final one, until all of them are finished.
std::filesystem::path partial_file(const std::filesystem::path& file, std::uint64_t fingerprint) {
  std::filesystem::path partial = file;
  partial += fmt::format(".{:016x}.partial", fingerprint);
  return partial;
}

/// Ridge regression of the log ratios that are left on the terms of a correction; the prior says
/// "no correction" with the weight of two rows.
learned::Correction correction_of(const LearnedModel& model, const std::string& gpu,
                                  const Samples& few) {
  constexpr double kPrior = 2;
  constexpr auto kTerms = static_cast<Eigen::Index>(learned::Correction::kTerms);
  const learned::FeatureSet& set = model.features();
  Eigen::Matrix<double, kTerms, kTerms> gram =
      kPrior * Eigen::Matrix<double, kTerms, kTerms>::Identity();
  gram(0, 0) = 0.1 * kPrior;  // a GPU's level is least known
  Eigen::Matrix<double, kTerms, 1> moment = Eigen::Matrix<double, kTerms, 1>::Zero();
  learned::Correction correction{.gpu = gpu};
  for (const Sample& sample : few) {
    const Outcome outcome = outcome_of(model, sample);
    learned::FeatureRow row;
    const Price base = KernelModels::heuristic().price(sample.row->work, *sample.gpu);
    if (!outcome.above_floor || !set.fill(sample.row->work, *sample.gpu, base, row)) continue;
    const auto terms = learned::Correction::terms(set, row);
    const Eigen::Map<const Eigen::Matrix<double, kTerms, 1>> x(terms.data());
    gram += x * x.transpose();
    moment += x * std::log(outcome.kernel_us / outcome.price.time.count());
    ++correction.rows;
  }
  const Eigen::Matrix<double, kTerms, 1> weights = gram.ldlt().solve(moment);
  std::copy(weights.begin(), weights.end(), correction.weights.begin());
  return correction;
}

/// Rows that no model is fitted on, for the report.
TrainReport count_left_out_rows(std::span<const KernelTable> tables) {
  TrainReport report;
  for (const KernelTable& table : tables) {
    for (const KernelRow& row : table.rows) {
      if (row.is_l2_warm) {
        ++report.warm_rows;
      } else if (is_measured(row) && !has_model(row.work)) {
        ++report.other_families[std::string(to_string(row.work.family))];
      }
    }
  }
  return report;
}

}  // namespace

std::vector<std::string> learned_families() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
    const auto family = static_cast<KernelFamily>(i);
    if (learned::feature_set(family)) names.emplace_back(to_string(family));
  }
  return names;
}

Result<TrainReport> train(std::span<const KernelTable> tables, const TrainOptions& options,
                          const std::filesystem::path& file) {
  const std::vector<Group> groups = group_rows(tables, options);
  if (groups.empty()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected rows with a time and of a family that can be learned ({}), "
                            "found none",
                            fmt::join(learned_families(), ", ")));
  }
  TrainReport report = count_left_out_rows(tables);
  std::vector<LearnedModel> models;
  std::vector<std::filesystem::path> partial_files;
  for (const Group& group : groups) {
    partial_files.push_back(partial_file(file, fingerprint_of(group, options)));
    std::error_code ignored;
    if (std::filesystem::exists(partial_files.back(), ignored)) {
      if (auto done = learned::read_model_file(partial_files.back()); done && done->size() == 1) {
        ModelReport resumed{.name = done->front().name,
                            .rows = group.launches.size(),
                            .fitted_rows = group.fitted.size(),
                            .recipe = {}};
        resumed.is_resumed = true;
        report.models.push_back(std::move(resumed));
        models.push_back(std::move(done->front()));
        continue;
      }
    }
    Trainer trainer(group, options);
    auto model = trainer.run();
    if (!model) return Unexpected{model.error()};
    models.push_back(std::move(*model));
    report.models.push_back(trainer.take_report());
    if (groups.size() > 1) {
      auto written = learned::write_model_file(partial_files.back(), {models.back()});
      if (!written) return Unexpected{written.error()};
    }
  }
  if (auto written = learned::write_model_file(file, models); !written) {
    return Unexpected{written.error()};
  }
  for (const auto& partial : partial_files) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
  }
  return report;
}

Result<TrainReport> train_folder(std::span<const KernelTable> tables, const TrainOptions& options,
                                 const std::filesystem::path& folder) {
  constexpr std::size_t kFewest = 50;
  TrainReport report = count_left_out_rows(tables);
  std::vector<LearnedModel> models;
  for (const Group& group : group_rows(tables, options)) {
    if (group.fitted.size() < kFewest) {
      report.skipped.push_back(
          {name_of(group), group.fitted.size(), fmt::format("fewer than {} rows", kFewest)});
      continue;
    }
    Trainer trainer(group, options);
    auto model = trainer.run();
    if (!model) {
      report.skipped.push_back({name_of(group), group.fitted.size(), model.error().message});
      continue;
    }
    models.push_back(std::move(*model));
    report.models.push_back(trainer.take_report());
    report.models.back().file = name_of(group) + ".json";
  }
  if (models.empty()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected at least {} rows with a time of one family that can be "
                            "learned ({}), found none",
                            kFewest, fmt::join(learned_families(), ", ")));
  }
  for (std::size_t i = 0; i < models.size(); ++i) {
    auto written = learned::write_model_file(folder / report.models[i].file, {models[i]});
    if (!written) return Unexpected{written.error()};
  }
  return report;
}

Result<std::size_t> calibrate(const KernelTable& few, const std::filesystem::path& base,
                              const std::filesystem::path& file) {
  auto models = learned::read_model_file(base);
  if (!models) return Unexpected{models.error()};
  std::size_t used = 0;
  for (LearnedModel& model : *models) {
    std::map<std::string, Samples> by_gpu;
    for (const KernelRow& row : few.rows) {
      if (is_measured(row) && model.is_of(row.work, few.gpus[row.gpu])) {
        const Sample sample = sample_of(few, row);
        by_gpu[sample.gpu->name].push_back(sample);
      }
    }
    for (const auto& [name, samples] : by_gpu) {
      const std::string& gpu = name;  // a lambda of C++20 cannot capture a binding
      std::erase_if(model.corrections, [&](const auto& c) { return c.gpu == gpu; });
      model.corrections.push_back(correction_of(model, gpu, samples));
      used += samples.size();
    }
  }
  if (used == 0) {
    return fail(ErrorCode::kImpossible,
                "expected measured rows of a family that the model file knows, found none");
  }
  if (auto written = learned::write_model_file(file, *models); !written) {
    return Unexpected{written.error()};
  }
  return used;
}

Result<std::vector<FewShotCurve>> few_shot(std::span<const KernelTable> tables,
                                           const TrainOptions& options, const std::string& gpu,
                                           std::span<const int> counts, int seeds) {
  const std::vector<Group> groups = group_rows(tables, options);
  std::vector<FewShotCurve> curves{{gpu, "random", {}}, {gpu, "k-means", {}}};
  std::map<std::pair<int, int>, std::vector<double>> errors[2];  // (points, seed): |error| of rows
  for (const Group& group : groups) {
    const auto parts = split(
        group.fitted, [&](std::size_t, const Sample& sample) { return sample.gpu->name == gpu; });
    if (parts.second.empty() || parts.first.empty()) continue;
    Recipe recipe = options.recipe ? *options.recipe : recipe_of(group.family);
    recipe.has_chip_trees = false;
    auto model = fit(parts.first, recipe, {});
    if (!model) return Unexpected{model.error()};
    // The campaign's launch cost is found from its own rows, as a user's would be.
    auto own = fit(parts.second, {.rounds = 1, .has_chip_trees = false}, {});
    if (own) model->launch_costs = own->launch_costs;
    const learned::FeatureSet& set = model->features();
    Samples above;
    std::vector<learned::FeatureRow> rows;
    for (const Sample& sample : parts.second) {
      learned::FeatureRow row;
      const Price base = KernelModels::heuristic().price(sample.row->work, *sample.gpu);
      if (!outcome_of(*model, sample).above_floor ||
          !set.fill(sample.row->work, *sample.gpu, base, row)) {
        continue;
      }
      above.push_back(sample);
      rows.push_back(row);
    }
    if (above.empty()) continue;
    FeatureRows features(static_cast<Eigen::Index>(above.size()),
                         static_cast<Eigen::Index>(set.specs.size()));
    for (std::size_t i = 0; i < above.size(); ++i) {
      for (std::size_t j = 0; j < set.specs.size(); ++j) {
        features(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
            static_cast<double>(rows[i][j]);
      }
    }
    for (int seed = 1; seed <= seeds; ++seed) {
      for (int points : counts) {
        for (int method = 0; method < 2; ++method) {
          const auto salt = static_cast<std::uint64_t>(seed);
          std::vector<std::size_t> chosen;
          if (method == 0) {
            chosen = random_sample(above.size(), static_cast<std::size_t>(points), salt);
          } else {
            auto sample = kmeans_sample(features, static_cast<std::size_t>(points), salt);
            if (!sample) return Unexpected{sample.error()};
            chosen = std::move(*sample);
          }
          Samples few;
          for (std::size_t i : chosen) few.push_back(above[i]);
          model->corrections = {correction_of(*model, gpu, few)};
          const std::set<std::size_t> used(chosen.begin(), chosen.end());
          auto& list = errors[method][{points, seed}];
          for (std::size_t i = 0; i < above.size(); ++i) {
            if (used.contains(i)) continue;
            const Outcome outcome = outcome_of(*model, above[i]);
            list.push_back(std::abs(outcome.price.time.count() / outcome.kernel_us - 1));
          }
          model->corrections.clear();
        }
      }
    }
  }
  for (int points : counts) {
    if (errors[0][{points, 1}].empty()) continue;  // all rows are measured, none is left to judge
    for (std::size_t method = 0; method < curves.size(); ++method) {
      FewShotPointError point{.points = points, .low = std::numeric_limits<double>::infinity()};
      for (int seed = 1; seed <= seeds; ++seed) {
        const auto& list = errors[method][{points, seed}];
        double sum = 0;
        for (double error : list) sum += error;
        const double mean = sum / static_cast<double>(list.size());
        point.mean += mean / seeds;
        point.low = std::min(point.low, mean);
        point.high = std::max(point.high, mean);
      }
      curves[method].points.push_back(point);
    }
  }
  if (curves.front().points.empty()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected more than {} rows of GPU {} above the launch floor, and rows "
                            "of other GPUs",
                            std::ranges::min(counts), gpu));
  }
  return curves;
}

Result<EvalReport> evaluate(const KernelTable& table, const std::filesystem::path& file,
                            const EvalOptions& options) {
  const auto models = learned::read_model_file(file);
  if (!models) return Unexpected{models.error()};
  EvalReport report;
  std::size_t inside = 0;
  for (const KernelRow& row : table.rows) {
    if (!is_measured(row) || row.measured_us < options.min_us ||
        (options.only_llm && !row.is_llm_shape) || (options.only_train && row.is_llm_shape)) {
      continue;
    }
    const Sample sample = sample_of(table, row);
    const auto model = std::find_if(models->begin(), models->end(), [&](const LearnedModel& m) {
      return m.is_of(row.work, *sample.gpu) && m.knows_vendor(*sample.gpu);
    });
    if (model == models->end()) {
      ++report.unknown_rows;
      continue;
    }
    const Outcome outcome = outcome_of(*model, sample);
    report.rows.measured_us.push_back(outcome.measured_us);
    report.rows.predicted_us.push_back(outcome.predicted_us);
    report.rows.gpus.push_back(sample.gpu->name);
    report.rows.ops.push_back(*sample.op);
    report.heuristic_us.push_back(
        KernelModels::heuristic().price(row.work, *sample.gpu).time.count());
    report.roofline_us.push_back(
        KernelModels::roofline().price(row.work, *sample.gpu).time.count());
    if (outcome.knowledge < Knowledge::kChip) ++report.unseen_rows;
    if (outcome.above_floor) {
      ++report.rows.coverage_rows;
      if (outcome.kernel_us >= outcome.price.low.count() &&
          outcome.kernel_us <= outcome.price.high.count()) {
        ++inside;
      }
    }
  }
  if (report.rows.coverage_rows > 0) {
    report.rows.coverage =
        static_cast<double>(inside) / static_cast<double>(report.rows.coverage_rows);
  }
  if (report.rows.measured_us.empty()) {
    if (report.unknown_rows == 0) {
      return fail(ErrorCode::kImpossible,
                  "expected measured rows of the shapes and times that are asked for, found none");
    }
    return fail(ErrorCode::kImpossible,
                fmt::format("expected measured rows of a family that the model file knows, found "
                            "{} rows of others",
                            report.unknown_rows));
  }
  return report;
}

}  // namespace perfmodel::training
