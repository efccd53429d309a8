"""Training steps in plain PyTorch, each with the parameters and FLOP that a hand calculation gives.

A case is a dataclass of sizes, tiny by default:

    parameters      how many numbers the optimizer trains
    flop            FLOP of matrix products and convolutions of one step: a multiply-add counts 2, what a
                    checkpoint computes again counts once
    program()       builds model, batch and optimizer; returns a function that trains one step

`CASES` names them all; `with_sizes(name, "hidden=768", ...)` makes one of another size.
"""

from . import diffusion, encoder, language, programs, recommend, vision

CASES = {name: case for module in (language, encoder, vision, diffusion, recommend, programs) for name, case in module.CASES.items()}


def with_sizes(name, *sizes):
    """The case `name` with sizes as `name=value`; values are of the type of the default."""
    made = CASES[name]()
    for size in sizes:
        key, value = size.split("=")
        setattr(made, key, type(getattr(made, key))(value))
    return made
