"""What a user writes into a compiled task's module: it counts, in every copy that there is."""

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.memory.edits import Edits

pytestmark = pytest.mark.timeout(60)

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(24, 6)).astype(np.float32), rng.integers(0, 3, size=24)
VALID = rn.Loader.from_arrays(X, Y, batch_size=24)


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def compiled(precision="32-true", module=None, **recipe):
    task = rn.Task(module or network(), seed=1, device="cpu", precision=precision)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1))
    task.data(rn.Loader.from_arrays(X, Y, batch_size=8), VALID)
    if "ema" in recipe:
        task.ema(recipe["ema"])
    return task.compile(report="none")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("steps", [0, 2])
def test_an_average_starts_at_weights_that_are_loaded(precision, steps):
    source = {name: tensor.clone() for name, tensor in network().state_dict().items()}
    source["1.running_mean"].fill_(0.5)
    with compiled(precision, ema=0.9) as task, compiled(precision) as plain:
        for _ in range(steps):
            task.train_on_batch(X[:8], Y[:8])
        other = task.evaluate(VALID)
        for one in (task, plain):
            one.model.load_state_dict(source)
        assert task.evaluate(VALID) == plain.evaluate(VALID) != other
        memory = task.require().memory
        for name in ("0.weight", "1.weight", "1.running_mean"):
            assert torch.equal(memory.view("E", name), source[name])


def test_an_average_starts_anew_at_what_is_loaded_alone():
    with compiled(ema=0.9) as task:
        task.fit(epochs=2, verbose=0)
        memory, head = task.require().memory, {"weight": torch.ones(3, 8)}
        before = {name: memory.view("E", name).clone() for name in ("0.weight", "3.bias")}
        task.model[3].load_state_dict(head, strict=False)
        assert torch.equal(memory.view("E", "3.weight"), head["weight"])
        assert all(torch.equal(memory.view("E", name), before[name]) for name in before)


def written(task):
    """A new head and one element of another layer, by torch's usual means."""
    nn.init.constant_(task.model[3].weight, 1.001)
    with torch.no_grad():
        task.model[0].weight[2, 3] = -2.0


def written_through_data(task):
    """The same where torch's version counters do not see it."""
    task.model[3].weight.data.fill_(1.001)
    task.model[0].weight.data[2, 3] = -2.0


@pytest.mark.parametrize("write", [written, written_through_data])
@pytest.mark.parametrize("use", ["state_dict", "fit", "step", "evaluate", "average", "close"])
def test_what_is_written_into_16_bit_copies_reaches_the_masters(use, write):
    with compiled("bf16-mixed", ema=0.9) as task:
        task.optimizer(rn.SGD(lr=0.0)).compile(report="none")  # nothing is learned
        masters = {name: tensor.clone() for name, tensor in task.state_dict().items()}
        write(task)
        if use == "fit":
            task.fit(epochs=1, verbose=0)
        elif use == "step":
            task.train_on_batch(X[:8], Y[:8])
        elif use == "evaluate":
            task.evaluate(VALID)  # with the average in their place
        elif use == "average":
            assert not (task.state_dict("ema")["3.weight"] == 1.0).any()
        elif use == "close":
            task.close()
        found = task.model.state_dict()
        assert found["3.weight"].unique().tolist() == [1.0]  # 1.001 in bfloat16
        assert found["0.weight"][2, 3] == -2.0
        found["0.weight"][2, 3] = masters["0.weight"][2, 3]
        assert torch.equal(found["0.weight"], masters["0.weight"])  # to all its digits


def test_what_nobody_has_written_keeps_all_digits():
    with compiled("bf16-mixed") as task:
        task.fit(epochs=1, verbose=0)
        module, memory = task.model, task.require().memory
        with torch.no_grad():
            module[3].weight.copy_(torch.zeros_like(module[3].weight))
            module[0].weight[0] = torch.nan
            memory.take_edits(module)
            module[3].weight.neg_()  # -0 is no other number
        before = memory.region("W").clone()
        assert torch.isnan(memory.view("W", "0.weight")[0]).all()
        for use in (module.state_dict, lambda: memory.verify(module), memory.refresh):
            assert memory.edited(module) == []
            use()
        assert torch.equal(memory.region("W").view(torch.int32), before.view(torch.int32))
        module[0].weight.data[1, 2] = 7.0
        assert memory.edited(module) == ["0.weight"]


def test_each_copy_is_compared_once_for_a_state_dict_and_never_for_a_step(monkeypatch):
    asked, compared = [], Edits._compared

    def counting(self, bound):
        asked.append(bound.segment.name)
        return compared(self, bound)

    monkeypatch.setattr(Edits, "_compared", counting)
    deep = nn.Sequential(*(nn.Linear(6, 6) for _ in range(12)), nn.Linear(6, 3))
    with compiled("bf16-mixed", module=deep) as task:
        working = [s.name for s in task.plan.segments if s.working]
        assert len(working) >= 13
        asked.clear()
        task.model.state_dict()
        assert sorted(asked) == sorted(working)
        asked.clear()
        task.train_on_batch(X[:8], Y[:8])
        assert asked == []
        task.model[2].state_dict()
        assert set(asked) == {name for name in working if name.startswith("2.")}
        task.model[2].weight.data.mul_(2.0)  # a control: then all are looked at
        asked.clear()
        task.train_on_batch(X[:8], Y[:8])
        assert sorted(asked) == sorted(working)


def test_weights_that_are_lent_and_taken_back_keep_all_digits():
    """As averages of one's own are: put in, saved, and the old weights put back."""
    with compiled("bf16-mixed") as task:
        task.fit(epochs=1, verbose=0)
        before, own = task.state_dict(), [p.detach().clone() for p in task.model.parameters()]
        before = {name: tensor.clone() for name, tensor in before.items()}
        written(task)
        assert task.model.state_dict()["3.weight"].unique().tolist() == [1.0]
        with torch.no_grad():
            for parameter, value in zip(task.model.parameters(), own, strict=True):
                parameter.copy_(value)
        task.evaluate(VALID)
        assert all(torch.equal(tensor, before[name]) for name, tensor in task.state_dict().items())


class Limited(nn.Module):
    """Writes its weights in forward."""

    def __init__(self, through_data):
        super().__init__()
        self.layer, self.through_data = nn.Linear(6, 3), through_data

    def forward(self, x):
        weight = self.layer.weight.data if self.through_data else self.layer.weight.detach()
        weight.clamp_(-0.01, 0.01)
        return self.layer(x)


@pytest.mark.parametrize("through_data", [False, True])
def test_a_forward_that_writes_weights_is_refused_where_that_would_be_lost(through_data):
    with compiled(module=Limited(through_data)) as task:
        task.fit(epochs=1, verbose=0)
    with pytest.raises(RuntimeError, match="layer.weight: changed in place by the .* '32-true'"):
        compiled("bf16-mixed", module=Limited(through_data))


def test_a_callback_may_write_weights_between_epochs():
    class Zero(rn.Callback):
        def on_epoch_begin(self, epoch, logs):
            nn.init.zeros_(self.task.model[3].weight)

    class Each(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            if batch < self.until:
                self.task.model[3].weight.data.fill_(1.0)

    with compiled("bf16-mixed") as task:
        task.optimizer(rn.SGD(lr=0.0)).compile(report="none")
        task.fit(epochs=2, verbose=0, callbacks=[Zero()])
        assert not task.state_dict()["3.weight"].any()
    for until in (99, 1):  # at every step, or only at the first
        with compiled("bf16-mixed") as task:
            Each.until = until
            with pytest.raises(RuntimeError, match="3.weight: changed in place during training"):
                task.fit(epochs=1, verbose=0, callbacks=[Each()])
            assert task.attempted_steps == 1


def writing(hook, step, value=1.0, layer=3):
    """A callback that writes a 16-bit copy in one hook, behind the step of this number."""

    def write(*arguments):
        task = callback.task
        if task.attempted_steps == step:
            task.model[layer].weight.data.fill_(value)

    callback = rn.LambdaCallback(**{hook: write})
    return callback


STEP_HOOKS = ["on_train_batch_begin", "on_train_batch_end", "on_log", "on_test_end"]


@pytest.mark.parametrize("hook", [*STEP_HOOKS, "on_test_batch_end"])
def test_what_a_hook_writes_between_two_logs_is_not_lost_unseen(hook):
    options = {"verbose": 0, "log_every": 4 if hook == "on_log" else 50}
    if "test" in hook:
        options |= {"validation_data": VALID, "validation_freq": ("step", 4)}
    with compiled("bf16-mixed") as task:
        with pytest.raises(RuntimeError, match="3.weight: changed in place during training"):
            task.fit(epochs=3, callbacks=[writing(hook, step=4)], **options)
        assert task.attempted_steps == 4
        # What was written is there still, and the next fit takes it.
        assert task.state_dict()["3.weight"].unique().tolist() == [1.0]
        task.fit(epochs=2, **options)


@pytest.mark.parametrize("hook", STEP_HOOKS)
def test_hooks_that_write_nothing_or_in_float32_are_no_error(hook):
    options = {"validation_data": VALID, "validation_freq": ("step", 1), "log_every": 1}
    with compiled("bf16-mixed") as task, compiled("bf16-mixed") as plain:
        task.fit(epochs=2, verbose=0, callbacks=[writing(hook, step=-1)], **options)
        plain.fit(epochs=2, verbose=0, **options)
        assert task.state_hash() == plain.state_hash()
    with compiled() as task:
        task.optimizer(rn.SGD(lr=0.0)).compile(report="none")
        task.fit(epochs=1, verbose=0, callbacks=[writing(hook, step=1)], **options)
        assert task.state_dict()["3.weight"].unique().tolist() == [1.0]


def test_nothing_is_compared_where_no_hook_of_somebody_else_runs(monkeypatch, tmp_path):
    looks, untouched = [], Edits._is_untouched
    monkeypatch.setattr(Edits, "_is_untouched", lambda self: looks.append(1) or untouched(self))
    monkeypatch.setattr(Edits, "note", lambda self: looks.append(1))

    def count(callbacks, precision="bf16-mixed", run_dir=None, **options):
        with compiled(precision) as task:
            task.run_dir = run_dir
            task.fit(max_steps=1, verbose=0, checkpoint=None)
            looks.clear()
            task.fit(epochs=2, verbose=0, callbacks=callbacks, checkpoint=None, **options)
            return len(looks), task.attempted_steps - 1

    none, steps = count([])
    ours = [rn.TerminateOnNaN(), rn.EarlyStopping("loss", patience=9), rn.LambdaCallback()]
    seldom = count([], run_dir=tmp_path / "seldom")[0]
    assert count(ours, run_dir=tmp_path / "often", log_every=1)[0] == seldom
    assert count([writing("on_epoch_end", -1)])[0] == none
    assert count([writing("on_train_batch_begin", -1)])[0] >= none + steps  # controls
    assert count([writing("on_log", -1)], log_every=1)[0] == none + steps
    hook = writing("on_train_batch_begin", -1)
    assert count([hook], "32-true")[0] == count([], "32-true")[0]


class TestNotes:
    """What a GPU is asked before a step, and answers at the next log."""

    def test_writes_are_noted_until_asked_for(self):
        with compiled("bf16-mixed") as task:
            memory, module = task.require().memory, task.model
            memory.note_edits(module)
            assert not memory.noted_edits(module)
            kept = module[0].weight.data.clone()
            module[0].weight.data[0, 0] += 1.0
            memory.note_edits(module)
            module[0].weight.data.copy_(kept)
            memory.note_edits(module)
            assert memory.noted_edits(module) and not memory.noted_edits(module)

    def test_of_frozen_weights_and_nan_is_no_word(self):
        with compiled("bf16-mixed", module=Follower()) as task:
            memory, module = task.require().memory, task.model
            with torch.no_grad():
                module.behind.weight.fill_(3.0)
                memory.view("W", "lead.weight").fill_(torch.nan)
                memory.view("A", "lead.weight").fill_(torch.nan)
                memory.view("W", "lead.bias").fill_(-0.0)
                memory.view("A", "lead.bias").fill_(0.0)  # what `edited` does not name either
            memory.note_edits(module)
            assert not memory.noted_edits(module)
            module.lead.bias.data.fill_(2.0)
            memory.note_edits(module)
            assert memory.noted_edits(module)

    def test_a_step_that_is_watched_by_notes_ends_at_the_next_log(self, monkeypatch):
        with compiled("bf16-mixed") as task:
            memory, module = task.require().memory, task.model
            built = type(task.require())
            monkeypatch.setattr(
                built, "look_behind_hooks", lambda self: self.memory.note_edits(self.module)
            )
            with pytest.raises(RuntimeError, match="weights: changed in place"):
                hook = writing("on_train_batch_begin", step=4)
                task.fit(epochs=3, verbose=0, callbacks=[hook], log_every=6)
            assert task.attempted_steps == 6
            module[0].weight.data.fill_(1.0)
            memory.note_edits(module)  # as of a fit that was broken off
            task.fit(epochs=3, verbose=0)


class Follower(nn.Module):
    """A frozen layer that a callback draws after a trained one, as momentum encoders are."""

    def __init__(self):
        super().__init__()
        self.lead, self.behind = nn.Linear(6, 3), nn.Linear(6, 3).requires_grad_(False)

    def forward(self, x):
        return self.lead(x) + self.behind(x)


def test_a_callback_may_write_frozen_weights_at_any_time():
    class Follow(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            module = self.task.model
            with torch.no_grad():
                module.behind.weight.copy_(module.lead.weight)

    with compiled("bf16-mixed", module=Follower()) as task:
        task.fit(epochs=2, verbose=0, callbacks=[Follow()])
        found = task.state_dict()
        assert torch.equal(found["behind.weight"], found["lead.weight"].bfloat16().float())


def test_a_checkpoint_looks_at_all_copies_at_once(monkeypatch, tmp_path):
    asked, compared = [], Edits._compared
    monkeypatch.setattr(
        Edits, "_compared", lambda self, b: asked.append(b.segment.name) or compared(self, b)
    )
    with compiled("bf16-mixed") as task:
        task.fit(epochs=1, verbose=0)
        asked.clear()
        task.save(tmp_path / "clean")
        assert asked == []
        task.model[3].weight.data.fill_(2.0)  # a control: this is seen, and saved
        task.save(tmp_path / "edited")
        assert asked
        task.load(tmp_path / "edited", weights_only=True)
        assert task.state_dict()["3.weight"].unique().tolist() == [2.0]


@pytest.mark.parametrize("look", ["fit", "evaluate", "predict"])
def test_what_a_hook_writes_into_averages_that_are_evaluated_is_not_lost_unseen(look):
    hook = "on_predict_batch_end" if look == "predict" else "on_test_batch_end"
    for precision, average in (("bf16-mixed", 0.9), ("bf16-mixed", None), ("32-true", 0.9)):
        is_refused = precision != "32-true" and average is not None
        with compiled(precision, **({"ema": average} if average else {})) as task:
            task.train_on_batch(X[:8], Y[:8])
            before = {name: tensor.clone() for name, tensor in task.state_dict().items()}
            callbacks = [writing(hook, step=4 if look == "fit" else 1)]
            calls = {
                "fit": lambda: task.fit(epochs=2, verbose=0, callbacks=callbacks),  # noqa: B023
                "evaluate": lambda: task.evaluate(VALID, callbacks=callbacks),  # noqa: B023
                "predict": lambda: task.predict(VALID, callbacks=callbacks),  # noqa: B023
            }
            if not is_refused:
                calls[look]()
                continue
            with pytest.raises(RuntimeError, match=r"3\.weight: changed in place while averaged"):
                calls[look]()
            if look != "fit":  # everything is where it was
                now = task.state_dict()
                assert all(torch.equal(now[name], before[name]) for name in before)
            task.evaluate(VALID)
