#include "study_variants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace perfmodel::sharding {
namespace {

template <class Change>
StudyVariant changed(const ShardQuestion& base, std::string name, const Change& change) {
  StudyVariant variant{std::move(name), base};
  change(variant.question);
  return variant;
}

StudyVariant as_given(const ShardQuestion& base) { return {"as given", base}; }

bool has_caches(const ShardingStudy& study) {
  return std::ranges::any_of(study.tables, [](const ShardedTable& table) {
    const auto& kernels = table.rules.kernels;
    return std::ranges::find(kernels, ComputeKernel::kFusedUvmCaching) != kernels.end();
  });
}

std::vector<std::int64_t> numbers_of_gpus(const StudyQuestion& asked, const ShardQuestion& base,
                                          const Topology& topology) {
  if (!asked.worlds.empty()) return asked.worlds;
  const std::int64_t most = topology.nic
                                ? std::max<std::int64_t>(4 * *base.world, topology.gpus_per_node)
                                : topology.gpus_per_node;
  std::set<std::int64_t> worlds = {*base.world};
  for (std::int64_t world = 1; world <= most; world *= 2) worlds.insert(world);
  return {worlds.begin(), worlds.end()};
}

}  // namespace

Result<void> share_global_batch(const StudyQuestion& asked, ShardQuestion& question) {
  if (!asked.global_batch) return {};
  if (!question.world) {
    return decline("--global-batch: expected a number of GPUs (--world) beside it, found none");
  }
  if (*asked.global_batch % *question.world != 0) {
    return decline(fmt::format("--global-batch: expected a multiple of {} GPUs, found {}",
                               *question.world, *asked.global_batch));
  }
  question.batch = *asked.global_batch / *question.world;
  return {};
}

StudyVariants way_variants(const ShardQuestion& base) {
  const auto with_types = [&](std::string name, std::vector<std::string> types) {
    return changed(base, std::move(name), [&](ShardQuestion& q) { q.types = std::move(types); });
  };
  return {with_types("table-wise", {"table_wise"}),
          with_types("column-wise", {"column_wise", "table_wise"}),
          with_types("row-wise", {"row_wise"}),
          {"mixed", base},
          changed(base, "mixed, with caches of rows in host memory",
                  [](ShardQuestion& q) {
                    q.kernels = {"fused", "fused_uvm_caching", "dense"};
                  }),
          changed(base, "mixed, distinct ids exchanged",
                  [](ShardQuestion& q) { q.deduplicate = true; })};
}

StudyVariants setting_variants(const ShardQuestion& base, const LoadedStudy& loaded) {
  const SearchedSettings& may = loaded.study.searched;
  std::vector<std::pair<std::string, std::string>> open;
  if (may.deduplication) open.emplace_back("distinct ids where they gain", "deduplication");
  if (may.cache_share && has_caches(loaded.study)) {
    open.emplace_back("shares of rows in caches", "cache");
  }
  if (may.wire) open.emplace_back("2-byte wire where it gains", "wire");
  if (open.empty()) return {};
  const auto choosing = [&](std::string name, std::vector<std::string> choose) {
    return changed(base, std::move(name), [&](ShardQuestion& q) { q.choose = std::move(choose); });
  };
  StudyVariants variants = {choosing("tables as they say", {"none"})};
  std::vector<std::string> all;
  for (const auto& [name, setting] : open) {
    variants.push_back(choosing(name, {setting}));
    all.push_back(setting);
  }
  if (open.size() > 1) variants.push_back(choosing("all of these", all));
  return variants;
}

StudyVariants hot_row_variants(const ShardQuestion& base, const LoadedStudy& loaded) {
  const auto is_skewed = [](const ShardedTable& table) { return table.skew.exponent > 0; };
  if (std::ranges::none_of(loaded.study.tables, is_skewed) || *base.world == 1) return {};
  StudyVariants variants;
  for (const auto& [name, rows] : {std::pair{"none", "0"},
                                   {"1000 of each table", "1000"},
                                   {"100000 of each table", "100000"},
                                   {"as many for each table as gain", "auto"}}) {
    variants.push_back(changed(base, name, [rows = rows](ShardQuestion& q) { q.hot_rows = rows; }));
  }
  return variants;
}

StudyVariants type_variants(const ShardQuestion& base) {
  struct Types {
    const char *name, *rows, *wire;
  };
  StudyVariants variants;
  for (const Types& types :
       {Types{"fp32", "float32", "float32"}, Types{"fp32, bf16 on the wire", "float32", "bfloat16"},
        Types{"bf16", "bfloat16", "bfloat16"}, Types{"fp16", "float16", "float16"},
        Types{"int8, fp16 on the wire", "int8", "float16"}}) {
    variants.push_back(changed(base, types.name, [&](ShardQuestion& q) {
      q.dtype = types.rows;
      q.wire_dtype = types.wire;
    }));
  }
  return variants;
}

StudyVariants network_variants(const ShardQuestion& base, const LoadedStudy& loaded) {
  const auto scaled = [&](const char* name, std::optional<double> ShardQuestion::*scale,
                          double factor) {
    return changed(base, name, [&](ShardQuestion& q) { q.*scale = factor; });
  };
  const double links = base.link_scale.value_or(1);
  StudyVariants variants = {
      as_given(base),
      scaled("half the bandwidth of all links", &ShardQuestion::link_scale, 0.5 * links),
      scaled("twice the bandwidth of all links", &ShardQuestion::link_scale, 2 * links),
      scaled("NVLink (or PCIe) twice as fast", &ShardQuestion::nvlink_scale, 2)};
  if (loaded.topology.nic) {
    variants.push_back(scaled("NICs twice as fast", &ShardQuestion::nic_scale, 2));
    variants.push_back(scaled("NICs half as fast", &ShardQuestion::nic_scale, 0.5));
  }
  return variants;
}

StudyVariants world_variants(const StudyQuestion& asked, const ShardQuestion& base,
                             const LoadedStudy& loaded) {
  StudyVariants variants;
  for (const std::int64_t world : numbers_of_gpus(asked, base, loaded.topology)) {
    StudyVariant& variant = variants.emplace_back(
        StudyVariant{fmt::format("{} GPU{}", world, world == 1 ? "" : "s"), base});
    variant.question.world = world;
    if (auto& local_world = variant.question.local_world) {
      local_world = std::min(*local_world, world);
    }
    if (auto shared = share_global_batch(asked, variant.question); !shared) {
      variant.error = shared.error().message;
    }
  }
  return variants;
}

StudyVariants load_variants(const ShardQuestion& base, const LoadedStudy& loaded) {
  const double zipf = base.zipf.value_or(loaded.study.tables.front().skew.exponent);
  const auto pooled = [&](const char* name, double scale) {
    return changed(base, name, [&](ShardQuestion& q) { q.pooling_scale = scale; });
  };
  const auto skewed = [&](const char* name, double more) {
    return changed(base, name, [&](ShardQuestion& q) { q.zipf = std::max(0.0, zipf + more); });
  };
  return {as_given(base), pooled("20 % fewer ids per bag", 0.8),
          pooled("20 % more ids per bag", 1.2), skewed("more skew (Zipf + 0.2)", 0.2),
          skewed("less skew (Zipf - 0.2)", -0.2)};
}

}  // namespace perfmodel::sharding
