#!/usr/bin/env python3
"""Published files tell neither who recorded them nor where.

    anonymize_test.py PERFPREDICT SAMPLE      a Kineto trace

Names of a user, a host, a mail and addresses are put into ops, labels and the name of the file; tables, timelines,
pages, exported traces and what commands print must not hold them, unless asked to.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAM, SAMPLE = sys.argv[1], pathlib.Path(sys.argv[2])
PRIVATE = ["wilhelmina", "gpubox17", "frieda@uni.example.org", "10.20.30.40", "02:42:ac:11:00:02", "login3.cluster.local"]
LABELS = ["/home/wilhelmina/train.py(12): forward", "wilhelmina_step", "sync 10.20.30.40 02:42:ac:11:00:02",
          "mail frieda@uni.example.org", "ssh login3.cluster.local", "hostname=gpubox17"]


def run(*words, expect=0):
    done = subprocess.run([PROGRAM, *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != expect:
        sys.exit(f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def recording(folder):
    """The sample with labels and ops that tell, under the name that a profiler gives."""
    text = SAMPLE.read_text()
    document = json.loads(text)
    events = document["traceEvents"] if isinstance(document, dict) else document
    learned = folder / "sample.json"
    run("overheads", SAMPLE, "-o", learned)
    names = dict(zip(sorted(json.loads(learned.read_text())["ops"]), LABELS))  # top-level ops, which tables have
    assert len(names) == len(LABELS), names
    for event in events:
        event["name"] = names.get(event.get("name"), event.get("name"))
    file = folder / "gpubox17_4711.1700000000.pt.trace.json"
    file.write_text(json.dumps(document))
    return file


def snapshot(folder):
    """Blocks of the CUDA allocator: the calls that allocated them, with their source files."""
    block = {"size": 1024, "state": "active_allocated", "address": 1000,
             "frames": [{"name": "run /home/wilhelmina/net.py", "filename": "net.py", "line": 7}]}
    file = folder / "wilhelmina_snapshot.json"
    file.write_text(json.dumps({"segments": [{"device": 0, "address": 1000, "total_size": 2097152, "blocks": [
        block, {"size": 2096128, "state": "inactive", "address": 2024, "frames": []}]}], "device_traces": []}))
    return file


def printed(trace, folder):
    """Output and exports of commands on it, with pseudonyms; each must hold some."""
    other = folder / "gpubox17_4712.1700000001.pt.trace.json"
    other.write_bytes(trace.read_bytes())
    yield "trace", run("trace", trace, "--full", "--anonymize")
    yield "trace --json", run("trace", trace, "--json", "--anonymize")
    yield "trace --compare", run("trace", trace, "--compare", other, "--json", "--anonymize")
    yield "analyze", run("analyze", trace, "--json", "--anonymize")
    yield "analyze of a prediction", run("analyze", trace, "--gpu", "t4", "--json", "--anonymize")
    yield "replay", run("replay", trace, "--json", "--anonymize")
    yield "predict", run("predict", trace, "--gpu", "t4", "--full", "--anonymize")
    yield "a snapshot", run("trace", snapshot(folder), "--json", "--anonymize")
    run("trace", trace, "--csv", folder / "tables", "--anonymize")
    yield "trace --csv", "".join(file.read_text() for file in (folder / "tables").iterdir())
    run("predict", trace, "--gpu", "t4", "--chakra", folder / "step", "--anonymize")
    yield "predict --chakra", (folder / "step.0.et").read_bytes().decode("latin-1")
    page = [folder / name for name in ("page.html", "page.speedscope.json", "page.csv", "page.svg", "page.trace.json")]
    run("report", trace, "-o", page[0], "--speedscope", page[1], "--csv", page[2], "--picture", page[3], "--timeline",
        page[4], "--anonymize")
    for file in page:
        yield f"report: {file.name}", file.read_text()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        trace = recording(folder)
        files = {kind: folder / f"{kind}.json" for kind in ("kept", "table", "replay", "timeline")}
        page = folder / "page.html"
        run("overheads", trace, "-o", files["kept"], "--keep-names")
        shown = run("overheads", trace, "-o", files["table"])
        assert "pseudonyms in the table" in shown, shown
        run("replay", trace, "--timeline", files["replay"], "--anonymize")
        run("predict", trace, "--gpu", "t4", "--timeline", files["timeline"], "--anonymize")
        run("report", trace, "-o", page, "--anonymize")
        kept = files["kept"].read_text()
        missing = [word for word in PRIVATE if word not in kept]
        assert missing == [], f"not recorded, so nothing is shown by their absence: {missing}"
        for file in [files["table"], files["replay"], files["timeline"], page]:
            text = file.read_text()
            found = [word for word in PRIVATE if word in text]
            assert found == [], f"{file.name} holds {found}"
        for way, text in printed(trace, folder):
            found = [word for word in PRIVATE if word in text]
            assert found == [], f"{way} holds {found}: {text[text.index(found[0]) - 60:][:120]!r}"
            # CSV and SVG hold kernels, whose names tell nothing.
            assert "user-1" in text or "host-1" in text or way.endswith((".csv", ".svg")), f"{way} holds no pseudonym"
        table = json.loads(files["table"].read_text())
        assert table["sources"] == ["host-1_4711.1700000000.pt.trace.json"], table["sources"]
        names = " ".join(table["ops"])
        for pseudonym in ("/home/user-1/train.py(12): forward", "user-1_step", "hostname=host-1"):
            assert pseudonym in names, (pseudonym, names)
        # Nothing else changed: every figure is there, and the table is read.
        assert len(table["ops"]) == len(json.loads(kept)["ops"])
        harmless = json.loads(kept)["ops"].keys() & table["ops"].keys()
        assert len(harmless) >= len(table["ops"]) - len(LABELS), harmless
        run("predict", trace, "--gpu", "t4", "--overheads", files["table"])
    print("no name is left")


main()
