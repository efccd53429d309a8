#!/usr/bin/env python3
"""Runs the benchmarks and prints how they compare with the stored baseline, as ratios.

    compare.py PERFMODEL_BENCHMARKS [--filter REGEX] [--limit 1.3] [--update | --add]

Machines differ, so the median ratio of all benchmarks is taken as the machine's own and every ratio is
shown relative to it: an outlier there got slower or faster by itself. Rows beyond --limit are
marked, and the exit code is 1 if one got slower by more. --update writes the baseline anew. --add writes the rows
that the baseline lacks, divided by the machine's own ratio: what they would take on the machine of the others.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

BASELINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'baseline.json')
UNITS = {'ns': 1.0, 'us': 1e3, 'ms': 1e6, 's': 1e9}


def run(program, pattern):
    """CPU nanoseconds by name: the fastest of three runs, the least noisy figure of a shared machine."""
    with tempfile.NamedTemporaryFile(suffix='.json') as out:
        subprocess.run([program, f'--benchmark_filter={pattern}', '--benchmark_repetitions=3',
                        '--benchmark_min_time=0.05', f'--benchmark_out={out.name}',
                        '--benchmark_out_format=json'],
                       check=True, stdout=subprocess.DEVNULL)
        report = json.load(open(out.name))
    times = {}
    for row in report['benchmarks']:
        if row['run_type'] != 'iteration' or row.get('error_occurred'):
            continue
        # Commands measure the CPU time of their processes themselves.
        key = 'real_time' if row['name'].endswith('/manual_time') else 'cpu_time'
        time = row[key] * UNITS[row['time_unit']]
        times[row['name']] = min(time, times.get(row['name'], time))
    return times


def machine_ratio(baseline, now):
    shared = [name for name in now if name in baseline]
    if not shared:
        sys.exit('error: no benchmark of the baseline was run')
    return statistics.median(now[name] / baseline[name] for name in shared), shared


def readable(ns):
    for unit, size in (('s', 1e9), ('ms', 1e6), ('us', 1e3)):
        if ns >= size:
            return f'{ns / size:.3g} {unit}'
    return f'{ns:.3g} ns'


def compare(baseline, now, limit):
    machine, shared = machine_ratio(baseline, now)
    width = max(len(name) for name in now)
    print(f'{"benchmark":{width}}  {"baseline":>9}  {"now":>9}  ratio  relative')
    slower = 0
    for name in sorted(now):
        if name not in baseline:
            print(f'{name:{width}}  {"":>9}  {readable(now[name]):>9}  new')
            continue
        ratio = now[name] / baseline[name]
        relative = ratio / machine
        mark = 'slower' if relative > limit else 'faster' if relative < 1 / limit else ''
        slower += mark == 'slower'
        print(f'{name:{width}}  {readable(baseline[name]):>9}  {readable(now[name]):>9}  '
              f'{ratio:5.2f}  {relative:8.2f}  {mark}'.rstrip())
    print(f'\nThis machine takes {machine:.2f} times as long as that of the baseline (median of {len(shared)}); '
          f'relative to that, {slower} got slower than {limit} times.')
    return slower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('--filter', default='-/large', help='as --benchmark_filter (default: all but /large)')
    parser.add_argument('--limit', type=float, default=1.3)
    write = parser.add_mutually_exclusive_group()
    write.add_argument('--update', action='store_true')
    write.add_argument('--add', action='store_true')
    arguments = parser.parse_args()
    now = run(arguments.program, arguments.filter)
    if arguments.update:
        content = {'cpus': os.cpu_count(), 'machine': platform.machine(),
                   'cpu_ns': {name: float(f'{time:.4g}') for name, time in sorted(now.items())}}
        with open(BASELINE, 'w') as file:
            json.dump(content, file, indent=1)
            file.write('\n')
        print(f'{BASELINE}: {len(now)} benchmarks')
        return 0
    content = json.load(open(BASELINE))
    if arguments.add:
        machine, shared = machine_ratio(content['cpu_ns'], now)
        new = {name: float(f'{time / machine:.4g}') for name, time in now.items() if name not in content['cpu_ns']}
        content['cpu_ns'] = dict(sorted({**content['cpu_ns'], **new}.items()))
        with open(BASELINE, 'w') as file:
            json.dump(content, file, indent=1)
            file.write('\n')
        print(f'{BASELINE}: {len(new)} benchmarks more, at {machine:.2f} of this machine (median of {len(shared)})')
        return 0
    return 1 if compare(content['cpu_ns'], now, arguments.limit) else 0


if __name__ == '__main__':
    sys.exit(main())
