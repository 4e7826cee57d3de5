"""How benchmarks measure: alternating runs, medians with quartiles, and where it was.

A figure holds for one machine; the claim is the ratio of two medians of one run.
"""

import json
import pathlib
import platform
import statistics
import subprocess
import sys

import torch

RESULTS = pathlib.Path(__file__).parent / "results"


def facts():
    """Hardware, versions and the command: what every result says."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "device": device,
        "cpu": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": " ".join(["python", *sys.argv]),
        "commit": commit.stdout.strip() or None,
    }


def device_seconds(run, repeats):
    """Seconds of one run on the GPU, by events around `repeats` of them."""
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / repeats / 1e3


def alternate(subjects, measure, rounds):
    """Name -> the measurements of `rounds` alternating rounds (one more is thrown away).

    Each round begins with the next subject, so that none always follows the same one.
    """
    found = {name: [] for name in subjects}
    names = list(subjects)
    for turn in range(rounds + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            seconds = measure(subjects[name])
            if turn:
                found[name].append(seconds)
    return found


def summary(samples):
    """Median and quartiles."""
    if len(samples) < 2:
        return {"median": samples[0], "low": samples[0], "high": samples[0], "n": len(samples)}
    low, median, high = statistics.quantiles(samples, n=4)
    return {"median": median, "low": low, "high": high, "n": len(samples)}


def write(name, rows, **more):
    """Keep a result as JSON beside the script."""
    RESULTS.mkdir(exist_ok=True)
    place = RESULTS / f"{name}.json"
    place.write_text(json.dumps({**facts(), **more, "rows": rows}, indent=1) + "\n")
    print(f"written to benchmarks/results/{place.name}")


def table(rows):
    """Rows of equal keys as aligned text."""
    keys = list(rows[0])
    texts = [keys] + [
        [f"{row[k]:.4g}" if isinstance(row[k], float) else str(row[k]) for k in keys]
        for row in rows
    ]
    widths = [max(len(line[i]) for line in texts) for i in range(len(keys))]
    for line in texts:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
