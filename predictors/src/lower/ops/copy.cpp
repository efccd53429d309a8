#include <algorithm>
#include <utility>

#include "families.hpp"

/// copy_(self, src, non_blocking): by the devices of the two tensors a transfer, a copy inside one
/// GPU or a cast; a tensor onto itself, as an update by a sparse gradient ends, nothing. Graphs do
/// not say whether host memory is pinned; a non-blocking copy is taken as pinned, a blocking one as
/// pageable.
namespace perfmodel::ops {
namespace {

KernelWork transfer(CopyKind kind, DType dtype, double size, bool pageable) {
  KernelWork work = make_work(KernelFamily::kCopy, dtype, size, size);
  work.shape = CopyShape{.kind = kind, .pageable = pageable};
  return work;
}

bool is_same_tensor(const Tensor& a, const Tensor& b) {
  return a.id != 0 && a.id == b.id && a.storage_id == b.storage_id && a.offset == b.offset &&
         a.numel == b.numel && a.dtype == b.dtype;
}

bool lower_copy(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const Tensor* target = op.tensor_input(0);
  const Tensor* source = op.tensor_input(1);
  const bool is_copy_from =
      op.name() == "aten::_copy_from" || op.name() == "aten::_copy_from_and_resize";
  if (is_copy_from) std::swap(target, source);
  if (!target || !source) return false;
  if (target->numel == 0 || is_same_tensor(*target, *source)) return true;
  const bool pageable = !bool_input(op, 2, false);
  // The transfer moves the source's type; a cast happens where the cheaper side is and is not
  // counted.
  const double moved = static_cast<double>(target->numel) * source->item_size;
  if (source->on_cpu() && target->on_gpu()) {
    kernels.push_back(transfer(CopyKind::kHostToDevice, source->dtype, moved, pageable));
  } else if (source->on_gpu() && target->on_cpu()) {
    kernels.push_back(transfer(CopyKind::kDeviceToHost, source->dtype, moved, pageable));
  } else if (source->on_gpu() && target->on_gpu()) {
    if (source->device.index != target->device.index) {
      kernels.push_back(transfer(CopyKind::kPeer, source->dtype, moved, false));
    } else if (source->dtype != target->dtype || source->numel != target->numel) {
      const bool casts = source->dtype != target->dtype && is_floating_point(target->dtype) &&
                         gpu.vendor == "nvidia";  // casts elsewhere are unmeasured
      // The type that it reads names a cast, as in tables; integers were not measured.
      const bool reads_integers = casts && !is_floating_point(source->dtype);
      kernels.push_back(make_work(KernelFamily::kElementwise,
                                  reads_integers ? target->dtype : source->dtype, bytes(*source),
                                  bytes(*target), static_cast<double>(target->numel)));
      if (source->numel != target->numel) {
        kernels.back().layout = Layout::kBroadcast;
      } else if (casts) {
        kernels.back().layout = Layout::kMixedTypes;
      }
    } else {
      kernels.push_back(transfer(CopyKind::kDeviceToDevice, source->dtype, moved, false));
    }
  }
  return true;
}

/// The value of a one-element tensor: a synchronising copy to pageable host memory.
bool lower_scalar(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* self = op.tensor_input(0);
  if (!self) return false;
  if (self->on_gpu()) {
    kernels.push_back(transfer(CopyKind::kDeviceToHost, self->dtype, self->item_size, true));
  }
  return true;
}

/// offload::to_host and offload::to_device: between the GPU and pinned host memory.
bool lower_copy_aside(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor *from = op.tensor_input(0), *to = op.tensor_output(0);
  if (!from || !to) return false;
  KernelWork work = transfer(from->on_gpu() ? CopyKind::kDeviceToHost : CopyKind::kHostToDevice,
                             from->dtype, bytes(*from), false);
  std::get<CopyShape>(work.shape).aside = true;
  kernels.push_back(std::move(work));
  return true;
}

/// clone, contiguous and reshape as primitives (no children): one copy of the input.
bool lower_clone(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  if (op.node.children_count > 0) return true;
  const Tensor* input = op.tensor_input(0);
  const Tensor* output = op.tensor_output(0);
  if (!input || !output || input->storage_id == output->storage_id) return true;
  kernels.push_back(transfer(CopyKind::kDeviceToDevice, input->dtype, bytes(*input), false));
  return true;
}

}  // namespace

std::span<const NamedLower> copy_rules() {
  static constexpr NamedLower kRules[] = {
      {"copy", lower_copy},
      {"copy.aside", lower_copy_aside},
      {"copy.scalar", lower_scalar},
      {"copy.clone", lower_clone},
  };
  return kRules;
}

}  // namespace perfmodel::ops
