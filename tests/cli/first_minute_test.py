#!/usr/bin/env python3
"""The first lines of answers to a newcomer, examples in every --help, names against files.

    python3 tests/cli/first_minute_test.py [--update] PROGRAM

--update writes the answers of PROGRAM into first_minute.txt.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINES = HERE / "first_minute.txt"
UPDATE = "--update" in sys.argv
PROGRAM = str(Path([word for word in sys.argv[1:] if word != "--update"][0]).resolve())
WIDTH = 100


def run(words, folder="."):
    return subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=120)


def first_line(done):
    """The exit status if it is not 0, and the first line that says something; # for the figures of answers."""
    text = (done.stdout + done.stderr) if done.returncode == 0 else done.stderr
    line = next((line.strip() for line in text.splitlines() if line.strip() not in ("", "Warnings")), "")
    if done.returncode == 0:
        return re.sub(r"\(git .*", "(...)", re.sub(r"(?<![\w-])\d[\d.,]*(?![\w-])", "#", line))
    return f"({done.returncode}) {line}".replace(os.environ.get("PERFMODEL_DATA", "DATA"), "DATA")


def make_files(folder):
    """Files that a newcomer has: graphs, answers, a GPU without its schema, a recording without Kineto."""
    for words in ("build gpt --preset gpt2 -o gpt2.json", "build dlrm --preset default -o dlrm.json",
                  "build mlp --preset mnist -o mlp.json"):
        run(words.split(), folder)
    (folder / "answer.json").write_text(run(["predict", "mlp.json", "--gpu", "t4", "--json"], folder).stdout)
    (folder / "gpu.json").write_text('{"name": "mine", "boost_clock_mhz": 1590}')
    (folder / "nothing.json").write_text('{"foo": 1}')
    event = {"name": "aten::mm", "ph": "X", "ts": 1, "dur": 5, "tid": 1, "pid": "CPU functions", "args": {}}
    (folder / "old.json").write_text(json.dumps([event]))


def pairs():
    lines = LINES.read_text().splitlines()
    asked = [at for at, line in enumerate(lines) if line.startswith("$ perfpredict ")]
    return [(lines[at][2:], lines[at + 1] if at + 1 < len(lines) else "") for at in asked]


def commands(path=()):
    """Each command with its help."""
    text = run([*path, "--help"]).stdout
    yield path, text
    below = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.M)
    for name in re.findall(r"^  ([a-z][\w-]*)", below[1], re.M) if below else ():
        yield from commands((*path, name))


class FirstMinute(unittest.TestCase):
    def test_the_first_line_of_an_answer_helps(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make_files(folder)
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(lambda pair: first_line(run(shlex.split(pair[0])[1:], folder)), pairs()))
            if UPDATE:
                LINES.write_text("\n".join(f"$ {asked}\n{answer}" for (asked, _), answer in zip(pairs(), answers)) + "\n")
            self.assertGreater(len(answers), 40)
            for (asked, expected), answer in zip(pairs(), answers):
                with self.subTest(asked):
                    self.assertEqual(answer, expected)

    def test_every_help_fits_the_screen_and_shows_an_example(self):
        count = 0
        for path, text in commands():
            with self.subTest(" ".join(path)):
                self.assertLessEqual(max(map(len, text.splitlines())), WIDTH)
                example = r"^\s+perfpredict " + re.escape(" ".join(path))
                self.assertTrue(re.search(example, text.split("Options:")[-1], re.M), "no example")
            count += 1
        self.assertGreater(count, 40)

    def test_names_answer_as_files_do(self):
        """Nine first questions, to the digit. A batch is the file's, too."""
        questions = [
            ("gpt2", "gpt --preset gpt2 --batch 8", "h100", "--batch 8 --precision bf16"),
            ("gpt2", "gpt --preset gpt2", "a100", ""),
            ("bert-base", "bert --preset bert-base --batch 32", "v100", "--batch 32"),
            ("dlrm:mlperf", "dlrm --preset mlperf", "h100", ""),
            ("dlrm:default", "dlrm --preset default --batch 512", "t4", "--batch 512"),
            ("resnet50", "resnet --preset resnet50", "4090", "--precision fp16"),
            ("vgg16", "vgg --preset vgg16", "2080ti", ""),
            ("t5-small", "t5 --preset t5-small", "l4", ""),
            ("opt-125m", "opt --preset opt-125m", "h200", "--precision bf16"),
        ]
        def step(folder, program, gpu, flags):
            done = run(["predict", program, "--gpu", gpu, *flags.split(), "--json"], folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["e2e_us"]

        with tempfile.TemporaryDirectory() as name:
            for model, build, gpu, flags in questions:
                with self.subTest(model):
                    run(["build", *build.split(), "-o", "model.json"], name)
                    self.assertEqual(step(name, model, gpu, flags), step(name, "model.json", gpu, flags))

    def test_names_are_built_with_the_batch_wherever_one_is_taken(self):
        """To the digit, against a file that was built with it; a smaller batch made larger lacks copies."""
        def figure(folder, words, *keys):
            done = run([*words.split(), "--json"], folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            value = json.loads(done.stdout)
            for key in keys:
                value = value[key]
            return value

        # By name; by the file; where the figure is in both documents.
        questions = [
            ("whatif gpt2 --gpu h100 --batch 8", "whatif model.json --gpu h100", ("rows", -1, "e2e_us")),
            ("whatif gpt2 --gpu h100 --precision bf16 --batch same,8", "whatif model.json --gpu h100 --precision bf16",
             ("rows", -1, "e2e_us")),
            ("optimize gpt2 --gpu h100 --batch 8 --allow precision", "optimize model.json --gpu h100 --allow precision",
             ("best_us",)),
            ("analyze gpt2 --gpu h100 --batch 8", "analyze model.json --gpu h100", ("step_us",)),
            ("duration gpt2 --gpus h100,a100 --batch 8", "duration model.json --gpus h100,a100", ("rows", 1, "step_us")),
            ("memory gpt2 --gpu h100 --batch 8", "memory model.json --gpu h100", ("needed_bytes",)),
            ("predict gpt2 --gpu h100 --precision bf16 --batch 8", "predict model.json --gpu h100 --precision bf16",
             ("e2e_us",)),
        ]
        with tempfile.TemporaryDirectory() as name:
            run("build gpt --preset gpt2 --batch 8 -o model.json".split(), name)
            for by_name, by_file, keys in questions:
                with self.subTest(by_name):
                    self.assertEqual(figure(name, by_name, *keys), figure(name, by_file, *keys))
            for flags in ("", " --precision bf16"):
                run(f"rewrite gpt2{flags} --batch 8 -o rewritten.json".split(), name)
                self.assertEqual(figure(name, "predict rewritten.json --gpu h100", "e2e_us"),
                                 figure(name, "predict model.json --gpu h100" + flags, "e2e_us"))
            requests = [{"op": "load", "name": "named", "file": "gpt2"},
                        {"op": "build", "name": "built", "family": "gpt", "preset": "gpt2", "batch": 8},
                        {"op": "predict", "graph": "named", "gpu": "h100-sxm-80gb", "batch": 8},
                        {"op": "predict", "graph": "built", "gpu": "h100-sxm-80gb"}]
            served = subprocess.run([PROGRAM, "serve", "--gpus", "h100-sxm-80gb"], capture_output=True, text=True,
                                    input="".join(json.dumps(one) + "\n" for one in requests), timeout=120)
            answers = [json.loads(line) for line in served.stdout.splitlines()]
            self.assertEqual(answers[2]["result"]["e2e_us"], answers[3]["result"]["e2e_us"])

    def test_names_as_people_write_them_are_one_model(self):
        def step(model):
            return json.loads(run(["predict", model, "--gpu", "h100", "--json"]).stdout)["e2e_us"]

        for known, names in (("gpt2", ("GPT2", "gpt-2", "openai/gpt2")), ("bert-base", ("bert-base-uncased",)),
                             ("resnet18", ("ResNet-18",)), ("llama3.2-1b", ("meta-llama/Llama-3.2-1B-Instruct",))):
            for name in names:
                with self.subTest(name):
                    self.assertEqual(step(name), step(known))
        for other in ("opt-13b", "facebook/opt-13b", "Qwen2-57B"):  # neither opt-1.3b nor qwen2.5-7b
            self.assertEqual(run(["predict", other, "--gpu", "h100"]).returncode, 1, other)

    def test_a_graph_goes_through_a_pipe(self):
        built = run(["build", "mlp", "--preset", "mnist", "-o", "-"])
        self.assertEqual((built.returncode, built.stderr), (0, ""))
        self.assertIn("nodes", json.loads(built.stdout))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
