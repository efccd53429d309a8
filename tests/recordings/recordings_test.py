#!/usr/bin/env python3
"""Recordings that are odd, and what every command makes of them.

    tests/recordings/recordings_test.py PERFPREDICT [KIND...]

Handed recordings lie in $PERFMODEL_PUBLIC_DATA/../bugcases; without that folder only our own are tried.
"""

import os
import sys
import tempfile
from pathlib import Path

import cards
import chakra
import files
import ranks
import streams
from cases import complaint

HANDED = Path(os.environ.get("PERFMODEL_PUBLIC_DATA", "/nonexistent")).parent / "bugcases"
ALL = [*streams.CASES, *cards.CASES, *files.CASES, *chakra.CASES, *ranks.CASES]


def main():
    program, kinds = sys.argv[1], sys.argv[2:]
    failed = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in ALL:
            if kinds and case.kind not in kinds:
                continue
            if case.handed is not None:
                if not HANDED.is_dir():
                    continue
                paths = [HANDED / name for name in case.handed]
            else:
                place = Path(folder) / case.name
                place.mkdir()
                made = case.write(place)
                paths = made if isinstance(made, list) else [made]
            for check in case.checks:
                tried += 1
                wrong = complaint(program, check, [str(p) for p in paths], folder)
                if wrong:
                    failed += 1
                    print(f"{case.kind} {case.name}: {wrong}")
    print(f"{tried - failed} of {tried} answers as expected, {len(ALL)} recordings")
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
