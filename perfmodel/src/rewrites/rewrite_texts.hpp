#pragma once

#include <cstdint>
#include <string>

#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/result.hpp"

/// The options of a rewrite from its text in a command line, a sweep or a question. Errors say what
/// was expected of the text; no graph is known yet.
namespace perfmodel {

Result<BatchSizeOptions> read_batch_size(const std::string& text);            // "512=1024@545:0"
Result<SequenceLengthOptions> read_sequence_length(const std::string& text);  // "128=512"
Result<double> read_index_skew(const std::string& text);
Result<std::string> read_pattern(const std::string& text);
Result<KernelTimeOptions> read_kernel_time(const std::string& text);   // "aten::mm=12.5"
Result<KernelTimeOptions> read_kernel_scale(const std::string& text);  // "aten::mm=0.5"

Result<PrecisionOptions> read_precision(const std::string& text);
Result<DType> read_gradient_type(const std::string& text);
Result<OptimizerRewrite> read_optimizer(const std::string& text);  // "adam", "fused", "adam/fused"
Result<std::int64_t> read_accumulation(const std::string& text);
Result<DataParallelRewrite> read_data_parallel(const std::string& text);      // "8,cap=50,views"
Result<TensorParallelOptions> read_tensor_parallel(const std::string& text);  // "8,sequence"
Result<RetargetOptions> read_retarget(const std::string& text);               // "amd,pageable"

Result<RecomputeOptions> read_recomputation(const std::string& text);   // "op:12"
Result<InPlaceOptions> read_in_place(const std::string& text);          // "gelu,layernorm:12"
Result<CheckpointOptions> read_checkpointing(const std::string& text);  // "0", "layer,masks"
/// "aten::linear:compression=100:scheme=roast"
Result<HashedWeightOptions> read_hashed_weights(const std::string& text);

Result<TableFusionRewrite> read_table_fusion(const std::string& text);
Result<LossFusion> read_loss_fusion(const std::string& text);  // "linear"
Result<AttentionBackend> read_attention(const std::string& text);
Result<CompileRewrite> read_compile(const std::string& text);  // "reduce-overhead,model"
Result<Rewrite> read_fusion(const std::string& text);
Result<Rewrite> read_recurrent(const std::string& text);  // "fused:lstm-layout=hidden-major"

}  // namespace perfmodel
