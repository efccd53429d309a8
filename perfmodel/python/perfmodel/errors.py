"""Exceptions with the error text of the command line."""

from __future__ import annotations


class PerfmodelError(Exception):
    """A request that failed. ``str(error)`` is the line that ``perfpredict`` prints.

    Attributes:
        code: ``"io"``, ``"syntax"``, ``"format"``, ``"unknown_name"``, ``"impossible"``, ``"argument"``,
            ``"version"``, ``"out_of_memory"``, ``"cancelled"`` or ``"internal"``.
        message: what was expected and what was found, without the place.
        file: the file that holds the error, or None.
        line, column: within that file, from 1, or None. Of a compressed file, in its inflated text.
        pointer: JSON pointer to the value, ``"/nodes/17/id"``; of a keyword, ``"/options/batch"``; or None.
        warnings: what the command said before it failed.
    """

    code = "internal"

    def __init__(self, text: str, *, message: str | None = None, file: str | None = None,
                 line: int | None = None, column: int | None = None, pointer: str | None = None,
                 warnings: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.message = text if message is None else message
        self.file = file
        self.line = line
        self.column = column
        self.pointer = pointer
        self.warnings = warnings


class ArgumentError(PerfmodelError, ValueError):
    """A command that does not take such an option or value."""

    code = "argument"


class VersionError(PerfmodelError):
    """A library that is older than this package."""

    code = "version"


class FileError(PerfmodelError):
    """A file that cannot be opened, read or written."""

    code = "io"


class SyntaxError(PerfmodelError, ValueError):  # noqa: A001 - perfmodel.errors.SyntaxError
    """Text that is no JSON, or compressed data that is broken."""

    code = "syntax"


class FormatError(PerfmodelError, ValueError):
    """JSON that is not what its format asks for."""

    code = "format"


class UnknownNameError(PerfmodelError, LookupError):
    """An unknown GPU, topology, model family or preset."""

    code = "unknown_name"


class ImpossibleError(PerfmodelError, ValueError):
    """A request that the input cannot answer."""

    code = "impossible"


class OutOfMemoryError(PerfmodelError, MemoryError):
    """An allocation failed; nothing is held back."""

    code = "out_of_memory"


class CancelledError(PerfmodelError):
    """The time was over (``timeout``), or another thread asked to stop (:class:`perfmodel.Cancel`)."""

    code = "cancelled"


class InternalError(PerfmodelError):
    """A bug of the library."""


# By perfmodel_status of perfmodel.h.
BY_STATUS: dict[int, type[PerfmodelError]] = {
    1: ArgumentError, 2: VersionError, 3: FileError, 4: SyntaxError, 5: FormatError, 6: UnknownNameError,
    7: ImpossibleError, 8: OutOfMemoryError, 9: CancelledError, 10: InternalError}
