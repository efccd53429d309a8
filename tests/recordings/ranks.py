"""Waits for ranks whose recordings are not given, and memory of several devices."""

from cases import Case, Recording, Refuses, Says

A100, H100 = "a100-sxm-80gb", "h100-sxm-80gb"


# ---- waits of other ranks --------------------------------------------------------------------------


def rank_of(rank=0, world=8, comm_us=700, wide=True):
    """Two steps of 1,000 us that wait for an all-reduce of 4 MiB, which alone takes a fraction of its time."""
    recording = Recording(distributedInfo={"backend": "nccl", "rank": rank, "world_size": world} if wide else {})
    note = {"Collective name": "allreduce", "In msg nelems": 1048576, "Out msg nelems": 1048576, "dtype": "Float",
            "Group size": world, "Process Group Name": "0", "Process Group Ranks": str(list(range(world)))}
    for step in range(2):
        at = 1000 * step
        recording.step(step + 1, at)
        recording.launch(at + 10)
        recording.op("c10d::allreduce_", at + 60, 60, [[1048576]])
        recording.event("cpu_op", "record_param_comms", at + 70, 40,
                        **{"Input Dims": [[1048576]], "Input type": ["float"], **note, "Seq": step})
        recording.call(at + 80)
        recording.kernel(at + 100 + 20, comm_us, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)",
                         stream=20, **note)
        recording.op("aten::_local_scalar_dense", at + 125, comm_us + 10, [[1]])
        recording.event("cuda_runtime", "cudaDeviceSynchronize", at + 130, comm_us, correlation=9000 + step)
    return recording


def waiting(name, recorded_us, **how):
    def write(folder):
        return rank_of(**how).write(folder / f"{name}.json")

    said = ["for other ranks, as recorded on a100-sxm-80gb", "without that waiting"]
    return Case("waits", name, [
        Says(["predict", "{0}", "--gpu", A100], {"/comm_kernel_us": recorded_us}, said),
        Says(["predict", "{0}", "--gpu", H100], {}, said),
        Says(["predict", "{0}", "--gpu", A100, "--kernel-times", "{0}", "--use", "comm"],
             {"/comm_kernel_us": recorded_us}),
    ], write=write)


def two_files(name, first, second, words):
    def write(folder):
        return [rank_of(**how).write(folder / f"{i}.json") for i, how in enumerate([first, second])]

    return Case("ranks", name, [Refuses([command, "{0}", "{1}"], words) for command in ["trace", "replay"]],
                write=write)


# ---- k14: memory of several devices ----------------------------------------------------------------


def memory_of(devices, totals=True, kind=1):
    """Records of devices in the order of the list: (device, peak, number of records)."""
    recording = Recording().steps(2)
    for device, peak, count in devices:
        for i in range(count):
            # Up to the peak in steps of 1 MB, then one step down.
            down = i == count - 1 and i > 0
            level = peak - (1 if down else count - 2 - i if count > 1 else 0) * 1_000_000
            args = {"Device Type": 0 if device < 0 else kind, "Device Id": device, "Addr": 4096 * (i + 1),
                    "Bytes": -1_000_000 if down else 1_000_000}
            if totals:
                args.update({"Total Allocated": level, "Total Reserved": 2 * peak})
            made = recording.event("cpu_instant_event", "[memory]", 20 + 50 * i + max(device, 0), phase="i", **args)
            made["s"] = "t"
    return recording


def memory_checks(device, peak, totals=True, several=True):
    said = [device, "devices"] if several else []
    checks = [
        Says(["memory", "{0}"], {"/peak_allocated_bytes": peak, "/device": device, "/measured": True}, said),
        Says(["memory", "{0}", "--gpu", "t4"], {"/device": device, "/peak_allocated_bytes": peak}, said),
        Says(["trace", "{0}"], {"/memory/peak_bytes": peak, "/memory/devices/0/device": device}),
        Says(["predict", "{0}", "--gpu", A100], {"/memory": None}),
    ]
    return checks


def memory(name, device, peak, devices, **how):
    def write(folder):
        return memory_of(devices, **how).write(folder / f"{name}.json")

    return Case("k14", name, memory_checks(device, peak, several=sum(d >= 0 for d, _, _ in devices) > 1), write=write)


CASES = [
    waiting("rank_of_eight", 700),
    waiting("group_of_eight_without_a_head", 400, comm_us=400, wide=False),
    two_files("one_rank_twice", {}, {"comm_us": 600}, ["rank 0", "a second time"]),
    two_files("worlds_of_two_sizes", {}, {"rank": 1, "world": 4}, ["world of 4 ranks", "one of 8"]),
    Case("k14", "handed_two_devices", memory_checks("cuda:1", 5_400_000_000),
         handed=["k14_memory_of_two_devices.json"]),
    memory("largest_last_of_three", "cuda:2", 7_000_000_000,
           [(0, 2_000_000_000, 6), (-1, 9_000_000_000, 8), (1, 3_000_000_000, 4), (2, 7_000_000_000, 3)]),
    memory("fewest_records_of_another_backend", "privateuseone:1", 900_000_000,
           [(1, 900_000_000, 2), (0, 800_000_000, 9)], kind=20),
    memory("without_totals", "cuda:1", 5_000_000, [(0, 9, 4), (1, 9, 6)], totals=False),
    Case("memory", "no_records_of_memory", [
        Says(["memory", "{0}"], {"/measured": False, "/peak_allocated_bytes": None, "/fits": None}, ["not predicted"]),
        Says(["memory", "{0}", "--gpu", A100], {"/measured": False, "/needed_bytes": None, "/fits": None},
             ["not predicted"]),
        Says(["predict", "{0}", "--gpu", A100], {"/memory": None}),
        Refuses(["memory", "{0}", "--gpu", A100, "--max-batch"], ["--max-batch", "found a trace"]),
    ], write=lambda folder: Recording().steps(2).write(folder / "none.json")),
]
