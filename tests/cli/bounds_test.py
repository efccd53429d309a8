#!/usr/bin/env python3
"""Every limit of an input, tried at the limit and 1 % beyond it: one line that names it, little memory, little time.

    bounds_test.py PERFPREDICT DATA [--library LIBPERFMODEL_C --package FOLDER] [--nightly] [--write docs/formats.md]

By the command line, and where the same limit holds there by `serve`, C and Python. Limits of files are lowered by their
flags where the default would need gigabytes; what is tested is that they hold. It prints a table: input, limit, what was
tried, CPU seconds and peak memory of the refusal; --write puts it into the documentation, between its marks. --nightly
adds what takes seconds: inputs of 64 MB and more, models at their limit.
"""
import argparse
import ctypes
import gzip
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

options = argparse.ArgumentParser()
options.add_argument("program")
options.add_argument("data", type=pathlib.Path)
options.add_argument("--library")
options.add_argument("--package")
options.add_argument("--nightly", action="store_true")
options.add_argument("--write", type=pathlib.Path)
options = options.parse_args()
PROGRAM, DATA = options.program, options.data
MIB, GIB = 1 << 20, 1 << 30
MOST_SECONDS, MOST_MIB = 10, 600
LAYERS, RANKS, BATCH = 1024, 1 << 20, 1 << 40  # limits that several interfaces have


def past(limit):
    """1 % more."""
    return limit + -(-limit // 100)


def run(*words):
    """Exit status, text on stderr, CPU seconds, peak MiB."""
    process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env=dict(os.environ, PERFMODEL_DATA=str(DATA)))
    try:
        errors = process.stderr.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        process.returncode = 0
    return os.waitstatus_to_exitcode(status), errors, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def padded(source, size, target):
    """The same document, with blanks after it."""
    text = source.read_bytes() if isinstance(source, pathlib.Path) else source.encode()
    target.write_bytes(text + b" " * (size - len(text)))
    return target


def event(i, extra=""):
    return f'{{"name":"k{i}","ph":"X","ts":{i},"dur":1,"pid":1,"tid":1{extra}}}'


def trace(events):
    return '{"traceEvents":[' + ",\n".join(events) + "]}"


def chain(depth):
    """An execution graph of nodes within nodes."""
    nodes = [{"id": i + 1, "name": f"n{i}", "ctrl_deps": i, "inputs": {"values": [], "shapes": [], "types": []},
              "outputs": {"values": [], "shapes": [], "types": []}, "attrs": []} for i in range(depth)]
    return json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes})


def cases(folder):
    """Name, limit, words within it, words 1 % beyond it, text of the refusal."""
    graph = folder / "graph.json"
    assert run("build", "mlp", "--widths", "64-64", "--batch", 64, "-o", graph)[0] == 0, "build"
    limit = 8 * MIB
    beyond = limit + limit // 100

    def document(name, source, *words):
        small, large = padded(source, limit, folder / f"{name}-at.json"), padded(source, beyond, folder / f"{name}-beyond.json")
        fill = lambda file: ["--json-limit", "8MiB", *[file if word == "@" else word for word in words]]
        return (f"JSON document: {name}", "--json-limit 8MiB", fill(small), fill(large), "json-limit")

    yield document("GPU", DATA / "gpus" / "t4.json", "gpus", "@")
    yield document("--gpu", DATA / "gpus" / "t4.json", "predict", graph, "--gpu", "@")
    yield document("--topology", next((DATA / "topologies").glob("*.json")), "predict", graph, "--gpu", "t4", "--topology", "@")
    yield document("--overheads", DATA / "overheads" / "reference.json", "predict", graph, "--gpu", "t4", "--overheads", "@")
    yield document("--models", next((DATA / "models").rglob("gemm-float32.json")), "predict", graph, "--gpu", "t4", "--models", "@")

    def file_of(name, text):
        path = folder / name
        (gzip.open(path, "wt", compresslevel=9) if name.endswith(".gz") else open(path, "w")).write(text)
        return path

    def reader(name, setting, at, past, text, suffix=".json"):
        key = name.replace(" ", "-")
        files = file_of(key + "-at" + suffix, at), file_of(key + "-beyond" + suffix, past)
        command = ["memory", "--gpu", "t4"] if "graph" in name else ["trace"]
        return (name, f"--limit {setting}", *[[command[0], file, *command[1:], "--limit", setting] for file in files], text)

    yield reader("trace events", "elements=10000", trace(map(event, range(10000))), trace(map(event, range(10100))), "limit elements")
    text = lambda n: trace([event(0, f',"args":{{"x":"{"y" * n}"}}'), event(1)])
    yield reader("trace string", "string-bytes=100000", text(99000), text(101000), "limit string-bytes")
    yield reader("trace event", "element-bytes=100000", text(99000), text(101000), "limit element-bytes")
    nest = lambda n: trace([event(0, ',"args":{"x":' + "[" * n + "]" * n + "}"), event(1)])
    yield reader("trace brackets", "nesting=100", nest(97), nest(99), "limit nesting")
    yield reader("graph nodes within nodes", "depth=100", chain(99), chain(102), "depth")


def sparse(path, size):
    """A file of so many bytes that takes no room on the disk."""
    with open(path, "wb") as file:
        file.truncate(size)
    return path


def index_file(path, count):
    """A NumPy file whose header promises so many indices."""
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({count},), }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    return path


def table(path, columns):
    """A table of one product with so many columns."""
    names = ["m", "n", "k", "dtype", *(f"c{i}" for i in range(columns - 4))]
    path.write_text(",".join(names) + "\n" + ",".join(["64", "64", "64", "float32", *["1"] * (columns - 4)]) + "\n")
    return path


def rows_of_sweep(path, batches):
    """A sweep of so many thousand thousands of rows."""
    path.write_text(json.dumps({
        "schema": "perfmodel-sweep", "version": 1, "graphs": [{"name": "m", "build": "mlp", "options": {}}],
        "rewrites": [{"batch": list(range(1, batches + 1))}, {"accumulate": list(range(1, 1001))}], "gpus": ["t4"],
        "strategies": [{"strategy": "ddp", "world": list(range(1, 1001))}]}))
    return path


LAYOUT = ["--heads", 16, "--vocabulary", 32000, "--world", 8, "--gpu", "h100-sxm-80gb"]


def numbered(graph, number):
    """The graph with such a sequence number at its first node of autograd."""
    document = json.loads(graph.read_text())
    next(attribute for node in document["nodes"] for attribute in node["attrs"]
         if attribute["name"] == "seq_id" and attribute["value"] >= 0)["value"] = number
    file = graph.with_name(f"numbered-{number}.json")
    file.write_text(json.dumps(document))
    return file


def sizes(folder):
    """Limits on numbers: input, limit, words within it (none: too costly), words beyond it, text."""
    graph = folder / "graph.json"
    out = folder / "out.json"
    layout = lambda layers, width, batch: ["layout", "--layers", layers, "--hidden", width, "--feed-forward", 1024,
                                           "--sequence", 128, "--global-batch", batch, *LAYOUT]
    yield ("layers of a built model", f"{LAYERS:,}", None,
           ["build", "gpt", "--preset", "gpt2", "--layers", past(LAYERS), "-o", out], "at most 1024")
    yield "layers of a layout", f"{LAYERS:,}", None, layout(past(LAYERS), 1024, 8), "at most 1024"
    yield "width of a layout's model", "2^24", None, layout(4, past(1 << 24) // 16 * 16, 8), "hidden: expected at most"
    yield "sequences of a layout's step", "2^32", None, layout(4, 1024, past(1 << 32)), "global_batch: expected at most"
    yield ("GPUs of a layout", "2^20", None, ["layout", "gpt2", "--global-batch", past(RANKS), "--world", past(RANKS),
                                             "--gpu", "h100-sxm-80gb"], "at most 1048576")
    yield ("elements of a built tensor", "below 2^60", ["build", "mlp", "--widths", "64-64", "--batch", 1 << 53, "-o", out],
           ["build", "mlp", "--widths", "64-64", "--batch", past(1 << 54), "-o", out], "2^60")
    yield ("batch of a graph", "2^40", ["rewrite", graph, "--batch", BATCH, "-o", out],
           ["rewrite", graph, "--batch", past(BATCH), "-o", out], "2^40")
    yield ("number of autograd in a graph", "2^40", ["rewrite", numbered(graph, 1 << 40), "--batch", 8, "-o", out],
           ["rewrite", numbered(graph, past(1 << 40)), "--batch", 8, "-o", out], "1099511627776")
    ranks = lambda command, world: [command, graph, "--gpu", "t4", "--world", world, "--strategy", "ddp"]
    yield ("ranks of a prediction", "2^20", ranks("predict", RANKS), ranks("predict", past(RANKS)), "1048576")
    yield ("ranks of --tensor-parallel", "2^20", None, ["rewrite", graph, "--tensor-parallel", past(RANKS), "-o", out],
           "1048576")
    yield ("passes of --accumulate", "65,536", None, ["rewrite", graph, "--accumulate", past(1 << 16), "-o", out], "65536")
    few = ["--node-limit", 20_000]
    yield ("nodes of a built graph", "--node-limit 20000", [*few, "build", "gpt", "--preset", "gpt2", "-o", out],
           [*few, "build", "t5", "--preset", "t5-small", "--experts", 100_000, "-o", out], "at most 20000 nodes")
    yield ("nodes of a rewritten graph", "--node-limit 20000", [*few, "rewrite", graph, "--accumulate", 2, "-o", out],
           [*few, "rewrite", graph, "--accumulate", 1 << 16, "-o", out], "at most 20000 nodes")
    little = ["--graph-memory", "16MiB"]
    yield ("memory of a built graph", "--graph-memory 16MiB", [*little, "build", "gpt", "--preset", "gpt2", "-o", out],
           [*little, "build", "gpt", "--preset", "gpt2-xl", "-o", out], "at most 16 MiB in memory")
    yield ("nodes of a graph that is read", "--node-limit 10", None, ["--node-limit", 10, "memory", graph], "at most 10 nodes")
    events = lambda count: folder / f"events{count}.json"
    for count in (80, 81):
        events(count).write_text(trace(map(event, range(count))))
    yield ("events of a trace that is read", "--node-limit 10", ["--node-limit", 10, "trace", events(80)],
           ["--node-limit", 10, "trace", events(81)], "at most 80 events")
    yield ("variants of whatif", "1,000,000", None,
           ["whatif", graph, "--gpus", "t4", "--batch", ",".join(map(str, range(1, 1011))),
            "--accumulate", ",".join(map(str, range(1, 1001)))], "1000000")
    yield ("workers of sync", "100,000", None,
           ["sync", "--workers", "w:101000:1:1", "--scheme", "bsp", "--target-updates", "1"], "100000")
    spec = lambda batches: ["sweep", rows_of_sweep(folder / f"sweep{batches}.json", batches), "--dry-run", "-o",
                            folder / "rows.csv"]
    yield "rows of a sweep", "10^9", spec(1000), spec(1010), "1000000000"
    study = folder / "tables.csv"
    study.write_text("table,rows,dim,pooling\nuser,1000,64,1\n")
    yield ("recorded indices", "below 2^31", None,
           ["shard", study, "--gpu", "t4", "--world", 2, "--batch-per-gpu", 64, "--indices",
            f"user={index_file(folder / 'indices.npy', past(1 << 31))}"], "fewer than 2147483648")
    yield ("columns of a CSV table", "4,096", ["kernels", table(folder / "at.csv", 4096), "--gpu", "t4"],
           ["kernels", table(folder / "past.csv", past(4096)), "--gpu", "t4"], "at most 4096 columns")
    yield ("bytes of a CSV table", "4 GiB", None,
           ["shard", sparse(folder / "sparse.csv", past(4 * GIB)), "--gpu", "t4", "--world", 2], "at most 4 GiB")
    whole = sparse(folder / "sparse.json", past(GIB))
    for name, words in (("--gpu", ["predict", graph, "--gpu", whole]), ("sweep", ["sweep", whole, "-o", folder / "x.csv"]),
                        ("--overheads", ["predict", graph, "--gpu", "t4", "--overheads", whole]),
                        ("sync", ["sync", whole])):
        yield f"JSON document: {name}", "1 GiB", None, words, "json-limit"


def large(folder):
    """The same of what takes seconds."""
    out = folder / "out.json"
    yield ("layers of a built model", f"{LAYERS:,}",
           ["--graph-memory", "1GiB", "build", "gpt", "--preset", "gpt2", "--batch", 1, "--sequence", 8, "--layers", LAYERS, "-o", out],
           ["build", "gpt", "--preset", "gpt2", "--layers", past(LAYERS), "-o", out], "at most 1024")
    shard = lambda file: ["shard", file, "--gpu", "t4", "--world", 2, "--batch-per-gpu", 64]

    def tables(count):
        file = folder / f"tables{count}.csv"
        file.write_text("table,rows,dim,pooling\n" + "".join(f"t{i},10,4,1\n" for i in range(count)))
        return file

    yield "embedding tables of a study", "1,000,000", None, shard(tables(1_010_000)), "at most 1000000 tables"

    def zeros(name, size, suffix):
        """`size` bytes that compress as much as can be."""
        with gzip.open(folder / name, "wb", compresslevel=9) as file:
            file.write(b"m,n,k,dtype\n" if suffix == "csv" else b"")
            for _ in range(size // MIB):
                file.write(b"#" * (MIB - 1) + b"\n")
        return folder / name

    yield ("inflation of a CSV table", "250 times", None,
           ["shard", zeros("zeros.csv.gz", 66 * MIB, "csv"), "--gpu", "t4", "--world", 2], "inflates to at most 250")
    yield ("a row of kernels", "64 MiB", None,
           ["kernels", padded("m,n,k,dtype\n64,64,64,float32", past(64 * MIB), folder / "row.csv"), "--gpu", "t4"],
           "a row of at most 64 MiB")
    lists = folder / "list.json"
    lists.write_text("[" + " " * past(64 * MIB) + "]")
    yield ("a list of embedding tables", "64 MiB", None, ["build", "dlrm", "--tables", lists, "--bottom", "64-16", "--top",
                                                         "16-1", "--batch", 8, "-o", out], "67108864")
    packed, ratio = chakra(folder / "trace.et.gz")
    yield ("Chakra: inflation", f"--limit inflation={int(ratio / 1.01)} (250)",
           ["replay", packed, "--limit", f"inflation={ratio + 1}"],
           ["replay", packed, "--limit", f"inflation={int(ratio / 1.01)}"], "inflation")


def varint(value):
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def chakra(path):
    """A Chakra trace with names of 66 MiB, which compress well; the file and how many times larger its text is."""
    field = lambda number, data: varint(number << 3 | 2) + varint(len(data)) + data
    message = lambda data: varint(len(data)) + data
    text = message(field(1, b"0.0.4"))
    for i in range(3):
        node = b"\x08" + varint(i + 1) + field(2, b"n" * (22 * MIB)) + b"\x18\x04\x38\x05"  # 5 us each
        text += message(node)
    path.write_bytes(gzip.compress(text, 9))
    return path, len(text) // path.stat().st_size


class Service:
    """`serve` on standard input: one question at a time."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([PROGRAM, "serve", "--gpus", "t4,h100-sxm-80gb", *map(str, flags)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def ask(self, question):
        """The answer, its CPU seconds, the server's peak MiB."""
        line = question if isinstance(question, bytes) else json.dumps(question).encode()
        before = self.seconds()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer, self.seconds() - before, self.peak_mib()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0


def questions(folder):
    """Over `serve`: input, limit, question beyond it, code and text of the refusal."""
    job = {"op": "layout", "gpu": "h100-sxm-80gb", "model": "gpt2", "global_batch": 64, "world": 8}
    predict = {"op": "predict", "graph": "g", "gpu": "t4"}
    yield "a line", "--max-request 1 MiB", b'{"op":"ping","id":"' + b"x" * past(MIB) + b'"}', "too_large", "1048576"
    yield "an id", "256 bytes", {"op": "ping", "id": "x" * past(256)}, "bad_request", "256"
    yield "a text", "4,096 bytes", {**predict, "gpu": "x" * past(4096)}, "bad_request", "4096"
    yield ("layers of a built model", f"{LAYERS:,}", {"op": "build", "name": "b", "family": "gpt", "layers": past(LAYERS)},
           "bad_request", "1024")
    yield "batch of a graph", "2^40", {**predict, "batch": past(BATCH)}, "bad_request", str(BATCH)
    yield ("ranks of a prediction", "2^20", {**predict, "world": past(RANKS), "strategy": "ddp"}, "bad_request",
           str(RANKS))
    yield "layers of a layout", f"{LAYERS:,}", {**job, "layers": past(LAYERS)}, "bad_request", "1024"
    yield "GPUs of a layout", "2^20", {**job, "world": past(RANKS)}, "bad_request", str(RANKS)
    yield ("layouts of an answer", "1,000", {**job, "op": "layout_rank", "top": past(1000)}, "bad_request", "1000")
    yield ("a file to load", "1 GiB", {"op": "load", "name": "l", "file": str(folder / "sparse.json")}, "impossible",
           "1024 MiB")
    yield ("brackets of a command", "128", b'{"op":"ask","command":"memory","options":{"gpu":' + b"[" * 130 + b"]" * 130 + b"}}",
           "impossible", "128")
    yield ("ranks of a command", "2^20", {"op": "ask", "command": "predict", "arguments": ["g"], "options":
                                         {"gpu": "t4", "world": past(RANKS), "strategy": "ddp"}}, "bad_request", "1048576")


def ask_in_c():
    """By the C library within this process (run in one of its own): prints rows as JSON."""
    library = ctypes.CDLL(options.library)
    message = ctypes.create_string_buffer(1024)
    answer = ctypes.c_void_p()

    class Limits(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_size_t), ("cancel", ctypes.c_void_p), ("timeout_ms", ctypes.c_int64),
                    ("max_answer_bytes", ctypes.c_size_t)]

    def ask(request, most=0):
        limits = Limits(ctypes.sizeof(Limits), None, 0, most)
        return library.perfmodel_ask(request, ctypes.c_size_t(len(request)), ctypes.byref(limits), ctypes.byref(answer),
                                     None, message)

    def row(kind, limit, call, text):
        before = resource.getrusage(resource.RUSAGE_SELF)
        status = call()
        after = resource.getrusage(resource.RUSAGE_SELF)
        found = message.value.decode()
        print(json.dumps([kind, limit, "C", after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                          after.ru_maxrss / 1024, status != 0 and text in found, found]))

    command = lambda name, words, **flags: json.dumps({"command": name, "arguments": words, "options": flags}).encode()
    layout = dict(gpu="h100-sxm-80gb", world=8, global_batch=64)
    out = "/dev/null/none.json"
    row("a request", "64 MiB", lambda: ask(b" " * past(64 * MIB)), "64 MiB")
    size = ask(command("gpus", [])) or library.perfmodel_answer_text
    library.perfmodel_answer_text.restype = ctypes.c_char_p
    library.perfmodel_answer_text.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    length = len(library.perfmodel_answer_text(answer, None))
    assert ask(command("gpus", []), length) == 0, "refused at its limit: max_answer_bytes"
    row("an answer", "max_answer_bytes", lambda: ask(command("gpus", []), length * 100 // 101), "bytes")
    row("layers of a built model", f"{LAYERS:,}",
        lambda: ask(command("build gpt", [], preset="gpt2", layers=past(LAYERS), output=out)), "at most 1024")
    row("layers of a layout", f"{LAYERS:,}", lambda: ask(command("layout", ["gpt2"], layers=past(LAYERS), **layout)), "1024")
    row("batch of a graph", "2^40", lambda: ask(command("rewrite", [os.environ["BOUNDS_GRAPH"]], batch=past(BATCH), output=out)), "2^40")
    row("ranks of a prediction", "2^20",
        lambda: ask(command("predict", [os.environ["BOUNDS_GRAPH"]], gpu="t4", world=past(RANKS), strategy="ddp")), "1048576")

    class Model(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_size_t), ("family", ctypes.c_char_p), ("preset", ctypes.c_char_p),
                    ("batch", ctypes.c_int64), ("sequence", ctypes.c_int64), ("layers", ctypes.c_int64),
                    ("optimizer", ctypes.c_char_p)]

    model = Model(ctypes.sizeof(Model), b"gpt", b"gpt2", 0, 0, past(LAYERS), None)
    row("layers of a built model (perfmodel_graph_build)", f"{LAYERS:,}",
        lambda: library.perfmodel_graph_build(ctypes.byref(model), ctypes.byref(answer), message), "at most 1024")


def ask_in_python():
    """By the Python package within this process: prints rows as JSON."""
    sys.path.insert(0, options.package)
    import perfmodel
    from perfmodel import graphs

    def row(kind, limit, call, text):
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            call()
            found = "no error"
        except perfmodel.PerfmodelError as error:
            found = str(error)
        after = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps([kind, limit, "Python", after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
                          after.ru_maxrss / 1024, text in found, found]))

    graph, predictor = os.environ["BOUNDS_GRAPH"], perfmodel.Predictor(gpus=["t4"])
    row("layers of a built model", f"{LAYERS:,}", lambda: graphs.build("gpt", preset="gpt2", layers=past(LAYERS)), "1024")
    row("layers of a layout", f"{LAYERS:,}", lambda: perfmodel.layout("gpt2", "h100-sxm-80gb", world=8, global_batch=64,
                                                                     layers=past(LAYERS)), "1024")
    row("batch of a graph", "2^40", lambda: predictor.predict(graph, "t4", batch=past(BATCH)), "2^40")
    row("ranks of a prediction", "2^20", lambda: predictor.predict(graph, "t4", world=past(RANKS), strategy="ddp"),
        "1048576")


def in_process(way, graph):
    """The rows of a process of its own that asks the library, so that only refusals use its memory."""
    done = subprocess.run([sys.executable, *sys.argv], text=True, capture_output=True,
                          env=dict(os.environ, PERFMODEL_DATA=str(DATA), PERFMODEL_LIBRARY=options.library,
                                   BOUNDS_WAY=way, BOUNDS_GRAPH=str(graph)))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def by_command_line(cases, bad):
    for kind, limit, within, beyond, text in cases:
        code, errors, _, _ = run(*within) if within else (0, "", 0, 0)
        if code != 0:
            bad.append(f"{kind}: refused at its limit: {errors.strip()}")
        code, errors, seconds, memory = run(*beyond)
        if code not in (1, 2) or errors.count("\n") != 1 or text not in errors:
            bad.append(f"{kind}: exit {code}, found {errors.strip()!r}")
        yield kind, limit, "command", seconds, memory


def by_serve(folder, bad):
    service = Service("--max-request", MIB)
    assert "result" in service.ask({"op": "build", "name": "g", "family": "dlrm"})[0]
    for kind, limit, question, code, text in questions(folder):
        answer, seconds, memory = service.ask(question)
        found = answer.get("error", {"code": "none", "message": str(answer)[:200]})
        if found["code"] != code or text not in found["message"] or "\n" in found["message"]:
            bad.append(f"serve, {kind}: found {found}")
        yield kind, limit, "serve", seconds, memory
    service.close()


def by_library(folder, bad):
    for way in ("C", "Python"):
        if way == "Python" and not options.package:
            continue
        for kind, limit, by, seconds, memory, good, found in in_process(way, folder / "graph.json"):
            if not good or "\n" in found.strip():
                bad.append(f"{by}, {kind}: found {found!r}")
            yield kind, limit, by, seconds, memory


def without_end(folder, bad):
    """A device of zeros in the place of every document and table."""
    graph = folder / "graph.json"
    for words in (["kernels", "--gpu", "t4", "/dev/zero"], ["trace", "/dev/zero"], ["memory", "/dev/zero"],
                  ["layout", "/dev/zero", "--gpu", "h100-sxm-80gb", "--world", 8, "--global-batch", 8],
                  ["predict", graph, "--gpu", "t4", "--models", "/dev/zero"],
                  ["predict", graph, "--gpu", "t4", "--overheads", "/dev/zero"],
                  ["trace", "/dev/zero", "--salvage", "--limit", "element-bytes=16MiB"],
                  ["sweep", "/dev/zero", "-o", folder / "out.csv"]):
        code, errors, seconds, memory = run(*words)
        if code != 1 or errors.count("\n") != 1:
            bad.append(f"{words}: exit {code}, found {errors.strip()!r}")
        flag = "--salvage" if "--salvage" in words else words[-2] if str(words[-2]).startswith("--") else ""
        yield f"`/dev/zero`: {words[0]} {flag}".strip(), "no end", "command", seconds, memory


def write_table(rows):
    """Between the marks of the documentation."""
    begin, end = "<!-- limits -->\n", "<!-- end of limits -->\n"
    text = options.write.read_text()
    at, behind = text.index(begin) + len(begin), text.index(end)
    lines = ["| input | limit | by | CPU s | MB |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {kind} | {limit} | {by} | {seconds:.2f} | {memory:.0f} |" for kind, limit, by, seconds, memory in rows]
    options.write.write_text(text[:at] + "\n".join(lines) + "\n" + text[behind:])


def main():
    way = os.environ.get("BOUNDS_WAY")
    if way:
        return {"C": ask_in_c, "Python": ask_in_python}[way]()
    bad, rows = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows += by_command_line(cases(folder), bad)
        rows += by_command_line(sizes(folder), bad)
        rows += by_serve(folder, bad)
        if options.library:
            rows += by_library(folder, bad)
        rows += without_end(folder, bad)
        if options.nightly:  # last: a process begins to count with the memory of who starts it, and these texts are large
            rows += by_command_line(large(folder), bad)
    for kind, limit, by, seconds, memory in rows:
        print(f"| {kind} | {limit} | {by} | {seconds:.2f} | {memory:.0f} |")
        if "PERFMODEL_SANITIZED" not in os.environ and (seconds > MOST_SECONDS or memory > MOST_MIB):
            bad.append(f"{kind}: {seconds:.1f} s, {memory:.0f} MiB")
    if options.write and not bad:
        write_table(rows)
    print("\n".join(bad))
    sys.exit(bool(bad))


main()
