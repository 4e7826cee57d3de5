"""Proof that a run can be killed and resumed: three real processes, one killed, hashes compared.

The first trains without a break. The second is killed by SIGKILL, from which no process can tidy
up, right after a step. The third resumes from what the second left and goes on to the same end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from renaissance.fit.resume import CHECKPOINTS
from renaissance.hooks import Callback, Phase
from renaissance.logs import Logs
from renaissance.saver import checkpoint_folders, newest_intact


class KillAt(Callback):
    """Kills its own process once so many steps are taken, as ``kill -9`` would.

    There has to be a checkpoint to go on from: the first one is waited for, no later one is.
    """

    phase = Phase.RECORDS

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_begin(self, batch: int, logs: Logs) -> None:
        if self.task.attempted_steps >= self.step:  # and what that step saves has been begun
            saves, run_dir = self.task.running_checkpoints, self.task.run_dir
            if saves and run_dir and not checkpoint_folders(run_dir / CHECKPOINTS):
                saves.wait()
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Proof:
    """What the unbroken run and the resumed one ended with.

    Attributes:
        unbroken, resumed: ``state_hash``, ``history`` and ``attempted_steps`` of each.
        resumed_from: The step of the checkpoint that was resumed.
        killed_at: The step after which the process was killed.
    """

    unbroken: Mapping[str, Any]
    resumed: Mapping[str, Any]
    resumed_from: int
    killed_at: int

    @property
    def holds(self) -> bool:
        """Whether both ended with the same bits and the same history."""
        return dict(self.unbroken) == dict(self.resumed)

    def to_text(self) -> str:
        """Both hashes, and what differs."""
        lines = [
            f"unbroken  {self.unbroken['state_hash']}  {self.unbroken['attempted_steps']} steps",
            f"resumed   {self.resumed['state_hash']}  {self.resumed['attempted_steps']} steps, "
            f"killed after step {self.killed_at}, resumed from step {self.resumed_from}",
        ]
        differing = [name for name in self.unbroken if self.unbroken[name] != self.resumed[name]]
        if differing:
            lines.append(f"DIFFERENT: {', '.join(differing)}")
        else:
            lines.append("equal: weights, moments, averages, buffers, counters and history")
        return "\n".join(lines)


def verify_resume(
    file: str,
    overrides: Sequence[str],
    folder: Path,
    *,
    steps: int,
    kill_at: int,
    imports: Sequence[str] = (),
) -> Proof:
    """Run the three processes.

    Args:
        file: The experiment.
        overrides: Laid on it.
        folder: Where the two run folders go; empty.
        steps: Steps in all.
        kill_at: The step after which the second process is killed, 1 to below `steps`.
        imports: Files that register own things.

    Raises:
        ValueError: The steps do not fit.
        RuntimeError: A process failed; its last lines are in the text.
    """
    if not 1 <= kill_at < steps:
        raise ValueError(
            f"kill-at = {kill_at} is not allowed; it takes 1 to {steps - 1}, before the last of "
            f"{steps} steps"
        )
    every = max(1, kill_at // 2)
    common = [file, *overrides, f"fit.max_steps={steps}", f"fit.checkpoint={every}", "fit.keep=1"]
    common += ["fit.verbose=0", "compile.report=none"]
    common += [part for name in imports for part in ("--import", name)]
    whole, broken = folder / "unbroken", folder / "killed"
    unbroken = _train(common, whole, folder / "unbroken.json")
    _train([*common, "--kill-at", str(kill_at)], broken, None)
    found, _ = newest_intact(broken / CHECKPOINTS)
    if found is None:
        raise RuntimeError(f"the killed process left no intact checkpoint in {broken}")
    resumed_from = found.state["position"]["attempted"]
    resumed = _train([*common, "--resume", "auto"], broken, folder / "resumed.json")
    return Proof(unbroken, resumed, int(resumed_from), kill_at)


def _train(arguments: Sequence[str], run_dir: Path, result: Path | None) -> dict[str, Any]:
    """One process; its result, or {} when it is to be killed."""
    command = [sys.executable, "-m", "renaissance", "train", *arguments, "--run-dir", str(run_dir)]
    if result is not None:
        command += ["--result", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    expected = 0 if result is not None else -signal.SIGKILL
    if done.returncode != expected:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        what = f"a training process ended with {done.returncode}, not {expected}"
        if done.returncode == 0:
            what = "the training ended before the step at which it was to be killed"
        raise RuntimeError(f"{what}:\n{last}")
    if result is None:
        return {}
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found
