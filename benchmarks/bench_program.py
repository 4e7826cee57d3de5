"""What one core does with the transform programs: microseconds a picture, by chain and output.

The calling thread runs each program over a ring of 64 output slots that fits the second-level
cache; time is the thread's own CPU time, the best and the median of short repetitions (another
process on the same machine makes the median move). Usage:

    python benchmarks/bench_program.py [--portable] [--repetitions 100]
"""

import argparse
import statistics
import time

import numpy as np

import renaissance as rn
from renaissance import _native
from renaissance.data.program import compile_program

#: name: (height, width, channels, transforms)
CHAINS = {
    "mnist": (28, 28, 1, [rn.Pad(2), rn.RandomCrop(28), rn.RandomRotation(20),
                          rn.RandomScale(0.8, 1.2), rn.Normalize("mnist"), rn.RandomErasing(0.5)]),
    "cifar": (32, 32, 3, [rn.RandomCrop(32, 4), rn.RandomHorizontalFlip(),
                          rn.Normalize("cifar10"), rn.RandomErasing(0.5)]),
    "imagenet": (375, 500, 3, [rn.RandomResizedCrop(224), rn.RandomHorizontalFlip(),
                               rn.Normalize("imagenet")]),
    "imagenet + jitter": (375, 500, 3, [rn.RandomResizedCrop(224), rn.RandomHorizontalFlip(),
                                        rn.ColorJitter(0.4, 0.4, 0.4, 0.1),
                                        rn.Normalize("imagenet")]),
    "imagenet + trivial": (375, 500, 3, [rn.RandomResizedCrop(224), rn.RandomHorizontalFlip(),
                                         rn.TrivialAugmentWide(), rn.Normalize("imagenet")]),
    "imagenet + noise": (375, 500, 3, [rn.RandomResizedCrop(224), rn.RandomHorizontalFlip(),
                                       rn.Normalize("imagenet"),
                                       rn.RandomErasing(1.0, value="random")]),
    "imagenet + blur": (375, 500, 3, [rn.RandomResizedCrop(224), rn.GaussianBlur(23),
                                      rn.Normalize("imagenet")]),
}  # fmt: skip
DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
LAYOUTS = {"nchw": 0, "nhwc": 1}


def seconds_per_picture(name, dtype, layout, planar, repetitions):
    """Every repetition's CPU seconds per picture."""
    height, width, channels, transforms = CHAINS[name]
    program = compile_program(transforms, height=height, width=width, channels=channels)
    rng = np.random.default_rng(0)
    count = 2048 if height < 64 else 16
    x = rng.integers(0, 256, (count, height, width, channels), dtype=np.uint8)
    if planar:
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    slots = min(64, count)
    out = np.zeros((slots, *program.shape), np.float32 if dtype == "float32" else np.uint16)
    scratch = _native.Scratch()
    found = []
    for epoch in range(repetitions):
        ids = rng.permutation(count)[:slots].astype(np.int64)
        begin = time.thread_time()
        program.native.run(
            x.ctypes.data, list(x.shape[1:]), list(x.strides), ids.ctypes.data, slots, 12345,
            epoch, out.ctypes.data, DTYPES[dtype], LAYOUTS[layout], 0, scratch,
        )  # fmt: skip
        found.append((time.thread_time() - begin) / slots)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--portable", action="store_true", help="without vector kernels")
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--only", default="", help="part of a chain's name")
    given = parser.parse_args()
    print("vector kernels:", _native.use_simd(not given.portable))
    print(
        f"{'chain':<20}{'pixels':<8}{'output':<15}{'best us':>9}{'median us':>11}{'images/s':>11}"
    )
    for name, (height, _, channels, _) in CHAINS.items():
        if given.only not in name:
            continue
        small = height < 64
        for planar in (False, True) if channels == 3 and small else (False,):
            for dtype, layout in (("float32", "nchw"), ("float16", "nchw"), ("float16", "nhwc")):
                repetitions = given.repetitions * (10 if small else 1)
                found = seconds_per_picture(name, dtype, layout, planar, repetitions)
                best, median = min(found), statistics.median(found)
                pixels = "planar" if planar else "HWC"
                print(
                    f"{name:<20}{pixels:<8}{dtype + ' ' + layout:<15}{best * 1e6:>9.2f}"
                    f"{median * 1e6:>11.2f}{1 / best:>11.0f}"
                )


if __name__ == "__main__":
    main()
