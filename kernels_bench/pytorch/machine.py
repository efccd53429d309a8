"""Names the GPU and records what a time depends on: versions, driver, clocks. Never host or user names."""

import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

import torch

SMI_FIELDS = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.draw",
              "temperature.gpu")


def gpu_files():
    """The data sheets: of PERFMODEL_DATA, of the sources, or of a folder made by bundle.sh."""
    here = Path(__file__).resolve()
    folders = [here.parents[2] / "data", here.parents[1] / "share/perfmodel/data"]
    if "PERFMODEL_DATA" in os.environ:
        folders = [Path(os.environ["PERFMODEL_DATA"])]
    return sorted(path for folder in folders for path in (folder / "gpus").glob("*.json"))


def gpu_name(device):
    """As perfpredict calls it: alias of a file in data/gpus, else the device's name with dashes."""
    if not device.startswith("cuda"):
        return "cpu"
    title = torch.cuda.get_device_name(device)
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    for path in gpu_files():
        try:
            gpu = json.loads(path.read_text())
            names = [gpu["name"], gpu.get("title", "")] + list(gpu.get("aliases", []))
        except (OSError, ValueError, KeyError):
            continue
        if title.lower() in (name.lower() for name in names) or slug == gpu["name"]:
            return gpu["name"]
    return slug


def _try(function):
    """Provenance must not cost a measurement: facts that a version lacks are null."""
    try:
        return function()
    except Exception:  # pylint: disable=broad-except
        return None


def _cpu_model():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or None


def smi_command(device):
    """nvidia-smi for this very GPU where torch knows its UUID, else for the first."""
    command = ["nvidia-smi", "--query-gpu=" + ",".join(SMI_FIELDS), "--format=csv,noheader,nounits"]
    uuid = _try(lambda: str(torch.cuda.get_device_properties(device).uuid))
    if uuid:
        command += ["-i", uuid if uuid.startswith("GPU-") else "GPU-" + uuid]
    return command


def read_smi(text):
    values = [value.strip() for value in text.strip().split("\n")[0].split(",")]
    return dict(zip(SMI_FIELDS, values)) if len(values) == len(SMI_FIELDS) else None


def query_smi(device):
    """Driver and clocks at rest, or None."""
    if not device.startswith("cuda"):
        return None
    return _try(lambda: read_smi(subprocess.run(smi_command(device), capture_output=True, timeout=20,
                                                check=True).stdout.decode()))


def clocks_under_load(device, step):
    """Clocks while `step` runs again and again, taken when all timing is done; None without nvidia-smi."""
    if not device.startswith("cuda"):
        return None
    try:
        process = subprocess.Popen(smi_command(device), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    try:
        for _ in range(200):
            step()
            torch.cuda.synchronize()
            if process.poll() is not None:
                break
        return _try(lambda: read_smi(process.communicate(timeout=5)[0].decode()))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def command_line(arguments, program="collect.py"):
    """The command, without personal folders."""
    shown = ["DIR" if before == "--out" else shlex.quote(a) for before, a in zip([""] + arguments, arguments)]
    return " ".join([program] + shown)


def provenance(device):
    """The facts of all points of one run of the collector."""
    cuda = device.startswith("cuda")
    properties = _try(lambda: torch.cuda.get_device_properties(device)) if cuda else None
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command_line(sys.argv[1:]),
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "compute_capability": f"{properties.major}.{properties.minor}" if properties else None,
        "sms": properties.multi_processor_count if properties else None,
        "memory_bytes": properties.total_memory if properties else None,
        "smi": query_smi(device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": _try(torch.backends.cudnn.version) if cuda else None,
        "python": platform.python_version(),
        "cpu": _try(_cpu_model),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "kineto": _try(torch.profiler.kineto_available),
    }
