"""Lines of the user's program in errors, and the assumptions about values that no op computed."""

import os
import re
import sys
from collections import Counter

_STANDARD = getattr(sys, "stdlib_module_names", ("contextlib", "copy", "functools", "runpy"))  # since Python 3.10
_LIBRARIES = {"torch", __name__.split(".")[0], *_STANDARD}


class CaptureError(RuntimeError):
    """A step that cannot be captured. Its text names the line of the program."""


def _is_library(module):
    return module.get("__name__", "").split(".")[0] in _LIBRARIES or "IS_NO_PROGRAM" in module


def line(frame=None):
    """``train.py:41``: the innermost line of the stack that is neither PyTorch's nor ours."""
    frame = frame or sys._getframe(1)
    while frame is not None and _is_library(frame.f_globals):
        frame = frame.f_back
    if frame is None:
        return ""
    file = os.path.relpath(frame.f_code.co_filename)
    return f"{os.path.basename(file) if file.startswith('..') else file}:{frame.f_lineno}"


def line_of(error):
    """The line of the program that an exception passed last."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return line(trace.tb_frame)


def said(error):
    """The first line of an exception's text, without PyTorch's list of all devices."""
    text = (str(error).splitlines() or [""])[0]
    op = re.match(r"Could not run '(\w+::\w+)", text)
    return f"{op[1]} has no kernel on device meta" if op else text


class Assumptions:
    """Sentences that say what the graph takes for granted, each with its count and the first line that asked."""

    def __init__(self):
        self._counts, self._lines = Counter(), {}

    def begin_step(self):
        """Keeps the notes and counts them anew: steps before the captured one are not in the graph."""
        self._counts = Counter({text: 0 for text in self._counts})

    def note(self, text):
        self._counts[text] += 1
        self._lines.setdefault(text, line())

    def head(self):
        """As the graph's head has them: [{"text", "count", "where"}]."""
        return [{"text": text, "count": max(count, 1), "where": self._lines[text]}
                for text, count in self._counts.items()]
