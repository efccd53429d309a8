#!/usr/bin/env python3
"""Every public file is read by a test, or a list says why not.

    python3 tests/public_data/public_data_test.py PROGRAMS            checks the list (ctest: public_data)
    python3 tests/public_data/public_data_test.py PROGRAMS --who WORD what tests with WORD in their name read

The list is `files.tsv` next to this file: a file below PERFMODEL_PUBLIC_DATA, a test program and its tests (a
filter of GoogleTest), or a file or folder/, `unread` and the reason. Readme, licence and index files are no data.

A name in a source proves nothing: names are put together in loops, come from other files, or stand in
comments. So the tests of the list run here, on a copy of the data of their own, and the kernel reports which
files are read (inotify). The check fails for a file that the list lacks, a row whose test passes
without reading its file or does not pass, a row whose file is gone, and an `unread` file that is read.
"""

import argparse
import collections
import ctypes
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

IN_ACCESS, IN_ONESHOT = 0x1, 0x80000000
NO_DATA = ("README", "LICENSE", "index.json")
SKIPPED = 77  # SKIP_RETURN_CODE in tests/CMakeLists.txt


def data_files(folder):
    files = (file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file())
    return [str(file) for file in files if not file.name.startswith(NO_DATA)]


class Watch:
    """Reports which files of a folder are read from now on."""

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        self.queue = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.queue < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self.names = {}
        for name in data_files(folder):
            path = os.fsencode(folder / name)
            watch = libc.inotify_add_watch(self.queue, path, ctypes.c_uint32(IN_ACCESS | IN_ONESHOT))
            if watch < 0:
                raise OSError(ctypes.get_errno(), f"inotify_add_watch of {name}")
            self.names[watch] = name

    def close(self):
        """The files read since the start."""
        read = set()
        while True:
            try:
                events = os.read(self.queue, 1 << 16)
            except BlockingIOError:
                break
            while events:
                watch, mask, _, length = struct.unpack_from("iIII", events)
                if mask & IN_ACCESS:
                    read.add(self.names[watch])
                events = events[16 + length:]
        os.close(self.queue)
        return read


def files_read(command, folder):
    """Exit status, output and the files that a command read."""
    watch = Watch(folder)
    run = subprocess.run(command, env={**os.environ, "PERFMODEL_PUBLIC_DATA": str(folder)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return run.returncode, run.stdout, watch.close()


def covers(name, file):
    return file.startswith(name) if name.endswith("/") else file == name


def read_list(path):
    """Rows (file, program, tests) and the reasons of unread files and folders."""
    rows, unread = [], {}
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, program, what = line.split("\t")
        if program == "unread":
            unread[name] = what
        else:
            rows.append((name, program, what))
    return rows, unread


def check(programs, public, folder, listed):
    rows, unread = read_list(listed)
    files = data_files(public)
    problems = []
    for name in [row[0] for row in rows] + list(unread):
        if not any(covers(name, file) for file in files):
            problems.append(f"{name}: the list names it, and it is not there")
    for name, reason in unread.items():
        if len(reason.split()) < 3:
            problems.append(f"{name}: expected a reason for not reading it, found '{reason}'")
    named = {row[0] for row in rows}
    for file in files:
        if file not in named and not any(covers(name, file) for name in unread):
            problems.append(f"{file}: no test reads it, and the list does not say why")
    wanted = collections.defaultdict(list)
    for name, program, tests in rows:
        wanted[program, tests].append(name)
    for (program, tests), names in wanted.items():
        command = [programs / program, f"--gtest_filter={tests}"]
        status, output, read = files_read(command, folder)
        if status != 0 or "[  PASSED  ]" not in output or "[  PASSED  ] 0 tests" in output:
            problems.append(f"{program} {tests}: expected tests that pass\n{output}")
            continue
        problems += [f"{name}: {program} {tests} does not read it" for name in names if name not in read]
        problems += [f"{file}: the list calls it unread, and {program} {tests} reads it"
                     for file in sorted(read) if any(covers(name, file) for name in unread)]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{len(files)} files: {len(named)} read by tests, {len(files) - len(named)} not read for a reason")
    return 1 if problems else 0


def who(programs, folder, word):
    for program in sorted(programs.glob("*_test")):
        listing = subprocess.run([program, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True,
                                 check=False).stdout
        suite = ""
        for line in listing.splitlines():
            if line.endswith("."):
                suite = line
            elif line.startswith("  ") and word in suite + line.strip():
                test = suite + line.split("#")[0].strip()
                read = files_read([program, f"--gtest_filter={test}"], folder)[2]
                for file in sorted(read):
                    print(f"{file}\t{program.name}\t{test}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=Path, help="folder of the test programs")
    parser.add_argument("--who", metavar="WORD", help="print what tests with this in their name read")
    arguments = parser.parse_args()
    public = os.environ.get("PERFMODEL_PUBLIC_DATA")
    if not public or not Path(public).is_dir():
        print("PERFMODEL_PUBLIC_DATA is not set")
        return SKIPPED
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "public"
        shutil.copytree(public, folder)
        if arguments.who is not None:
            who(arguments.programs, folder, arguments.who)
            return 0
        return check(arguments.programs, Path(public), folder, Path(__file__).with_name("files.tsv"))


if __name__ == "__main__":
    sys.exit(main())
