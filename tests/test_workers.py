"""How many processors may be used: affinity, control groups, ranks."""

import os

import pytest

from renaissance.data import workers
from renaissance.data.workers import auto_workers, available_cpus

ALLOWED = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture
def many(monkeypatch):
    """A process that may run on 64 processors as far as affinity goes."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)


def files(root, **texts):
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_affinity_without_control_groups(tmp_path):
    assert available_cpus(str(tmp_path)) == ALLOWED


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 64), ("400000 100000", 4), ("250000 100000", 3), ("1000 100000", 1)],
)
def test_version_two(tmp_path, many, quota, expected):
    files(tmp_path, sys__fs__cgroup__cpu_dot_max=quota)
    assert available_cpus(str(tmp_path)) == expected


def test_version_two_below_the_root(tmp_path, many):
    files(
        tmp_path,
        proc__self__cgroup="0::/jobs/mine\n",
        sys__fs__cgroup__jobs__cpu_dot_max="800000 100000",
        sys__fs__cgroup__jobs__mine__cpu_dot_max="max 100000",
    )
    assert available_cpus(str(tmp_path)) == 8


def test_version_one(tmp_path, many):
    folder = tmp_path / "sys/fs/cgroup/cpu,cpuacct/box"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("600000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    files(tmp_path, proc__self__cgroup="4:memory:/box\n3:cpu,cpuacct:/box\n")
    assert available_cpus(str(tmp_path)) == 6
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    assert available_cpus(str(tmp_path)) == 64


def test_auto_leaves_one_and_shares_with_the_ranks_of_the_host(many, monkeypatch):
    monkeypatch.setattr(workers, "_cgroup_quota", lambda root: None)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert auto_workers() == 63
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert auto_workers() == 7
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "64")
    assert auto_workers() == 1
