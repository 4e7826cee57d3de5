"""A small task for callbacks: one number as weights, epochs of scripted logs, real checkpoints."""

import json
import pathlib

import torch

from renaissance.callbacks import Callback, CallbackList, LazyLogs
from renaissance.checkpoint import read_checkpoint, write_checkpoint


def losses(*values, name="val_loss"):
    """The logs of one epoch for each value."""
    return [{"loss": 1.0, "learning_rate": 0.1, name: value} for value in values]


def kept(root):
    """The names in a folder of checkpoints."""
    return sorted(path.name for path in root.iterdir())


class Recorder(Callback):
    """Writes down every hook."""

    def __init__(self):
        self.seen = []

    def on_train_begin(self, logs):
        self.seen.append("train_begin")

    def on_epoch_begin(self, epoch, logs):
        self.seen.append(f"epoch_begin {epoch}")

    def on_train_batch_begin(self, batch, logs):
        self.seen.append(f"batch_begin {batch}")

    def on_train_batch_end(self, batch, logs):
        self.seen.append(f"batch_end {batch}")

    def on_log(self, step, logs):
        self.seen.append(f"log {step} loss {logs['loss']}")

    def on_epoch_end(self, epoch, logs):
        self.seen.append(f"epoch_end {epoch} {logs['val_loss']}")

    def on_train_end(self, logs):
        self.seen.append("train_end")

    def close(self):
        self.seen.append("close")


class FakeTask:
    """Trains nothing: its weight is the number of steps, its epochs' logs are given.

    Follows the order of hooks of `Task.fit`.
    """

    def __init__(self, run_dir=None, steps=4, log_every=2):
        self.run_dir = None if run_dir is None else pathlib.Path(run_dir)
        self.steps_per_epoch, self.log_every = steps, log_every
        self.weight = 0.0
        self.epoch = self.attempted_steps = 0
        self.name = "fake"
        self.stop_training = False
        self.reads = 0
        self.history = []
        self.running = None

    def fit(self, epochs, callbacks, *, resume=None, states=(), params=None, stop_at=None):
        """``epochs``: one mapping of logs for each epoch of the whole run.

        ``states``: of callbacks, as an earlier fit of this task left them.
        """
        self.stop_training = False
        running = self.running = CallbackList(callbacks, self, params=params)
        running.load_state_dict(states)
        if resume is not None:
            self.load(resume)
        try:
            running.on_train_begin({})
            while self.epoch < len(epochs) and not self.stop_training:
                if not self._run_epoch(running, epochs[self.epoch], stop_at):
                    break
            running.on_train_end({})
        finally:
            running.close()
        return running

    def _run_epoch(self, running, logs, stop_at):
        step = self.attempted_steps - self.epoch * self.steps_per_epoch
        if step == 0:
            running.on_epoch_begin(self.epoch, {})
        for batch in range(step, self.steps_per_epoch):
            running.on_train_batch_begin(batch, {})
            self.attempted_steps += 1
            self.weight = float(self.attempted_steps)
            of_step = LazyLogs(self._read)
            running.on_train_batch_end(batch, of_step)
            if self.attempted_steps % self.log_every == 0:
                running.on_log(self.attempted_steps, of_step)
            if self.attempted_steps == stop_at:
                return False
        logs = dict(logs)
        self.epoch += 1
        running.on_epoch_end(self.epoch - 1, logs, record=self._record)
        return True

    def _record(self, logs):
        self.history.append(dict(logs))

    def _read(self):
        self.reads += 1
        return {"loss": 1.0 / self.attempted_steps, "learning_rate": 0.1}

    def snapshot_weights(self):
        return self.weight

    def restore_weights(self, snapshot):
        self.weight = snapshot

    def save(self, folder):
        states = self.running.state_dict() if self.running else []
        state = {
            "epoch": self.epoch,
            "attempted": self.attempted_steps,
            "callbacks": json.loads(json.dumps(states)),
            "history": self.history,
        }
        tensors = {"model": {"weight": torch.tensor([self.weight])}}
        return write_checkpoint(folder, tensors, state)

    def load(self, folder, weights_only=False):
        checkpoint = read_checkpoint(folder)
        self.weight = float(checkpoint.files["model"].read("weight"))
        if not weights_only:
            self.epoch, self.attempted_steps = (
                checkpoint.state["epoch"],
                checkpoint.state["attempted"],
            )
            self.history = checkpoint.state["history"]
            self.running.load_state_dict(checkpoint.state["callbacks"])
