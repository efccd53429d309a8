#include "training_rows.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "price/learned/learned_model.hpp"

namespace perfmodel::training {
namespace {

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

/// Shards of one layer are powers of two of each other.
std::int64_t odd_part(std::int64_t size) {
  while (size > 0 && size % 2 == 0) size /= 2;
  return size;
}

}  // namespace

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

std::string name_of(const Group& group) {
  return fmt::format("{}-{}", to_string(group.family),
                     learned::arithmetic_name(group.dtype, group.tf32));
}

}  // namespace perfmodel::training
