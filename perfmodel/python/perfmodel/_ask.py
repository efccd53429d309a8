"""Commands of perfpredict as one call of the library each."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from ctypes import byref, c_size_t

from ._interrupts import Cancel, interruptible
from ._library import AskOptions, Handle, Place, error_of, library
from .errors import ArgumentError
from .results import BY_COMMAND, Document

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all of this
    from typing import Any, Union
    
    #: A file: of a graph, a trace, tables, ...
    File = Union[str, os.PathLike[str]]

def _value(value: Any) -> Any:
    """As JSON: files by their names, (A, B) ranges and lists as lists."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Iterable):
        return [_value(item) for item in value]
    if hasattr(value, "item"):  # a number of numpy's
        return value.item()
    raise ArgumentError(f"expected text, a number, a file or a list of them, found {type(value).__name__}")


def files_of(files: File | Iterable[File]) -> list[str]:
    """One file or several, a rank each."""
    if isinstance(files, (str, os.PathLike)):
        return [os.fspath(files)]
    return [os.fspath(file) for file in files]


def _messages(answer: Handle) -> tuple[str, ...]:
    count = library().answer_message_count(answer.value)
    return tuple(library().answer_message(answer.value, i).decode("utf-8", "replace") for i in range(count))


def ask_text(command: str, arguments: Iterable[Any] = (), options: dict[str, Any] | None = None, *,
             timeout: float | None = None, cancel: Cancel | None = None) -> tuple[bytes, tuple[str, ...]]:
    """Returns the answer of :func:`ask` as JSON text, with the messages."""
    import json  # with re and enum: only where it is needed

    request = json.dumps({"command": command, "arguments": [_value(a) for a in arguments],
                          "options": {key: _value(value) for key, value in (options or {}).items()}})
    if command.split()[:1] in (["train"], ["eval"]):
        from ._programs import run_training_program

        return run_training_program(json.loads(request), timeout, cancel)
    text = request.encode()

    def call(given: ctypes.c_void_p | None) -> tuple[bytes, tuple[str, ...]]:
        answer = Handle(library().answer_free)
        asked = AskOptions(cancel=given,
                           timeout_ms=0 if timeout is None else max(1, round(1000 * timeout)))
        place = Place()
        message = ctypes.create_string_buffer(1024)
        status = library().ask(text, len(text), byref(asked), byref(answer.value), byref(place), message)
        if status != 0:
            raise error_of(status, message.value, place)
        size = c_size_t()
        start = library().answer_text(answer.value, byref(size))
        return ctypes.string_at(start, size.value), _messages(answer)

    return interruptible(call, cancel)


def ask(command: str, arguments: Iterable[Any] = (), options: dict[str, Any] | None = None, *,
        timeout: float | None = None, cancel: Cancel | None = None) -> Document:
    """Runs any command of ``perfpredict`` and returns the document that it prints with ``--json``.

    ``ask("whatif", ["gpt2.json"], {"gpus": ["a100-sxm-80gb", "h100-sxm-80gb"], "batch": [8, 16]})`` is
    ``perfpredict whatif gpt2.json --gpus a100-sxm-80gb,h100-sxm-80gb --batch 8,16 --json``. The functions of this
    package are this with names; :func:`help_of` prints the flags of a command.

    Args:
        command: ``"predict"``, ``"layout compare"``, ``"build dlrm"``, ...
        arguments: words without a flag.
        options: flags by name in this order, ``_`` for ``-``. True sets a flag, False clears one that has a
            ``--no-`` form, None is none; a list is a flag's list of values, or the flag several times.
        timeout: seconds after which :class:`CancelledError` is raised.
        cancel: ends the call from another thread. Ctrl-C ends it in any case.

    Raises:
        PerfmodelError: with the text of the command line, and the place of the error.
    """
    text, messages = ask_text(command, arguments, options, timeout=timeout, cancel=cancel)
    kind = BY_COMMAND.get(command.split()[0] if command.split() else "", Document)
    if not text.startswith(b"{"):  # a command without --json: what it prints
        import json

        return Document(json.dumps({"text": json.loads(text)}).encode(), messages)
    return kind(text, messages)


def help_of(command: str = "") -> str:
    """Returns the text of ``perfpredict COMMAND --help``: every flag, which is a keyword here, with its unit."""
    import json

    text, _ = ask_text(command or "predict", [], {"help": True})
    return json.loads(text)
