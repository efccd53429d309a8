"""The programs of the campaign, one file each, in plain torch. common.py describes the result of a maker."""

import importlib


def make(workload, batch, device, tiny, seed):
    """The Trainer of one point: model, optimizer and inputs on the device, ready to step."""
    from . import common
    module, function = workload.maker.split(".")
    maker = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return common.build(maker, workload, batch, device, tiny, seed)
