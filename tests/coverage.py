#!/usr/bin/env python3
"""Sums what gcov says of a build with --coverage: lines and lines that ran, per folder and file.

    coverage.py BUILD [--floor PERCENT] [--files N]

A line of a header counts once, and as run if any file ran it. Fails if graph, predictors or perfmodel
have fewer lines run than --floor asks. --files prints that many of the least covered files.
"""
import argparse
import collections
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile

LIBRARIES = ('graph', 'predictors', 'perfmodel')
ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))


def gcov_files(build):
    for folder, _, names in os.walk(build):
        if os.sep + 'tests' + os.sep in folder + os.sep and 'header_test' in folder:
            continue
        for name in names:
            if name.endswith('.gcda'):
                yield os.path.join(folder, name)


def lines_run(build):
    """Times each line ran, by file and line."""
    counts = collections.defaultdict(dict)
    files = sorted(gcov_files(os.path.abspath(build)))
    if not files:
        sys.exit(f'error: no counts in {build}: build the preset coverage and run its tests')
    scratch = tempfile.mkdtemp()
    try:
        for begin in range(0, len(files), 40):
            subprocess.run(['gcov', '--json-format', '--preserve-paths', *files[begin:begin + 40]], cwd=scratch,
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for name in os.listdir(scratch):
                path = os.path.join(scratch, name)
                with gzip.open(path, 'rt') as file:
                    report = json.load(file)
                os.remove(path)
                for source in report['files']:
                    full = os.path.realpath(os.path.join(report['current_working_directory'], source['file']))
                    if not full.startswith(ROOT + os.sep):
                        continue
                    known = counts[os.path.relpath(full, ROOT)]
                    for line in source['lines']:
                        number = line['line_number']
                        known[number] = known.get(number, 0) + line['count']
    finally:
        shutil.rmtree(scratch)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('build')
    parser.add_argument('--floor', type=float, default=0)
    parser.add_argument('--files', type=int, default=10)
    arguments = parser.parse_args()
    by_file = {}
    for path, lines in lines_run(arguments.build).items():
        if path.split(os.sep)[0] in LIBRARIES:
            by_file[path] = (len(lines), sum(count > 0 for count in lines.values()))
    failed = False
    print(f'{"folder":12} {"lines":>7} {"run":>7}  share')
    for folder in LIBRARIES:
        parts = [value for path, value in by_file.items() if path.startswith(folder + os.sep)]
        total, run = sum(p[0] for p in parts), sum(p[1] for p in parts)
        share = 100 * run / total if total else 0
        failed |= share < arguments.floor
        print(f'{folder:12} {total:7} {run:7}  {share:.1f} %')
    worst = sorted(by_file.items(), key=lambda item: item[1][1] - item[1][0])[:arguments.files]
    print('\nMost lines not run:')
    for path, (total, run) in worst:
        print(f'  {total - run:5} of {total:5}  {path}')
    if failed:
        sys.exit(f'error: below {arguments.floor:g} % of the lines')


if __name__ == '__main__':
    main()
