#!/usr/bin/env python3
"""Real faults against every command that writes: full disks, folders and files that may not be written,
streams that are closed, signals at any moment. Prints a table of commands and faults.

    python3 tests/faults/faults_test.py PROGRAM SAMPLES [--rounds N] [--seed N] [--only WORD]

Afterwards a target is unchanged, or the whole new file, and there are no other files; the exit status
is 1 with one line on standard error, or the signal. SIGKILL alone may leave TARGET.PID.N.tmp.

Full disks are mounted (tmpfs) in a mount namespace of the test's own; without the right to do so that
column is left out, and a limit of the file size stands for it. Rights are dropped, so that root is refused
too. SAMPLES is the folder that tests/make_samples.py writes.
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OLD = b"what was there before\n"
TIMEOUT_S = 300


@dataclasses.dataclass
class Command:
    name: str
    words: list  # {out} is the target
    outputs: list  # below the folder of the target
    stays: tuple = ()  # patterns of files that may stay with the outputs, for the next run
    makes_folders: bool = False
    prints: bool = True  # on standard output
    stops_in_order: bool = False  # exit status 1 after a signal
    reads: str = ""  # the input that faults take away


class Failure(Exception):
    pass


def expect(true, what):
    if not true:
        raise Failure(what)


def without_warnings(stderr):
    lines = stderr.decode(errors="replace").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("warning: "))


class Case:
    """One command, a folder to write to, and how it ends."""

    def __init__(self, test, command, folder):
        self.test, self.command, self.folder = test, command, Path(folder)
        self.out = self.folder / command.words_out

    def words(self):
        return [str(self.test.program)] + [w.replace("{out}", str(self.out)) for w in self.command.words]

    def put_old(self):
        for name in self.command.outputs:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(OLD)

    def run(self, **options):
        options.setdefault("stdout", subprocess.PIPE)
        return subprocess.run(self.test.without_rights + self.words(), stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=TIMEOUT_S, cwd=self.test.scratch, **options)

    def contents(self):
        return {str(p.relative_to(self.folder)): p.read_bytes() for p in sorted(self.folder.rglob("*")) if p.is_file()}

    def wait_for_temporary_file(self, process):
        """The short while in which there is something to clean up."""
        while process.poll() is None:
            try:
                if any(self.folder.rglob("*.tmp")):
                    return
            except FileNotFoundError:
                pass  # a folder that the process has just removed

    def expect_refusal(self, done, part=""):
        text = without_warnings(done.stderr)
        expect(done.returncode == 1, f"expected exit status 1, found {done.returncode}: {text[:400]}")
        expect(text.count("\n") == 1 and text.endswith("\n"), f"expected one line on stderr, found {text[:600]!r}")
        expect(part in text, f"expected {part!r} in {text!r}")

    def expect_whole(self, may_stay=()):
        """Each output is old, absent or new; nothing else is there but what may stay."""
        for name, content in self.contents().items():
            if name in self.command.outputs:
                expect(content in (OLD, self.test.reference(self.command)[name]),
                       f"{name} is neither old nor new ({len(content)} bytes)")
            else:
                stays = any(fnmatch.fnmatch(name, pattern) for pattern in (*self.command.stays, *may_stay, "filler"))
                expect(stays, f"{name} was left behind")

    def expect_old(self):
        self.expect_whole()
        found = self.contents()
        for name in self.command.outputs:
            expect(found.get(name, OLD) == OLD, f"{name} was written")


class Faults:
    def __init__(self, program, samples, scratch, rounds, seed):
        self.program, self.samples, self.scratch = Path(program).resolve(), Path(samples).resolve(), Path(scratch)
        self.rounds, self.random = rounds, random.Random(seed)
        self.can_mount = bool(os.environ.get("FAULTS_CAN_MOUNT"))
        self.without_rights = []
        if os.geteuid() == 0:
            self.without_rights = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        self.references, self.seconds, self.folders = {}, {}, 0
        self.make_inputs()
        self.commands = self.make_commands()

    # Inputs and commands

    def ask(self, *words):
        subprocess.run([self.program, *map(str, words)], check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S)

    def make_inputs(self):
        inputs = self.inputs = self.scratch / "inputs"
        inputs.mkdir()
        self.graph, self.table = inputs / "graph.json", inputs / "table.json"
        self.trace = inputs / "trace.json"
        shutil.copy(self.samples / "kineto_plain_2023.json", self.trace)
        self.ask("build", "mlp", "--batch", 64, "-o", self.graph)
        self.ask("overheads", self.trace, "--graph", self.samples / "et_plain_2023.json", "-o", self.table)
        self.queries = inputs / "queries.csv"
        rows = "".join(f"{64 * i},{64 + i},128\n" for i in range(1, 2000))
        self.queries.write_text("# dtype fp32\nm,n,k\n" + rows)
        self.tables = inputs / "tables.csv"
        self.tables.write_text("table,rows,dim,pooling\n" + "".join(f"t{i},{1000 * i},64,{i}\n" for i in range(1, 9)))
        self.plan = inputs / "plan.json"
        self.shard_flags = ["--gpu", "a100-sxm-40gb", "--world", "4", "--batch-per-gpu", "512"]
        self.dense_flags = ["--bottom", "13-128-64", "--top", "128-1"]
        self.ask("shard", "rank", self.tables, *self.shard_flags, *self.dense_flags, "--choose", "none", "--time-budget", 1, "-o", self.plan)
        self.spec = inputs / "spec.json"
        self.spec.write_text(json.dumps({
            "schema": "perfmodel-sweep", "version": 1, "graphs": [{"build": "mlp"}],
            "rewrites": [{"batch": [8 * i for i in range(1, 41)]}], "gpus": ["a100-sxm-40gb", "t4"]}))
        self.measured = inputs / "measured.csv"
        rows = "".join(f"t4,{64 * i},{32 * j},128,fp32,{i * j * 0.3 + 5 + (i * j) % 7}\n" for i in range(1, 13) for j in range(1, 9))
        self.measured.write_text("device,m,n,k,dtype,time_us\n" + rows)

    def make_commands(self):
        gpu = ["--gpu", "a100-sxm-40gb"]
        predict = ["predict", str(self.graph), *gpu, "--overheads", str(self.table)]
        shard = ["--plan", str(self.plan), *self.shard_flags, *self.dense_flags]
        commands = [
            Command("predict --timeline", [*predict, "--timeline", "{out}"], ["out.json"], reads="graph"),
            Command("predict --chakra", [*predict, "--chakra", "{out}"], ["out.0.et"]),
            Command("replay --timeline", ["replay", str(self.trace), "--timeline", "{out}"], ["out.json.gz"], reads="trace"),
            Command("replay --chakra", ["replay", str(self.trace), "--chakra", "{out}"], ["out.0.et"]),
            Command("build", ["build", "dlrm", "--preset", "ddp", "--batch", "64", "-o", "{out}"], ["out.json"]),
            Command("build, gzip", ["build", "mlp", "--batch", "64", "-o", "{out}"], ["out.json.gz"]),
            Command("rewrite", ["rewrite", str(self.graph), "--batch", "32", "-o", "{out}"], ["out.json"], reads="graph"),
            Command("overheads", ["overheads", str(self.trace), "-o", "{out}"], ["out.json"], reads="trace"),
            Command("kernels", ["kernels", str(self.queries), *gpu, "--dtype", "fp32", "-o", "{out}"], ["out.csv"], reads="queries"),
            Command("kernels, gzip", ["kernels", str(self.queries), *gpu, "--dtype", "fp32", "-o", "{out}"], ["out.csv.gz"]),
            Command("whatif --plot", ["whatif", str(self.graph), *gpu, "--batch", "32,128", "--plot", "{out}"], ["out.svg"], reads="graph"),
            Command("whatif --csv", ["whatif", str(self.graph), *gpu, "--batch", "32,128", "--csv", "{out}"], ["out.csv"]),
            Command("shard eval --plot", ["shard", "eval", str(self.tables), *shard, "--plot", "{out}"], ["out.svg"], reads="tables"),
            Command("shard sweep --csv", ["shard", "sweep", str(self.tables), *shard, "--axis", "links", "--values", "1,2", "--csv", "{out}"], ["out.csv"]),
            Command("shard sweep --plot", ["shard", "sweep", str(self.tables), *shard, "--axis", "links", "--values", "1,2", "--plot", "{out}"], ["out.svg"]),
            Command("shard export", ["shard", "export", str(self.tables), *shard, "--format", "torchrec", "-o", "{out}"], ["out.json"], reads="plan", prints=False),
            Command("shard export, csv", ["shard", "export", str(self.tables), *shard, "--format", "csv", "-o", "{out}"], ["out.csv"], prints=False),
            Command("shard export, graphs", ["shard", "export", str(self.tables), *shard, "--format", "graphs", "-o", "{out}"],
                    [f"out/rank_{i}.json" for i in range(4)], makes_folders=True, prints=False),
            Command("sweep", ["sweep", str(self.spec), "-o", "{out}", "--threads", "1"], ["out.csv"], stays=("out.csv.parts/*",),
                    stops_in_order=True, reads="spec"),
        ]
        if (self.program.parent / "perfpredict-train").exists():
            train = ["train", str(self.measured), "--family", "gemm", "--no-validation"]
            commands += [
                Command("train", [*train, "-o", "{out}"], ["out.json"], stays=("out.json.*.partial",), reads="measured"),
                Command("train, folder", [*train, "-o", "{out}/"], ["out/gemm-float32.json"], stays=("out/*.partial",), makes_folders=True)]
        for command in commands:
            if command.makes_folders:
                command.words_out = "out"
            elif command.outputs[0].endswith(".0.et"):
                command.words_out = "out"
            else:
                command.words_out = command.outputs[0]
        return commands

    def new_folder(self):
        self.folders += 1
        folder = self.scratch / f"case{self.folders}"
        folder.mkdir()
        return folder

    def reference(self, command):
        """The command's output when nothing goes wrong, and how long that takes."""
        if command.name not in self.references:
            case = Case(self, command, self.new_folder())
            began = time.monotonic()
            done = case.run()
            self.seconds[command.name] = time.monotonic() - began
            expect(done.returncode == 0, f"without a fault: {done.stderr.decode()}")
            found = case.contents()
            expect(set(found) == set(command.outputs), f"without a fault: expected {command.outputs}, found {list(found)}")
            self.references[command.name] = found
        return self.references[command.name]

    # Faults

    def full_disk(self, command):
        if not self.can_mount:
            return "-"
        case = Case(self, command, self.new_folder())
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", case.folder], check=True)
        try:
            case.put_old()
            try:
                with open(case.folder / "filler", "wb", buffering=0) as filler:
                    while True:
                        filler.write(bytes(4096))
            except OSError:
                pass  # full
            case.expect_refusal(case.run(), "No space left on device")
            case.expect_old()
        finally:
            subprocess.run(["umount", case.folder], check=True)
        return "ok"

    def read_only(self, command):
        case = Case(self, command, self.new_folder())
        case.put_old()
        folders = [case.folder] + [p for p in case.folder.rglob("*") if p.is_dir()]
        for folder in folders:
            folder.chmod(0o555)
        case.expect_refusal(case.run(), "Permission denied")
        for folder in folders:
            folder.chmod(0o755)
        case.expect_old()
        return "ok"

    def unwritable_file(self, command):
        case = Case(self, command, self.new_folder())
        case.put_old()
        for name in command.outputs:
            (case.folder / name).chmod(0o444)
        case.expect_refusal(case.run(), "Permission denied")
        case.expect_old()
        return "ok"

    def target_is_folder(self, command):
        case = Case(self, command, self.new_folder())
        if command.name == "train":
            return "-"  # means: a file per family
        (case.folder / command.outputs[0]).mkdir(parents=True)
        case.expect_refusal(case.run(), "folder")
        case.expect_old()
        return "ok"

    def no_such_folder(self, command):
        if command.makes_folders or command.stops_in_order:
            return "-"  # are made
        case = Case(self, command, self.new_folder())
        case.out = case.folder / "none" / command.words_out
        case.expect_refusal(case.run(), "No such file or directory")
        expect(case.contents() == {}, "something was written")
        return "ok"

    def size_limit(self, command):
        case = Case(self, command, self.new_folder())
        case.put_old()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
        case.expect_refusal(case.run(preexec_fn=limit), "File too large")
        case.expect_old()
        return "ok"

    def input_unreadable(self, command):
        if not command.reads:
            return "-"
        source = getattr(self, command.reads)
        case = Case(self, command, self.new_folder())
        case.put_old()
        source.chmod(0)
        try:
            case.expect_refusal(case.run())
        finally:
            source.chmod(0o644)
        case.expect_old()
        return "ok"

    def closed_stdout(self, command):
        if not command.prints:
            return "-"
        case = Case(self, command, self.new_folder())
        case.expect_refusal(case.run(stdout=None, preexec_fn=lambda: os.close(1)), "standard output")
        case.expect_whole()
        return "ok"

    def full_stdout(self, command):
        if not command.prints:
            return "-"
        case = Case(self, command, self.new_folder())
        with open("/dev/full", "w") as full:
            case.expect_refusal(case.run(stdout=full), "standard output")
        case.expect_whole()
        return "ok"

    def closed_pipe(self, command):
        if not command.prints:
            return "-"
        case = Case(self, command, self.new_folder())
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            done = case.run(stdout=pipe)
        expect(done.returncode in (1, -signal.SIGPIPE), f"found exit status {done.returncode}: {done.stderr.decode()}")
        case.expect_whole()
        return "ok"

    def ended_by(self, number, command):
        self.reference(command)
        for at_random in range(self.rounds):
            case = Case(self, command, self.new_folder())
            case.put_old()
            process = subprocess.Popen(self.without_rights + case.words(), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self.scratch)
            if at_random:
                time.sleep(self.random.uniform(0, 1.05 * self.seconds[command.name]))
            else:
                case.wait_for_temporary_file(process)
            process.send_signal(number)
            text = without_warnings(process.communicate(timeout=TIMEOUT_S)[1])
            in_order = (0, 1) if command.stops_in_order else (0,)
            expect(process.returncode in (*in_order, -number), f"found exit status {process.returncode}: {text[:400]}")
            expect(text.count("\n") == (process.returncode == 1), f"found on stderr: {text[:400]!r}")
            killed = number == signal.SIGKILL
            case.expect_whole(("*.tmp", "*/*.tmp") if killed else ())
            if killed:
                # Its leftovers keep no later run from its work.
                again = case.run()
                expect(again.returncode == 0, f"the next run fails: {again.stderr.decode()}")
                found = case.contents()
                for name, content in self.reference(command).items():
                    expect(found[name] == content, f"the next run writes another {name}")
        return "ok"

    def all(self, only):
        faults = {
            "full disk": self.full_disk, "size limit": self.size_limit, "read-only folder": self.read_only,
            "read-only file": self.unwritable_file, "target is a folder": self.target_is_folder,
            "no such folder": self.no_such_folder, "input unreadable": self.input_unreadable,
            "stdout closed": self.closed_stdout, "stdout full": self.full_stdout, "pipe closed": self.closed_pipe,
            "SIGINT": lambda c: self.ended_by(signal.SIGINT, c), "SIGTERM": lambda c: self.ended_by(signal.SIGTERM, c),
            "SIGHUP": lambda c: self.ended_by(signal.SIGHUP, c) if not c.stops_in_order else "-",
            "SIGXCPU": lambda c: self.ended_by(signal.SIGXCPU, c) if c.name.startswith("build") else "-",
            "SIGKILL": lambda c: self.ended_by(signal.SIGKILL, c)}
        results, problems = {}, []
        for command in self.commands:
            for fault, cause in faults.items():
                if only and only not in command.name and only not in fault:
                    continue
                try:
                    result = cause(command)
                except (Failure, subprocess.SubprocessError, OSError) as problem:
                    result = "FAILED"
                    problems.append(f"{command.name}, {fault}: {problem}")
                results[command.name, fault] = result
        width = max(len(c.name) for c in self.commands)
        for number, fault in enumerate(faults):
            print(f"{'':{width}}  {'|  ' * number}{fault}")
        for command in self.commands:
            cells = "".join(f"{ {'ok': 'ok', 'FAILED': 'XX'}.get(results.get((command.name, fault)), '-'):3}" for fault in faults)
            print(f"{command.name:{width}}  {cells.rstrip()}")
        if not self.can_mount:
            print("full disk: left out, since this machine does not let the test mount one")
        return problems


def in_own_namespace():
    """Starts again where mounts are the test's own, if that may be done."""
    if "FAULTS_CAN_MOUNT" in os.environ:
        return
    flags = "-m" if os.geteuid() == 0 else "-rm"
    probe = "mount -t tmpfs -o size=64k tmpfs /mnt"
    may = subprocess.run(["unshare", flags, "sh", "-c", probe], capture_output=True).returncode == 0
    os.environ["FAULTS_CAN_MOUNT"] = "1" if may else ""
    if may:
        os.execvp("unshare", ["unshare", flags, sys.executable, *sys.argv])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("samples")
    parser.add_argument("--rounds", type=int, default=2, help="signals of each kind per command: one while a temporary file is there, the others at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    in_own_namespace()
    with tempfile.TemporaryDirectory(prefix="perfmodel_faults_") as scratch:
        test = Faults(arguments.program, arguments.samples, scratch, arguments.rounds, arguments.seed)
        problems = test.all(arguments.only)
    for problem in problems:
        print(problem)
    print("no fault left a trace" if not problems else f"{len(problems)} faults were not survived")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
