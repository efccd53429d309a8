#!/usr/bin/env python3
"""Asks every binary that ships for its hardening, by readelf.

    hardening_test.py FILE...     a line per file; exit 1 where something is missing

pie: loaded anywhere. relro, now: the linker's tables are read-only before main. stack: no executable stack. path: no
folder to load libraries from. Only for programs and the C library (modules are too small to need all of it) canary:
stack protectors are called; fortify: checked copies are called; cet: functions begin with a branch target (x86-64).
symbols: the C library exports its versioned functions alone.
"""
import pathlib
import re
import subprocess
import sys

BRANCH_TARGET = b"\xf3\x0f\x1e\xfa"  # endbr64
LEAST_TARGETS = 100  # a few come with the C runtime's own files


def readelf(option, file):
    return subprocess.run(["readelf", option, "-W", str(file)], check=True, text=True, stdout=subprocess.PIPE).stdout


def checks(file):
    header, segments, dynamic, symbols = (readelf(option, file) for option in ("-h", "-l", "-d", "--dyn-syms"))
    program = "INTERP" in segments
    stack = re.search(r"GNU_STACK.* (R?W?E?) +0x", segments)
    found = {
        "pie": "DYN (" in header and (not program or "Flags:" in dynamic and "PIE" in dynamic),
        "relro": "GNU_RELRO" in segments,
        "now": bool(re.search(r"FLAGS_1.*\bNOW\b|BIND_NOW", dynamic)),
        "stack": stack is not None and "E" not in stack[1],
        "path": not re.search(r"\((RPATH|RUNPATH)\)", dynamic),
    }
    if program or "perfmodel_c" in file.name:
        if "X86-64" in header:
            found["cet"] = file.read_bytes().count(BRANCH_TARGET) >= LEAST_TARGETS
        found["canary"] = "__stack_chk_fail" in symbols
        found["fortify"] = bool(re.search(r"__\w+_chk\b(?<!__stack_chk)", symbols.replace("__stack_chk_fail", "")))
    if "perfmodel_c" in file.name:
        defined = [line.split()[-1] for line in symbols.splitlines()
                   if re.search(r" (FUNC|OBJECT) +(GLOBAL|WEAK) +DEFAULT +\d+ ", line)]
        found["symbols"] = bool(defined) and all(re.fullmatch(r"perfmodel_\w+@@PERFMODEL_\d+", name) for name in defined
                                                 if not name.startswith("PERFMODEL_"))
    return found


def main():
    files = [pathlib.Path(name) for name in sys.argv[1:] if pathlib.Path(name).exists()]
    if not files:
        sys.exit("no file to look at")
    bad = False
    for file in files:
        found = checks(file)
        bad |= not all(found.values())
        print(f"{file.name:28}", " ".join(f"{name}{'' if good else ':MISSING'}" for name, good in found.items()))
    sys.exit(bad)


main()
