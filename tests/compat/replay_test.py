#!/usr/bin/env python3
"""Asks today's program what a released version was asked, about files of that version.

    replay_test.py PERFPREDICT FOLDER [C_PROGRAM]

FOLDER holds, of that version (its README.md says where they are from):

    inputs/       what commands read; .json.gz of a kernel model is unpacked first
    asked.json    name -> words of a command, schema, version, minor version, and every key of the answer, as a pointer
                  in which "*" stands for any member
    refused.json  name -> words, and the line that today's program answers: what to do stands in it
    flags.txt     every command with its flags
    part.csv.gz   a part of a sweep that was not finished
    c.txt         checks of C_PROGRAM that fail today, because they are about the version itself

Each schema and version must be the same, minor versions no smaller, each key and flag still there. Figures may differ.
"""
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM, FOLDER = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
problems = []


def run(folder, words):
    return subprocess.run([PROGRAM, *words.split()], cwd=folder, capture_output=True, text=True)


def members(value, step):
    if step != "*":
        return [value[step]] if isinstance(value, dict) and step in value else []
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def has(value, pointer):
    """Whether anything stands there."""
    found = [value]
    for step in pointer.split("/")[1:]:
        found = [member for one in found for member in members(one, step)]
    return bool(found)


def check_answer(name, asked, document):
    for key in "schema", "version":
        if document[key] != asked[key]:
            problems.append(f"{name}: {key} {asked[key]} became {document[key]}")
    if document.get("minor_version", 0) < asked["minor_version"]:
        problems.append(f"{name}: minor version {asked['minor_version']} became {document.get('minor_version', 0)}")
    for pointer in asked["keys"]:
        if not has(document, pointer):
            problems.append(f"{name}: {pointer} is gone")
    return len(asked["keys"])


def check_answers(folder):
    keys = 0
    for name, asked in json.loads((FOLDER / "asked.json").read_text()).items():
        done = run(folder, asked["words"])
        if done.returncode != 0:
            problems.append(f"{name}: exit {done.returncode}: {done.stderr.strip()}")
        elif "file" in asked:  # what the command writes, not what it prints
            keys += check_answer(name, asked, json.loads((folder / asked["file"]).read_text()))
        else:
            keys += check_answer(name, asked, json.loads(done.stdout))
    return keys


def expect_refusal(name, done, line):
    if done.returncode != 1 or done.stderr.strip() != line:
        problems.append(f"{name}: expected exit 1 and \"{line}\", found {done.returncode}, \"{done.stderr.strip()}\"")


def check_refusals(folder):
    for name, asked in json.loads((FOLDER / "refused.json").read_text()).items():
        expect_refusal(name, run(folder, asked["words"]), asked["line"])
    # Rows of a sweep depend on the program's version: what another left is neither mixed in nor removed.
    parts = folder / "unfinished.csv.gz.parts"
    parts.mkdir()
    shutil.copy(FOLDER / "part.csv.gz", parts / "rank-0000.csv.gz")
    done = run(folder, "sweep sweep.json -o unfinished.csv.gz")
    whole = re.fullmatch(r"unfinished\.csv\.gz\.parts/rank-0000\.csv\.gz: expected rows made with these settings and data "
                         r"\(fingerprint [0-9a-f]{16}\), found rows of others \([0-9a-f]{16}\): remove them or write to "
                         r"another file", done.stderr.strip())
    if done.returncode != 1 or not whole or not (parts / "rank-0000.csv.gz").exists():
        problems.append(f"part of a sweep: exit {done.returncode}, {done.stderr.strip()}")


def check_flags(folder):
    page = re.sub(r"\\f[BIR]|\\&", "", run(folder, "man").stdout).replace("\\-", "-")
    today = set()
    for name, body in re.findall(r"^\.SS (.*)\n((?:(?!\.S[SH]).*\n)*)", page, flags=re.M):
        today.add(name)
        for head in re.findall(r"^\.TP\n(-.*)$", body, flags=re.M):
            today |= {f"{name} {flag}" for flag in re.findall(r"(?:^|, )(--?[a-zA-Z][\w-]*)", head)}
    flags = (FOLDER / "flags.txt").read_text().splitlines()
    problems.extend(f"{flag} is gone" for flag in flags if flag not in today)
    return len(flags)


def check_c(program):
    """The version's own test of the C interface, compiled with its header."""
    done = subprocess.run([program], capture_output=True, text=True)
    failed = re.findall(r"^\S+?\.c:\d+: (.*)$", done.stderr, flags=re.M)
    if failed != (FOLDER / "c.txt").read_text().splitlines():
        problems.append(f"C: exit {done.returncode}: {done.stderr.strip()}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in (FOLDER / "inputs").iterdir():
            if file.name.startswith("model"):
                (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
            else:
                shutil.copy(file, folder)
        keys = check_answers(folder)
        check_refusals(folder)
        flags = check_flags(folder)
    if len(sys.argv) > 3:
        check_c(sys.argv[3])
    if problems:
        sys.exit("\n".join([*problems, f"{len(problems)} differences from {FOLDER.name}"]))
    assert keys > 100 and flags > 100, (keys, flags)
    print(f"{keys} keys, {flags} commands and flags of {FOLDER.name} are as they were")


main()
