#!/usr/bin/env python3
"""Every limit of an input, tried at the limit and 1 % beyond it: one line that names it, little memory, little time.

    bounds_test.py PERFPREDICT DATA

Limits are lowered by their flags where the default would need gigabytes; what is tested is that they hold. It prints
the rows of docs/formats.md: input, limit, CPU seconds and peak memory of the refusal.
"""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM, DATA = sys.argv[1], pathlib.Path(sys.argv[2])
MIB = 1 << 20
MOST_SECONDS, MOST_MIB = 10, 600


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
    """The same document, with blanks behind it."""
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


def main():
    bad, rows = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for kind, limit, within, beyond, text in cases(folder):
            code, errors, _, _ = run(*within)
            if code != 0:
                bad.append(f"{kind}: refused at its limit: {errors.strip()}")
            code, errors, seconds, memory = run(*beyond)
            if code != 1 or errors.count("\n") != 1 or text not in errors:
                bad.append(f"{kind}: exit {code}, found {errors.strip()!r}")
            rows.append((kind, limit, seconds, memory))
        # Without end: a device of zeros in the place of every document and table.
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
            rows.append((f"/dev/zero: {words[0]} {'--salvage' if '--salvage' in words else words[-2] if str(words[-2]).startswith('--') else ''}".strip(),
                         "none", seconds, memory))
    for kind, limit, seconds, memory in rows:
        print(f"| {kind} | {limit} | {seconds:.2f} | {memory:.0f} |")
        if "PERFMODEL_SANITIZED" not in os.environ and (seconds > MOST_SECONDS or memory > MOST_MIB):
            bad.append(f"{kind}: {seconds:.1f} s, {memory:.0f} MiB")
    print("\n".join(bad))
    sys.exit(bool(bad))


main()
