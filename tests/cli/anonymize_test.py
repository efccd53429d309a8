#!/usr/bin/env python3
"""What is published says neither who recorded it nor where.

    anonymize_test.py PERFPREDICT SAMPLE      a Kineto trace

Names of a user, a host, a mail and addresses are put into ops, labels and the name of the file; tables, timelines and
pages must not hold them, unless asked to.
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
    names = dict(zip(sorted(json.loads(learned.read_text())["ops"]), LABELS))  # of top-level ops, which tables have
    assert len(names) == len(LABELS), names
    for event in events:
        event["name"] = names.get(event.get("name"), event.get("name"))
    file = folder / "gpubox17_4711.1700000000.pt.trace.json"
    file.write_text(json.dumps(document))
    return file


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
