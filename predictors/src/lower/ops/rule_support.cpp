#include "rule_support.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace perfmodel::ops {
namespace {

/// Element types for which a family's price is valid.
enum class Priced {
  kBytes,   ///< any: they are moved, and graphs say how many bytes an element has
  kReals,   ///< numbers and flags; complex ones take more work than rules count
  kFloats,  ///< the GPU's peaks are for floats
  kProducts,
};

Priced priced_types(KernelFamily family) {
  switch (family) {
    case KernelFamily::kCopy:
    case KernelFamily::kSet:
    case KernelFamily::kCollective:
    case KernelFamily::kConcat:
    case KernelFamily::kIndex:
    case KernelFamily::kTranspose:
    case KernelFamily::kPart:
    case KernelFamily::kSmall: return Priced::kBytes;
    case KernelFamily::kAttention:
    case KernelFamily::kInteraction:
    case KernelFamily::kLinearAttention:
    case KernelFamily::kNorm:
    case KernelFamily::kQuantize:
    case KernelFamily::kRecurrent:
    case KernelFamily::kSoftmax: return Priced::kFloats;
    case KernelFamily::kGemm:
    case KernelFamily::kConvolution:
    case KernelFamily::kGroupedGemm:
    case KernelFamily::kExperts: return Priced::kProducts;
    default: return Priced::kReals;
  }
}

bool is_complex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

bool types_are_priced(const OpView& op, std::span<const KernelWork> kernels) {
  bool computes = false;
  for (const KernelWork& work : kernels) {
    const Priced priced = priced_types(work.family);
    computes |= priced != Priced::kBytes;
    const bool product = priced == Priced::kProducts;
    if (!product && priced != Priced::kFloats) continue;
    if (!is_floating_point(work.dtype) && !(product && work.dtype == DType::kInt8)) return false;
  }
  return !computes || !(op.has_odd_type ? *op.has_odd_type : has_odd_type(op));
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    if (end > 0) found.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return found;
}

class FunctionRule final : public OpRule {
 public:
  FunctionRule(Lower function, std::string_view calls) : lower_(function), calls_(words(calls)) {}

  bool add_kernels(const OpView& op, const Gpu& gpu,
                   std::vector<KernelWork>& kernels) const override {
    const std::size_t before = kernels.size();
    if (!lower_(op, gpu, kernels)) return false;
    if (!types_are_priced(op, std::span(kernels).subspan(before))) {
      kernels.resize(before);
      return false;
    }
    if (op.graph.allow_tf32 && gpu.peak_tflop_per_s.tf32_matrix) allow_tf32(kernels, before);
    return true;
  }

  bool launches_nothing(const OpView& op) const override {
    if (!lower_) return true;
    const std::string_view name = op.name(), base = base_name(name);
    return std::ranges::any_of(op.graph.children(op.node), [&](std::int32_t index) {
      const std::string_view child = op.graph.name(index);
      if (child == name || child == base) return true;
      const std::string_view called = base != name ? base_name(child) : child;
      return std::ranges::find(calls_, child) != calls_.end() ||
             std::ranges::find(calls_, called) != calls_.end();
    });
  }

 private:
  // Products of fp32 tensors run in TF32 where the graph allows it; convolutions have a switch of
  // their own.
  static void allow_tf32(std::vector<KernelWork>& kernels, std::size_t begin) {
    for (std::size_t i = begin; i < kernels.size(); ++i) {
      KernelWork& work = kernels[i];
      if (work.family == KernelFamily::kGemm && work.dtype == DType::kFloat32) {
        work.matrix_units = true;
      }
    }
  }

  Lower lower_;
  std::vector<std::string_view> calls_;
};

const Argument* input_at(const OpView& op, std::size_t i) {
  return i < op.inputs().size() ? &op.inputs()[i] : nullptr;
}

}  // namespace

bool has_odd_type(const OpView& op) {
  bool odd = false;
  for (const auto arguments : {op.inputs(), op.outputs()}) {
    for_each_gpu_tensor(op, arguments,
                        [&odd](const Tensor& tensor) { odd |= is_complex(tensor.dtype); });
    for (const Argument& argument : arguments) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      const Tensor& tensor = op.graph.tensors[argument.index];
      odd |= tensor.on_gpu() && tensor.dtype == DType::kUnknown;
    }
  }
  return odd;
}

std::unique_ptr<OpRule> make_rule(Lower lower, std::string_view calls) {
  return std::make_unique<FunctionRule>(lower, calls);
}

std::string_view base_name(std::string_view op_name) {
  if (op_name.ends_with('_')) op_name.remove_suffix(1);
  return op_name;
}

bool has_child(const OpView& op, std::string_view name) {
  return std::ranges::any_of(op.graph.children(op.node),
                             [&](std::int32_t child) { return op.graph.name(child) == name; });
}

int parameter_index(const OpView& op, std::string_view parameter) {
  const auto index_in = [parameter](std::span<const std::string_view> names) {
    const auto at = std::ranges::find(names, parameter);
    return at == names.end() ? -1 : static_cast<int>(at - names.begin());
  };
  if (op.schemas) {
    const auto known = op.schemas->find(op.node.op_schema);
    if (known != op.schemas->end()) return index_in(known->second);
  }
  return index_in(parameter_names(op.graph.names.text(op.node.op_schema)));
}

const Tensor* named_tensor(const OpView& op, std::string_view parameter, std::size_t fallback) {
  const int index = parameter_index(op, parameter);
  return op.tensor_input(index >= 0 ? static_cast<std::size_t>(index) : fallback);
}

std::int64_t int_input(const OpView& op, std::size_t i, std::int64_t fallback) {
  const Argument* argument = input_at(op, i);
  return argument && argument->kind == Argument::Kind::kInt ? argument->integer : fallback;
}

bool bool_input(const OpView& op, std::size_t i, bool fallback) {
  const Argument* argument = input_at(op, i);
  return argument && argument->kind == Argument::Kind::kBool ? argument->integer != 0 : fallback;
}

double real_input(const OpView& op, std::size_t i, double fallback) {
  const Argument* argument = input_at(op, i);
  return argument && argument->kind == Argument::Kind::kDouble ? argument->real : fallback;
}

IntList int_list_input(const OpView& op, std::size_t i) {
  IntList list;
  const Argument* argument = input_at(op, i);
  if (!argument) return list;
  if (argument->kind == Argument::Kind::kInt) {
    list.values[list.size++] = argument->integer;
  } else if (argument->kind == Argument::Kind::kList) {
    for (const Argument& element : op.graph.elements(*argument)) {
      const bool is_number =
          element.kind == Argument::Kind::kInt || element.kind == Argument::Kind::kBool;
      if (is_number && list.size < list.values.size()) {
        list.values[list.size++] = element.integer;
      }
    }
  }
  return list;
}

std::int64_t dim(const OpView& op, const Tensor& tensor, int i) {
  const auto shape = op.shape(tensor);
  const int rank = static_cast<int>(shape.size());
  const int index = i < 0 ? rank + i : i;
  return index >= 0 && index < rank ? shape[index] : 1;
}

Traffic traffic(const OpView& op) {
  Traffic result;
  const bool in_place = op.name().ends_with('_');
  const auto note = [&](const Tensor& tensor) {
    result.any = true;
    if (result.dtype == DType::kUnknown ||
        (!is_floating_point(result.dtype) && is_floating_point(tensor.dtype))) {
      result.dtype = tensor.dtype;
    }
  };
  for_each_gpu_tensor(op, op.outputs(), [&](const Tensor& tensor) {
    result.written += bytes(tensor);
    result.output_elements = std::max(result.output_elements, tensor.numel);
    note(tensor);
  });
  const bool has_outputs = result.any;
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& tensor) {
    bool is_out_argument = false;
    if (!in_place) {
      for_each_gpu_tensor(op, op.outputs(),
                          [&](const Tensor& output) { is_out_argument |= output.id == tensor.id; });
    }
    if (!is_out_argument) result.read += bytes(tensor);
    if (!has_outputs) result.output_elements = std::max(result.output_elements, tensor.numel);
    note(tensor);
  });
  return result;
}

KernelWork make_work(KernelFamily family, DType dtype, double read, double written, double flop) {
  return {.family = family,
          .dtype = dtype,
          .flop = {flop},
          .bytes_read = {read},
          .bytes_written = {written},
          .shape = {}};
}

KernelWork small_work(double read, double written) {
  return make_work(KernelFamily::kSmall, DType::kInt32, read, written);
}

KernelWork part_work() { return make_work(KernelFamily::kPart, DType::kInt32, 0, 0); }

KernelWork gemm_work(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                     const Tensor& like, const Gpu& gpu) {
  const auto b = static_cast<double>(batch), dm = static_cast<double>(m),
             dn = static_cast<double>(n), dk = static_cast<double>(k);
  KernelWork work =
      make_work(KernelFamily::kGemm, like.dtype, b * (dm * dk + dk * dn) * like.item_size,
                b * dm * dn * like.item_size, 2 * b * dm * dn * dk);
  work.matrix_units = gemm_uses_matrix_units(like.dtype, gpu);
  work.shape = GemmShape{.batch = batch, .m = m, .n = n, .k = k};
  return work;
}

void append_radix_sort(std::vector<KernelWork>& kernels, std::int64_t count, int key_bytes,
                       int value_bytes, int key_bits) {
  constexpr std::int64_t kSingleTile = 4096;  // CUB: 256 threads x 16-19 items, 4-byte keys
  constexpr int kBitsPerPass = 8;             // CUB onesweep policy
  const double pairs = static_cast<double>(count) * (key_bytes + value_bytes);
  const double keys = static_cast<double>(count) * key_bytes;
  const int passes = std::max(1, (key_bits + kBitsPerPass - 1) / kBitsPerPass);
  if (count <= kSingleTile) {
    // One block makes all passes in shared memory; its time grows with passes, not with bytes.
    kernels.push_back(make_work(KernelFamily::kSort, DType::kInt64, pairs, pairs,
                                static_cast<double>(count) * passes));
    return;
  }
  kernels.push_back(make_work(KernelFamily::kSort, DType::kInt64, keys, 0));
  kernels.push_back(small_work());
  for (int pass = 0; pass < passes; ++pass) {
    kernels.push_back(make_work(KernelFamily::kSort, DType::kInt64, pairs, pairs));
  }
}

void append_compaction(std::vector<KernelWork>& kernels, DType dtype, double read, double written) {
  kernels.push_back(small_work());
  kernels.push_back(make_work(KernelFamily::kIndex, dtype, read, written));
}

KernelWork read_back_work() {
  constexpr double kNumber = 8;
  KernelWork work = make_work(KernelFamily::kCopy, DType::kInt64, kNumber, kNumber);
  work.shape = CopyShape{.kind = CopyKind::kDeviceToHost, .pageable = true};
  return work;
}

int bits_for(double count) {
  return count <= 2 ? 1 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count) - 1));
}

}  // namespace perfmodel::ops
