"""Answers calls of ``torch.cuda`` that programs make without asking whether it is available."""

import torch


class _Stream:
    """A stream or an event, of which a capture has none."""

    __init__ = __exit__ = lambda *_, **__: None  # noqa: E731
    __enter__ = lambda self: self  # noqa: E731

    def __getattr__(self, name):
        return lambda *_, **__: self

    def elapsed_time(self, _):
        return 1.0


def _on_cpu(generator):
    return type("Generator", (generator,), {"__new__": lambda cls, *_, **__: generator.__new__(cls)})


def changes():
    """Our answers for functions of PyTorch: (object, name, function from the old one to the new)."""
    answers = {"is_bf16_supported": lambda *_: True, "current_device": lambda: 0}
    answers.update((name, lambda *_, **__: None) for name in (
        "synchronize", "set_device", "empty_cache", "reset_peak_memory_stats"))
    answers.update((name, _Stream) for name in ("Event", "Stream", "current_stream", "default_stream", "stream"))
    changed = [(torch.cuda, name, lambda old, new=new: new) for name, new in answers.items()]
    quiet = (torch.backends.cudnn, "is_acceptable", lambda old: lambda *_: False)  # which warns that there is none
    unrecorded = (torch.Tensor, "record_stream", lambda old: lambda *_: None)
    return [(torch, "Generator", _on_cpu), quiet, unrecorded, *changed]
