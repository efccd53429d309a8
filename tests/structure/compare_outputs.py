#!/usr/bin/env python3
"""Runs two perfpredict programs on the same questions and compares what they print and write.

    python3 tests/structure/compare_outputs.py OLD NEW [--only TEXT] [--jobs N] [--show LINES] [--new-flag FLAG]

For changes that must not change an answer. The questions are every model that `build` knows, every
rewrite of some of them, predictions on GPUs of each architecture, and what traces, replays, plans,
sweeps and kernel tables print; with the public data (PERFMODEL_PUBLIC_DATA) also on recorded graphs.
Prints each question whose standard output, messages, exit status or written file differs, and exits
with 1 if there is one. Revisions of the programs are masked. Keys that the new program adds to a JSON
document are no difference; --new-flag is given to its `predict` where that prints text.
"""

import argparse
import difflib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = {
    "a3c": [[], ["--preset", "a3c-lstm"]],
    "bert": [["--batch", "4"], ["--phase", "forward"], ["--attention", "flash"]],
    "deepspeech2": [[]],
    "dlrm": [[], ["--preset", "mlperf"], ["--no-table-batched"], ["--batch", "4096"]],
    "faster-rcnn": [[], ["--preset", "fasterrcnn_resnet50_fpn"]],
    "gpt": [["--batch", "2"], ["--batch", "2", "--attention", "flash", "--implementation", "fused"]],
    "inception": [["--batch", "8"]],
    "llama": [["--batch", "1", "--layers", "4"]],
    "lstm": [[]],
    "mlp": [[], ["--optimizer", "adam"], ["--optimizer", "adagrad"]],
    "opt": [["--batch", "1"]],
    "resnet": [["--batch", "32"]],
    "seq2seq": [[]],
    "t5": [["--batch", "2"]],
    "torch-encoder": [[]],
    "torchrec": [[]],
    "transformer": [["--batch", "16"]],
    "vgg": [["--batch", "16"]],
    "wgan": [[]],
}
GPUS = ["v100-sxm2-32gb", "a100-sxm-40gb", "h100-sxm-80gb", "b200-sxm-180gb", "mi250", "mi300x", "t4", "l4",
        "p100-pcie-16gb", "m40"]
REWRITES = [
    ["--batch", "64"], ["--sequence", "256"], ["--precision", "bf16"], ["--precision", "fp16-scaled"],
    ["--precision", "tf32"], ["--optimizer", "adamw/fused"], ["--optimizer", "sgd/foreach"],
    ["--optimizer", "adagrad/loop"], ["--data-parallel", "8"], ["--data-parallel", "8,cap=5,views"],
    ["--checkpoint", "2"], ["--checkpoint", "1,masks"], ["--recompute", "selective"], ["--recompute", "dropout:2"],
    ["--recompute", "scoring"], ["--in-place", "gelu,layernorm"],
    ["--fuse-elementwise"], ["--fuse-tables", "sgd"], ["--index-skew", "1"],
    ["--retarget", "nvidia"], ["--scale-kernel", "aten::mm=0.5"], ["--remove", "aten::copy_"],
    ["--batch", "16", "--precision", "bf16", "--fuse-elementwise"],
]


def name_of(words):
    return re.sub(r"[^A-Za-z0-9_.=-]+", "_", " ".join(words))[:150]


def build_questions():
    return [["build", model, *flags, "-o", name_of([model, *flags]) + ".json"]
            for model, variants in MODELS.items() for flags in variants]


def questions(graphs, public):
    """Questions about graphs in the working folder."""
    for graph in graphs:
        for index, gpu in enumerate(GPUS):
            json_out = ["--json"] if index % 2 else []
            yield ["predict", graph, "--gpu", gpu, *json_out]
        yield ["predict", graph, "--gpu", "h100-sxm-80gb", "--models", "heuristic", "--json"]
        yield ["predict", graph, "--gpu", "a100-sxm-40gb", "--overheads", "measured", "--top", "40"]
        yield ["predict", graph, "--gpu", "h100-sxm-80gb", "--world", "16", "--strategy", "ddp", "--json"]
        yield ["predict", graph, "--gpu", "h100-sxm-80gb", "--world", "16", "--strategy", "fsdp", "--json"]
        yield ["predict", graph, "--gpu", "a100-sxm-40gb", "--world", "2", "--strategy", "ddp",
               "--timeline", "timeline.json"]
        for rewrite in REWRITES:
            yield ["rewrite", graph, *rewrite, "-o", "rewritten.json"]
        yield ["whatif", graph, "--gpus", "v100-sxm2-32gb,h100-sxm-80gb", "--batch", "32,128",
               "--precision", "bf16", "--json"]
    yield ["gpus"]
    for gpu in GPUS:
        yield ["gpus", gpu, "--json"]
    if not public:
        return
    traces = public / "traces"
    for trace in sorted(traces.glob("*kineto*.gz")):
        yield ["trace", str(trace)]
        yield ["trace", str(trace), "--json"]
        yield ["replay", str(trace), "--json"]
        yield ["replay", str(trace), "--scale-kernels", "0.5"]
        yield ["overheads", str(trace), "-o", "overheads.json"]
    ranks = [str(traces / f"dlrm_v100_rank{r}of8_kineto.json.gz") for r in range(4)]
    yield ["replay", *ranks, "--json"]
    yield ["predict", *(r.replace("kineto", "et") for r in ranks), "--gpu", "v100-sxm2-32gb", "--json"]
    for study in sorted((public / "sharding").rglob("*.json"))[:20]:
        yield ["shard", "rank", str(study), "--json"]


def mask(data):
    return re.sub(rb"\b(?=[0-9]*[a-f])[0-9a-f]{7,40}(-dirty|\+)?(?=[\"\s),])", b"REVISION", data)


def answer(program, words, home):
    """Output and files of one program, in a folder of its own."""
    with tempfile.TemporaryDirectory(dir=home.parent) as own:
        folder = Path(own)
        for graph in home.glob("*.json"):
            (folder / graph.name).symlink_to(graph)
        before = set(os.listdir(folder))
        try:
            done = subprocess.run([program, *words], cwd=folder, capture_output=True, timeout=300)
            out = [b"exit %d" % done.returncode, mask(done.stdout), mask(done.stderr)]
        except subprocess.TimeoutExpired:
            out = [b"timeout"]
        for new in sorted(set(os.listdir(folder)) - before):
            out.append(new.encode() + b"\n" + mask((folder / new).read_bytes()))
    return out


def without_added(old, new):
    """The new document without the keys that the old one does not have; minor versions may grow."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {k: old[k] if k == "minor_version" and k in old else without_added(old.get(k), v)
                for k, v in new.items() if k in old}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [without_added(a, b) for a, b in zip(old, new)]
    return new


def same(old, new):
    if old == new:
        return True
    if len(old) != len(new):
        return False
    for a, b in zip(old, new):
        if a == b:
            continue
        try:
            before, after = json.loads(a), json.loads(b)
        except ValueError:
            return False
        if before != without_added(before, after):
            return False
    return True


def shown(old, new, lines):
    a, b = ([line for part in side for line in part.decode(errors="replace").split("\n")] for side in (old, new))
    diff = [line[:160] for line in difflib.unified_diff(a, b, "old", "new", n=0, lineterm="")][2:]
    return "\n".join("    " + line for line in diff[:lines])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", default="", help="questions that hold this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--new-flag", help="for the new program's predict, where it prints text")
    parser.add_argument("--show", type=int, default=6, help="lines of each difference")
    options = parser.parse_args()
    public = os.environ.get("PERFMODEL_PUBLIC_DATA")
    public = Path(public) if public else None
    programs = [str(Path(p).resolve()) for p in (options.old, options.new)]
    with tempfile.TemporaryDirectory() as work:
        home = Path(work) / "graphs"
        home.mkdir()
        builds = build_questions()
        for words in builds:
            subprocess.run([programs[0], *words], cwd=home, capture_output=True)
        if public:
            for graph in (public / "traces").glob("*_et*.gz"):
                subprocess.run(f"gzip -dc '{graph}' > '{home / graph.name.removesuffix('.gz')}'", shell=True, check=True)
        graphs = sorted(p.name for p in home.glob("*.json"))
        asked = [w for w in itertools.chain(builds, questions(graphs, public)) if options.only in " ".join(w)]
        for words in asked:  # a built graph gets another name than the existing one
            if words[0] == "build":
                words[-1] = "built.json"
        with ThreadPoolExecutor(options.jobs) as pool:
            def both(words):
                extra = [options.new_flag] if options.new_flag and words[0] == "predict" and "--json" not in words else []
                return answer(programs[0], words, home), answer(programs[1], words + extra, home)

            pairs = pool.map(both, asked)
            differing, failed = 0, 0
            for words, (old, new) in zip(asked, pairs):
                failed += old[0] != b"exit 0"
                if not same(old, new):
                    differing += 1
                    print(f"differs: {' '.join(words)}\n{shown(old, new, options.show)}", flush=True)
    print(f"{len(asked)} questions ({failed} refused by the old program), {differing} answered differently")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
