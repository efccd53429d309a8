"""The whole way from a GPU to predictions for it, on the analytic GPU.

    calibrate_test.py PROGRAMS SOURCES

Runs kernels_bench/calibrate.sh into a data folder of its own, then measures other points of the same
sweeps (another seed) and asks `perfpredict kernels --gpu analytic-gpu` for their times. The models
must be found by themselves and recover the law.
"""

import csv
import gzip
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAMS = pathlib.Path(sys.argv[1])
SOURCES = pathlib.Path(sys.argv[2])
GPU = "analytic-gpu"
TEST_POINTS = 300
LIMIT = 0.03  # geometric mean of |predicted / measured - 1|, per family


def run(command, data, expect=0):
    environment = dict(os.environ, PERFMODEL_DATA=str(data), PERFMODEL_BIN=str(PROGRAMS))
    done = subprocess.run([str(word) for word in command], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != expect:
        sys.exit(f"{command}: exit {done.returncode}, not {expect}\n{done.stdout}\n{done.stderr}")
    return done


def calibrate(data, *options):
    run(["bash", SOURCES / "kernels_bench" / "calibrate.sh", "--backend", "analytic", *options], data)


def own_data_folder(parent):
    data = parent / "data"
    for name in ("architectures", "gpus", "overheads", "topologies", "models"):
        shutil.copytree(SOURCES / "data" / name, data / name)
    return data


def rows_of(file):
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def check_campaign(data):
    """Checks the files of calibrate.sh."""
    kernels = data / "measurements" / GPU / "kernels"
    for family in ("peaks", "gemm", "bmm", "embedding", "memory", "vector"):
        rows = rows_of(kernels / f"{family}.csv.gz")
        assert len(rows) > 200, (family, len(rows))
        assert {row["device"] for row in rows} == {GPU}, family
    assert (data / "gpus" / f"{GPU}.json").is_file()
    models = sorted(file.name for file in (data / "models" / GPU).iterdir())
    assert len(models) >= 10, models
    print("models:", *models)


def check_goes_on(parent):
    """A second call measures nothing again and keeps every row."""
    data = own_data_folder(parent / "small")
    calibrate(data, "--share", 0.03)
    kernels = data / "measurements" / GPU / "kernels"
    before = {file.name: rows_of(file) for file in kernels.glob("*.csv.gz")}
    calibrate(data, "--share", 0.03)
    for name, rows in before.items():
        assert rows_of(kernels / name) == rows, name
    # As if the tables had been measured elsewhere.
    shutil.rmtree(data / "models" / GPU)
    script = SOURCES / "kernels_bench" / "calibrate.sh"
    run(["bash", script, "--fit", GPU], data)
    assert (data / "models" / GPU / "gemm-float32.json").is_file()
    done = run(["bash", script, "--fit", "abacus"], data, expect=1)
    assert "--fit: no " in done.stderr, done.stderr


def check_bundle(parent, data):
    """The bundle of bundle.sh runs without this machine's libraries and environment."""
    bundle = parent / "bundle"
    script = SOURCES / "kernels_bench" / "bundle.sh"
    run(["bash", script, bundle], data)
    done = subprocess.run([str(bundle / "kernels_bench"), "plan", "--points", "20"], text=True,
                          env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE, check=True)
    assert "embedding" in done.stdout, done.stdout
    done = run(["bash", script, bundle], data, expect=1)
    assert "exists already" in done.stderr, done.stderr


def check_kill(parent, data):
    """kill -9 in the middle of a campaign, then the rest: the rows of one that was not killed."""
    whole, killed = parent / "whole", parent / "killed"
    command = [PROGRAMS / "kernels_bench", "run", "--backend", "analytic", "--families", "gemm",
               "--points", 3000, "--out"]
    run(command + [whole], data)
    environment = dict(os.environ, PERFMODEL_DATA=str(data))
    kills = 0
    for _ in range(5):
        process = subprocess.Popen([str(word) for word in command + [killed]], env=environment,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        table = killed / "gemm.csv"
        before = table.stat().st_size if table.exists() else 0
        while process.poll() is None and (not table.exists() or
                                          table.stat().st_size < before + 20000):
            time.sleep(0.001)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills > 0, "never caught it alive"
    run(command + [killed], data)
    rows = rows_of(killed / "gemm.csv")
    assert len(rows) == 3000, len(rows)
    assert sorted(map(str, rows)) == sorted(map(str, rows_of(whole / "gemm.csv")))
    print(f"killed {kills} times: 3000 rows, the same as at once")


def check_recovery(parent, data):
    """Other points than the fitted ones, priced by the models of this GPU's own folder."""
    other = parent / "other"
    run([PROGRAMS / "kernels_bench", "run", "--backend", "analytic", "--seed", 2, "--points",
         TEST_POINTS, "--out", other], data)
    failed = []
    for family in ("gemm", "bmm", "embedding", "memory", "vector"):
        measured = [float(row["time_us"]) for row in rows_of(other / f"{family}.csv")]
        priced = run([PROGRAMS / "perfpredict", "kernels", other / f"{family}.csv", "--gpu", GPU],
                     data).stdout
        prices = list(csv.DictReader(priced.splitlines()))
        assert len(prices) == len(measured) == TEST_POINTS, family
        errors = [abs(float(price["time_us"]) / time - 1) for price, time in zip(prices, measured)]
        learned = sum("learned" in price["model"] for price in prices) / len(prices)
        error = math.exp(sum(math.log(max(e, 1e-4)) for e in errors) / len(errors))
        mean = sum(errors) / len(errors)
        print(f"{family:10} geometric mean {100 * error:.2f} %, mean {100 * mean:.2f} %, "
              f"priced by learned models {100 * learned:.1f} %")
        if error > LIMIT or learned < 0.9:  # types with few rows fall back to the heuristic
            failed.append(family)
    assert not failed, failed


def check_prediction(parent, data):
    """A whole model on the calibrated GPU: nothing falls back to the shared models of a family."""
    graph = parent / "dlrm.json"
    run([PROGRAMS / "perfpredict", "build", "dlrm", "--preset", "mlperf", "--batch", 2048, "-o",
         graph], data)
    text = run([PROGRAMS / "perfpredict", "predict", graph, "--gpu", GPU], data).stdout
    assert "gemm-learned" in text, text


def check_errors(parent, data):
    done = run(["bash", SOURCES / "kernels_bench" / "calibrate.sh", "--backend", "analytic",
                "--budget", "1s"], data, expect=1)
    assert "expected at least a second per family (6s)" in done.stderr, done.stderr
    done = run(["bash", SOURCES / "kernels_bench" / "calibrate.sh", "--bugdet", "1s"], data, expect=2)
    assert "unknown argument" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        parent = pathlib.Path(name)
        data = own_data_folder(parent)
        start = time.time()
        calibrate(data)
        print(f"calibrated in {time.time() - start:.0f} s")
        check_campaign(data)
        check_recovery(parent, data)
        check_prediction(parent, data)
        check_kill(parent, data)
        check_goes_on(parent)
        check_bundle(parent, data)
        check_errors(parent, data)


main()
