"""Files of other kinds than a recording as an object: bare arrays, snapshots of the allocator, other tools' files."""

import gzip
import json
import pickle
import sqlite3
import zipfile

from cases import Case, Recording, Refuses, Says

A100 = "a100-sxm-80gb"

# Commands that take a recording, with their other arguments.
COMMANDS = [
    ["trace", "{0}"],
    ["replay", "{0}"],
    ["overheads", "{0}"],
    ["predict", "{0}", "--gpu", A100],
    ["analyze", "{0}", "--gpu", A100],
    ["report", "{0}", "--gpu", A100, "-o", "/nonexistent/report.html"],
    ["memory", "{0}", "--gpu", A100],
    ["whatif", "{0}", "--gpus", A100],
    ["optimize", "{0}", "--gpu", A100],
    ["rewrite", "{0}", "--precision", "bf16", "-o", "/dev/null"],
]
# Commands that take graphs: `trace`, `replay` and `overheads` do not.
OF_GRAPHS = COMMANDS[3:]


def refused(*words, commands=COMMANDS):
    return [Refuses(argv, list(words)) for argv in commands]


# ---- k08, k11: bare arrays -------------------------------------------------------------------------


def as_object(wall_us, kernels):
    return [
        Says(["trace", "{0}"], {"/iterations/0/wall_us": wall_us, "/iterations/0/kernels": kernels}),
        Says(["replay", "{0}"], {"/iterations/1/measured_us": wall_us}),
        Says(["overheads", "{0}"], {}),
        *[Says(argv, {}) for argv in COMMANDS[3:5]],
        *[Says(argv, {}) for argv in COMMANDS[7:9]],
    ]


def bare(name, write):
    return Case("k08", name, as_object(1000, 4), write=write)


def metadata_first(folder):
    recording = Recording().steps(2)
    recording.events.insert(0, {"ph": "M", "name": "process_name", "pid": 1000, "args": {"name": "python"}})
    return recording.write(folder / "metadata.json.gz", array=True)


def text_file(name, text):
    return lambda folder: written(folder / name, text)


def written(path, data):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


SEGMENT = {"device": 0, "address": 4096, "total_size": 4194304, "allocated_size": 2097152, "active_size": 2097152,
           "stream": 0, "segment_type": "large", "blocks": [
               {"address": 4096, "size": 2097152, "state": "active_allocated"},
               {"address": 4096 + 2097152, "size": 2097152, "state": "inactive"}]}


def snapshot_checks(allocated, peak, said=()):
    return [Says(["trace", "{0}"], {"/memory/devices/0/peak_bytes": peak, "/memory/devices/0/device": "cuda:0",
                                    "/devices/0/allocated_bytes": allocated}, list(said)),
            *refused("snapshot of PyTorch's allocator", commands=[*COMMANDS[1:6], *COMMANDS[7:]])]


def frames_first(folder):
    """Keys in another order, and text that looks like an event's within a frame."""
    other = {"frames": [{"name": "\"ph\": {", "filename": "a.py", "line": 1}], **dict(reversed(SEGMENT.items()))}
    return written(folder / "frames.json.gz", gzip.compress(json.dumps([other, {**SEGMENT, "address": 1 << 30, "blocks": [
        {"size": 4194304, "state": "active_allocated"}]}]).encode()))


# ---- k21: actions of a newer PyTorch ---------------------------------------------------------------


def with_actions(*entries):
    def write(folder):
        trace = [{"action": "alloc", "addr": 4096, "size": 2097152, "time_us": 10}]
        for action, more in entries:
            trace.append({"action": action, "time_us": trace[-1]["time_us"] + 1, **more})
        return written(folder / "actions.json", json.dumps({"segments": [SEGMENT], "device_traces": [trace]}))

    return write


# ---- k22: files of other tools ---------------------------------------------------------------------


def varint(number):
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + varint(high) if high else bytes([low])


def field(number, content):
    """A field of protobuf: an integer, or bytes."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def packets(size=12):
    """A Perfetto trace whose packets have this many bytes of interned data."""
    packet = field(8, 1000) + field(10, 1) + field(12, b"x" * size)
    return field(1, field(36, b"0123456789abcdef")) + 100 * field(1, packet)


def database(name, *tables):
    def write(folder):
        with sqlite3.connect(folder / name) as connection:
            for table in tables:
                connection.execute(f"CREATE TABLE {table} (id INTEGER)")
        return folder / name

    return write


def saved_model(folder):
    with zipfile.ZipFile(folder / "model.pt", "w") as file:
        file.writestr("archive/data.pkl", b"x")
    return folder / "model.pt"


def plane(name, size):
    return field(1, field(1, 1) + field(2, name) + field(3, b"x" * size))


def foreign(name, write, *words):
    return Case("k22", name, refused(*words), write=write)


# ---- k20: durations that no clock has ---------------------------------------------------------------


def of_centuries(event, years):
    def write(folder):
        made, us = Recording().steps(1), years * 365 * 86400 * 1000000
        made.kernel(900, us) if event == "kernel" else made.step(2, 1000, us)
        return made.write(folder / "long.json")

    return write


# ---- k25: columns that do not divide ---------------------------------------------------------------


def one_piece(table=0, columns=100):
    """Table of a plan that is cut into pieces of all its columns: one."""
    flags = ["{0}", "--gpu", A100]
    whole = {f"/plans/0/placement/{table}/sharding_type": "column_wise", f"/plans/0/placement/{table}/columns": columns}
    return [Says(["shard", "rank", *flags], whole), Says(["shard", "study", *flags], {}),
            Says(["shard", "rank", *flags, "--costs", "torchrec"], {})]


def tables(name, dim, kinds, **more):
    document = {"tables": [{"name": "a", "num_embeddings": 10000, "embedding_dim": dim, "feature_names": ["f"],
                            "data_type": "FP32", "pooling": "SUM"}], "batch_size": 512, "world_size": 4,
                "local_world_size": 4, "constraints": {"a": {"sharding_types": kinds, "pooling_factors": [4.0], **more}}}
    return Case("k25", name, one_piece(columns=dim), write=text_file("tables.json", json.dumps(document)))


PERFETTO = ["Perfetto", "traceconv json"]
# The first packet has 123 bytes, the code of '{', after the tag, the code of a line break.
BRACKET = field(1, field(8, 1000) + field(10, 1) + field(12, b"x" * 116)) + packets()

CASES = [
    Case("k08", "handed_bare_array", as_object(1000, 4), handed=["k08_bare_array.json"]),
    bare("bare_array_of_steps", lambda folder: Recording().steps(2).write(folder / "bare.json", array=True)),
    bare("bare_array_of_gzip", metadata_first),
    Case("k11", "handed_array_of_something_else", refused("array", "\"level\""),
         handed=["k11_array_of_something_else.json"]),
    Case("k11", "array_of_numbers", refused("array", "a number"), write=text_file("numbers.json", "[1, 2, 3]")),
    Case("k11", "array_of_rows", refused("array", "\"step\", \"loss\""),
         write=text_file("rows.json", "\n [ {\"step\": 1, \"loss\": {\"ph\": 2, \"name\": \"a\", \"id\": 1}} ]")),
    Case("k11", "handed_bare_list_of_segments", snapshot_checks(8388608, 8388608),
         handed=["k11_bare_list_of_segments.json"]),
    Case("k11", "list_of_one_segment", snapshot_checks(2097152, 2097152),
         write=text_file("segment.json", json.dumps([SEGMENT], indent=1))),
    Case("k11", "segments_with_frames_first", snapshot_checks(6291456, 6291456), write=frames_first),
    Case("k20", "kernel_of_300_years", refused("dur", "days"), write=of_centuries("kernel", 300)),
    Case("k20", "step_of_1000_years", refused("dur", "days"), write=of_centuries("step", 1000)),
    Case("k20", "handed_duration_of_236_years", refused("dur", "days"), handed=["k20_duration_of_236_years.json"]),
    Case("k21", "handed_snapshot_with_new_action", snapshot_checks(8388608, 12582912, ["user_defined"]),
         handed=["k21_snapshot_with_new_action.json"]),
    Case("k21", "actions_without_bytes", snapshot_checks(2097152, 2097152, ["2", "pool_created"]),
         write=with_actions(("pool_created", {}), ("mark", {"addr": 0, "size": 0}))),
    Case("k21", "action_that_moves_bytes", [Refuses(["trace", "{0}"], ["/device_traces/0/1/action", "donate"])],
         write=with_actions(("donate", {"addr": 4096, "size": 512}))),
    Case("k22", "handed_perfetto_protobuf", refused(*PERFETTO), handed=["k22_perfetto_protobuf.pftrace"]),
    foreign("perfetto", text_file("trace.bin", packets()), *PERFETTO),
    foreign("perfetto_packet_of_123_bytes", text_file("bracket.json", BRACKET), *PERFETTO),
    foreign("perfetto_gzip", text_file("trace.pftrace.gz", gzip.compress(packets(300))), *PERFETTO),
    foreign("nsys_report", text_file("report.nsys-rep", b"\0\1\2"), "Nsight Systems", "torch.profiler"),
    foreign("nsys_sqlite", database("report.sqlite", "StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"), "Nsight Systems",
            "SQLite", "torch.profiler"),
    foreign("nsys_json", text_file("nsys.json", '{"Type":"String","id":"0","value":"a"}\n{"Type":48,"CudaEvent":{}}\n'),
            "Nsight Systems", "torch.profiler"),
    foreign("rocprofv3_database", database("results.db", "rocpd_kernel_dispatch_0", "rocpd_info_agent_0"), "rocprofv3",
            "rocpd convert"),
    foreign("rpd_database", database("trace.rpd", "rocpd_api", "rocpd_op"), "RPD", "rpd2tracing"),
    foreign("rocprofv3_json", text_file("results.json", '{"rocprofiler-sdk-tool": [{"agents": []}]}'), "rocprofv3",
            "torch.profiler"),
    foreign("rocprofv3_csv", text_file("kernels.csv", '"Kind","Agent_Id","Kernel_Name"\n"KERNEL",1,"a"\n'), "rocprofv3",
            "torch.profiler"),
    foreign("nsys_csv", text_file("stats.csv", "Time (%),Total Time (ns),Name\n1,2,a\n"), "Nsight Systems",
            "torch.profiler"),
    foreign("xplane", text_file("host.xplane.pb", plane(b"/device:GPU:0", 5000) + plane(b"/host:CPU", 90)), "XPlane",
            "trace.json.gz"),
    foreign("xplane_of_123_bytes", text_file("small.xplane.pb", plane(b"/host:CPU", 108)), "XPlane"),
    foreign("pickle", text_file("snapshot.pickle", pickle.dumps({"segments": []})), "pickle", "json.dump"),
    foreign("saved_model", saved_model, "torch.save"),
    foreign("web_page", text_file("page.json", "\n<!DOCTYPE html>\n<html></html>\n"), "HTML"),
    foreign("git_lfs", text_file("lfs.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
            "git lfs pull"),
    foreign("zstd", text_file("trace.json.zst", b"\x28\xb5\x2f\xfd\0\0\0"), "zstd -d"),
    Case("k25", "handed_columns_that_do_not_divide", one_piece(), handed=["k25_columns_that_do_not_divide.json"]),
    tables("odd_number_of_columns", 33, ["column_wise"]),
    tables("six_columns", 6, ["column_wise"], min_partition=4),
]
