"""A state file that is valid JSON, under a valid manifest, but that no run has written."""

import copy

import numpy as np
import pytest
from torch import nn

import renaissance as rn
from renaissance.checkpoint import read_checkpoint
from renaissance.fit import snapshot

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(24, 4)).astype(np.float32), rng.integers(0, 3, size=24)
OTHERS = {"nothing": None, "list": [], "object": {}, "text": "x", "negative": -1, "huge": 10**30}
MISSING = object()
#: Parts where another value can be another run's, so that only its form is checked.
FREE = {"name", "params", "best", "open_epoch", "callbacks", "identity", "loss", "accuracy"}
FREE |= {"learning_rate", "val_loss", "val_accuracy", "bad", "cooling", "reductions", "steps"}
FREE |= {"horizon"}


def make(scheduler=None):
    loader = rn.Loader.from_arrays(X, Y, batch_size=8, workers=0)
    task = rn.Task(nn.Linear(4, 3), name="t", seed=7, device="cpu", threads=1)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW()).ema(0.9).data(loader, loader)
    task.scheduler(scheduler or rn.ReduceLROnPlateau(base_lr=0.05, patience=1))
    return task.callbacks(rn.EarlyStopping(patience=9)).compile(report="none")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """In the middle of the second epoch."""
    task = make()
    task.fit(max_steps=4, verbose=0, horizon="keep")
    return read_checkpoint(task.save(tmp_path_factory.mktemp("run") / "c"))


@pytest.fixture
def task():
    task = make()
    task.fit(max_steps=2, verbose=0)
    return task


def facts(task):
    position = task.position
    return (
        task.state_hash(), task.history.state_dict(), task.generator.get_state(), task.horizon,
        (position.epoch, position.step, position.attempted), task.rates.state_dict(), task.best,
    )  # fmt: skip


def paths(node, at=()):
    """Where everything of a state is."""
    if at:
        yield at
    if isinstance(node, list):
        node = dict(enumerate(node))
    for key, value in node.items() if isinstance(node, dict) else ():
        yield from paths(value, (*at, key))


def changed(state, at, value):
    """A copy with something else at a place; with `MISSING` nothing."""
    copied = copy.deepcopy(state)
    node = copied
    for key in at[:-1]:
        node = node[key]
    if value is MISSING:
        del node[at[-1]]
    else:
        node[at[-1]] = value
    return copied


def restored(task, checkpoint, state):
    """What came of restoring it: None, or the refusal."""
    forged = copy.copy(checkpoint)
    forged.state = state
    try:
        snapshot.restore(task, forged, ())
    except (rn.CheckpointError, ValueError) as error:
        return error
    return None


@pytest.mark.parametrize("kind", [*OTHERS, "missing"])
def test_anything_anywhere_is_taken_or_refused_with_nothing_changed(task, checkpoint, kind):
    before, value = facts(task), OTHERS.get(kind, MISSING)
    clean = read_checkpoint(checkpoint.path).state
    count = 0
    for at in paths(clean):
        state = changed(clean, at, value)
        refusal = restored(task, checkpoint, state)
        where = f"{'.'.join(map(str, at))} {kind}"
        if refusal is None:
            assert FREE & set(at) or state == clean, f"{where} is taken"
            task = make()
            task.fit(max_steps=2, verbose=0)
        else:
            assert facts(task) == before, f"{where} is refused, but has changed something"
            names = ("state.json", "another")
            assert any(name in str(refusal) for name in names), f"{where}: {refusal}"
            count += 1
    assert count > 60


@pytest.mark.parametrize(
    ("at", "value", "what"),
    [
        (("position", "step"), -1, r"state\.json: 'position' is not .*: -1 is no count"),
        (("position", "step"), 9, "'position' is not .*: 9 steps of an epoch, 4 in all"),
        (
            ("position", "epoch"),
            10**12,
            "'history' is not .*: it has epochs .0., and 1000000000000 of",
        ),
        (("position", "epoch"), 2, r"'history' .* epochs \[0\], and 2 of them are closed"),
        (("history", "rows"), [], r"'history' .* epochs \[\], and 1 of them are closed"),
        (("history", "rows", 0, "steps"), MISSING, "'history' is not .*: 'steps' is missing"),
        (("counters", "loss_scale"), float("inf"), "'counters' is not .*: a loss scale of inf"),
        (("generator", "offset"), "-3", "'generator' is not what a run writes"),
        (("schedule", "bad"), MISSING, "'schedule' is not .*: a ReduceLROnPlateau's state has"),
        (("sums", "epoch"), [1.0], "'sums' is not what a run writes"),
        (("callbacks", 0, "class"), MISSING, "'callbacks' is not .*: 'class' is missing"),
    ],
)
def test_the_refusal_names_the_part(task, checkpoint, at, value, what):
    refusal = restored(task, checkpoint, changed(checkpoint.state, at, value))
    assert isinstance(refusal, rn.CheckpointError)
    with pytest.raises(rn.CheckpointError, match=what):
        raise refusal


def test_the_callback_whose_state_does_not_fit_is_named(task, checkpoint):
    state = changed(checkpoint.state, ("callbacks", 0, "state", "wait"), MISSING)
    forged = copy.copy(checkpoint)
    forged.state = state
    task.callback_states = snapshot.restore(task, forged, ())
    with pytest.raises(ValueError, match="state of EarlyStopping 0 does not fit it .KeyError"):
        task.fit(epochs=2, verbose=0, horizon="keep")


def test_another_schedule_starts_afresh_where_that_is_allowed(checkpoint, caplog):
    task = make(rn.CosineAnnealingLR(base_lr=0.1))
    snapshot.restore(task, checkpoint, ["recipe"])
    assert "the schedule starts afresh" in caplog.text and task.attempted_steps == 4


def test_a_checkpoint_from_before_averaged_updates_were_counted(task, checkpoint):
    state = copy.deepcopy(checkpoint.state)
    applied = state["counters"]["applied"]
    assert state["counters"].pop("averaged") == applied == 4
    assert restored(task, checkpoint, state) is None
    assert task.executor.updater.scalars["averaged"] == applied
