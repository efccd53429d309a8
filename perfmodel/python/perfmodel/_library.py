"""libperfmodel_c through ctypes: its place, its structs, its errors."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p

from .errors import BY_STATUS, ArgumentError, InternalError, PerfmodelError, VersionError

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all of this
    from typing import Any, Callable

VERSION = 8  # PERFMODEL_C_API_VERSION of the header that the structs below were written after
NAME = "libperfmodel_c.so.1"
_MESSAGE_SIZE = 1024


class Struct(ctypes.Structure):
    """All begin with their size; zero is the default of every other field."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)
        for name, value in fields.items():  # ctypes cuts what does not fit without a word
            if isinstance(value, int) and getattr(self, name) != value:
                raise ArgumentError(f"{name}: expected a whole number of 64 bits, found {value}")


def encoded(text: str | bytes | os.PathLike[str]) -> bytes:
    """For C, which reads a text to its first NUL: one within it is an error."""
    given = os.fsencode(text)
    if b"\0" in given:
        raise ArgumentError(f"expected text without NUL, found {text!r}")
    return given


class Config(Struct):
    _fields_ = [("struct_size", c_size_t), ("data_folder", c_char_p), ("gpus", POINTER(c_char_p)),
                ("gpu_count", c_size_t), ("models", c_char_p), ("overheads", c_char_p),
                ("cached_prices", c_int64)]


class Options(Struct):
    _fields_ = [("struct_size", c_size_t), ("batch", c_int64), ("sequence", c_int64), ("world", c_int64),
                ("topology", c_char_p), ("strategy", c_char_p), ("interference", c_double),
                ("keep_ops", c_int), ("cancel", c_void_p), ("host_scale", c_double), ("device_scale", c_double),
                ("delay_allreduce", c_int), ("stages", c_int64), ("times_only", c_int)]


class Totals(Struct):
    _fields_ = [("struct_size", c_size_t)] + [(name, c_double) for name in (
        "e2e_us", "gpu_active_us", "gpu_idle_us", "cpu_us", "wait_us", "kernel_sum_us", "compute_kernel_us",
        "comm_kernel_us", "exposed_comm_us", "t1_us", "t2_us", "t3_us", "t4_us", "t5_us", "tx_us",
        "modelled_time_fraction")] + [
        ("iterations", c_int64), ("warning_count", c_int64), ("samples_per_s", c_double),
        ("samples_per_s_per_gpu", c_double), ("gpus", c_int64)] + [(name, c_double) for name in (
            "static_bytes", "device_bytes", "e2e_low_us", "e2e_high_us", "energy_j", "activation_bytes",
            "peak_allocated_bytes", "peak_reserved_bytes", "needed_bytes")]


class Question(Struct):
    _fields_ = [("struct_size", c_size_t), ("graph", c_void_p), ("gpu", c_char_p),
                ("options", POINTER(Options))]


class Place(Struct):
    _fields_ = [("struct_size", c_size_t), ("line", c_int64), ("column", c_int64),
                ("file", c_char * _MESSAGE_SIZE), ("pointer", c_char * _MESSAGE_SIZE),
                ("message", c_char * _MESSAGE_SIZE)]


class AskOptions(Struct):
    _fields_ = [("struct_size", c_size_t), ("cancel", c_void_p), ("timeout_ms", c_int64),
                ("max_answer_bytes", c_size_t)]


def _candidates() -> list[str]:
    """PERFMODEL_LIBRARY; inside the wheel; PREFIX/lib of an installed package; what the system finds."""
    given = os.environ.get("PERFMODEL_LIBRARY")
    if given:
        return [given]
    here = os.path.dirname(os.path.abspath(__file__))
    names = [os.path.join(here, "native", "lib", NAME)]
    folder = here  # PREFIX/lib/python3/dist-packages/perfmodel, a build tree, ...
    for _ in range(4):
        folder = os.path.dirname(folder)
        names.append(os.path.join(folder, NAME))
        multiarch = getattr(sys.implementation, "_multiarch", "")
        if multiarch:
            names.append(os.path.join(folder, multiarch, NAME))
    return [name for name in names if os.path.exists(name)] + [NAME]


# Result and parameter types; every function that returns a status takes the message last.
_INT, _OUT = c_int, POINTER(c_void_p)
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "c_api_version": (_INT, []),
    "predictor_load": (_INT, [c_int, POINTER(Config), _OUT, c_char_p]),
    "predictor_free": (None, [c_void_p]),
    "gpu_count": (c_size_t, [c_void_p]),
    "gpu_name": (c_char_p, [c_void_p, c_size_t]),
    "graph_open": (_INT, [c_char_p, c_void_p, _OUT, POINTER(Place), c_char_p]),
    "graph_prepare": (_INT, [c_void_p, c_void_p, _OUT, c_char_p]),
    "graph_free": (None, [c_void_p]),
    "graph_batch": (_INT, [c_void_p, POINTER(c_int64), c_char_p]),
    "graph_node_count": (c_size_t, [c_void_p]),
    "cancel_create": (_INT, [_OUT, c_char_p]),
    "cancel_request": (None, [c_void_p]),
    "cancel_free": (None, [c_void_p]),
    "match_step": (_INT, [c_void_p, c_void_p, c_char_p, POINTER(Options), c_double, POINTER(c_double),
                          POINTER(c_double), c_char_p]),
    "predict": (_INT, [c_void_p, c_void_p, c_char_p, POINTER(Options), POINTER(Totals), c_char_p]),
    "predict_many": (_INT, [c_void_p, POINTER(Question), c_size_t, c_size_t, c_void_p, POINTER(Totals),
                            POINTER(c_int32), c_void_p, c_char_p]),
    "ask": (_INT, [c_char_p, c_size_t, POINTER(AskOptions), _OUT, POINTER(Place), c_char_p]),
    "answer_text": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "answer_message_count": (c_size_t, [c_void_p]),
    "answer_message": (c_char_p, [c_void_p, c_size_t]),
    "answer_free": (None, [c_void_p]),
}


class Library:
    """The functions of perfmodel.h without their prefix. Threads run on while one is called."""

    def __init__(self, path: str) -> None:
        self.path = path
        loaded = ctypes.CDLL(path)
        loaded.perfmodel_c_api_version.restype = c_int
        found = loaded.perfmodel_c_api_version()
        if found < VERSION:
            raise VersionError(f"{path}: expected version {VERSION} of the C interface or a later one, found "
                               f"{found}")
        for name, (result, parameters) in _FUNCTIONS.items():
            function = getattr(loaded, "perfmodel_" + name)
            function.restype, function.argtypes = result, parameters
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # for type checkers: set in __init__
        raise AttributeError(name)


_loaded: Library | None = None


def library() -> Library:
    """The library, loaded with the first call."""
    global _loaded
    if _loaded is None:
        problems = []
        for path in _candidates():
            try:
                _loaded = Library(path)
                break
            except OSError as error:
                problems.append(str(error))
        else:
            raise ImportError(f"expected {NAME}, found none: install the package perfmodel, or name the "
                              f"library in PERFMODEL_LIBRARY ({'; '.join(problems)})")
    return _loaded


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def error_of(status: int, text: bytes, place: Place | None = None) -> PerfmodelError:
    """The exception of a status, with its place if that is known."""
    kind = BY_STATUS.get(status, InternalError)
    if place is None:
        return kind(_text(text))
    return kind(_text(text), message=_text(place.message) or _text(text), file=_text(place.file) or None,
                line=place.line or None, column=place.column or None, pointer=_text(place.pointer) or None)


def check(function: Callable[..., int], *arguments: Any, place: Place | None = None) -> None:
    """Calls a function that returns a status; raises what it says."""
    message = ctypes.create_string_buffer(_MESSAGE_SIZE)
    extra = () if place is None else (byref(place),)
    status = function(*arguments, *extra, message)
    if status != 0:
        raise error_of(status, message.value, place)


class Handle:
    """Owns something of the library's."""

    __slots__ = ("value", "_free", "__weakref__")

    def __init__(self, free: Callable[[Any], None]) -> None:
        self.value = c_void_p()
        self._free = free

    def __del__(self) -> None:
        if self.value:
            self._free(self.value)
