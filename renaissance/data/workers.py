"""How many processors this process may use: by affinity and control group, not by the machine."""

from __future__ import annotations

import math
import os
import pathlib

MAX_WORKERS = 1024


def available_cpus(root: str = "/") -> int:
    """Processors for this process, at least 1.

    The smaller of the affinity mask and the quota of the control group (``cpu.max`` of version 2,
    ``cpu.cfs_quota_us`` of version 1), rounded up.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quota = _cgroup_quota(pathlib.Path(root))
    return max(1, allowed if quota is None else min(allowed, math.ceil(quota)))


def auto_workers() -> int:
    """What ``workers="auto"`` means here: all processors but one, which feeds the device.

    Under torchrun the processors are shared by the ranks of this host.
    """
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    share = available_cpus() // max(1, int(ranks) if ranks.isdigit() else 1)
    return min(MAX_WORKERS, max(1, share - 1))


def _cgroup_quota(root: pathlib.Path) -> float | None:
    """Processors' worth of time that the control groups of this process allow, or None."""
    quotas = [
        quota
        for folder in _cgroup_folders(root)
        for quota in (_quota_v2(folder / "cpu.max"), _quota_v1(folder))
        if quota is not None
    ]
    return min(quotas, default=None)


def _cgroup_folders(root: pathlib.Path) -> list[pathlib.Path]:
    """Folders of this process's groups and their parents, both versions."""
    base = root / "sys/fs/cgroup"
    folders = [base, base / "cpu"]
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        mounts = {"": base, "cpu": base / "cpu", "cpu,cpuacct": base / "cpu,cpuacct"}
        mount = mounts.get(controllers)
        if mount is None:
            continue
        folder = mount / path.strip("/")
        while folder != mount and mount in folder.parents:
            folders.append(folder)
            folder = folder.parent
    return folders


def _quota_v2(file: pathlib.Path) -> float | None:
    parts = (_text(file) or "max").split()
    if len(parts) != 2 or parts[0] == "max":
        return None
    return int(parts[0]) / int(parts[1])


def _quota_v1(folder: pathlib.Path) -> float | None:
    quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    if quota is None or period is None or int(quota) <= 0:
        return None
    return int(quota) / int(period)


def _text(file: pathlib.Path) -> str | None:
    try:
        return file.read_text()
    except OSError:
        return None
