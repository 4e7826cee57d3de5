"""Calls inside hooks: those that would change what is going on are refused, the others work."""

import pytest
import torch
from small import X, Y, compiled, loader, make

import renaissance as rn
from renaissance.lrfinder import sweep


class At(rn.Callback):
    """Calls a function of the task in one hook."""

    def __init__(self, hook, function):
        setattr(self, hook, lambda *_: function(self.task))


def run(*callbacks, ema=True):
    task = make(train=loader(), valid=loader(32, shuffle=False))
    if ema:
        task.ema(0.9)
    task.compile(report="none")
    task.fit(epochs=2, verbose=0, callbacks=list(callbacks))
    return task


LOOKING = {
    "save": lambda t: t.save("never"),
    "load": lambda t: t.load("never"),
    "evaluate": lambda t: t.evaluate(loader()),
    "predict": lambda t: t.predict(X),
    "test_on_batch": lambda t: t.test_on_batch(X[:8], Y[:8]),
    "train_on_batch": lambda t: t.train_on_batch(X[:8], Y[:8]),
    "batch_at": lambda t: t.batch_at(0, 0),
    "reset": lambda t: t.reset(),
    "init_all": lambda t: t.init_all(),
    "dry_run": lambda t: t.dry_run(),
    "fit": lambda t: t.fit(epochs=9),
    "compile": lambda t: t.compile(report="none"),
    "close": lambda t: t.close(),
    "state_dict": lambda t: t.state_dict(),
    "state_hash": lambda t: t.state_hash(),
    "export_module": lambda t: t.export_module(),
    "snapshot_weights": lambda t: t.snapshot_weights(),
    "restore_weights": lambda t: t.restore_weights({}),
    "sweep": sweep,
}
TRAINING = ("fit", "reset", "compile", "dry_run", "train_on_batch", "close", "load", "sweep")


@pytest.mark.parametrize("name", LOOKING)
@pytest.mark.parametrize("hook", ["on_test_begin", "on_test_batch_end"])
def test_refused_inside_a_validation(name, hook):
    with pytest.raises(RuntimeError, match=rf"{name} inside an evaluation: .*on_epoch_end"):
        run(At(hook, LOOKING[name]))


@pytest.mark.parametrize("name", ["save", "predict", "fit"])
def test_refused_inside_evaluate_and_predict(name):
    task = compiled()
    with pytest.raises(RuntimeError, match=f"{name} inside an evaluation"):
        task.evaluate(loader(), callbacks=[At("on_test_batch_begin", LOOKING[name])])
    with pytest.raises(RuntimeError, match=f"{name} inside a prediction"):
        task.predict(X, callbacks=[At("on_predict_batch_end", LOOKING[name])])
    task.fit(epochs=1, verbose=0)  # and the task is free again


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.parametrize("hook", ["on_train_begin", "on_train_batch_end", "on_epoch_end"])
def test_refused_inside_fit(name, hook):
    with pytest.raises(RuntimeError, match=f"{name}.* inside fit: .*stop_training"):
        run(At(hook, LOOKING[name]))


def test_what_only_looks_is_allowed_inside_fit_and_changes_nothing(tmp_path):
    def look(task):
        assert torch.isfinite(torch.tensor(task.evaluate(loader())["loss"]))
        task.predict(X)
        task.batch_at(0, 1)
        task.test_on_batch(X[:8], Y[:8])
        task.state_hash()
        task.save(tmp_path / f"at-{task.attempted_steps}")
        task.load(tmp_path / f"at-{task.attempted_steps}", weights_only=True)

    plain = run()
    for hook in ("on_train_batch_end", "on_epoch_end"):
        task = run(At(hook, look))
        assert task.history.history == plain.history.history
        assert task.state_hash() == plain.state_hash()


def test_what_is_told_inside_fit_waits_for_the_next_compile(tmp_path):
    def tell(task):
        task.accumulate(4).optimizer(rn.SGD(lr=0.5)).data(loader(16))
        task.evaluate(loader())
        assert not isinstance(task.batch_at(0, 0), list)

    def told(hook):
        task = make(valid=loader(32, shuffle=False), run_dir=tmp_path / hook)
        task.compile(report="none").fit(epochs=2, verbose=0, callbacks=[At(hook, tell)])
        return task

    plain = compiled(valid=loader(32, shuffle=False))
    plain.fit(epochs=2, verbose=0)
    for hook in ("on_train_begin", "on_train_batch_end", "on_epoch_end"):
        task = told(hook)
        assert task.history.history == plain.history.history and task.attempted_steps == 16
        with pytest.raises(RuntimeError, match="changed after compile"):
            task.state_hash()
        resumed = compiled(valid=loader(32, shuffle=False), run_dir=tmp_path / hook)
        weights = resumed.load(tmp_path / hook).state_dict()
        assert all(torch.equal(t, weights[n]) for n, t in plain.state_dict().items())
