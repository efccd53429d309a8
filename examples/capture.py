#!/usr/bin/env python3
"""Captures a training step of a program for perfpredict, without a GPU and without the memory of its model.

    python3 capture.py [-o captured.json] [--warm N] [--world N] train.py --its arguments

runs train.py on device ``meta``, whose tensors have no data, and writes the execution graph of its step number N + 1 (N
is 1): what runs between two calls of its optimizer's step(). The program ends there.

    perfpredict predict captured.json --gpu h100-sxm-80gb

tells how fast it is. A program that has a function for its step may capture that instead:

    from torch_capture import capturing

    with capturing() as capture:
        model = Model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        capture.step(lambda: train(model, optimizer), "captured.json")

Copy this file and the folder torch_capture; they need PyTorch (1.13 or later) alone. docs/capture.md says more.
"""

import argparse
import contextlib
import os
import runpy
import sys
import types

os.environ.setdefault("GLOG_minloglevel", "2")  # the observer warns of ops that fail, and so do we

import torch  # noqa: E402

from torch_capture import CaptureError, capturing

IS_NO_PROGRAM = True  # no error names a line of this file


class Captured(BaseException):
    """Ends the program: its step is written."""


class Steps:
    """Counts the steps of the first optimizer and captures the ops between two of them."""

    def __init__(self, capture, file, warm):
        self.capture, self.file, self.warm = capture, file, warm
        self.done, self.first = 0, None
        self.recording = contextlib.ExitStack()

    def watch(self, make):
        """The constructor of optimizers: each tells when it has made a step."""
        def made(optimizer, *args, **kwargs):
            make(optimizer, *args, **kwargs)
            step = type(optimizer).step

            def stepped(self_, *arguments, **options):
                result = step(self_, *arguments, **options)
                self.after(self_)
                return result
            optimizer.step = types.MethodType(stepped, optimizer)
        return made

    def after(self, optimizer):
        self.first = self.first or optimizer
        if optimizer is not self.first:
            return
        self.done += 1
        if self.done == self.warm:
            self.recording.enter_context(self.capture.recording(self.file))
        elif self.done > self.warm:
            self.recording.close()
            raise Captured


def run(script, arguments, file, warm, world):
    """Captures a step of a script.

    Returns:
        The assumptions of the graph: [{"text", "count", "where"}].

    Raises:
        CaptureError: what cannot be captured, with the line of the program.
    """
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    with capturing(world) as capture:
        steps = Steps(capture, file, warm)
        made = torch.optim.Optimizer.__init__
        torch.optim.Optimizer.__init__ = steps.watch(made)
        try:
            runpy.run_path(script, run_name="__main__")
        except Captured:
            return capture.assumptions
        except SystemExit:
            pass
        finally:
            torch.optim.Optimizer.__init__ = made
        raise RuntimeError(f"{script}: expected {warm + 1} steps of an optimizer, found {steps.done}")


def main():
    parser = argparse.ArgumentParser(description="Captures a training step of a program without a GPU.")
    parser.add_argument("-o", "--output", default="captured.json", help="the execution graph to write")
    parser.add_argument("--warm", type=int, default=1, help="steps before the captured one, at least 1")
    parser.add_argument("--world", type=int, help="ranks that torch.distributed tells the program of")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    given = parser.parse_args()
    if given.warm < 1:
        parser.error(f"argument --warm: expected at least 1, found {given.warm}")
    if not os.path.isfile(given.script):
        sys.exit(f"{given.script}: expected a program, found none")
    try:
        assumptions = run(given.script, given.arguments, given.output, given.warm, given.world)
    except CaptureError as error:
        sys.exit(str(error))
    for one in assumptions:
        times = f"{one['count']} times, " if one["count"] > 1 else ""
        print(f"captured: {one['text']} ({times}{one['where']})", file=sys.stderr)
    print(f"{given.output}: perfpredict predict {given.output} --gpu h100-sxm-80gb")


if __name__ == "__main__":
    main()
