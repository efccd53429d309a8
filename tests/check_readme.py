#!/usr/bin/env python3
"""Checks that the example output in README.md is what the program makes, or writes it anew.

    python3 tests/check_readme.py [--update] PROGRAM [README.md]

The block holds the first lines of the output, and ends in "  ...".
"""

import subprocess
import sys
from pathlib import Path

COMMAND = "predict dlrm:default --gpu a100-sxm-40gb"
REST = "  ..."


def output_of(program: Path, count: int) -> list:
    """The first lines of the output."""
    text = subprocess.run([program, *COMMAND.split()], check=True, capture_output=True).stdout.decode()
    return text.strip("\n").split("\n")[:count]


def main() -> int:
    arguments = [a for a in sys.argv[1:] if a != "--update"]
    if not 1 <= len(arguments) <= 2:
        sys.exit(__doc__)
    readme = Path(arguments[1]) if len(arguments) == 2 else Path(__file__).parent.parent / "README.md"
    lines = readme.read_text().split("\n")
    begin = lines.index(f"$ perfpredict {COMMAND}") + 1
    end = lines.index(REST, begin)
    program = Path(arguments[0]).resolve()
    shown, printed = lines[begin:end], output_of(program, end - begin)
    if len(shown) < 10:
        sys.exit("error: expected ten lines of output or more in README.md")
    if shown == printed:
        return 0
    if "--update" in sys.argv:
        readme.write_text("\n".join(lines[:begin] + printed + lines[end:]))
        return 0
    at = next((i for i, pair in enumerate(zip(shown, printed)) if pair[0] != pair[1]), min(len(shown), len(printed)))
    for name, block in (("README.md shows", shown), ("perfpredict prints", printed)):
        print(f"{name}: {block[at] if at < len(block) else '(nothing)'}")
    print("If the new output is right: python3 tests/check_readme.py --update build/release/bin/perfpredict")
    return 1


if __name__ == "__main__":
    sys.exit(main())
