#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fit.hpp"
#include "tables/kernel_table.hpp"
#include "train_options.hpp"

namespace perfmodel::training {

using Samples = std::vector<Sample>;

/// Whether models exist for kernels of its family and type.
bool has_model(const KernelWork& work);
bool is_measured(const KernelRow& row);
Sample sample_of(const KernelTable& table, const KernelRow& row);

/// The rows of one model.
struct Group {
  KernelFamily family = KernelFamily::kGemm;
  DType dtype = DType::kFloat32;
  bool tf32 = false;
  Samples fitted, launches;
};

std::vector<Group> group_rows(std::span<const KernelTable> tables, const TrainOptions& options);
/// "gemm-bfloat16"
std::string name_of(const Group& group);

/// Spreads the bits of a key (splitmix64).
std::uint64_t mix(std::uint64_t x);
/// Equal for the same kernel on every GPU.
std::uint64_t shape_key(const Sample& sample);
/// Sizes that a campaign holds while it sweeps the rest: the weights of a product (batch, n, k; m
/// is swept), the heads of attention (heads of keys are swept), the layer of experts on any number
/// of GPUs. 0: the family has no sweeps.
std::uint64_t sweep_key(const Sample& sample);
/// Sweeps of more than a few shapes. Their rows are neighbours, nearly the same measurement: a row
/// kept out of one says nothing about new shapes.
std::set<std::uint64_t> sweeps_of(const Samples& samples);

/// Returns the fitted samples, and the samples that `is_kept_out(index, sample)` keeps out.
template <class Keep>
std::pair<Samples, Samples> split(const Samples& samples, Keep is_kept_out) {
  std::pair<Samples, Samples> parts;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    (is_kept_out(i, samples[i]) ? parts.second : parts.first).push_back(samples[i]);
  }
  return parts;
}

}  // namespace perfmodel::training
