"""The index of a folder of measurements, and files that appear whole or not at all. No torch needed."""

import gzip
import json
import os
import zlib
from pathlib import Path

SCHEMA, VERSION = "perfmodel-measurements", 1
INDEX = "index.json"


class BadInput(Exception):
    """Something a user can mend: one line on stderr, exit 1."""


def write_whole(path, data):
    """Writes bytes under another name first, then renames: a killed run leaves no half file."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    os.replace(partial, path)


def json_bytes(document, **style):
    return json.dumps(document, **style).encode()


def gzip_bytes(data):
    """Without a time stamp, so that the same content is the same file."""
    return gzip.compress(data, 9, mtime=0)


def load_json(path):
    """JSON of a plain or gzip file; anything wrong with it is a BadInput that names the file."""
    path = Path(path)
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        # Kernel names have been seen with stray bytes and control characters.
        return json.loads(data.decode("utf-8", errors="replace"), strict=False)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise BadInput(f"{path}: cannot be read ({type(error).__name__}: {error})") from None


def lines_of(document):
    """A document as JSON with a line per element of its lists, so that a change is one line."""
    def text(value):
        if not isinstance(value, list):
            return json.dumps(value)
        return "[\n" + ",\n".join("  " + json.dumps(e, separators=(",", ":")) for e in value) + "\n ]"
    return ("{\n" + ",\n".join(f" {json.dumps(key)}: {text(value)}" for key, value in document.items()) + "\n}\n").encode()


class Index:
    """index.json: `runs` (provenance) and `points`, saved after every point."""

    def __init__(self, folder, gpu, scale):
        self.folder = Path(folder)
        self.document = {"schema": SCHEMA, "version": VERSION, "gpu": gpu, "scale": scale, "runs": [], "points": []}
        if (self.folder / INDEX).exists():
            self.document = read_index(self.folder)
            if self.document["scale"] != scale or self.document["gpu"] != gpu:
                raise BadInput(f"{self.folder / INDEX}: expected gpu {gpu} and scale {scale}, found "
                               f"{self.document['gpu']} and {self.document['scale']}")

    def point(self, key):
        return next((p for p in self.document["points"] if p["key"] == key), None)

    def add(self, point):
        """Replaces an older entry of the same key."""
        points = self.document["points"]
        places = [i for i, p in enumerate(points) if p["key"] == point["key"]]
        if places:
            points[places[0]] = point
        else:
            points.append(point)
        self.save()

    def save(self):
        write_whole(self.folder / INDEX, lines_of(self.document))


def read_index(folder):
    path = Path(folder) / INDEX
    document = load_json(path)
    if not isinstance(document, dict) or (document.get("schema"), document.get("version")) != (SCHEMA, VERSION):
        raise BadInput(f"{path}: expected schema {SCHEMA} version {VERSION}")
    for key in ("gpu", "scale", "runs", "points"):
        if key not in document:
            raise BadInput(f"{path}: expected a key {key}")
    return document


def statistics(values):
    """Median, 10th and 90th percentile (linear between ranks), mean and count; None for nothing."""
    if not values:
        return None
    ordered = sorted(values)

    def quantile(p):
        rank = p * (len(ordered) - 1)
        low = int(rank)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)

    median, p10, p90 = quantile(0.5), quantile(0.1), quantile(0.9)
    return {"median_us": round(median, 3), "p10_us": round(p10, 3), "p90_us": round(p90, 3),
            "mean_us": round(sum(ordered) / len(ordered), 3),
            "spread": round((p90 - p10) / median, 4) if median > 0 else None, "count": len(ordered)}


def step_time(point):
    """Statistics of one step as training meets it: device time from step to step of the free run, on a CPU
    the wall time of single steps."""
    times = point["times"]
    return times["free"]["device"] or times["synced"]["wall"]
