#!/usr/bin/env python3
"""Predicts a DLRM on two GPUs through the C interface, with ctypes alone.

predict_ctypes.py [LIBRARY]   (default: libperfmodel_c.so.1, wherever the system finds it)
"""

import ctypes
import sys
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

VERSION = 1  # PERFMODEL_C_API_VERSION of the header that the structs below were written after


class Struct(ctypes.Structure):
    """All begin with their size; zero is the default of every other field."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Config(Struct):
    _fields_ = [("struct_size", c_size_t), ("data_folder", c_char_p),
                ("gpus", ctypes.POINTER(c_char_p)), ("gpu_count", c_size_t),
                ("models", c_char_p), ("overheads", c_char_p), ("cached_prices", c_int64)]


class Model(Struct):
    _fields_ = [("struct_size", c_size_t), ("family", c_char_p), ("preset", c_char_p),
                ("batch", c_int64), ("sequence", c_int64), ("layers", c_int64),
                ("optimizer", c_char_p)]


class Options(Struct):
    _fields_ = [("struct_size", c_size_t), ("batch", c_int64), ("sequence", c_int64),
                ("world", c_int64), ("topology", c_char_p), ("strategy", c_char_p),
                ("interference", c_double), ("keep_ops", c_int), ("cancel", c_void_p)]


class Totals(Struct):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_double) for name in (
            "e2e_us", "gpu_active_us", "gpu_idle_us", "cpu_us", "wait_us", "kernel_sum_us",
            "compute_kernel_us", "comm_kernel_us", "exposed_comm_us", "t1_us", "t2_us", "t3_us",
            "t4_us", "t5_us", "tx_us", "modelled_time_fraction")
    ] + [("iterations", c_int64), ("warning_count", c_int64)]


class PerfmodelError(Exception):
    pass


def main():
    library = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libperfmodel_c.so.1")
    if library.perfmodel_c_api_version() < VERSION:
        sys.exit(f"expected version {VERSION} of the interface or a later one")
    for free in (library.perfmodel_predictor_free, library.perfmodel_graph_free):
        free.argtypes, free.restype = [c_void_p], None
    message = ctypes.create_string_buffer(1024)  # PERFMODEL_MESSAGE_SIZE

    def call(function, *arguments):
        if function(*arguments, message) != 0:
            raise PerfmodelError(message.value.decode())

    gpus = [b"a100-sxm-40gb", b"h100-sxm-80gb"]
    config = Config(gpus=(c_char_p * len(gpus))(*gpus), gpu_count=len(gpus))
    predictor, graph, prepared = c_void_p(), c_void_p(), c_void_p()
    try:
        call(library.perfmodel_predictor_load, VERSION, byref(config), byref(predictor))
        call(library.perfmodel_graph_build, byref(Model(family=b"dlrm", preset=b"mlperf")),
             byref(graph))
        call(library.perfmodel_graph_prepare, predictor, graph, byref(prepared))

        print(f"{'GPU':16}{'batch':>8}{'step ms':>10}{'GPU busy':>10}{'samples/s':>12}")
        totals = Totals()
        for gpu in gpus:
            for batch in (512, 2048, 8192):
                call(library.perfmodel_predict, predictor, prepared, gpu,
                     byref(Options(batch=batch)), byref(totals))
                print(f"{gpu.decode():16}{batch:8}{totals.e2e_us / 1e3:10.3f}"
                      f"{totals.gpu_active_us / totals.e2e_us:10.0%}"
                      f"{1e6 * batch / totals.e2e_us:12.0f}")
        try:
            call(library.perfmodel_predict, predictor, prepared, b"h100-sxm-81gb", None,
                 byref(totals))
        except PerfmodelError as error:
            print(f"no such GPU: {error}")
    finally:
        for free, handle in ((library.perfmodel_graph_free, prepared),
                             (library.perfmodel_graph_free, graph),
                             (library.perfmodel_predictor_free, predictor)):
            free(handle)


main()
