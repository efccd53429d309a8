"""Answers of commands: JSON documents that show themselves and become data frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all of this
    from typing import Any, ClassVar

    Row = dict[str, Any]
    _Base = Mapping[str, Any]
else:
    _Base = Mapping


def _flat(row: Mapping[str, Any], prefix: str = "") -> Row:
    """Members of members as ``memory.needed_bytes``; lists stay as they are."""
    flat: Row = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _escape(value: Any) -> str:
    text = f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
    for raw, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(raw, escaped)
    return text


def _html_table(rows: list[Row], columns: list[str], most: int = 10) -> str:
    cells = "".join(f"<th>{_escape(column)}</th>" for column in columns)
    lines = [f"<tr>{cells}</tr>"]
    for row in rows[:most]:
        cells = "".join(f"<td>{_escape('' if row.get(c) is None else row[c])}</td>" for c in columns)
        lines.append(f"<tr>{cells}</tr>")
    more = f"<p>{len(rows) - most:,} more rows</p>" if len(rows) > most else ""
    return f"<table>{''.join(lines)}</table>{more}"


class Document(_Base):
    """The JSON document that ``perfpredict COMMAND --json`` prints, as a mapping with its keys.

    It is parsed when it is first looked into. ``docs/formats.md`` explains each key; names carry their
    units (``_us`` microseconds, ``_bytes``, ``_j`` joules).

    Attributes:
        json: the text, as the command prints it.
        messages: warnings that the command line has on standard error.
    """

    #: Keys of lists of rows, the one that ``to_pandas()`` takes first.
    TABLES: ClassVar[tuple[str, ...]] = ()
    #: Figures that a notebook shows on top.
    FIGURES: ClassVar[tuple[str, ...]] = ()
    #: Tables that a notebook shows; empty: all of TABLES.
    SHOWN: ClassVar[tuple[str, ...]] = ()
    #: Columns that it shows of the first of them; empty: the first eight.
    COLUMNS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, text: bytes, messages: tuple[str, ...] = ()) -> None:
        self._text = text
        self._parsed: Row | None = None
        self.messages = messages

    @property
    def json(self) -> str:
        return self._text.decode()

    @property
    def schema(self) -> str:
        """``"perfmodel-whatif"``, ..."""
        return self["schema"]

    @property
    def warnings(self) -> list[str]:
        """Things that the answer does not know, assumes or leaves out: read these first."""
        return list(self.get("warnings") or []) + list(self.messages)

    def _document(self) -> Row:
        if self._parsed is None:
            import json

            self._parsed = json.loads(self._text)
        return self._parsed

    def __getitem__(self, key: str) -> Any:
        return self._document()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._document())

    def __len__(self) -> int:
        return len(self._document())

    def tables(self) -> dict[str, list[Row]]:
        """Every list of rows in the document by its key, rows flat (``memory.needed_bytes``); this
        class's own first."""
        names = [name for name in self.TABLES if isinstance(self.get(name), list)]
        names += [key for key, value in self.items() if key not in names and isinstance(value, list)
                  and value and isinstance(value[0], Mapping)]
        return {name: [_flat(row) for row in self._rows(name)] for name in names}

    def _rows(self, name: str) -> list[Row]:
        rows = self[name]
        if rows and isinstance(rows[0], list):  # a table with one line of names
            return [dict(zip(self["columns"], row)) for row in rows]
        return rows

    def to_pandas(self, table: str | None = None) -> Any:
        """A table as a ``pandas.DataFrame``: one row per row, columns named by the keys.

        Args:
            table: a key of :meth:`tables`; the first of them by default. A document without tables is
                one row.

        Raises:
            ImportError: pandas is not installed; nothing else here needs it.
            KeyError: the document has no such table.
        """
        import pandas

        tables = self.tables()
        if table is None and not tables:
            return pandas.DataFrame([_flat(self)])
        name = next(iter(tables)) if table is None else table
        if name not in tables:
            raise KeyError(f"expected a table of {', '.join(tables)}, found {name}")
        return pandas.DataFrame(tables[name])

    def _figures(self) -> Row:
        flat = _flat(self)
        return {key: flat[key] for key in self.FIGURES if flat.get(key) is not None}

    def __repr__(self) -> str:
        figures = ", ".join(f"{key}={value:,.6g}" if isinstance(value, float) else f"{key}={value!r}"
                            for key, value in self._figures().items())
        sizes = ", ".join(f"{len(rows)} {name}" for name, rows in self.tables().items() if name in self.TABLES)
        return f"<{type(self).__name__} {', '.join(part for part in (figures, sizes) if part)}>"

    def _repr_html_(self) -> str:
        parts = [f"<b>{_escape(type(self).__name__)}</b>"]
        if self.warnings:
            items = "".join(f"<li>{_escape(warning)}</li>" for warning in self.warnings)
            parts.append(f"<p>Warnings</p><ul>{items}</ul>")
        figures = self._figures()
        if figures:
            parts.append(_html_table([figures], list(figures)))
        shown = [name for name in self.SHOWN or self.TABLES if isinstance(self.get(name), list) and self[name]]
        for name in shown:
            rows = [_flat(row) for row in self._rows(name)]
            columns = [c for c in self.COLUMNS if c in rows[0]] if name == shown[0] else []
            parts.append(f"<p>{_escape(name)}</p>")
            parts.append(_html_table(rows, columns or list(rows[0])[:8]))
        return "".join(parts)


class Prediction(Document):
    """``predict``: the time of one training step, and why.

    ``to_pandas()`` has one row per kernel; ``to_pandas("ops")``, ``"kernels_by_family"``,
    ``"critical_path"`` and ``"ranks"`` the others.
    """

    TABLES = ("kernels", "kernels_by_family", "critical_path", "ops", "ranks")
    SHOWN = ("kernels_by_family", "critical_path")
    FIGURES = ("gpu", "e2e_us", "e2e_low_us", "e2e_high_us", "gpu_active_us", "cpu_us", "samples_per_s",
               "mfu", "memory.needed_bytes", "memory.fits", "energy_j")

    @property
    def step_us(self) -> float:
        """Host wall time of one step in steady state [us]."""
        return self["e2e_us"]

    @property
    def step_range_us(self) -> tuple[float, float]:
        """The step is within these in nine of ten cases [us]."""
        return self["e2e_low_us"], self["e2e_high_us"]

    @property
    def gpu_active_us(self) -> float:
        """Union of all device work of a step [us]."""
        return self["gpu_active_us"]

    @property
    def samples_per_s(self) -> float | None:
        """Samples of the whole job per second; None: the graph's inputs do not tell the batch."""
        return self["samples_per_s"]

    @property
    def needed_bytes(self) -> int:
        """GPU memory that one rank needs, with context and reserve [bytes]."""
        return self["memory"]["needed_bytes"]

    @property
    def fits(self) -> bool:
        """Whether that is no more than the GPU has."""
        return self["memory"]["fits"]

    @property
    def kernels(self) -> list[Row]:
        """Kernels in the order of their ops: the members of ``ops[].kernels[]`` with ``op`` (its id) and
        ``op_name``."""
        return [{"op": op["id"], "op_name": op["name"], **kernel}
                for op in self["ops"] for kernel in op["kernels"]]

    def _rows(self, name: str) -> list[Row]:
        if name == "kernels":
            return self.kernels
        if name == "ops":
            return [{**{key: value for key, value in op.items() if key != "kernels"},
                     "kernel_count": len(op["kernels"])} for op in self["ops"]]
        return super()._rows(name)

    def tables(self) -> dict[str, list[Row]]:
        return {"kernels": [_flat(row) for row in self.kernels], **super().tables()}


class WhatIf(Document):
    """``whatif``: rewrites crossed with GPUs. ``to_pandas()`` has one row per variant and GPU, the first is
    the graph as it is."""

    TABLES = ("rows",)
    FIGURES = ("graph",)
    COLUMNS = ("variant", "gpu", "e2e_us", "samples_per_s", "speed_up", "bound", "memory.needed_bytes",
               "memory.fits", "error")


class Memory(Document):
    """``memory``: what a step holds at its peak, whether it fits, the largest batch.
    ``to_pandas()`` has the largest tensors at the peak."""

    TABLES = ("largest",)
    FIGURES = ("graph", "gpu", "batch", "needed_bytes", "device_bytes", "fits", "headroom_bytes",
               "bytes_per_sample", "max_batch")

    @property
    def needed_bytes(self) -> int:
        """Memory that the process needs with its context [bytes]."""
        return self["needed_bytes"]

    @property
    def fits(self) -> bool | None:
        """Whether that is no more than the GPU has; None: no GPU was named."""
        return self.get("fits")


class Layout(Document):
    """``layout``: parallel layouts of a transformer. ``to_pandas()`` has one row per layout, fastest
    first."""

    TABLES = ("layouts", "rows", "frontier")
    FIGURES = ("model.name", "gpu", "gpus", "global_batch", "sequence", "software")
    COLUMNS = ("dp", "tp", "pp", "vp", "zero", "micro_batch", "recompute", "predicted_step_ms",
               "tokens_per_s_per_gpu", "mfu", "memory_gb", "limit")

    @property
    def best(self) -> Row:
        """The fastest layout that fits."""
        return self["layouts"][0]


class Sharding(Document):
    """``shard``: plans for embedding tables. ``to_pandas()`` has one row per plan, fastest first."""

    TABLES = ("plans", "rows")
    FIGURES = ("gpu", "topology", "world", "batch_per_gpu", "tables", "search.lower_bound_us")
    COLUMNS = ("name", "predicted_us", "low_us", "high_us", "samples_per_s", "fits", "limiting_rank",
               "bottleneck.part", "fix.change")

    @property
    def best(self) -> Row:
        """The fastest plan that fits, with the place of every table."""
        return self["plans"][0]


class Replay(Document):
    """``replay``: a recorded trace run again, as it was or scaled. ``to_pandas()`` has one row per
    iteration."""

    TABLES = ("iterations", "ranks")
    FIGURES = ("median.measured_us", "median.unscaled_us", "median.replayed_us", "mean_abs_error",
               "unrecorded_device_us")

    @property
    def replayed_us(self) -> float:
        """Median of the replayed steps, with the scales [us]."""
        return self["median"]["replayed_us"]


class TraceAnalysis(Document):
    """``trace``: where the time of a recorded trace went. ``to_pandas()`` has one row per op."""

    TABLES = ("ops", "top_kernels", "iterations", "collectives", "copies")
    FIGURES = ("trace", "gpu", "gpu_busy_us", "compute_kernel_us", "comm_kernel_us", "memcpy_us")
    COLUMNS = ("name", "count", "host_self_us", "host_total_us", "device_self_us", "tflop_per_s", "gb_per_s",
               "roofline_share")


class Findings(Document):
    """``analyze``: what is wrong with a program, and what repairing it gains. ``to_pandas()`` has one row
    per finding, the largest gain first."""

    TABLES = ("findings",)
    FIGURES = ("gpu", "step_us", "measured_us")
    COLUMNS = ("rule", "title", "gain_us", "gain_share", "confidence", "advice")


class Advice(Document):
    """``optimize``: which rewrites make a step fastest. ``to_pandas()`` has one row per single rewrite that
    helps."""

    TABLES = ("steps", "combination", "ceiling", "lost")
    FIGURES = ("graph", "gpu", "objective", "baseline_us", "best_us", "evaluations", "complete")


class Report(Document):
    """``report``: one page of HTML to look at; a notebook shows it in a frame.

    Attributes:
        html: the page.
    """

    def __init__(self, html: str, messages: tuple[str, ...] = ()) -> None:
        super().__init__(b"{}", messages)
        self.html = html

    def save(self, file: str) -> None:
        """Writes the page."""
        with open(file, "w", encoding="utf-8") as out:
            out.write(self.html)

    def __repr__(self) -> str:
        return f"<Report of {len(self.html):,} characters>"

    def _repr_html_(self) -> str:
        page = self.html.replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{page}" style="width:100%;height:720px;border:0"></iframe>'


#: Which class shows the answer of a command; the others are a Document.
BY_COMMAND: dict[str, type[Document]] = {
    "predict": Prediction, "whatif": WhatIf, "memory": Memory, "layout": Layout, "shard": Sharding,
    "replay": Replay, "trace": TraceAnalysis, "analyze": Findings, "optimize": Advice}
