"""perfpredict-train, which holds what needs XGBoost: a program of its own, run as one."""

from __future__ import annotations

import json
import os
import shutil

from ._interrupts import Cancel
from ._library import library
from .errors import ArgumentError, CancelledError, FileError, PerfmodelError

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all of this
    from typing import Any

PROGRAM = "perfpredict-train"


def _program() -> str:
    """Looks in PREFIX/bin of the library's PREFIX/lib, in the build tree's bin, in PATH."""
    folder = os.path.dirname(os.path.realpath(library().path)) if os.sep in library().path else ""
    for up in ("..", os.path.join("..", "..")) if folder else ():
        path = os.path.join(folder, up, "bin", PROGRAM)
        if os.access(path, os.X_OK):
            return path
    found = shutil.which(PROGRAM)
    if not found:
        raise FileError(f"expected the program {PROGRAM} beside the library or in PATH, found none (it is built "
                        "where XGBoost is found)")
    return found


def _words(request: dict[str, Any]) -> list[str]:
    words = request["command"].split() + [str(argument) for argument in request["arguments"]]
    for key, value in request["options"].items():
        flag = "--" + key.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [f"{flag}={item}" for item in (value if isinstance(value, list) else [value])]
    return words if request["options"].get("help") else [*words, "--json"]


def run_training_program(request: dict[str, Any], timeout: float | None,
                         cancel: Cancel | None) -> tuple[bytes, tuple[str, ...]]:
    """As :func:`perfmodel.ask`; Ctrl-C and the end of the time end the program."""
    import subprocess

    if cancel is not None:
        raise ArgumentError(f"expected no cancel with {request['command']}, found one: it is a program, which a "
                            "timeout or Ctrl-C ends")
    with subprocess.Popen([_program(), *_words(request)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as program:
        try:
            text, said = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            raise CancelledError("cancelled: the time is over") from None
        except BaseException:
            program.kill()
            raise
    lines = tuple(said.decode("utf-8", "replace").splitlines())
    if program.returncode != 0:
        last = lines[-1] if lines else f"{PROGRAM} ended with status {program.returncode}"
        raise (ArgumentError if program.returncode == 2 else PerfmodelError)(last, warnings=lines[:-1])
    if request["options"].get("help"):
        return json.dumps(text.decode()).encode(), lines  # as of every command that prints text
    return text, lines
