"""Recordings for simulators (Chakra), collectives of several files, and graphs with ops that no table knows."""

import json

from cases import Case, Recording, Refuses, Says

# ---- Chakra files ------------------------------------------------------------------------------

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER = 0, 2


def varint(value):
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def attribute(name, value):
    kind = {bool: 27, int: 9, str: 29}[type(value)]
    return text(10, text(1, name) + (text if kind == 29 else number)(kind, value))


def node(id, kind, name, us=0, after=(), **attributes):
    made = number(1, id) + text(2, name) + number(3, kind) + number(7, us)
    made += b"".join(number(5, other) for other in after)
    return made + b"".join(attribute(key, value) for key, value in attributes.items())


def work(id, us=100, after=(), **more):
    return node(id, COMPUTE, f"work{id}", us, after, is_cpu_op=False, **more)


def collective(id, us=0, after=(), kind=ALL_REDUCE, **more):
    return node(id, COLLECTIVE, "all_reduce" if kind == ALL_REDUCE else "all_gather", us, after, is_cpu_op=False,
                comm_type=kind, comm_size=1048576, **more)


def write_ranks(folder, *ranks):
    paths = []
    for rank, nodes in enumerate(ranks):
        paths.append(folder / f"job.{rank}.et")
        messages = [text(1, "0.0.4"), *nodes]
        paths[-1].write_bytes(b"".join(varint(len(message)) + message for message in messages))
    return paths


OTHER_COMMANDS = [["trace"], ["overheads"], ["analyze"], ["memory"], ["predict", "--gpu", "a100-sxm4-80gb"],
                  ["whatif", "--gpu", "a100-sxm4-80gb"], ["optimize", "--gpu", "a100-sxm4-80gb"],
                  ["report", "-o", "refused.html"], ["rewrite", "-o", "refused.json"]]


def untimed(files):
    return [Refuses(["replay", *files], ["durations", "found none"]),
            *(Refuses([command, files[0], *more], ["Chakra"]) for command, *more in OTHER_COMMANDS)]


def ranks_take(*steps, files=None, said=()):
    files = files or [f"{{{i}}}" for i in range(len(steps))]
    return Says(["replay", *files], {f"/ranks/{r}/iterations/0/replayed_us": us for r, us in enumerate(steps)},
                list(said))


def mixture(folder):
    return write_ranks(folder, *[[work(1), collective(2, 0, [1]), collective(3, 50, [2])] for _ in range(2)])


def without_successors(folder):
    """Nothing waits for the kernels, so the collective would run in parallel with them."""
    return write_ranks(folder, *[[node(1, COMPUTE, "launch", 10, is_cpu_op=True), work(2, 500, [1]),
                                  collective(3, 50, [1])] for _ in range(2)])


def pipeline(folder, ends):
    sends, receives = ends
    return write_ranks(folder,
                       [work(1), node(2, SEND, "send", 10, [1], comm_tag=3, comm_size=1000, **sends)],
                       [work(1, 30), node(2, RECEIVE, "receive", 10, [1], comm_tag=3, comm_size=1000, **receives),
                        work(3, 100, [2])])


def ring(folder):
    """Each of three ranks sends to the next one and names it alone."""
    return write_ranks(folder, *[
        [work(1, 100 + 50 * rank),
         node(2, SEND, "send", 10, [1], comm_dst=(rank + 1) % 3, comm_size=1000),
         node(3, RECEIVE, "receive", 10, [2], comm_src=(rank + 2) % 3, comm_size=1000)] for rank in range(3)])


def groups(folder, names):
    return write_ranks(folder, *[[work(1, us), collective(2, 50, [1], pg_name=name)]
                                 for us, name in zip((100, 300), names)])


NO_GROUPS = "{{'pg_name': '0', 'pg_desc': 'default_pg', 'ranks': {}, 'local': True, 'store': None}}"

CHAKRA = [
    Case("k12", "no durations", untimed(["{0}", "{1}"]), handed=["k12_no_durations.0.et", "k12_no_durations.1.et"]),
    Case("k12", "collective alone", untimed(["{0}", "{1}"]),
         handed=["k12_collective_alone.0.et", "k12_collective_alone.1.et"]),
    Case("k12", "one rank without durations", untimed(["{0}"]),
         lambda folder: write_ranks(folder, [work(1, 0, num_ops=10 ** 9), collective(2, 0, [1], ALL_GATHER)])),
    Case("k12", "collectives without durations", [ranks_take(150, 150, said=["2 of 4 collectives", "all_reduce"])],
         mixture),
    Case("k12", "kernels without durations",
         [ranks_take(50, 50, said=["2 of 2 compute nodes with work have no duration", "work1"])],
         lambda folder: write_ranks(folder, *[[work(1, 0, num_ops=5), collective(2, 50, [1])] for _ in range(2)])),
    Case("k12", "one file of two without durations", [ranks_take(150, 100, said=["job.1.et: none of 2 nodes"])],
         lambda folder: write_ranks(folder, [work(1), collective(2, 50, [1])], [work(1, 0), collective(2, 0, [1])])),
    Case("k12", "kernels without successors", [ranks_take(510, 510, said=["nothing waits for 2 kernels"])],
         without_successors),
    Case("k13", "send names its peer alone", [ranks_take(110, 220)],
         handed=["k13_send_names_its_peer_alone.0.et", "k13_send_names_its_peer_alone.1.et"]),
    Case("k13", "other order of files",
         [Says(["replay", "{1}", "{0}"],
               {"/ranks/0/iterations/0/replayed_us": 220, "/ranks/1/iterations/0/replayed_us": 110})],
         handed=["k13_send_names_its_peer_alone.0.et", "k13_send_names_its_peer_alone.1.et"]),
    Case("k13", "send and receive", [ranks_take(110, 220)],
         handed=["passes/send_and_receive.0.et", "passes/send_and_receive.1.et"]),
    Case("k13", "receive names its own rank", [ranks_take(110, 220)],
         lambda folder: pipeline(folder, ({"comm_src": 0, "comm_dst": 1}, {"comm_src": 0}))),
    Case("k13", "send names both", [ranks_take(110, 220)],
         lambda folder: pipeline(folder, ({"comm_dst": 1}, {"comm_src": 0, "comm_dst": 1}))),
    Case("k13", "ring", [ranks_take(220, 170, 220)], ring),
    Case("k13", "receive from nobody", [ranks_take(110, 140, said=["1 receives have no send"])],
         lambda folder: pipeline(folder, ({"comm_dst": 1}, {"comm_src": 5}))),
    Case("k12", "process groups of Python", [ranks_take(350, 350)],
         lambda folder: groups(folder, [NO_GROUPS.format("[0, 1]"), NO_GROUPS.format("(0, 1)")])),
    Case("k12", "process groups as tuples", [ranks_take(350, 350)],
         lambda folder: groups(folder, ["('0', 'default_pg')", "0"])),
]

# ---- collectives of several traces ---------------------------------------------------------------


def exchange(folder, sizes, name="all_to_allv"):
    paths = []
    for rank, (sent, received) in enumerate(sizes):
        made = Recording(distributedInfo={"backend": "nccl", "rank": rank, "world_size": len(sizes)})
        for step in range(3):
            begin = 1000 * step
            made.step(step + 1, begin)
            made.launch(begin + 10)
            made.event("cpu_op", "record_param_comms", begin + 60, 60, **{
                "Collective name": name, "In msg nelems": sent, "Out msg nelems": received, "dtype": "Float",
                "Group size": len(sizes), "Process Group Name": "0", "Process Group Ranks": list(range(len(sizes))),
                "Seq": step + 5})
            made.call(begin + 80, name="cudaLaunchKernelExC")
            made.kernel(begin + 140, 300, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", stream=20)
        paths.append(made.write(folder / f"rank{rank}.json"))
    return paths


def moves(elements, *order):
    return Says(["trace", *order], {"/job/collectives/0/elements": elements,
                                    "/job/collectives/0/algorithm_gb_per_s": elements * 4 / 300 / 1e3})


RANKS = [
    Case("k17", "uneven all to all", [moves(700000, "{0}", "{1}"), moves(700000, "{1}", "{0}")],
         handed=["k17_uneven_all_to_all.0.json", "k17_uneven_all_to_all.1.json"]),
    Case("k17", "received by the last", [moves(900000, "{0}", "{1}"), moves(900000, "{1}", "{0}")],
         lambda folder: exchange(folder, [(500000, 100000), (500000, 900000)])),
    Case("k17", "three ranks", [moves(600000, "{0}", "{1}", "{2}"), moves(600000, "{2}", "{0}", "{1}")],
         lambda folder: exchange(folder, [(100000, 200000), (600000, 100000), (200000, 300000)])),
]

# ---- graphs --------------------------------------------------------------------------------------

EMPTY = {"values": [], "shapes": [], "types": [], "strides": []}
GROUP = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [], "group_size": 4,
         "group_count": 1}


def tensor(storage, *sizes, device="cuda:0"):
    count = 1
    for size in sizes:
        count *= size
    return [storage, storage + 1000, 0, count, 4, device], list(sizes), "Tensor(float)"


def plain(value):
    return value, [], {int: "Int", str: "String", bool: "Bool"}[type(value)]


def block(arguments):
    columns = list(zip(*arguments)) or [(), (), ()]
    return {"values": list(columns[0]), "shapes": list(columns[1]), "types": list(columns[2]),
            "strides": [[] for _ in arguments]}


class Graph:
    """An execution trace by hand."""

    def __init__(self, groups=json.dumps([GROUP])):
        self.nodes = []
        self.add("[pytorch|profiler|execution_trace|process]", parent=1)
        self.add("[pytorch|profiler|execution_trace|thread]", parent=1, scope=7)
        if groups:
            self.add("## process_group:init ##", inputs=[plain(groups)], scope=7)

    def add(self, name, inputs=(), outputs=(), parent=2, scope=0, schema="", id=None):
        made = len(self.nodes) + 1
        id = made if id is None else id
        attributes = {"rf_id": made, "fw_parent": 0, "seq_id": -1, "scope": scope, "tid": 1, "fw_tid": 0,
                      "op_schema": schema, "kernel_backend": "", "kernel_file": ""}
        kinds = {"seq_id": "int64", "op_schema": "string", "kernel_backend": "string", "kernel_file": "string"}
        self.nodes.append({
            "id": id, "name": name, "ctrl_deps": parent, "inputs": block(inputs), "outputs": block(outputs),
            "attrs": [{"name": key, "type": kinds.get(key, "uint64"), "value": value}
                      for key, value in attributes.items()]})
        return id

    def products(self, count=3, device="cuda:0"):
        sizes = (1024, 1024)
        for i in range(count):
            self.add("aten::mm", [tensor(10 + i, *sizes, device=device), tensor(20 + i, *sizes, device=device)],
                     [tensor(30 + i, *sizes, device=device)],
                     schema="aten::mm(Tensor self, Tensor mat2) -> Tensor")
        return self

    def write(self, folder):
        path = folder / "graph.json"
        path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 7, "time": "2026-01-01 00:00:00",
                                    "start_ts": 1, "nodes": self.nodes}))
        return path


BUFFER = tensor(300, 4194304)
ON_A100 = ["--gpu", "a100-sxm4-80gb"]


def library_op(name, inputs=(BUFFER,), groups=json.dumps([GROUP]), child=None, outputs=(tensor(400, 4194304),)):
    def write(folder):
        graph = Graph(groups).products()
        parent = graph.add(name, list(inputs), list(outputs))
        if child:
            graph.add(child, [plain(4194304)], list(outputs), parent=parent)
        return graph.write(folder)
    return write


def priced(us, kernel_us=None):
    values = {"/coverage/unmodelled_ops": [], "/coverage/modelled_time_fraction": 1, "/comm_kernel_us": us}
    return [Says(["predict", "{0}", *ON_A100], values),
            Says(["whatif", "{0}", *ON_A100], {"/rows/0/unmodelled_ops": []})]


def named(*names):
    """The op is the first one without a model, and the first warning says so."""
    values = {f"/coverage/unmodelled_ops/{i}/op": name for i, name in enumerate(names)}
    return [Says(["predict", "{0}", *ON_A100], values, list(names)),
            Says(["whatif", "{0}", *ON_A100], {"/rows/0/unmodelled_ops": list(names)})]


def not_on_a_gpu(*words):
    return [Refuses(argv, ["expected tensors on a GPU", *words])
            for argv in (["predict", "{0}", *ON_A100], ["optimize", "{0}", *ON_A100],
                         ["analyze", "{0}", *ON_A100])]


def of_device(device, collectives=True):
    def write(folder):
        graph = Graph().products(device=device)
        if collectives:
            buffer = tensor(300, 4194304, device=device)
            caller = graph.add("c10d::allreduce_", [buffer], [buffer])
            graph.add("record_param_comms", [buffer, plain(1), plain("0"), plain(0), plain("allreduce")], [buffer],
                      parent=caller)
        return graph.write(folder)
    return write


def of_group(nodes):
    return lambda folder: library_op("symm_mem::one_shot_all_reduce", [BUFFER, plain("sum"), plain("0")],
                                     groups=nodes)(folder)


def nested_tensors(folder):
    """PyTorch leaves ids of ops with nested tensors at 0, and names them as parents."""
    graph = Graph().products(2)
    for _ in range(3):
        graph.add("aten::mm", [tensor(50, 1024, 1024), tensor(51, 1024, 1024)], [tensor(52, 1024, 1024)], id=0)
    graph.add("aten::mm", [tensor(60, 1024, 1024), tensor(61, 1024, 1024)], [tensor(62, 1024, 1024)], parent=0)
    graph.add("aten::mm", [tensor(70, 1024, 1024), tensor(71, 1024, 1024)], [tensor(72, 1024, 1024)], parent=999)
    return graph.write(folder)


def encoder_layer(folder):
    """The fused inference op of a CPU: parameters that no op below it takes under a known name."""
    graph = Graph().products(0)
    src = tensor(100, 8, 16, 64, device="cpu")
    weights = [tensor(200 + i, *sizes, device="cpu") for i, sizes in enumerate(
        [(192, 64), (192,), (64, 64), (64,), (64,), (64,), (64,), (64,), (256, 64), (256,), (64, 256), (64,)])]
    inputs = [src, plain(64), plain(4), *weights[:4], plain(False), plain(False), plain(1), *weights[4:]]
    layer = graph.add("aten::_transformer_encoder_layer_fwd", inputs, [tensor(101, 8, 16, 64, device="cpu")])
    graph.add("aten::_native_multi_head_attention", [src, src, src, plain(64), plain(4), *weights[:4]],
              [tensor(102, 8, 16, 64, device="cpu")], parent=layer)
    return graph.write(folder)


TWO_GROUPS = [GROUP, {**GROUP, "pg_name": "7", "group_size": 2}]
TURNED = tensor(300, 2097152, 2)
SYMMETRIC_MEMORY_US = 168.302  # as passes/graph_with_all_reduce.json

GRAPHS = [
    Case("k18", "symmetric memory collective", priced(SYMMETRIC_MEMORY_US),
         handed=["k18_symmetric_memory_collective.json"]),
    Case("k18", "recorded all reduce", priced(SYMMETRIC_MEMORY_US), handed=["passes/graph_with_all_reduce.json"]),
    *(Case("k18", name.replace(":", " "), priced(SYMMETRIC_MEMORY_US), library_op(name))
      for name in ("symm_mem::one_shot_all_reduce", "symm_mem::two_shot_all_reduce_", "vllm::all_reduce",
                   "symm_mem::multimem_one_shot_all_reduce", "sgl_kernel::all_reduce", "_C_custom_ar::all_reduce",
                   "_c10d_functional::all_reduce")),
    Case("k18", "fused product and gather", named("symm_mem::fused_all_gather_matmul"),
         library_op("symm_mem::fused_all_gather_matmul")),
    Case("k18", "no group", named("symm_mem::one_shot_all_reduce"),
         library_op("symm_mem::one_shot_all_reduce", groups=None)),
    Case("k18", "one of two groups", priced(SYMMETRIC_MEMORY_US), of_group(json.dumps(TWO_GROUPS))),
    Case("k18", "groups of Python", priced(SYMMETRIC_MEMORY_US), of_group(str(TWO_GROUPS))),
    Case("k19", "distributed CPU graph", not_on_a_gpu("--retarget"), handed=["k19_distributed_cpu_graph.json"]),
    Case("k19", "CPU graph", not_on_a_gpu("--retarget"), of_device("cpu", False)),
    *(Case("k19", device, not_on_a_gpu("another device"), of_device(device, distributed))
      for device, distributed in (("npu:0", True), ("xpu:0", False), ("hpu:0", True), ("mtia:0", False))),
    Case("i8", "around an empty", named("FlashAttnFunc"), library_op("FlashAttnFunc", child="aten::empty")),
    Case("i8", "around a view", named("apex::layer_norm"),
         library_op("apex::layer_norm", child="aten::view", outputs=(TURNED,))),
    Case("i8", "around zeros", named("aten::fft_fft"), library_op("aten::fft_fft", child="aten::zeros")),
    Case("i8", "copies its input alone", named("te::gemm"),
         library_op("te::gemm", child="aten::clone", outputs=(tensor(500, 4194304),))),
    Case("i8", "fused inference op", [
        Says(["rewrite", "{0}", "--retarget", "nvidia", "-o", "{0}.out.json"], {"/rewrites/0/added/aten::copy_": 1})],
        encoder_layer),
    Case("i8", "nested tensors", [
        Says(["predict", "{0}", *ON_A100], {"/kernels_by_family/0/count": 7}, ["3 nodes have id 0"]),
        Says(["memory", "{0}", *ON_A100], {}, ["3 nodes have id 0"])], nested_tensors),
]

CASES = [*CHAKRA, *RANKS, *GRAPHS]
