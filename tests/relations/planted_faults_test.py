#!/usr/bin/env python3
"""Shows that the relations see what they are there for: each is red with a planted fault, and green without.

    planted_faults_test.py PROGRAM DATA [--only WORD]

The faults are put into the answers of the program, by a script between it and relations_test.py.
"""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
asked_before = {}  # by graph


def scale(key, factor):
    """Multiplies a figure of an answer that has it."""
    def change(asked, answer):
        if key in answer:
            answer[key] *= factor(asked) if callable(factor) else factor
    return change


def to(key, value):
    def change(asked, answer):
        if key in answer:
            answer[key] = value(answer)
    return change


def next_number(graph, key, every=1):
    """The smallest change there is, of each `every`-th answer about a graph."""
    def change(asked, answer):
        if asked.get("graph") == graph and key in answer:
            asked_before[graph] = asked_before.get(graph, 0) + 1
            if asked_before[graph] % every == 0:
                answer[key] = math.nextafter(answer[key], math.inf) if every == 1 else answer[key] * 1.001
    return change


def of_search(change_all):
    def change(asked, answer):
        if "layouts" in answer:
            change_all(answer["layouts"])
    return change


def nudge_first(layouts):
    layouts[0]["predicted_step_ms"] = math.nextafter(layouts[0]["predicted_step_ms"], 0)


def slower_by_a_tenth_if_first_is_odd(words, answer):
    table = next(word for word in words if word.endswith(".csv"))
    first = pathlib.Path(table).read_text().splitlines()[1].split(",")[0]
    answer["plans"][0]["predicted_us"] *= 1 + 0.1 * (int(first[1:]) % 2)


def each(key, change_one):
    def change(words, answer):
        for one in answer[key]:
            change_one(one)
    return change


# Relation, fault of an answer of `serve`.
OF_SERVE = {
    "the GPU is active after the step": ("sums_of_a_step", to("gpu_active_us", lambda a: 1.1 * a["e2e_us"])),
    "more is modelled than there is": ("sums_of_a_step", to("modelled_time_fraction", lambda a: 1.01)),
    "one GPU exchanges": ("sums_of_a_step", to("comm_kernel_us", lambda a: a["comm_kernel_us"] + 1)),
    "throughput of other GPUs": ("sums_of_a_step", scale("gpus", 2)),
    "overheads beyond the host's time": ("sums_of_a_step", to("cpu_us", lambda a: 0.5 * sum(a["overheads_us"].values()))),
    "a larger batch is faster": ("more_is_never_faster", scale("e2e_us", lambda asked: 1 / asked.get("batch", 1) ** 2)),
    "a slower host is faster": ("more_is_never_faster", scale("e2e_us", lambda asked: 1 / asked.get("host_scale", 1) ** 2)),
    "more GPUs are faster": ("more_is_never_faster", scale("e2e_us", lambda asked: 1 / asked.get("world", 1) ** 2)),
    "a share above 1": ("layout_shares", to("mfu", lambda a: 1.01)),
    "a bubble below 0": ("layout_shares", to("bubble_share", lambda a: -2e-16)),
    "more layers are faster": ("layout_shares", scale("predicted_step_ms", lambda asked: 1 / asked.get("layers", 32) ** 3)),
    "the search prices otherwise": ("search_is_eval", of_search(nudge_first)),
    "the slowest comes first": ("search_is_eval", of_search(lambda layouts: layouts.reverse())),
    "a file is another graph": ("written_and_read", next_number("read", "e2e_us")),
    "ids mean something": ("another_numbering", next_number("moved", "e2e_us", every=2)),
    "tables in another order take longer": ("order_of_tables", next_number("tables", "kernel_sum_us", every=2)),
}
# Command, relation, fault of the document that it prints, or of its times in CSV.
OF_COMMANDS = {
    "a replay takes longer": ("replay", "timeline_replays", each("iterations", lambda one: one.update(replayed_us=1.02 * one["replayed_us"]))),
    "a timeline is another step": ("predict", "timeline_replays", scale("e2e_us", 1.05)),
    "a plan by the order of its tables": ("shard", "sharding_adds_up", slower_by_a_tenth_if_first_is_odd),
    "a range beside its plan": ("shard", "sharding_adds_up", each("plans", lambda plan: plan.update(low_us=2 * plan["predicted_us"]))),
    "more bytes are faster": ("kernels", "more_bytes_and_hops", lambda us: 1e9 / us),
    "a better board is slower": ("kernels", "better_board_is_never_slower", lambda us: 1e9 / us),
}


def serve_with(change, words):
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for line in sys.stdin.buffer:
        server.stdin.write(line)
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        if "result" in answer:
            change(json.loads(line), answer["result"])
        print(json.dumps(answer), flush=True)
    server.stdin.close()
    sys.exit(server.wait())


def run_with(change, words):
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    text = done.stdout
    if text.startswith("{"):
        answer = json.loads(text)
        change(words, answer)
        text = json.dumps(answer)
    elif text.startswith("id,time_us"):
        rows = [line.split(",", 2) for line in text.splitlines()]
        text = "\n".join([",".join(rows[0]), *(f"{row[0]},{change(float(row[1]))},{row[2]}" for row in rows[1:])]) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()
    sys.exit(done.returncode)


def between(fault, words):
    """Runs the program as it was asked to, with a fault in what it says."""
    if fault in OF_SERVE and words[1] == "serve":
        serve_with(OF_SERVE[fault][1], words)
    if fault in OF_COMMANDS and words[1] == OF_COMMANDS[fault][0]:
        run_with(OF_COMMANDS[fault][2], words)
    os.execv(words[0], words)


def relations(program, data, relation):
    """Exit status and output of some questions."""
    done = subprocess.run([sys.executable, FOLDER / "relations_test.py", program, data, "--only", relation, "--seed", "66",
                           "--seconds", "60", "--tries", "40" if relation in ("sums_of_a_step", "more_is_never_faster") else "4"],
                          capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main(program, data, only=""):
    faults = {fault: relation for fault, (relation, _) in OF_SERVE.items()}
    faults |= {fault: relation for fault, (_, relation, _) in OF_COMMANDS.items()}
    faults = {fault: relation for fault, relation in faults.items() if only in fault}
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "program"
        for fault, relation in faults.items():
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" --between "{fault}" "{program}" "$@"\n')
            script.chmod(0o755)
            status, said = relations(script, data, relation)
            seen = re.search(r"([\d,]+) checks, ([1-9][\d,]*) broken", said)
            if status != 1 or not seen or "Error: " in said:  # an answer that is none is another fault
                bad += 1
                print(f"{fault}: not seen by {relation}\n{said}")
            else:
                print(f"{fault}: {seen[2]} of {seen[1]} checks of {relation}", flush=True)
        for relation in sorted(set(faults.values())):
            status, said = relations(program, data, relation)
            if status != 0:
                bad += 1
                print(f"{relation}: broken without a fault\n{said}")
    print(f"{len(faults)} faults planted in {len(set(faults.values()))} relations, {bad} not seen or seen without a fault")
    return 1 if bad or not faults else 0


if sys.argv[1] == "--between":
    between(sys.argv[2], sys.argv[3:])
words = [word for word in sys.argv[1:] if word != "--only"]
sys.exit(main(os.path.abspath(words[0]), *words[1:]))
