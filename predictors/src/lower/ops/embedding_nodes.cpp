#include "embedding_nodes.hpp"

namespace perfmodel::ops {

bool is_batched_lookup(std::string_view name) {
  return name.starts_with("fbgemm::") &&
         name.find("_embedding_codegen_lookup_") != std::string_view::npos;
}

// Positions by schema; without one, the order of the first released versions: dense has
// dev_weights first, the others a placeholder and three weight tensors.
std::optional<BatchedLookup> read_batched_lookup(const OpView& node) {
  ParsedSchemas own;  // dozens of parameters: taken apart once
  if (!node.schemas) {
    own.emplace(node.node.op_schema, parameter_names(node.graph.names.text(node.node.op_schema)));
  }
  const OpView op{node.graph, node.node, node.forward, node.schemas ? node.schemas : &own};
  constexpr std::int64_t kUnpooled = 2;
  const bool is_dense = op.name().find("dense_embedding") != std::string_view::npos;
  const auto number = [&op](std::string_view parameter, std::size_t fallback) {
    const int at = parameter_index(op, parameter);
    return int_input(op, at >= 0 ? static_cast<std::size_t>(at) : fallback, 0);
  };
  const Tensor* weights = named_tensor(op, "dev_weights", is_dense ? 0 : 1);
  const Tensor* uvm = is_dense ? nullptr : named_tensor(op, "uvm_weights", 2);
  const Tensor* dims = named_tensor(op, "D_offsets", is_dense ? 2 : 6);
  const Tensor* indices = named_tensor(op, "indices", is_dense ? 7 : 11);
  const Tensor* offsets = named_tensor(op, "offsets", is_dense ? 8 : 12);
  const Tensor* index_weights = named_tensor(op, "indice_weights", is_dense ? 10 : 14);
  const std::int64_t total_dim = number("total_D", is_dense ? 3 : 7);
  if (!weights || !indices || !offsets || !dims || total_dim <= 0 || dims->numel < 2) {
    return std::nullopt;
  }
  const std::int64_t tables = dims->numel - 1;
  const std::int64_t batch = (offsets->numel - 1) / tables;
  if (batch <= 0) return std::nullopt;
  BatchedLookup result;
  result.dtype = weights->dtype;
  result.lookups = static_cast<double>(indices->numel);
  result.total_dim = static_cast<double>(total_dim);
  const double elements =
      static_cast<double>(weights->numel) + (uvm ? static_cast<double>(uvm->numel) : 0);
  result.shape = {.batch = batch,
                  .num_tables = tables,
                  .num_rows = elements / result.total_dim,
                  .dim = result.total_dim / static_cast<double>(tables),
                  .pooling_factor = result.lookups / static_cast<double>(batch * tables),
                  .weight_bytes = weights->item_size,
                  .index_bytes = indices->item_size};
  result.total_rows = result.shape.num_rows * static_cast<double>(tables);
  if (const Tensor* output = op.tensor_output(0)) result.shape.output_bytes = output->item_size;
  result.max_dim = number("max_D", is_dense ? 4 : 8);
  result.pooled = number("pooling_mode", is_dense ? 9 : 13) != kUnpooled;
  result.weighted = index_weights && index_weights->numel > 0;
  return result;
}

std::optional<EmbeddingShape> read_bag(const OpView& op) {
  const Tensor* weight = op.tensor_input(0);
  const Tensor* indices = op.tensor_input(1);
  const Tensor* offsets = op.tensor_input(2);
  if (!weight || !indices || weight->rank != 2) return std::nullopt;
  const std::int64_t d = dim(op, *weight, 1);
  const int last = parameter_index(op, "include_last_offset");
  const bool has_last = bool_input(op, last >= 0 ? static_cast<std::size_t>(last) : 7, false);
  std::int64_t bags = 0;
  if (indices->rank == 2) {
    bags = dim(op, *indices, 0);
  } else if (offsets) {
    bags = offsets->numel - (has_last ? 1 : 0);
  }
  if (bags < 0 || (bags > 0 && d <= 0)) return std::nullopt;
  const double lookups = static_cast<double>(indices->numel);
  return EmbeddingShape{.batch = bags,
                        .num_tables = 1,
                        .num_rows = static_cast<double>(dim(op, *weight, 0)),
                        .dim = static_cast<double>(d),
                        .pooling_factor = bags > 0 ? lookups / static_cast<double>(bags) : 0,
                        .weight_bytes = weight->item_size,
                        .index_bytes = indices->item_size,
                        .output_bytes = weight->item_size};
}

std::optional<EmbeddingShape> read_lookup(const OpView& op) {
  const Tensor* weight = op.tensor_input(0);
  const Tensor* indices = op.tensor_input(1);
  if (!weight || !indices || weight->rank != 2) return std::nullopt;
  return EmbeddingShape{.batch = indices->numel,
                        .num_tables = 1,
                        .num_rows = static_cast<double>(dim(op, *weight, 0)),
                        .dim = static_cast<double>(dim(op, *weight, 1)),
                        .pooling_factor = 1,
                        .weight_bytes = weight->item_size,
                        .index_bytes = indices->item_size,
                        .output_bytes = weight->item_size};
}

}  // namespace perfmodel::ops
