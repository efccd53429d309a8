#!/usr/bin/env python3
"""Captures programs by examples/capture.py and the package, and predicts them. Needs a Python that has torch."""

import functools
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

import perfmodel

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import torch, torch.distributed as dist
from torch.nn import functional as F
{setup}
data = torch.utils.data.TensorDataset(torch.randn(256, 64), torch.randint(10, (256,)))
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters(), fused=True)
for x, y in torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, num_workers=2, pin_memory=True):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x.cuda(non_blocking=True)), y.to("cuda"))
    loss.backward()
    {within}
    optimizer.step()
    print(f"loss {{loss:.3f}}")
"""


@functools.cache
def captured(*flags, setup="", within=""):
    """The document that capture.py writes of the program, or the line that it refuses it with."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(PROGRAM.format(setup=setup, within=within))
        done = subprocess.run([sys.executable, ROOT / "examples" / "capture.py", *flags, "train.py"], cwd=folder,
                              capture_output=True, text=True, timeout=300, check=False)
        file = Path(folder) / "captured.json"
        return json.loads(file.read_text()) if done.returncode == 0 else done.stderr.strip()


def names(document):
    return [node["name"] for node in document["nodes"]]


class Scripts(unittest.TestCase):
    def test_one_step_is_captured_as_on_a_gpu(self):
        made = captured()
        self.assertEqual(names(made).count("aten::linear"), 2)
        self.assertEqual(names(made).count("aten::_fused_adam_"), 1)
        self.assertEqual(sum(name.startswith("ProfilerStep") for name in names(made)), 1)
        self.assertNotIn("aten::stack", names(made))  # the loader calls it
        forward = [node["seq_id"] for node in made["nodes"] if node["name"] == "aten::addmm"]
        backward = [node["seq_id"] for node in made["nodes"] if node["name"] == "AddmmBackward0"]
        self.assertEqual(sorted(forward), sorted(backward))

    def test_what_it_assumes_is_said_with_count_and_line(self):
        self.assertEqual(captured()["captured"]["assumptions"], [
            {"text": "autocast to bf16 is off on meta: rewrite with --precision bf16", "count": 1,
             "where": "train.py:10"},
            {"text": "a value that the program reads of the GPU is taken for 1.0", "count": 1, "where": "train.py:15"}])

    def test_collectives_of_a_world_that_is_not_there(self):
        setup = "dist.init_process_group('nccl'); pair = dist.new_group([0, 1])"
        within = "for p in model.parameters(): dist.all_reduce(p.grad, group=pair)"
        made = captured("--world", "8", setup=setup, within=within)
        records = [node["inputs"]["values"] for node in made["nodes"] if node["name"] == "record_param_comms"]
        self.assertEqual([(values[2], values[4], values[0][0][3]) for values in records],
                         [(2, "allreduce", 2048), (2, "allreduce", 32), (2, "allreduce", 320), (2, "allreduce", 10)])
        groups = next(node for node in made["nodes"] if node["name"] == "## process_group:init ##")
        self.assertEqual([group["group_size"] for group in json.loads(groups["inputs"]["values"][0])], [8, 2])

    def test_refusals_name_the_line(self):
        self.assertEqual(captured(setup="dist.init_process_group('nccl')"),
                         "train.py:4: expected capturing(world=N) for a program of several ranks, found none")
        self.assertEqual(captured(within="torch.unique_consecutive(y.cuda())"),
                         "train.py:13: expected an op whose result's shape the shapes of its inputs tell, found one that "
                         "values tell")


class Modules(unittest.TestCase):
    def setUp(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 10))

    def test_nothing_is_computed(self):
        before = [value.clone() for value in self.model.state_dict().values()]
        optimizer = torch.optim.AdamW(self.model.parameters())
        graph = perfmodel.capture(self.model, torch.randn(16, 64), optimizer=optimizer)
        self.assertTrue(all(map(torch.equal, before, self.model.state_dict().values())))
        self.assertFalse(optimizer.state)
        step = perfmodel.predict(graph, gpu="h100-sxm-80gb")
        self.assertEqual(len([kernel for kernel in step.kernels if kernel["family"] == "gemm"]), 5)

    def test_tensors_are_told_apart_for_a_whole_step(self):
        with tempfile.TemporaryDirectory() as folder:
            graph = perfmodel.capture(self.model, torch.randn(16, 64), Path(folder) / "step.json")
            nodes = json.loads(Path(graph.file).read_text())["nodes"]
        # The activation that the first layer makes is what the norm reads forward and backward, and nothing else is it.
        made = next(node for node in nodes if node["name"] == "aten::addmm")["outputs"]["values"][0]
        readers = [node["name"] for node in nodes if made in node["inputs"]["values"]]
        self.assertEqual(sorted(readers), ["aten::_batch_norm_impl_index", "aten::batch_norm",
                                           "aten::native_batch_norm", "aten::native_batch_norm_backward"])

    def test_parameters_from_elsewhere_are_refused(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        with self.assertRaisesRegex(perfmodel.ImpossibleError, r"capture_test.py:\d+: expected parameters made while"):
            perfmodel.capture(lambda x: self.model(x), torch.randn(4, 64), optimizer=optimizer)

    def test_values_that_the_program_makes_are_known(self):
        with perfmodel.capturing() as capture:
            rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
            mask = torch.zeros(4, 4)
            mask[0] = 1  # through a view
            written = mask.sum().item()
            mask[1] = torch.randn(32)[:4]
            unknown = mask.sum().item()
            layer = torch.nn.Linear(8, 8)
            capture.step(lambda: layer(torch.randn(2, 8)).sum().backward())
        self.assertEqual((rates, written, unknown), ([0, 0.25, 0.5], 4, 1))


if __name__ == "__main__":
    unittest.main()
