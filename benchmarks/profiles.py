"""Where the time of a step goes: its kernels, sorted into classes by their names."""

import re

import torch

#: (class, what a kernel's name says), the first that fits. Ours are named by their functions.
CLASSES = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("copies", r"^mem(cpy|set)"),
        ("optimizer", r"^(update_|scalars$|gather$|check_range|squares_of|trust_|average_|restore_)"
                      r"|^(copy_range|commit_tally)|multi_tensor|fusedsgd|fused_sgd"),
        ("data", r"^(augment_batch|load_input|advance)"),
        ("pixels put in order", r"^_(framed|patches|every|apart)$"),
        ("pooling", r"pool"),
        ("reduction", r"^triton_(red|per|split)|reduce_kernel|softmax|nll_loss"),
        ("batch-norm, pointwise", r"^triton_poi|bn_fw|bn_bw|\bbatch_norm|elementwise"),
        ("batch-norm of ours", r"^_?(bn|norm|batch_?norm|relu|add)_|^_?(bn|norm)\w*$"),
        ("convolution, product", r"cudnn|xmma|cutlass|sm\d\d_|gemm|wgrad|dgrad|fprop|nvjet|splitk"
                                 r"|^triton_tem|conv|^_(forward|backward)$"),
    )
)  # fmt: skip
OTHER = "other"


def class_of(kernel):
    """The class of a kernel by its name.

    >>> class_of("triton_poi_fused_relu_3"), class_of("update_momentum"), class_of("sm90_xmma_x")
    ('batch-norm, pointwise', 'optimizer', 'convolution, product')
    """
    return next((name for name, pattern in CLASSES if pattern.search(kernel)), OTHER)


def profile_of(run, longest=15):
    """Milliseconds and kernels of each class of one run, and its longest kernels by name."""
    run()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        run()
        torch.cuda.synchronize()
    kernels = [
        (event.key, event.self_device_time_total / 1e3, event.count)
        for event in profiler.key_averages()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    classes = {name: {"ms": 0.0, "kernels": 0} for name in [*(n for n, _ in CLASSES), OTHER]}
    for name, milliseconds, count in kernels:
        entry = classes[class_of(name)]
        entry["ms"] += milliseconds
        entry["kernels"] += count
    top = sorted(kernels, key=lambda kernel: -kernel[1])[:longest]
    return {
        "classes": {name: entry for name, entry in classes.items() if entry["kernels"]},
        "longest": [
            {"kernel": name[:120], "class": class_of(name), "ms": milliseconds, "count": count}
            for name, milliseconds, count in top
        ],
    }


def totals(profiles):
    """Rows, one a network and class, with the milliseconds of each subject."""
    rows = []
    subjects = list(dict.fromkeys(s for found in profiles.values() for s in found))
    for network, found in profiles.items():
        names = dict.fromkeys(name for one in found.values() for name in one["classes"])
        for name in names:
            row = {"network": network, "class": name}
            for subject in subjects:
                entry = found.get(subject, {"classes": {}})["classes"].get(name)
                row[f"ms, {subject}"] = entry["ms"] if entry else 0.0
            rows.append(row)
    return rows
