#!/usr/bin/env python3
"""Programs that do more than layers, captured without a GPU: each is captured, says what it assumes, and names the line
of what cannot be. PYTHONPATH and PERFMODEL_LIBRARY name package and library; needs a Python that has torch."""

import copy
import inspect
import json
import os
import tempfile
import unittest
from collections import Counter

import torch
from torch import nn
from torch.nn import functional as F

import perfmodel

FOLDER = tempfile.TemporaryDirectory()


def layers():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()


def batch():
    return torch.randn(8, 16, device="cuda"), torch.randint(4, (8,), device="cuda")


def classes(model, optimizer, make=batch):
    def train():
        x, y = make()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return train


def with_loss(loss, *parts):
    """A step that makes `loss(*parts)` smaller."""
    optimizer = torch.optim.Adam([weight for part in parts for weight in part.parameters()])

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss(*parts).backward()
        optimizer.step()
    return train


class Programs:
    """Each makes a function that trains one step. Its docstring: words of what it assumes, in order."""

    def copies_from_the_host(self):
        model = layers()
        x, y = torch.randn(8, 16), torch.randint(4, (8,))
        return classes(model, torch.optim.SGD(model.parameters(), lr=0.1),
                       lambda: (x.pin_memory().to("cuda", non_blocking=True), y.cuda()))

    def loader(self):
        data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randint(4, (64,)))
        batches = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, num_workers=2)
        model = layers()
        return classes(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda: next(iter(batches)))

    def scaler(self):
        """GradScaler; autocast"""
        model, scaler = layers(), torch.cuda.amp.GradScaler()
        optimizer = torch.optim.AdamW(model.parameters())

        def train():
            x, y = batch()
            optimizer.zero_grad()
            with torch.cuda.amp.autocast():
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        return train

    def autocast(self):
        """autocast"""
        def loss(model):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return model(batch()[0]).float().mean()
        return with_loss(loss, layers())

    def fused(self):
        model = layers()
        return classes(model, torch.optim.Adam(model.parameters(), fused=True))

    def foreach(self):
        model = layers()
        return classes(model, torch.optim.AdamW(model.parameters(), foreach=True, capturable=True))

    def reads_the_loss(self):
        """taken for 1.0; taken for False"""
        def loss(model):
            made = model(batch()[0]).mean()
            said = f"loss {made.item():.3f}"
            assert said == "loss 1.000", said
            if made > 5:
                raise ValueError("diverged")
            return made
        return with_loss(loss, layers())

    def reads_arrays(self):
        """taken for 1"""
        def loss(model):
            made = model(torch.from_numpy(torch.ones(8, 16).numpy()).cuda())
            made.detach().cpu().numpy().mean()
            return made.mean()
        return with_loss(loss, layers())

    def skips_infinite_steps(self):
        """taken for True"""
        model = layers()
        average, optimizer = copy.deepcopy(model), torch.optim.Adam(model.parameters())

        def train():
            model(batch()[0]).mean().backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            assert torch.isfinite(norm), "diverged"
            optimizer.step()
            optimizer.zero_grad()
            for old, new in zip(average.parameters(), model.parameters()):
                old.detach().lerp_(new.detach(), 0.01)
        return train

    def averages(self):
        """taken for False"""
        model = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)).cuda()
        average = torch.optim.swa_utils.AveragedModel(model)
        train = classes(model, torch.optim.SGD(model.parameters(), lr=0.1))
        return lambda: (train(), average.update_parameters(model))

    def fetches_on_a_stream(self):
        def fetched():
            with torch.cuda.stream(torch.cuda.Stream()):
                made = batch()
            for tensor in made:
                tensor.record_stream(torch.cuda.current_stream())
            return made
        model = layers()
        return classes(model, torch.optim.SGD(model.parameters(), lr=0.1), fetched)

    def masks(self):
        """a mask"""
        def loss(model):
            made = model(batch()[0])
            return made[made > 0].sum()
        return with_loss(loss, layers())

    def different_words(self):
        """different"""
        def loss(table):
            words, places = torch.unique(torch.randint(100, (40,), device="cuda"), return_inverse=True)
            return table(words)[places].sum()
        return with_loss(loss, nn.Embedding(100, 8).cuda())

    def lengths_of_the_host(self):
        lengths = torch.tensor([7, 5, 4, 2])

        def loss(layer):
            packed = nn.utils.rnn.pack_padded_sequence(torch.randn(7, 4, 8, device="cuda"), lengths)
            return nn.utils.rnn.pad_packed_sequence(layer(packed)[0])[0].square().mean()
        return with_loss(loss, nn.GRU(8, 16, 2, bidirectional=True).cuda())

    def gradient_penalty(self):
        def loss(model):
            x = torch.randn(8, 16, device="cuda", requires_grad=True)
            gradient, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            return ((gradient.norm(2, dim=1) - 1) ** 2).mean()
        return with_loss(loss, nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)).cuda())

    def kernels_that_meta_lacks(self):
        def loss(volumes, images, frames):
            made = volumes(torch.randn(2, 1, 8, 8, 8, device="cuda")).mean()
            made = made + F.pad(images(torch.randn(2, 3, 8, 8, device="cuda")), (1, 1, 1, 1), mode="reflect").mean()
            log = frames(torch.randn(20, 4, 8, device="cuda")).log_softmax(2)
            return made + F.ctc_loss(log, torch.randint(1, 10, (4, 5)), torch.full((4,), 20), torch.full((4,), 5))
        volumes = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.MaxPool3d(2), nn.ConvTranspose3d(4, 2, 2, 2))
        return with_loss(loss, volumes.cuda(), nn.utils.weight_norm(nn.Conv2d(3, 4, 3)).cuda(), nn.Linear(8, 10).cuda())

    def script(self):
        model = torch.jit.script(layers())
        return classes(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def accumulation(self):
        x = batch()[0]

        def loss(model):
            for _ in range(3):
                (model(x).mean() / 4).backward()
            return model(x).mean() / 4
        return with_loss(loss, layers())


def capture(make):
    file = os.path.join(FOLDER.name, "captured.json")
    with perfmodel.capturing() as captured:
        captured.step(make(), file)
    with open(file) as text:
        return json.load(text)


class Captured(unittest.TestCase):
    def test_programs_say_what_they_assume(self):
        for name, make in inspect.getmembers(Programs(), inspect.ismethod):
            with self.subTest(name):
                said = capture(make)["captured"]["assumptions"]
                expected = make.__doc__.split("; ") if make.__doc__ else []
                self.assertEqual(len(said), len(expected), said)
                for words, assumption in zip(expected, said):
                    self.assertIn(words, assumption["text"])
                    self.assertRegex(assumption["where"], r"captured_programs_test\.py:\d+")

    def test_products_are_those_of_the_program(self):
        """Forward, and two gradients of each but the first, whose input needs none: 2 + 3, four times."""
        names = Counter(node["name"] for node in capture(Programs().accumulation)["nodes"])
        self.assertEqual((names["aten::addmm"], names["aten::mm"]), (4 * 2, 4 * 3))
        made = perfmodel.predict(os.path.join(FOLDER.name, "captured.json"), gpu="h100-sxm-80gb")
        self.assertEqual(made["batch_per_gpu"], 4 * 8)

    def test_errors_name_the_line(self):
        def loss(model):
            return model(torch.randn(8, 17, device="cuda")).sum()
        line = inspect.getsourcelines(loss)[1] + 1
        with self.assertRaisesRegex(Exception, rf"captured_programs_test\.py:{line}: .*8x17 and 16x32"):
            capture(lambda: with_loss(loss, layers()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
