"""One optimizer step over ResNet-50's 25.6 million parameters on a GPU, side by side with torch.

    python benchmarks/bench_update_gpu.py

Floor: each byte once. AdamW in float32 reads w, g, m, v and writes w, m, v: 28 bytes a parameter;
SGD with momentum 20; LARS 28, since w and g are read twice. The ceiling is a 4 GiB device copy.
"""

import torch
import torchvision
from side_by_side import alternate, device_seconds, summary, table, write

import renaissance as rn
from renaissance.update.updater import Updater

ROUNDS, REPEATS = 20, 30


def ours(optimizer):
    """The update kernels of a plan, in a graph; (run, parameters)."""
    module = torchvision.models.resnet50()
    plan = rn.MemoryPlan.build(
        module, moments=optimizer.moments, lars=optimizer.kernel.startswith("lars"),
        scalars_bytes=4096, results_bytes=1024,
    )  # fmt: skip
    memory = plan.allocate("cuda")
    memory.bind(module)
    updater = Updater(memory, optimizer)
    updater.scalars.write(lr=1e-3, weight=1.0, window=1)
    memory.region("G").normal_()
    updater.check()
    before = ("snapshot", "gather", "scalars", "restore")
    rest = [op for op in updater.ops if op.kernel not in before]
    updater._ranges.decide(None)
    run = captured(lambda: updater._ranges.run_in_order(rest))
    return run, (memory, module, updater), sum(s.count for s in plan.parameters)


def captured(step):
    """A step in a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()

    def replay(owner=step):  # a graph holds raw addresses: what it reads must live as long
        graph.replay()

    return replay


def torchs(make, *, flat=False):
    """torch's optimizer over the 161 tensors, or over one flat one."""
    shapes = [p.shape for p in torchvision.models.resnet50().parameters()]
    if flat:
        shapes = [(sum(torch.Size(s).numel() for s in shapes),)]
    parameters = [torch.nn.Parameter(torch.randn(s, device="cuda")) for s in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return make(parameters).step


def copy_bandwidth():
    """Bytes a second of a 4 GiB device-to-device copy, read and written."""
    source = torch.empty(1 << 30, device="cuda").normal_()
    target = torch.empty_like(source)
    seconds = [device_seconds(lambda: target.copy_(source), 5) for _ in range(10)]
    return 2 * source.nbytes / summary(seconds)["median"]


def main():
    copy = copy_bandwidth()
    adamw = {"lr": 1e-3, "weight_decay": 1e-2}
    sgd = {"lr": 1e-3, "momentum": 0.9}
    keep, rows = [], []
    for name, optimizer, bytes_each, peer, options in (
        ("AdamW", rn.AdamW(**adamw), 28, torch.optim.AdamW, adamw),
        ("SGD momentum", rn.SGD(**sgd), 20, torch.optim.SGD, sgd),
        ("LARS", rn.LARS(lr=1e-3, weight_decay=1e-4), 28, None, None),
    ):
        run, alive, count = ours(optimizer)
        keep.append(alive)
        subjects = {"renaissance, in a graph": run}
        if peer is not None:
            for how in ("foreach", "fused"):
                make = lambda p, how=how: peer(p, **options, **{how: True})  # noqa: B023, E731
                subjects[f"torch {how}, eager"] = torchs(make)
                extra = {"capturable": True} if peer is torch.optim.AdamW else {}
                graphed = lambda p, how=how, e=extra: peer(p, **options, **{how: True}, **e)  # noqa: B023, E731
                subjects[f"torch {how}, in a graph"] = captured(torchs(graphed))
            subjects["torch fused, one flat tensor, in a graph"] = captured(
                torchs(graphed, flat=True)
            )
        found = alternate(subjects, lambda run: device_seconds(run, REPEATS), ROUNDS)
        base = summary(found["renaissance, in a graph"])["median"]
        for subject, samples in found.items():
            s = summary(samples)
            rows.append(
                {
                    "optimizer": name,
                    "subject": subject,
                    "us": s["median"] * 1e6,
                    "low": s["low"] * 1e6,
                    "high": s["high"] * 1e6,
                    "of copy": bytes_each * count / s["median"] / copy,
                    "times ours": s["median"] / base,
                }
            )
    write("update_gpu", rows, copy_bytes_per_second=copy, rounds=ROUNDS)
    table(rows)


if __name__ == "__main__":
    main()
