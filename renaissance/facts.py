"""The facts of a run that decide its numbers: versions, hardware, seed, command, commit."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import logging
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import torch

logger = logging.getLogger("renaissance")

PACKAGES = (
    *("renaissance", "torch", "torchvision", "numpy", "pydantic", "safetensors"),
    *("cuda-core", "triton", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
)


def run_facts(
    *,
    seed: int,
    device: torch.device | str = "cpu",
    folder: str | os.PathLike[str] = ".",
    **more: Any,
) -> dict[str, Any]:
    """What to write down beside a run, as JSON.

    Args:
        seed: The task's seed; written as text, since it has up to 64 bits.
        device: Where it trains; a CPU task does not wake the GPU to describe it.
        folder: A folder of the user's code, whose git commit is recorded if it has one.
        **more: Further facts under their names (name, plan hash, state hash ...).
    """
    return {
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": list(sys.argv),
        "seed": str(seed),
        "device": str(device),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions(),
        "hardware": hardware(torch.device(device)),
        "commit": git_commit(folder),
        **more,
    }


def versions() -> dict[str, str]:
    """Versions of the packages that can change numbers; those not installed are left out."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    return found


def hardware(device: torch.device) -> dict[str, Any]:
    """Processor, memory, and the GPU when the device is one."""
    facts: dict[str, Any] = {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    if device.type == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        facts["gpu"] = {
            "name": gpu.name,
            "memory_bytes": gpu.total_memory,
            "capability": f"{gpu.major}.{gpu.minor}",
            "multiprocessors": gpu.multi_processor_count,
            "driver": _field("/proc/driver/nvidia/version", "NVRM version"),
        }
    return facts


def _field(path: str, name: str) -> str | None:
    """The value of ``name: value`` in a file of the kernel; None where there is no such file."""
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def git_commit(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """``{"hash": ..., "changed": whether tracked files differ}``; None outside of git."""
    hash_text = _git(folder, "rev-parse", "HEAD")
    if hash_text is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"hash": hash_text, "changed": bool(changed)}


def _git(folder: str | os.PathLike[str], *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", os.fspath(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def write_facts(path: str | os.PathLike[str], facts: Mapping[str, Any]) -> pathlib.Path:
    """Write run.json; when it is there, what differs this time is appended under "resumed"."""
    place = pathlib.Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    whole = dict(facts)
    try:
        before = read_facts(place) if place.exists() else None
    except ValueError as error:
        logger.warning("%s, and written anew", error)
        before = None
    if before is not None:
        now = json.loads(json.dumps(facts))
        news = {name: value for name, value in now.items() if before.get(name) != value}
        whole = before | {"resumed": [*before.get("resumed", ()), news]}
    return replace_text(place, json.dumps(whole, indent=1, allow_nan=False) + "\n")


def read_facts(place: pathlib.Path) -> dict[str, Any]:
    """What `write_facts` wrote.

    Raises:
        ValueError: The file holds something else.
    """
    try:
        found = json.loads(place.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{place} is damaged ({error}): move it away, it is written anew"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(f"{place} is damaged (no JSON object)")
    return found


def replace_text(place: pathlib.Path, text: str) -> pathlib.Path:
    """Write a file down to the disk; whatever is killed, the old or the new one is there, whole."""
    new = place.with_name(place.name + ".new")
    with open(new, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, place)
    return place
