"""Recordings of GPUs that have no file, or whose names say more than the board."""

from cases import Case, Recording, Refuses, Says

A100 = "a100-sxm-80gb"
UNSCALED = ["takes the time that the trace measured", "unscaled"]


# ---- k10: work that no rule knows, on a GPU that no file knows -----------------------------------


def fused(gpu, kernel_us, name="mylib::fused_mlp"):
    """A product, and an op of one's own of which the trace alone tells the time."""

    def write(folder):
        recording = Recording(gpu)
        recording.step(1, 0)
        recording.launch(10, kernel_us, op=name, kernel="my_kernel")
        recording.launch(500, 100)
        return recording.write(folder / "fused.json")

    return write


def times(kernel_us, said, gpu=A100):
    """The op keeps its time in every command that predicts; commands that only read say what was read."""
    return [
        Says(["predict", "{0}", "--gpu", gpu], {"/ops/0/kernels/0/time_us": kernel_us}, said),
        Says(["whatif", "{0}", "--gpu", gpu], {}, said),
        Says(["optimize", "{0}", "--gpu", gpu], {}, said),
        Says(["memory", "{0}", "--gpu", gpu]),
        Says(["analyze", "{0}", "--gpu", gpu]),
        Says(["trace", "{0}"], {"/top_kernels/0/total_us": kernel_us}),
        Says(["replay", "{0}"], {"/iterations/0/measured_us": 1000}),
    ]


# ---- k30: names that say more than the board -----------------------------------------------------


def steps_on(gpu):
    return lambda folder: Recording(gpu).steps(2).write(folder / "steps.json")


def virtual(board, title, name):
    return [
        Says(["gpus", name], {"/gpus/0/name": board}),
        Says(["predict", "{0}", "--gpu", name], {"/provenance/gpu": board}),
        Says(["analyze", "{0}"], {"/gpu": f"{title} ({board})"}),
        Says(["memory", "{0}", "--gpu", name]),
        Says(["whatif", "{0}", "--gpu", name], {"/rows/0/gpu": board}),
        Says(["optimize", "{0}", "--gpu", name], {"/gpu": board}),
        Says(["trace", "{0}"]),
        Says(["replay", "{0}"]),
    ]


def no_board(name, word):
    """Neither taken for the board nor only unknown."""
    said = ["not among the known ones", word]
    asked = [[command, "{0}", "--gpu", name] for command in ("predict", "whatif", "optimize", "memory", "analyze")]
    return [
        *(Refuses(argv, ["known GPU", name, word]) for argv in [["gpus", name], *asked]),
        Says(["analyze", "{0}"], {}, said),
        Says(["trace", "{0}"], {}, said),
    ]


CASES = [
    Case("k10", "handed_k10", times(400, UNSCALED), handed=["k10_unknown_gpu_unknown_op.json"]),
    Case("k10", "k10_unknown_amd", times(450, UNSCALED, "mi300x"), fused("AMD Instinct MI999X", 450, "other::moe")),
    Case("k10", "k10_slice", times(250, [*UNSCALED, "MIG slice"]),
         fused("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 250)),
    Case("k10", "k10_no_name", times(300, UNSCALED), fused(None, 300)),
    Case("k10", "k10_known", times(400, ["takes the time that the trace measured"]),
         fused("NVIDIA A100-SXM4-80GB", 400)),
    Case("k30", "handed_k30", virtual("mi300x", "AMD Instinct MI300X", "AMD Instinct MI300X VF"),
         handed=["k30_virtual_function.json"]),
    *(Case("k30", f"k30_{board}", virtual(board, title, f"{title} VF"), steps_on(f"{title} VF"))
      for board, title in (("mi210", "AMD Instinct MI210"), ("mi308x", "AMD Instinct MI308X"))),
    *(Case("k30", f"k30_no_board_{i}", no_board(name, word), steps_on(name))
      for i, (name, word) in enumerate([
          ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG slice"), ("GRID A100D-40C", "vGPU"),
          ("NVIDIA A10-24Q", "vGPU"), ("NVIDIA GeForce RTX 4090 Laptop GPU", "laptop"),
          ("Quadro RTX 6000 with Max-Q Design", "Max-Q")])),
]
