// Products under vmap: the op that the program calls sees one sample and no memory, the batched op
// below it does the work.
#include <gtest/gtest.h>

#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"

namespace perfmodel {
namespace retarget_vmap_test {

// PyTorch 1.13 and functorch: vmap(torch.mm) on [8, 4, 16] and [8, 16, 32], less its views.
constexpr std::string_view kRecorded = R"json({"schema": "1.0.1", "nodes": [
{"name": "[pytorch|profiler|execution_graph|thread]", "id": 2, "rf_id": 0, "parent": 1,
 "fw_parent": 0, "seq_id": -1, "scope": 7, "tid": 1, "fw_tid": 0, "op_schema": "", "inputs": [],
 "input_shapes": [], "input_types": [], "outputs": [], "output_shapes": [], "output_types": []},
{"name": "aten::mm", "id": 5, "rf_id": 1, "parent": 2, "fw_parent": 0, "seq_id": -1, "scope": 0,
 "tid": 1, "fw_tid": 0, "op_schema": "aten::mm(Tensor self, Tensor mat2) -> Tensor",
 "inputs": [[3, 0, 0, 0, 0, ""], [4, 0, 0, 0, 0, ""]], "input_shapes": [[4, 16], [16, 32]],
 "input_types": ["Tensor(float)", "Tensor(float)"], "outputs": [[107, 0, 0, 0, 0, ""]],
 "output_shapes": [[4, 32]], "output_types": ["Tensor(float)"]
},
{"name": "aten::bmm", "id": 24, "rf_id": 13, "parent": 5, "fw_parent": 0, "seq_id": 0, "scope": 0,
 "tid": 1, "fw_tid": 0, "op_schema": "aten::bmm(Tensor self, Tensor mat2) -> Tensor",
 "inputs": [[18, 8, 0, 512, 4, "cpu"], [23, 10, 0, 4096, 4, "cpu"]],
 "input_shapes": [[8, 4, 16], [8, 16, 32]], "input_types": ["Tensor(float)", "Tensor(float)"],
 "outputs": [[15, 27, 0, 1024, 4, "cpu"]], "output_shapes": [[8, 4, 32]],
 "output_types": ["Tensor(float)"]},
{"name": "[pytorch|profiler|execution_graph|process]", "id": 1, "rf_id": 0, "parent": 1,
 "fw_parent": 0, "seq_id": -1, "scope": 7, "tid": 0, "fw_tid": 0, "op_schema": "", "inputs": [],
 "input_shapes": [], "input_types": [], "outputs": [], "output_shapes": [], "output_types": []}]
})json";

TEST(RetargetVmap, TheBatchedProductIsTheOneThatRuns) {
  const auto recorded = parse_execution_graph(kRecorded);
  ASSERT_TRUE(recorded) << to_string(recorded.error());
  const auto made = retarget(*recorded);
  ASSERT_TRUE(made) << to_string(made.error());
  bool is_there = false;
  for (const Node& node : made->nodes) {
    if (made->name(node) != "aten::bmm") continue;
    is_there = true;
    for_each_tensor(*made, made->inputs(node), [](const Tensor& t) { EXPECT_TRUE(t.on_gpu()); });
  }
  EXPECT_TRUE(is_there);
}

}  // namespace retarget_vmap_test
}  // namespace perfmodel
