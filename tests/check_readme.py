#!/usr/bin/env python3
"""Checks that picture and example output in README.md are what the program makes, or writes them anew.

    python3 tests/check_readme.py [--update] PROGRAM [README.md]

The block leaves out the last line, which names the version.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = "predict dlrm_mlperf_2048.json.gz --gpu a100-sxm-40gb"
DATA = Path(__file__).resolve().parent.parent / "data"
BUILD = "build dlrm --preset mlperf --batch 2048 -o dlrm_mlperf_2048.json.gz"


PICTURE = Path(__file__).resolve().parent.parent / "docs/pictures/dlrm_step.svg"


def picture_of(program: Path) -> str:
    graph = BUILD.split()[-1]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, *BUILD.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([program, "report", graph, *COMMAND.split()[2:], "-o", "page.html", "--picture", "step.svg",
                        "--title", "One training step of the MLPerf DLRM, batch 2,048, on an A100"],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return (Path(folder) / "step.svg").read_text()


def output_of(program: Path) -> list:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").symlink_to(DATA)  # the command names its table as a reader would
        subprocess.run([program, *BUILD.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        text = subprocess.run([program, *COMMAND.split()], cwd=folder, check=True, capture_output=True).stdout.decode()
    lines = text.strip("\n").split("\n")
    if not lines[-1].startswith("  perfpredict "):
        sys.exit(f"error: expected the version in the last line of the output, found {lines[-1]!r}")
    return "\n".join(lines[:-1]).rstrip("\n").split("\n")


def main() -> int:
    arguments = [a for a in sys.argv[1:] if a != "--update"]
    if not 1 <= len(arguments) <= 2:
        sys.exit(__doc__)
    readme = Path(arguments[1]) if len(arguments) == 2 else Path(__file__).parent.parent / "README.md"
    lines = readme.read_text().split("\n")
    begin = lines.index(f"$ perfpredict {COMMAND}") + 1
    end = lines.index("```", begin)
    program = Path(arguments[0]).resolve()
    shown, printed = lines[begin:end], output_of(program)
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
