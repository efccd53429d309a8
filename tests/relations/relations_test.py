#!/usr/bin/env python3
"""Relations between answers that hold whatever the model: no figure is expected, only their order and sums.

    relations_test.py PROGRAM DATA [--seed N] [--seconds S] [--only WORD] [--library LIB --package FOLDER]

More of anything is never faster, parts add up, shares lie between 0 and 1, two ways to one answer agree to the
bit, and the order of tables does not matter. Questions are drawn at random from the seed until the time is
over (each relation has an equal part of it); the relation, the seed and the question of each broken one are
printed.
"""
import argparse
import collections
import gzip
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

GPUS = ["t4", "v100-sxm2-16gb", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "l4", "rtx-4090", "mi300x"]
GRAPHS = {"dlrm": {"family": "dlrm", "preset": "default"},
          "gpt": {"family": "gpt", "preset": "gpt2", "layers": 2, "batch": 2, "sequence": 128},
          "bert": {"family": "bert", "preset": "bert-base", "layers": 2, "batch": 4, "sequence": 128},
          "mlp": {"family": "mlp", "preset": "mnist"}, "resnet": {"family": "resnet", "preset": "resnet18", "batch": 8},
          "llama": {"family": "llama", "preset": "tinyllama-1.1b", "layers": 2, "batch": 1, "sequence": 256}}
MODELS = ["gpt2", "gpt2-xl", "llama2-7b", "llama3-8b", "mixtral-8x7b", "gpt3-175b"]
ROUNDING = 1e-9
GPUS_OF_A_NODE = 8
LINKED_IN_PAIRS = ["v100-sxm2-16gb", "mi300x"]


class Serve:
    """One process that answers all questions."""

    def __init__(self):
        self.process = subprocess.Popen([options.program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def result(self, **question):
        """None: the question is impossible."""
        answer = self.ask(**question)
        if "error" in answer and answer["error"]["code"] not in ("impossible", "unknown_name"):
            raise ValueError(f"{question}: {answer['error']}")
        return answer.get("result")


class Relations:
    def __init__(self, folder):
        self.folder, self.random = pathlib.Path(folder), random.Random(options.seed)
        self.serve = Serve()
        for name, model in GRAPHS.items():
            assert self.serve.result(op="build", name=name, **model), name
        self.checks, self.broken = collections.Counter(), collections.defaultdict(list)
        self.relation = ""

    def holds(self, true, what):
        self.checks[self.relation] += 1
        if not true:
            self.broken[self.relation].append(what)

    def at_most(self, small, large, what):
        self.holds(small <= large * (1 + ROUNDING) + ROUNDING, f"{what}: {small} > {large}")

    def equal(self, one, other, what):
        self.holds(math.isclose(one, other, rel_tol=ROUNDING, abs_tol=1e-6), f"{what}: {one} and {other}")

    def program(self, *words, status=0):
        done = subprocess.run([options.program, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == status, (words, done.stderr)
        return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout

    def question(self):
        draw = self.random
        graph = draw.choice(list(GRAPHS))
        question = {"op": "predict", "graph": graph, "gpu": draw.choice(GPUS), "batch": 2 ** draw.randint(0, 10)}
        if draw.random() < 0.4:
            question |= {"world": 2 ** draw.randint(0, 7), "strategy": "ddp" if draw.random() < 0.7 else "fsdp"}
        if draw.random() < 0.3:
            question["host_scale"] = draw.choice([0.25, 0.5, 2, 4])
        return question

    # Relations: each asks once; they are called until their time is over.

    def sums_of_a_step(self):
        asked = self.question()
        step = self.serve.result(**asked)
        if step is None:
            return
        e2e = step["e2e_us"]
        self.at_most(step["gpu_active_us"], e2e, asked)
        self.equal(step["gpu_active_us"] + step["gpu_idle_us"], e2e, asked)
        self.equal(step["compute_kernel_us"] + step["comm_kernel_us"], step["kernel_sum_us"], asked)
        self.at_most(step["gpu_active_us"], step["kernel_sum_us"] + e2e * 1e-3, ("active and kernels", asked))
        self.at_most(step["exposed_comm_us"], step["comm_kernel_us"], ("exposed", asked))
        self.at_most(step["e2e_low_us"], e2e, asked)
        self.at_most(e2e, step["e2e_high_us"], asked)
        self.at_most(sum(step["overheads_us"].values()), step["cpu_us"] * (1 + 1e-6), ("overheads", asked))
        self.holds(0 <= step["modelled_time_fraction"] <= 1 + ROUNDING, ("modelled", asked))
        self.holds(min(e2e, step["cpu_us"], step["wait_us"], step["exposed_comm_us"]) >= 0, asked)
        if asked.get("world", 1) == 1:
            self.equal(step["comm_kernel_us"], 0, ("one GPU exchanges nothing", asked))
        self.equal(step["samples_per_s"], step["samples_per_s_per_gpu"] * step["gpus"], asked)
        if asked.get("batch") and step["batch_per_gpu"]:
            self.equal(step["samples_per_s_per_gpu"] * e2e * 1e-6, step["batch_per_gpu"], asked)

    def more_is_never_faster(self):
        asked = self.question()
        step = self.serve.result(**asked)
        key, times = self.random.choice([("batch", 2), ("host_scale", 1.5), ("device_scale", 1.5), ("interference", 2),
                                         ("sequence", 2), ("world", 2)])
        more = dict(asked)
        if key == "world":
            if asked.get("world", 1) < 2:
                return
        if key == "sequence":
            if asked["graph"] not in ("gpt", "bert", "llama"):
                return
            asked["sequence"] = 2 ** self.random.randint(4, 6)
            step = self.serve.result(**asked)
        more[key] = asked.get(key, 1) * times
        if "sequence" in asked and key != "sequence":
            more["sequence"] = asked["sequence"]
        longer = self.serve.result(**more)
        if step is None or longer is None:
            return
        slack = self.saved_by_more_gpus(asked, step, longer) if key == "world" else 0
        self.at_most(step["e2e_us"], longer["e2e_us"] * (1 + 5e-3) + slack, (f"more {key}", asked))
        if key in ("batch", "sequence"):
            # Another tile or a full wave may save a little; the products of one sample are other kernels.
            self.at_most(asked["batch"] > 1 and step["kernel_sum_us"], longer["kernel_sum_us"] * 1.03, (f"kernels with more {key}", asked))
            self.at_most(step["memory"]["device_bytes"], longer["memory"]["device_bytes"], (f"memory with more {key}", asked))

    @staticmethod
    def saved_by_more_gpus(asked, fewer, more):
        """The time that twice as many GPUs save: with FSDP each updates half as large a shard, and where GPUs
        are linked in pairs, a part of a node has fewer links (two V100 share one NVLink, all eight have rings over six)."""
        saved = max(0, fewer["compute_kernel_us"] - more["compute_kernel_us"]) if asked["strategy"] == "fsdp" else 0
        inside_node = asked["gpu"] in LINKED_IN_PAIRS and 2 * asked["world"] <= GPUS_OF_A_NODE
        return saved + (max(0, fewer["comm_kernel_us"] - more["comm_kernel_us"]) if inside_node else 0)

    def layout_shares(self):
        asked = self.layout_question()
        price = self.serve.result(**asked)
        if price is None:
            return
        for key in ("mfu", "bubble_share", "exposed_comm_share"):
            self.holds(0 <= price[key] <= 1, (key, price[key], asked))
        self.at_most(price["low_ms"], price["predicted_step_ms"], asked)
        self.at_most(price["predicted_step_ms"], price["high_ms"], asked)
        for key in ("global_batch", "layers", "sequence"):
            more = dict(asked)
            more[key] = 2 * (asked.get(key) or {"layers": self.layers(asked["model"]), "sequence": 1024}.get(key, 0))
            less = self.serve.result(**{**asked, key: more[key] // 2})
            longer = self.serve.result(**more)
            if less and longer:
                self.at_most(less["predicted_step_ms"], longer["predicted_step_ms"], (f"more {key}", asked))
                if key != "global_batch":
                    self.at_most(less["memory_gb"], longer["memory_gb"], (f"memory with more {key}", asked))

    @staticmethod
    def layers(model):
        return {"gpt2": 12, "gpt2-xl": 48, "llama2-7b": 32, "llama3-8b": 32, "mixtral-8x7b": 32, "gpt3-175b": 96}[model]

    def layout_question(self):
        draw = self.random
        tp, pp = 2 ** draw.randint(0, 3), 2 ** draw.randint(0, 3)
        world = tp * pp * 2 ** draw.randint(0, 4)
        asked = {"op": "layout", "gpu": draw.choice(["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb"]),
                 "model": draw.choice(MODELS), "global_batch": 64 * 2 ** draw.randint(0, 4), "world": world, "tp": tp, "pp": pp,
                 "zero": draw.choice(["0", "1", "fsdp"]), "micro_batch": 2 ** draw.randint(0, 2),
                 "recompute": draw.choice(["none", "selective", "full"])}
        if draw.random() < 0.5:
            asked["sequence_parallel"] = tp > 1
        return asked

    def search_is_eval(self):
        asked = self.layout_question()
        for key in ("tp", "pp", "zero", "micro_batch", "recompute", "sequence_parallel"):
            asked.pop(key, None)
        found = self.serve.result(**{**asked, "op": "layout_rank", "top": 3})
        if found is None:
            return
        steps = [layout["predicted_step_ms"] for layout in found["layouts"]]
        self.holds(steps == sorted(steps), ("fastest first", asked))
        for layout in found["layouts"]:
            parts = {key: layout[key] for key in ("dp", "tp", "pp", "vp", "cp", "ep", "zero", "micro_batch", "recompute",
                                                  "sequence_parallel", "schedule", "offload", "etp", "context", "async_tp",
                                                  "dispatcher") if layout.get(key) is not None}
            price = self.serve.result(**{**asked, **parts})
            if price is None:
                self.holds(False, ("found by the search, refused alone", asked, parts))
                continue
            self.holds(price["predicted_step_ms"] == layout["predicted_step_ms"], ("time", asked, parts))
            self.holds(price["memory_gb"] == layout["memory_gb"], ("memory", asked, parts))

    def more_bytes_and_hops(self):
        draw = self.random
        kind = draw.choice(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
        gpu = draw.choice(["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "a100-sxm-40gb"])
        rows, marks = [], []
        for _ in range(200):
            size, world, op = 2 ** draw.randint(8, 30), 2 ** draw.randint(3, 8), draw.choice([kind, "all_reduce"])
            for bytes_, ranks in ((size, world), (2 * size, world), (size, 2 * world)):
                rows.append(f"{op},{bytes_},{ranks},bf16")
            marks.append((op, size, world))
        table = self.folder / "collectives.csv"
        table.write_text("op,bytes,world_size,dtype\n" + "\n".join(rows) + "\n")
        done = subprocess.run([options.program, "kernels", table, "--gpu", gpu], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        times = [float(line.split(",")[1]) for line in done.stdout.splitlines()[1:]]
        # From a whole node on: a part of one has fewer links, or lacks what only all of its GPUs can (NVLink SHARP).
        for i, mark in enumerate(marks):
            one, larger, wider = times[3 * i:3 * i + 3]
            self.at_most(one, larger, ("more bytes", gpu, mark))
            self.at_most(one, wider * 1.001, ("more ranks", gpu, mark))

    def better_board_is_never_slower(self):
        name = self.random.choice(["a100-sxm-80gb", "h100-sxm-80gb", "t4", "l4"])
        sheet = json.loads((pathlib.Path(options.data) / "gpus" / f"{name}.json").read_text())
        queries = self.folder / "queries.csv"
        draw = self.random
        rows = [f"{2 ** draw.randint(5, 13)},{2 ** draw.randint(5, 13)},{2 ** draw.randint(5, 13)},fp32" for _ in range(200)]
        queries.write_text("m,n,k,dtype\n" + "\n".join(rows) + "\n")
        key = draw.choice([key for key in ("dram_bandwidth_gb_per_s", "memory_bandwidth_gb_per_s", "sm_count", "boost_clock_mhz") if key in sheet]
                          or [None])
        if key is None:
            return
        better = self.folder / "better.json"
        times = []
        for factor in (1, 1.25):
            better.write_text(json.dumps({**sheet, key: type(sheet[key])(sheet[key] * factor)}))
            done = subprocess.run([options.program, "kernels", queries, "--gpu", better, "--models", "heuristic"], capture_output=True, text=True)
            if done.returncode != 0:
                return
            times.append([float(line.split(",")[1]) for line in done.stdout.splitlines()[1:]])
        for row, old, new in zip(rows, *times):
            self.at_most(new, old * 1.001, (f"more {key}", name, row))

    def written_and_read(self):
        name = self.random.choice(list(GRAPHS))
        model = GRAPHS[name]
        gpu = self.random.choice(GPUS)
        file = self.folder / self.random.choice(["read.json", "read.json.gz"])
        words = [f"--{key}={value}" for key, value in model.items() if key != "family"]
        self.program("build", model["family"], *words, "-o", file)
        assert self.serve.result(op="load", name="read", file=str(file))
        asked = {"op": "predict", "gpu": gpu, "batch": 2 ** self.random.randint(0, 5)}
        self.same(self.serve.result(graph=name, **asked), self.serve.result(graph="read", **asked), (name, asked))
        text = file.read_bytes()
        graph = json.loads(gzip.decompress(text) if file.suffix == ".gz" else text)
        self.holds(len(graph["nodes"]) > 0, name)

    def same(self, one, other, what):
        """The figures agree to the bit."""
        strip = lambda result: result and {key: value for key, value in result.items() if key != "warnings"}
        self.holds(strip(one) == strip(other), what)

    def another_numbering(self):
        """Ids of nodes and tensors mean nothing: all are moved."""
        name = self.random.choice(["dlrm", "mlp", "gpt"])
        file, moved = self.folder / "plain.json", self.folder / "moved.json"
        model = GRAPHS[name]
        self.program("build", model["family"], *[f"--{k}={v}" for k, v in model.items() if k != "family"], "-o", file)
        graph = json.loads(file.read_text())
        shift = self.random.randint(1, 10 ** 9)
        for node in graph["nodes"]:
            for key in ("id", "ctrl_deps", "parent"):
                if isinstance(node.get(key), int):
                    node[key] += shift
            for attribute in node.get("attrs", []):
                if attribute.get("name") == "fw_parent" and attribute.get("value"):
                    attribute["value"] += shift
        moved.write_text(json.dumps(graph))
        asked = {"op": "predict", "gpu": self.random.choice(GPUS)}
        results = []
        for each in (file, moved):
            assert self.serve.result(op="load", name="moved", file=str(each)), each
            results.append(self.serve.result(graph="moved", **asked))
        self.same(*results, (name, asked))

    def order_of_tables(self):
        draw = self.random
        tables = [{"table": f"t{i}", "rows": 10 ** draw.randint(3, 6), "dim": 64, "pooling": draw.randint(1, 20)} for i in range(6)]
        times = []
        for _ in range(2):
            file, graph = self.folder / "tables.json", self.folder / "tables_graph.json"
            file.write_text(json.dumps(tables))
            self.program("build", "dlrm", "--tables", file, "--bottom", "64-64", "--top", "64-1", "--batch", 256, "-o", graph)
            assert self.serve.result(op="load", name="tables", file=str(graph))
            times.append(self.serve.result(op="predict", graph="tables", gpu="a100-sxm-80gb")["kernel_sum_us"])
            draw.shuffle(tables)
        self.equal(*times, ("order of tables", tables))

    def timeline_replays(self):
        name, gpu = self.random.choice(["mlp", "dlrm", "gpt"]), self.random.choice(GPUS)
        model = GRAPHS[name]
        graph, timeline = self.folder / "timed.json", self.folder / "timeline.json"
        self.program("build", model["family"], *[f"--{k}={v}" for k, v in model.items() if k != "family"], "-o", graph)
        more = self.random.choice([[], [], ["--cuda-graphs"]])
        done = subprocess.run([options.program, "predict", graph, "--gpu", gpu, "--timeline", timeline, "--json", *more],
                              capture_output=True, text=True)
        if done.returncode != 0:
            return
        predicted = json.loads(done.stdout)
        replayed = self.program("replay", timeline, "--json")
        for iteration in replayed["iterations"]:
            self.holds(abs(iteration["replayed_us"] / iteration["measured_us"] - 1) < 0.01, ("replay", name, gpu, more, iteration))
        longest = max((iteration["measured_us"] for iteration in replayed["iterations"]), default=0)
        self.holds(abs(longest / predicted["e2e_us"] - 1) < 0.02, ("timeline and prediction", name, gpu, more, longest, predicted["e2e_us"]))

    def python_is_serve(self):
        if not options.package:
            return
        if "perfmodel" not in sys.modules:
            os.environ["PERFMODEL_LIBRARY"], os.environ["PERFMODEL_DATA"] = options.library, options.data
            sys.path.insert(0, options.package)
        import perfmodel

        if not hasattr(self, "predictor"):
            self.predictor = perfmodel.Predictor()
            self.graphs = {}
            for name, model in GRAPHS.items():
                self.graphs[name] = perfmodel.build(model["family"], **{k: v for k, v in model.items() if k != "family"})
        asked = self.question()
        step = self.serve.result(**asked)
        words = {key: value for key, value in asked.items() if key not in ("op", "graph", "gpu")}
        try:
            totals = self.predictor.predict(self.graphs[asked["graph"]], asked["gpu"], **words)
        except perfmodel.PerfmodelError:
            self.holds(step is None, ("refused by Python alone", asked))
            return
        self.holds(step is not None, ("refused by serve alone", asked))
        for key in ("e2e_us", "gpu_active_us", "cpu_us", "kernel_sum_us", "comm_kernel_us", "e2e_low_us", "e2e_high_us"):
            self.holds(step and getattr(totals, key) == step[key], (key, asked))

    def sharding_adds_up(self):
        draw = self.random
        rows = [f"t{i},{10 ** draw.randint(3, 7)},64,{draw.randint(1, 30)},{draw.choice(['sgd', 'adagrad'])}"
                for i in range(11)]
        steps, dense = [], []
        for _ in range(2):
            table = self.folder / "tables.csv"
            table.write_text("table,rows,dim,pooling,optimizer\n" + "\n".join(rows) + "\n")
            plan = self.program("shard", "rank", table, "--gpu", "a100-sxm-80gb", "--world", 4, "--batch-per-gpu", 512, "--json",
                                "--choose", "none", "--time-budget", 0.2, "--seed", 1, "--bottom", "13-512-64",
                                "--top", "512-1")["plans"][0]
            dense.append(plan["critical_path_us"].get("dense optimizer"))
            steps.append(plan["predicted_us"])
            self.at_most(plan["low_us"], plan["predicted_us"], rows)
            self.at_most(plan["predicted_us"], plan["high_us"], rows)
            draw.shuffle(rows)
        self.holds(abs(steps[0] / steps[1] - 1) < 0.02, ("order of tables", steps, rows))
        self.holds(dense[0] == dense[1], ("dense optimizer by the order of tables", dense, rows))

    def tried(self, relation):
        try:
            relation()
        except (AssertionError, KeyError, ValueError, TypeError) as problem:  # an answer that is none
            self.holds(False, f"{type(problem).__name__}: {problem}")

    def all(self):
        relations = [self.sums_of_a_step, self.more_is_never_faster, self.layout_shares, self.search_is_eval, self.python_is_serve,
                     self.more_bytes_and_hops, self.better_board_is_never_slower, self.written_and_read, self.another_numbering,
                     self.order_of_tables, self.timeline_replays, self.sharding_adds_up]
        relations = [relation for relation in relations if options.only in relation.__name__]
        for relation in relations:
            self.relation = relation.__name__
            # Its questions do not depend on how many others had time for.
            self.random = random.Random(f"{options.seed} {self.relation}")
            end = time.monotonic() + options.seconds / len(relations)
            for _ in range(options.tries or sys.maxsize):
                if time.monotonic() > end:
                    break
                self.tried(relation)
        for name, count in self.checks.items():
            print(f"{name:30} {count:7,} checks, {len(self.broken[name]):,} broken")
            for what in self.broken[name][:5]:
                print("   ", what)
        broken = sum(map(len, self.broken.values()))
        print(f"{sum(self.checks.values()):,} checks with seed {options.seed}, {broken} broken")
        return 1 if broken or not self.checks else 0


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("program")
parser.add_argument("data")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--seconds", type=float, default=40)
parser.add_argument("--tries", type=int, default=0, help="questions of each relation at most; 0: until the time is over")
parser.add_argument("--only", default="")
parser.add_argument("--library", default="")
parser.add_argument("--package", default="")
options = parser.parse_args()
with tempfile.TemporaryDirectory() as scratch:
    sys.exit(Relations(scratch).all())
