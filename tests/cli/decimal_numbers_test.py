#!/usr/bin/env python3
"""Numbers are decimal in every option of every command: "08" is 8, and "0x8" and "0b1" are refused.

    decimal_numbers_test.py PROGRAM...

An option takes a number if it accepts "8" and refuses a word. Options are read before `--help` is answered, so no command
runs. C's octal numbers would refuse "08". An option of several commands with the same help is tested once, on the first.
"""
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def run(words):
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def commands(program, path=()):
    """Each command with its help."""
    text = run([program, *path, "--help"]).stdout
    yield path, text
    below = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.M)
    for name in re.findall(r"^  ([a-z][\w-]*)", below[1], re.M) if below else ():
        yield from commands(program, (*path, name))


def complaints(program, path, option):
    accepts = lambda value: run([program, *path, f"{option}={value}", "--help"]).returncode == 0
    if not accepts("8") or accepts("x8"):
        return None
    wanted = {"08": True, "0x8": False, "0b1": False}
    return [f"{' '.join(path)} {option} {value}: expected it {'taken' if good else 'refused'}"
            for value, good in wanted.items() if accepts(value) != good]


def main():
    numbers, bad = 0, []
    with ThreadPoolExecutor() as pool:
        for program in sys.argv[1:]:
            options = {}  # by their line of help
            for path, text in commands(program):
                for line in re.findall(r"^  (?:-\w,)?(--[\w-]+ (?!Excludes:|Needs:)[^ -].*)", text, re.M):
                    options.setdefault(line, (program, path, line.split()[0]))
            for found in pool.map(lambda asked: complaints(*asked), options.values()):
                numbers += found is not None
                bad += found or []
    print("\n".join(bad))
    print(f"{numbers} options take numbers")
    return bool(bad) or numbers < 50


if __name__ == "__main__":
    sys.exit(main())
