"""Streams, stamps, ids, launches and steps that recordings get wrong."""

from cases import Case, Recording, Refuses, Runs, Says

A100 = "a100-sxm-80gb"


def commands(trace=None, replay=None, predict=None, said=(), gpu=A100):
    """Expected output of `trace`, `replay` and `predict` on the first file; all commands name oddities."""
    said = list(said)
    checks = [
        Says(["trace", "{0}"], trace or {}, said),
        Says(["replay", "{0}"], replay or {}, said),
        Says(["predict", "{0}", "--gpu", gpu], predict or {}, said),
        Says(["overheads", "{0}"], {}, said),
        Says(["analyze", "{0}"], {}, said),
        Says(["whatif", "{0}", "--gpu", gpu], {}, said),
        Says(["memory", "{0}", "--gpu", gpu], {}, said),
        Says(["optimize", "{0}", "--gpu", gpu], {}, said),
        Says(["rewrite", "{0}", "--scale-kernel", "*=2", "-o", "{out}/graph.json"], {}, said),
        Runs(["report", "{0}", "-o", "{out}/page.html"], "page.html", ['"recording":', *said]),
    ]
    return checks


def handed(kind, name, checks):
    return Case(kind, f"handed_{name}", checks, handed=[f"{kind}_{name}.json"])


def made(kind, name, write, checks):
    def to_file(folder):
        return write().write(folder / f"{name}.json")

    return Case(kind, f"{kind}_{name}", checks, write=to_file)


def steps(*values):
    """JSON pointers of kernels per iteration."""
    return {f"/iterations/{i}/kernels": v for i, v in enumerate(values)}


def walls(*values):
    return {f"/iterations/{i}/wall_us": v for i, v in enumerate(values)}


def finding(kind, count=None):
    found = {"/recording/findings/0/kind": kind}
    if count is not None:
        found["/recording/findings/0/count"] = count
    return found


# ---- k01: what a stream cannot have done ---------------------------------------------------------


def long_copy():
    """A copy that lasts over the next kernels of its stream."""
    recording = Recording().steps(2)
    recording.event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 140, 5000, pid=0, tid=7, device=0, stream=7,
                    correlation=90001, bytes=4096)
    return recording


def longer_than_the_gap():
    """Every kernel is recorded half as long again as it ran: each ends after the next began."""
    recording = Recording()
    for step in range(2):
        recording.step(step + 1, 1000 * step)
        for i in range(4):
            recording.launch(1000 * step + 10 + 100 * i, 150)
    return recording


def twice_with_a_shift():
    """Each kernel twice, the second record some hundred nanoseconds later."""
    recording = Recording().steps(2)
    for event in [e for e in recording.events if e["cat"] == "kernel"]:
        recording.events.append({**event, "ts": event["ts"] + 0.4})
    return recording


def graph_branches():
    """Nodes of a captured graph run side by side on one recorded stream: nothing is odd."""
    recording = Recording()
    for step in range(2):
        recording.step(step + 1, 1000 * step)
        recording.op("aten::mm", 1000 * step + 10, 40)
        recording.call(1000 * step + 20, name="cudaGraphLaunch")
        recording.kernel(1000 * step + 40, 100)
        recording.kernel(1000 * step + 60, 100)
    return recording


K01 = [
    handed("k01", "one_kernel_too_long", commands({"/gpu_busy_us": 900.0, **steps(4, 4)}, said=["1 piece of device work"])),
    handed("k01", "every_kernel_twice", commands({"/gpu_busy_us": 800.0, **steps(4, 4)}, said=["8 ", "twice"])),
    handed("k01", "one_kernel_too_long", [Says(["rewrite", "{0}", "--subgraph", "aten::mm", "-o", "{out}/graph.json"],
                                               finding("overlap_on_stream", 1), ["1 piece"])]),
    made("k01", "long_copy", long_copy, commands({"/gpu_busy_us": 895.0}, said=["cut"])),
    made("k01", "longer_than_the_gap", longer_than_the_gap, commands({"/compute_kernel_us": 900.0, "/gpu_busy_us": 900.0},
                                                                   said=["6 pieces"])),
    made("k01", "twice_with_a_shift", twice_with_a_shift, commands({"/gpu_busy_us": 800.0}, said=["8 kernels"])),
    made("k01", "graph_branches", graph_branches, [Says(["trace", "{0}"], {"/recording/findings": [], "/gpu_busy_us": 240.0})]),
]


# ---- k02: stamps that are none -------------------------------------------------------------------


def host_op_of_1970():
    recording = Recording()
    for step in range(2):
        recording.step(step + 1, 1.7e15 + 1000 * step)
        for i in range(4):
            recording.launch(1.7e15 + 1000 * step + 10 + 200 * i)
    recording.op("aten::add", 12, 5)
    return recording


def one_second_early():
    """A kernel that began a second before its call, in a trace without an epoch."""
    recording = Recording()
    for step in range(2):
        recording.step(step + 1, 2e6 + 1000 * step)
        for i in range(4):
            recording.launch(2e6 + 1000 * step + 10 + 200 * i)
    kernel = [e for e in recording.events if e["cat"] == "kernel"][2]
    kernel["ts"] -= 1e6
    return recording


def clock_of_its_own():
    """All device work is stamped by a clock that is two hours slow."""
    recording = Recording()
    for step in range(2):
        recording.step(step + 1, 1.7e15 + 1000 * step)
        for i in range(4):
            recording.launch(1.7e15 + 1000 * step + 10 + 200 * i)
    for event in recording.events:
        if event["cat"] == "kernel":
            event["ts"] -= 7200e6
    return recording


K02 = [
    handed("k02", "stamp_zero", commands({"/breakdown/span_us": 1700.0, **steps(4, 4)}, said=["3 events", "left out"])),
    handed("k02", "27_hours_before", commands(steps(2, 4), said=["left out"])),
    made("k02", "host_op_of_1970", host_op_of_1970, commands(steps(4, 4), said=["1 event", "left out"])),
    made("k02", "one_second_early", one_second_early, commands(steps(3, 4), said=["1 piece", "left out"])),
    made("k02", "clock_of_its_own", clock_of_its_own, commands({"/gpu_busy_us": 800.0, **steps(4, 4)}, said=["clock"])),
]

# ---- k03: marks of steps that occur twice --------------------------------------------------------


def same_mark_twice():
    """The same mark twice on one thread, the second a little shorter."""
    recording = Recording().steps(2)
    recording.step(1, 2, 990)
    recording.step(2, 1002, 990)
    return recording


def two_of_one_class():
    """Two Adams per step, whose ops differ."""
    recording = Recording()
    for step in range(4):
        for i in range(4):
            recording.launch(1000 * step + 10 + 150 * i)
        for at, op in ((620, "aten::_foreach_add_"), (800, "aten::_foreach_mul_")):
            recording.event("user_annotation", "Optimizer.step#Adam.step", 1000 * step + at, 60)
            recording.op(op, 1000 * step + at + 10, 20, sizes=None)
    return recording


def wrapped_optimizer():
    """An optimizer that wraps another one: the outermost counts."""
    recording = Recording()
    for step in range(4):
        for i in range(4):
            recording.launch(1000 * step + 10 + 150 * i)
        recording.event("user_annotation", "Optimizer.step#AcceleratedOptimizer.step", 1000 * step + 700, 100)
        recording.event("user_annotation", "Optimizer.step#AdamW.step", 1000 * step + 710, 60)
    return recording


K03 = [
    handed("k03", "steps_on_two_threads", commands({**walls(1000.0, 1000.0), **steps(4, 4)}, said=["mark"])),
    handed("k03", "two_optimizers", commands({**walls(1000.0), **steps(4)})),
    made("k03", "same_mark_twice", same_mark_twice, commands({**walls(1000.0, 1000.0), **steps(4, 4)}, said=["2 marks"])),
    made("k03", "two_of_one_class", two_of_one_class, commands({**walls(1000.0, 1000.0, 1000.0), **steps(4, 4, 4)})),
    made("k03", "wrapped_optimizer", wrapped_optimizer, commands({**walls(1000.0, 1000.0, 1000.0), **steps(4, 4, 4)})),
]

# ---- k04: what is communication ------------------------------------------------------------------

COLLECTIVES = [
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<3, __half>()",
    "void mscclpp::allreduce7<float>(float*, float*)",
    "multimem_one_shot_all_reduce_kernel",
    "void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16>",
    "void rocshmem::put_wave(float*)",
    "hcom_allReduce__123_0",
    "oneccl_allgatherv_kernel",
    "void aiter::reduce_scatter_cross_device_store<__half>",
    "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16",
    "pplx::AllToAll::internode::dispatchKernel<4>",
]
COMPUTE = ["triton_poi_fused_all_gather_into_tensor_wait_tensor_1", "triton_per_fused_nccl_reduce_scatter_0",
           "void deep_ep::layout::get_dispatch_layout<256>(long const*)"]


def named(names):
    def write():
        recording = Recording()
        recording.step(1, 0, 1000 * len(names))
        for i, name in enumerate(names):
            recording.launch(1000 * i + 10, 100, "my::op", name)
        return recording

    return write


K04 = [
    handed("k04", "collectives_without_nccl", [Says(["trace", "{0}"], {"/comm_kernel_us": 600.0, "/compute_kernel_us": 0.0,
                                                                      "/breakdown/comm_us": 600.0}),
                                               Says(["replay", "{0}"])]),
    handed("k04", "triton_named_after_a_collective", [Says(["trace", "{0}"], {"/comm_kernel_us": 0.0})]),
    made("k04", "other_libraries", named(COLLECTIVES),
         [Says(["trace", "{0}"], {"/comm_kernel_us": 100.0 * len(COLLECTIVES), "/compute_kernel_us": 0.0})]),
    made("k04", "named_after_what_is_around", named(COMPUTE), [Says(["trace", "{0}"], {"/comm_kernel_us": 0.0})]),
]

# ---- k05: ids that are none ----------------------------------------------------------------------


def zero_everywhere():
    """A profiler that gives no correlation at all: 0 in every record."""
    recording = Recording("AMD Instinct MI300X").steps(2, call="hipLaunchKernel")
    for event in recording.events:
        if "correlation" in event["args"]:
            event["args"]["correlation"] = 0
    return recording


def second_kernel_of_an_id():
    """Two launches, but both kernels have the number of the first."""
    recording = Recording()
    for step in range(2):
        recording.step(step + 1, 1000 * step)
        first = recording.launch(1000 * step + 10)
        second = recording.launch(1000 * step + 210)
        second["args"]["correlation"] = first["args"]["correlation"]
    return recording


def ids_begin_anew():
    """Two windows of a schedule whose ids begin at the same number."""
    recording = Recording()
    for step in range(4):
        recording.correlation = 100 if step % 2 == 0 else recording.correlation
        recording.step(step + 1, 1000 * step)
        for i in range(4):
            recording.launch(1000 * step + 10 + 200 * i)
    return recording


K05 = [
    handed("k05", "correlation_zero", commands({"/iterations/0/gpu_busy_us": 600.0, "/iterations/1/gpu_busy_us": 600.0},
                                               said=["2 ", "0"], gpu="mi300x")),
    made("k05", "zero_everywhere", zero_everywhere, commands(steps(4, 4), said=["8 ", "0"], gpu="mi300x")),
    made("k05", "second_kernel_of_an_id", second_kernel_of_an_id, commands(steps(2, 2), said=["2 kernels"])),
    made("k05", "ids_begin_anew", ids_begin_anew, commands(steps(4, 4, 4, 4))),
]

# ---- k06: several processes ----------------------------------------------------------------------


def ranks_of_one_device():
    """Two processes that share a device, with ids of their own."""
    recording = Recording().steps(2)
    for event in list(recording.events):
        other = {**event, "args": dict(event["args"])}
        if other["cat"] in ("kernel",):
            other["tid"] = other["args"]["stream"] = 8
        else:
            other["pid"] = other["tid"] = 2000
        if "correlation" in other["args"]:
            other["args"]["correlation"] += 5000
        recording.events.append(other)
    return recording


def ranks_by_name():
    """Processes named as merging tools name them."""
    recording = Recording().steps(2)
    for event in list(recording.events):
        other = {**event, "args": dict(event["args"])}
        if other["cat"] == "kernel":
            other["pid"] = other["args"]["device"] = 1
        else:
            event["pid"], other["pid"] = "[TP0] 77", "[TP1] 77"
        recording.events.append(other)
    return recording


def refused_everywhere(words, gpu=A100):
    return [Refuses(["trace", "{0}"], words), Refuses(["replay", "{0}"], words), Refuses(["predict", "{0}", "--gpu", gpu], words),
            Refuses(["overheads", "{0}"], words), Refuses(["analyze", "{0}"], words),
            Refuses(["whatif", "{0}", "--gpu", gpu], words), Refuses(["memory", "{0}", "--gpu", gpu], words)]


K06 = [
    handed("k06", "two_ranks_in_one_file", refused_everywhere(["one process", "1000", "2000"])),
    made("k06", "ranks_of_one_device", ranks_of_one_device, refused_everywhere(["one process", "1000", "2000"])),
    made("k06", "ranks_by_name", ranks_by_name, refused_everywhere(["one process", "TP0", "TP1"])),
]

# ---- k07: begin and end events -------------------------------------------------------------------


def in_two_parts(recording, keep=lambda event: False, named=False):
    events = []
    for event in recording.events:
        if keep(event):
            events.append(event)
            continue
        begin = {k: v for k, v in event.items() if k != "dur"}
        events.append({**begin, "ph": "B"})
        name = {"name": event["name"]} if named else {}
        events.append({"ph": "E", **name, "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + event["dur"]})
    recording.events = sorted(events, key=lambda event: (event["ts"], event["ph"] != "E"))
    return recording


def bare_ends():
    """Ends that say neither name nor category, as Chrome allows; device work stays complete."""
    return in_two_parts(Recording().steps(2), lambda event: event["cat"] == "kernel")


def never_ends():
    recording = in_two_parts(Recording().steps(2), named=True)
    recording.events.append({"ph": "B", "cat": "cpu_op", "name": "aten::add", "pid": 1000, "tid": 1000, "ts": 1990, "args": {}})
    return recording


K07 = [
    handed("k07", "begin_and_end_events", commands({"/gpu_busy_us": 800.0, **steps(4, 4), **walls(1000.0, 1000.0)})),
    made("k07", "bare_ends", bare_ends, commands({"/gpu_busy_us": 800.0, **steps(4, 4), **walls(1000.0, 1000.0)})),
    made("k07", "never_ends", never_ends, commands({"/gpu_busy_us": 800.0, **steps(4, 4)}, said=["1 event", "never"])),
]

# ---- k08: device rows without a category ---------------------------------------------------------


class Rows(Recording):
    """Events without categories, in rows of named processes."""

    def row(self, pid, name, ts, dur, tid=1):
        self.events.append({"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": {}})

    def process(self, pid, name):
        self.events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})


def rocprof_rows():
    recording = Rows(None)
    for i in range(4):
        recording.row(2, "hipLaunchKernel", 100 + 200 * i, 10)
        recording.row(6, "Cijk_Ailk_Bljk", 120 + 200 * i, 100)
    recording.row(1, "CopyHostToDevice", 20, 30)
    recording.process(2, "2 CPU HIP API")
    recording.process(6, "6 GPU0")
    recording.process(1, "1 COPY")
    return recording


def ascend_with_communication():
    recording = Rows(None)
    for pid, name in ((2, "CANN"), (3, "Ascend Hardware"), (4, "Overlap Analysis"), (5, "Communication")):
        recording.process(pid, name)
    for i in range(3):
        recording.op("aten::add", 100 + 200 * i, 50)
        recording.row(2, "Node@launch", 110 + 200 * i, 10)
        recording.row(3, "Add", 150 + 200 * i, 60, tid=4)
        recording.row(4, "Computing", 150 + 200 * i, 60)
    recording.row(5, "hcom_allGather__1_0", 900, 200)
    return recording


K08 = [
    handed("k08", "legacy_cuda_functions", [Says(["trace", "{0}"], {"/gpu_busy_us": 400.0, "/kernels_total": 4}, ["4 events"])]),
    handed("k08", "npu_hardware_rows", [Says(["trace", "{0}"], {"/kernels_total": 5, "/gpu_busy_us": 680.0, "/comm_kernel_us": 200.0},
                                             ["5 events"])]),
    made("k08", "rocprof_rows", rocprof_rows, [Says(["trace", "{0}"], {"/kernels_total": 4, "/gpu_busy_us": 430.0}, ["5 events"])]),
    made("k08", "ascend_with_communication", ascend_with_communication,
         [Says(["trace", "{0}"], {"/kernels_total": 4, "/comm_kernel_us": 200.0}, ["4 events"])]),
]

# ---- k09: what begins in an op and ends after it -------------------------------------------------


def phase_begins_inside_an_op():
    """A phase of the program that begins while the last op of the phase before still runs."""
    recording = Recording()
    recording.step(1, 0, 2000)
    recording.op("aten::item", 0, 500, sizes=None)
    recording.event("user_annotation", "## forward ##", 300, 1000)
    recording.launch(600, 100)
    return recording


def rounded_ends():
    """Whole microseconds: an op ends one microsecond after the op around it, and is still its part."""
    recording = Recording()
    recording.step(1, 0, 1000)
    recording.op("aten::linear", 100, 40)
    recording.op("aten::addmm", 110, 31)
    recording.call(120)
    recording.kernel(150, 100)
    return recording


def op_row(document_row, **values):
    return {f"/ops/{document_row}/{key}": value for key, value in values.items()}


K09 = [
    handed("k09", "step_begins_inside_an_op", [Says(["trace", "{0}"], {
        **op_row(0, name="aten::mm", device_total_us=200.0),
        **op_row(1, name="aten::_local_scalar_dense", device_total_us=0.0, host_self_us=700.0)})]),
    made("k09", "phase_begins_inside_an_op", phase_begins_inside_an_op, [Says(["trace", "{0}"], {
        **op_row(0, name="aten::mm", device_total_us=100.0),
        **op_row(1, name="aten::item", device_total_us=0.0, host_self_us=500.0)})]),
    made("k09", "rounded_ends", rounded_ends, [Says(["trace", "{0}"], op_row(0, name="aten::addmm", device_self_us=100.0) | op_row(1, name="aten::linear", device_total_us=100.0))]),
]

# ---- k15: the main kernel of an op ---------------------------------------------------------------


def product_with_unknown_name(first, second, first_us, second_us):
    """Products of two kernels of 4096^3, of which the first or the second takes the time."""

    def write():
        recording = Recording("NVIDIA H100 80GB HBM3")
        for step in range(2):
            recording.step(step + 1, 2000 * step, 2000)
            for i in range(4):
                at = 2000 * step + 10 + 480 * i
                recording.op("aten::mm", at, 60, ((4096, 4096), (4096, 4096)))
                recording.call(at + 10, name="cudaLaunchKernelExC")
                recording.kernel(at + 30, first_us, first)
                recording.call(at + 30)
                recording.kernel(at + 32 + first_us, second_us, second)
        return recording

    return write


def kernels_of_product(first, second):
    """Which of two kernels of the first op is priced as the product: the other one is a small one."""
    return {"/ops/0/kernels/0/model": first, "/ops/0/kernels/1/model": second} if first else {}


K15 = [
    handed("k15", "nvjet_split_k", [Says(["predict", "{0}", "--gpu", "h100-sxm-80gb"])]),
    handed("k15", "products_without_gemm_in_the_name", [Says(["trace", "{0}"])]),
    made("k15", "first_is_longer", product_with_unknown_name("my_tiled_product", "my_sum", 220, 15),
         [Says(["predict", "{0}", "--gpu", "h100-sxm-80gb"], {"/ops/0/kernels/0/inferred": False, "/ops/0/kernels/1/inferred": True})]),
    made("k15", "second_is_longer", product_with_unknown_name("my_layout_change", "my_tiled_product", 15, 220),
         [Says(["predict", "{0}", "--gpu", "h100-sxm-80gb"], {"/ops/0/kernels/0/inferred": True, "/ops/0/kernels/1/inferred": False})]),
    made("k15", "nvjet_then_sum", product_with_unknown_name("nvjet_hsh_256x128_64x4_2x1_v_bz_splitK_TNT",
                                                           "void cublasLt::splitKreduce_kernel<32, 16>", 220, 15),
         [Says(["predict", "{0}", "--gpu", "h100-sxm-80gb"], {"/ops/0/kernels/0/inferred": False, "/ops/0/kernels/1/inferred": True})]),
]

# ---- k16: launches by their ids, whatever the call's name -----------------------------------------


def launched_by(call):
    def write():
        recording = Recording()
        for step in range(2):
            recording.step(step + 1, 1000 * step)
            for i in range(6):
                recording.launch(1000 * step + 10 + 60 * i, 105, "aten::add", "void at::native::vectorized_elementwise_kernel<4>",
                                 call, device=0)
            recording.call(1000 * step + 600, 380, "cudaDeviceSynchronize")
        return recording

    return write


K16 = [
    handed("k16", "new_launch_call", commands(steps(6, 6))),
    made("k16", "unheard_of", launched_by("cuLaunchKernelFromTheFuture"),
         [Says(["overheads", "{0}"], {"/t4/cuLaunchKernelFromTheFuture/mean_us": 8.0}), *commands(steps(6, 6))]),
    made("k16", "of_another_vendor", launched_by("mcLaunchKernel"),
         [Says(["overheads", "{0}"], {"/t4/mcLaunchKernel/mean_us": 8.0}), *commands(steps(6, 6))]),
]

# ---- k23: keys in any order ----------------------------------------------------------------------


def counters(key_order):
    def write():
        recording = Recording().steps(1)
        recording.event("cuda_profiler_range", "range", 500, 100, pid=0, tid=0, **{"dram__bytes.sum": 2.5e9, "sm__cycles.sum": 10.0})
        recording.events = [{key: event[key] for key in sorted(event, key=key_order)} for event in recording.events]
        return recording

    return write


K23 = [
    handed("k23", "counters_with_sorted_keys", [Says(["trace", "{0}"], {"/counters/0/name": "dram__bytes.sum", "/counters/0/total": 2.5e9,
                                                                       "/counters/1/name": "smsp__inst_executed.sum"})]),
    made("k23", "arguments_first", counters(lambda key: key != "args"), [Says(["trace", "{0}"], {"/counters/0/total": 2.5e9, "/counters/1/total": 10.0})]),
    made("k23", "backwards", counters(lambda key: -ord(key[0])), [Says(["trace", "{0}"], {"/counters/0/total": 2.5e9, **steps(4)})]),
]

# ---- k24: passes within the optimizer ------------------------------------------------------------


def lbfgs():
    """A closure that is called twice per step, as L-BFGS does."""
    recording = Recording()
    for step in range(2):
        at = 4000 * step
        recording.step(step + 1, at, 4000)
        recording.event("user_annotation", "Optimizer.step#LBFGS.step", at + 20, 3900)
        for turn in range(2):
            begin = at + 50 + 1500 * turn
            recording.launch(begin, 200)
            recording.event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", begin + 400, 100, tid=2000)
            recording.event("cpu_op", "aten::mm", begin + 410, 60, tid=2000)
            recording.call(begin + 420)["tid"] = 2000
            recording.kernel(begin + 440, 400)
        recording.launch(at + 3200, 50, "aten::add_")
    return recording


def plain_optimizer():
    recording = Recording().steps(2)
    for step in range(2):
        recording.event("user_annotation", "Optimizer.step#SGD.step", 1000 * step + 600, 100)
    return recording


K24 = [
    handed("k24", "forward_within_the_optimizer", [Says(["trace", "{0}"], {
        "/phases/forward_us": 900.0, "/phases/backward_us": 1800.0, "/phases/optimizer_us": 300.0})]),
    made("k24", "lbfgs", lbfgs, [Says(["trace", "{0}"], {"/phases/forward_us": 800.0, "/phases/backward_us": 1600.0,
                                                        "/phases/optimizer_us": 100.0})]),
    made("k24", "plain_optimizer", plain_optimizer, [Says(["trace", "{0}"], {"/phases/forward_us": 600.0, "/phases/optimizer_us": 200.0})]),
]

# ---- k26: calls within calls ---------------------------------------------------------------------


def driver_inside(own_id):
    def write():
        recording = Recording()
        for step in range(2):
            recording.step(step + 1, 1000 * step)
            for i in range(8):
                at = 1000 * step + 10 + 100 * i
                recording.op("aten::mm", at, 60)
                outer = recording.call(at + 10, 20)
                if own_id:
                    recording.correlation += 1
                recording.event("cuda_driver", "cuLaunchKernel", at + 12, 14, correlation=recording.correlation)
                recording.kernel(at + 40, 30)
                assert outer
        return recording

    return write


def waits_inside():
    """A wait of the runtime holds one of the driver: the step waits once."""
    recording = Recording().steps(2)
    for step in range(2):
        recording.call(1000 * step + 800, 150, "cudaDeviceSynchronize")
        recording.event("cuda_driver", "cuCtxSynchronize", 1000 * step + 805, 140, correlation=77000 + step)
    return recording


K26 = [
    handed("k26", "driver_call_inside_a_runtime_call", [Says(["overheads", "{0}"], {"/t4/cudaLaunchKernel/mean_us": 20.0},
                                                             ["within other calls"]), *commands()]),
    made("k26", "driver_with_the_same_id", driver_inside(False),
         [Says(["overheads", "{0}"], {"/t4/cudaLaunchKernel/mean_us": 20.0}), *commands(steps(8, 8))]),
    made("k26", "driver_with_an_id_of_its_own", driver_inside(True),
         [Says(["overheads", "{0}"], {"/t4/cudaLaunchKernel/mean_us": 20.0}), *commands(steps(8, 8))]),
    made("k26", "waits_inside", waits_inside, [*commands(steps(4, 4), {"/mean_abs_error": 0.0}), ]),
]

# ---- k27: several devices of one process ---------------------------------------------------------


def data_parallel():
    """One process that computes on four devices in turn."""
    recording = Recording()
    for step in range(2):
        recording.step(step + 1, 1000 * step)
        for device in range(4):
            recording.launch(1000 * step + 10 + 100 * device, 200, device=device)
        recording.call(1000 * step + 500, 400, "cudaDeviceSynchronize")
    return recording


def peer_copies():
    """A copy to another device is no step of several devices."""
    recording = Recording().steps(2)
    recording.op("aten::copy_", 900, 40)
    recording.call(910, name="cudaMemcpyPeerAsync")
    recording.kernel(930, 20, "Memcpy PtoP (Device -> Device)", device=1, stream=9, category="gpu_memcpy", bytes=4096)
    return recording


SEVERAL = ["one device", "0", "1"]
K27 = [
    handed("k27", "two_devices_of_one_process", [
        Says(["trace", "{0}"], {**walls(1000.0, 1000.0), **steps(6, 6)}),
        Says(["replay", "{0}"], {"/iterations/0/replayed_us": 1000.0}),
        Refuses(["predict", "{0}", "--gpu", A100], SEVERAL), Refuses(["overheads", "{0}"], SEVERAL)]),
    made("k27", "data_parallel", data_parallel, [
        Says(["trace", "{0}"], steps(4, 4)), Says(["replay", "{0}"], {"/iterations/0/replayed_us": 1000.0}),
        Refuses(["predict", "{0}", "--gpu", A100], SEVERAL), Refuses(["whatif", "{0}", "--gpu", A100], SEVERAL)]),
    made("k27", "peer_copies", peer_copies, commands(steps(4, 4))),
]

# ---- k28: windows of a schedule ------------------------------------------------------------------


def optimizer_windows():
    """Two windows of three steps each, marked by the optimizer, half a second apart."""
    recording = Recording()
    for window in range(2):
        for step in range(3):
            at = 500_000 * window + 1000 * step
            for i in range(4):
                recording.launch(at + 10 + 150 * i)
            recording.event("user_annotation", "Optimizer.step#SGD.step", at + 800, 60)
    return recording


def three_windows():
    recording = Recording()
    for number, at in ((2, 0), (10, 80_000), (11, 81_000), (40, 300_000)):
        recording.step(number, at)
        for launch in range(4):
            recording.launch(at + 10 + 200 * launch)
    return recording


K28 = [
    handed("k28", "steps_3_4_8_9", commands({**walls(1000.0, 1000.0, 1000.0, 1000.0), **steps(4, 4, 4, 4)},
                                            predict={"/e2e_us": 1000.0}, said=["jump"])),
    made("k28", "optimizer_windows", optimizer_windows, commands({**walls(1000.0, 1000.0, 1000.0, 1000.0), **steps(4, 4, 4, 4)})),
    made("k28", "three_windows", three_windows, commands({**walls(1000.0, 1000.0), **steps(4, 4)}, predict={"/e2e_us": 1000.0},
                                                         said=["jump"])),
]

# ---- k29: kernels outside of ops -----------------------------------------------------------------


def outside(marks):
    """Kernels of an extension between ops and after the last one; with or without marks of steps."""

    def write():
        recording = Recording()
        for step in range(3):
            at = 6000 * step
            if marks:
                recording.step(step + 1, at, 6000)
            for i in range(3):
                begin = at + 20 + 1200 * i
                recording.op("aten::add", begin, 40)
                recording.call(begin + 10)
                recording.kernel(begin + 30, 20, "vectorized_elementwise_kernel")
                recording.call(begin + 100, name="cudaLaunchKernelExC")
                recording.kernel(begin + 130, 300 + 100 * i, f"void ext::big_kernel<{i}>")
                recording.call(begin + 120)
                recording.kernel(begin + 140 + 300 + 100 * i, 10, "void ext::small_kernel")
            if not marks:
                recording.event("user_annotation", "Optimizer.step#SGD.step", at + 5000, 10)
        return recording

    return write


K29 = [
    handed("k29", "launches_outside_of_ops", [
        Says(["predict", "{0}", "--gpu", "h800", "--kernel-times", "{0}"], {"/kernel_sum_us": 2790.0}),
        Says(["trace", "{0}"], steps(9, 9, 9))]),
    made("k29", "with_marks", outside(True), [
        Says(["predict", "{0}", "--gpu", A100, "--kernel-times", "{0}"], {"/kernel_sum_us": 1290.0})]),
    made("k29", "by_the_optimizer", outside(False), [
        Says(["predict", "{0}", "--gpu", A100, "--kernel-times", "{0}"], {"/kernel_sum_us": 1290.0})]),
]

# ---- recordings with nothing odd about them: no false alarm --------------------------------------

FINE = {"bad_escape_args": 800.0, "bom": 800.0, "child_longer": 200.0, "counter_nan": 800.0, "ctrl_char": 800.0, "hipgraph": 2700.0,
        "gemm_split_k": 2820.0, "jax_empty_event": 400.0, "known_launch_call": 1890.0, "launches_in_ops": 8370.0,
        "launches_not_nested": 720.0, "launches_not_nested_exc": 720.0, "overlap_ns": 1600.054, "r0": 1200.0, "same_as_object": 800.0}
PASSES = [Case("fine", f"passes_{name}", [Says(["trace", "{0}"], {"/recording/findings": [], "/gpu_busy_us": busy}),
                                          Says(["replay", "{0}"], {"/recording/findings": []})], handed=[f"passes/{name}.json"])
          for name, busy in FINE.items()]
# Twins: a kind's recording is predicted to take as long as its plain form.
for twin, plain, gpu in (("k15_nvjet_split_k", "gemm_split_k", "h100-sxm-80gb"), ("k16_new_launch_call", "known_launch_call", "mi300x"),
                         ("k26_driver_call_inside_a_runtime_call", "launches_not_nested", A100)):
    step = {"gemm_split_k": 2000.0}.get(plain, 1000.0)
    for name in (twin, f"passes/{plain}"):
        PASSES.append(Case("fine", f"twin_{name.replace('/', '_')}", [Says(["predict", "{0}", "--gpu", gpu], {"/e2e_us": step})],
                           handed=[f"{name}.json"]))

CASES = [*PASSES, *K01, *K02, *K03, *K04, *K05, *K06, *K07, *K08, *K09, *K15, *K16, *K23, *K24, *K26, *K27, *K28, *K29]
