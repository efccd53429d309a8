#!/usr/bin/env python3
"""Checks that picture and example output in README.md are what the program makes, or writes them anew.

    python3 tests/check_readme.py [--update] PROGRAM [README.md]

The block holds the first lines of the output, and ends in "  ...".
"""

import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = "predict dlrm:default --gpu a100-sxm-40gb"
BUILD = "build dlrm --preset mlperf --batch 2048 -o dlrm_mlperf_2048.json.gz"
REST = "  ..."

PICTURE = Path(__file__).resolve().parent.parent / "docs/pictures/dlrm_step.svg"


def picture_of(program: Path) -> str:
    graph = BUILD.split()[-1]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, *BUILD.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([program, "report", graph, "--gpu", "a100-sxm-40gb", "-o", "page.html", "--picture", "step.svg",
                        "--title", "One training step of the MLPerf DLRM, batch 2,048, on an A100"],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return (Path(folder) / "step.svg").read_text()


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
    picture = picture_of(program)
    drawn = PICTURE.read_text() if PICTURE.exists() else ""
    if shown == printed and drawn == picture:
        return 0
    if "--update" in sys.argv:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(picture)
        readme.write_text("\n".join(lines[:begin] + printed + lines[end:]))
        return 0
    if shown == printed:
        print(f"{PICTURE.name} is not what the program draws")
        print("If the new one is right: python3 tests/check_readme.py --update build/release/bin/perfpredict")
        return 1
    at = next((i for i, pair in enumerate(zip(shown, printed)) if pair[0] != pair[1]), min(len(shown), len(printed)))
    for name, block in (("README.md shows", shown), ("perfpredict prints", printed)):
        print(f"{name}: {block[at] if at < len(block) else '(nothing)'}")
    print("If the new output is right: python3 tests/check_readme.py --update build/release/bin/perfpredict")
    return 1


if __name__ == "__main__":
    sys.exit(main())
