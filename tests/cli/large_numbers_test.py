#!/usr/bin/env python3
"""Every flag of every builder and of `rewrite`, given 100,000 and 2^40: an answer or one line, soon and in little memory.

    large_numbers_test.py PERFPREDICT [--only WORD]

The flags are read from the commands' help, so that a new one is tried, too; one that takes words refuses a number in a
line. Sizes multiply: the default limits of nodes and memory stop a graph that grows.
"""
import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile

SECONDS, MIB = 10, 512
NUMBERS = ["100000", str(1 << 40)]
BUILDERS = {"dlrm": ["--preset", "default"], "torchrec": ["--preset", "v100-8"]}
# Forms that hold a number (@), tried after the number alone.
REWRITES = {"--recompute": ["full:@", "selective:@", "dropout:@"], "--in-place": ["gelu:@", "layernorm:@"], "--checkpoint": ["@,masks"],
            "--data-parallel": ["@,cap=1", "8,cap=@", "8,first=@", "8,split=@"], "--tensor-parallel": ["@,sequence"],
            "--kernel-time": ["aten::mm=@"], "--scale-kernel": ["aten::mm=@"], "--subgraph": ["0:@"], "--batch": ["8=@"],
            "--sequence": ["128=@"]}


def run(words):
    """Exit status, lines on standard error, CPU seconds, peak MiB."""
    process = subprocess.Popen([options.program, *words], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (6 * SECONDS, 6 * SECONDS)))
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    lines = [line for line in errors.splitlines() if not line.startswith("warning: ")]
    return os.waitstatus_to_exitcode(status), lines, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def help_of(*words):
    return subprocess.run([options.program, *words, "--help"], capture_output=True, text=True, check=True).stdout


def valued_flags(text):
    return re.findall(r"^ +(?:-\w,)?(--[a-z0-9-]+)(?:,--[a-z0-9-]+)* [^ -]", text, flags=re.M)


def flags_of(builder, rewrites):
    """Its own: those before --output, and those after it that are no rewrites."""
    text = help_of("build", builder)
    own = valued_flags(text.split(" -o,--output")[0])
    return own + [flag for flag in valued_flags(text) if flag not in {"--output", *own, *rewrites}]


def cases(folder):
    rewrites = [flag for flag in valued_flags(help_of("rewrite")) if flag not in ("--output", "--limit")]
    for builder in re.findall(r"^  ([a-z0-9-]+)  ", help_of("build").split("Subcommands:")[1], flags=re.M):
        for flag in flags_of(builder, rewrites):
            yield from (["build", builder, *BUILDERS.get(builder, []), flag, number, "-o", "-"] for number in NUMBERS)
    graphs = {"gpt": ["gpt", "--layers", "2", "--batch", "2", "--sequence", "128"], "resnet": ["resnet", "--batch", "8"],
              "dlrm": ["dlrm", "--preset", "default"]}
    for name, words in graphs.items():
        graph = os.path.join(folder, name + ".json")
        assert run(["build", *words, "-o", graph])[0] == 0, name
        for flag in rewrites:
            for form in ["@", *REWRITES.get(flag, [])]:
                yield from (["rewrite", graph, flag, form.replace("@", number), "-o", "-"] for number in NUMBERS)


def problem(status, lines, seconds, mib):
    if status not in (0, 1, 2) or len(lines) > 1 or (status != 0) != bool(lines):
        return f"exit status {status}, {lines[:3]}"
    return "" if seconds <= SECONDS and mib <= MIB else "too long or too large"


def main():
    tried, bad, worst_seconds, worst_mib = 0, 0, (0, ""), (0, "")
    with tempfile.TemporaryDirectory() as folder:
        for words in cases(folder):
            said = " ".join(words)
            if options.only not in said:
                continue
            status, lines, seconds, mib = run(words)
            tried += 1
            worst_seconds, worst_mib = max(worst_seconds, (seconds, said)), max(worst_mib, (mib, said))
            if found := problem(status, lines, seconds, mib):
                bad += 1
                print(f"{said}: {found} ({seconds:.1f} s, {mib:.0f} MiB)", flush=True)
    print(f"longest: {worst_seconds[0]:.1f} s of the processor, {worst_seconds[1]}\nlargest: {worst_mib[0]:.0f} MiB, {worst_mib[1]}")
    print(f"{tried} commands: {bad} beyond {SECONDS} s or {MIB} MiB, or without an answer")
    return 1 if bad or tried < (1 if options.only else 500) else 0


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("--only", default="")
options = parser.parse_args()
sys.exit(main())
