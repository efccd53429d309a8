#!/usr/bin/env python3
"""An exam: questions of a newcomer with published answers (exam.tsv names their sources).

`read_from` says how we know an answer: from a `table` (of PERFMODEL_PUBLIC_DATA, where the source is a file) or another
project's `page`, by the `formula` of its source, or from `memory`: not yet compared with the source.

    python3 tests/cli/exam_test.py PROGRAM
"""

import csv
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LEAST_RIGHT = 42
MOST_FROM_MEMORY = 4


def answer(program, row):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([program, *row["command"].split()], cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        return done.stderr.strip()
    value = json.loads(done.stdout)
    for key in row["pointer"].split("/"):
        value = value[int(key) if isinstance(value, list) else key]
    return value


def is_right(row, value):
    published = json.loads(row["published"])
    if isinstance(published, bool) or not isinstance(value, (int, float)):
        return value is published
    return abs(value / published - 1) <= float(row["within_percent"]) / 100


def main():
    program = str(Path(sys.argv[1]).resolve())
    with open(Path(__file__).with_name("exam.tsv"), newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda row: answer(program, row), rows))
    right = [is_right(row, value) for row, value in zip(rows, answers)]
    for row, value, good in zip(rows, answers, right):
        if not good or "-v" in sys.argv:
            print(f"{'right' if good else 'WRONG'}: {row['question']} {value}, published {row['published']} "
                  f"(within {row['within_percent']} %; {row['source']})")
    for origin in ("table", "page", "formula", "memory"):
        of_it = [good for row, good in zip(rows, right) if row["read_from"] == origin]
        print(f"from {origin}: {sum(of_it)} of {len(of_it)} right")
    print(f"{sum(right)} of {len(rows)} right")
    from_memory = sum(row["read_from"] == "memory" for row in rows)
    return 0 if len(rows) >= 40 and sum(right) >= LEAST_RIGHT and from_memory <= MOST_FROM_MEMORY else 1


if __name__ == "__main__":
    sys.exit(main())
