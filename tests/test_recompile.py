"""What a second compile, a close, a failed compile and a reset keep, and what they put back."""

import functools

import pytest
import torch
from droppers import Encoder
from small import Net, X, Y, compiled, loader, make

import renaissance as rn
from renaissance import nn as layers


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(tensor, b[name]) for name, tensor in a.items())


def average(task):
    """Region E by name."""
    memory = task.require().memory
    return {
        s.name: memory.view("E", s.name).clone()
        for s in task.plan.segments
        if s.region == "W" or s.averaged
    }


def test_a_failed_compile_can_be_mended():
    task = make().ema(0.9).compile(report="none")
    task.fit(epochs=1, verbose=0)
    weights, kept = task.state_dict(), average(task)
    task.data(rn.Loader.from_arrays(X, Y % 4 + 4, batch_size=8, workers=0))
    with pytest.raises(ValueError, match="no class"):
        task.compile(report="none")
    with pytest.raises(RuntimeError, match=r"task\.compile\(\) first"):
        task.fit(epochs=2, verbose=0)
    assert same(weights, dict(task.model.state_dict()))
    assert all(p.dtype == torch.float32 for p in task.model.parameters())
    assert isinstance(task.model.drop, torch.nn.Dropout)
    task.data(loader()).compile(report="none")
    assert same(weights, task.state_dict()) and same(kept, average(task))
    task.fit(epochs=2, horizon="keep", verbose=0)
    assert task.attempted_steps == 16


def test_a_first_compile_that_fails_late_leaves_the_module_free(monkeypatch):
    from renaissance.step.executor import StepExecutor

    def fail(*_):
        raise OSError("no memory")

    task = make()
    with monkeypatch.context() as patch:
        patch.setattr(StepExecutor, "prepare", fail)
        with pytest.raises(OSError, match="no memory"):
            task.compile(report="none")
    assert task.compile(report="none").state_hash() == compiled().state_hash()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_second_compile_keeps_weights_average_counters_and_buffers(is_closed):
    task = make().ema(0.9).compile(report="none")
    task.fit(epochs=2, verbose=0)
    weights, kept, seen = task.state_dict(), average(task), int(task.model.seen)
    counters = task.executor.updater.scalars.state()
    if is_closed:
        task.close()
        assert task.global_step == 16
    task.compile(report="none")
    assert same(weights, task.state_dict()) and same(kept, average(task))
    assert int(task.model.seen) == seen and task.epoch == 2
    after = task.executor.updater.scalars.state()
    assert after == counters | {"applied": 0, "good": 0, "bad": 0} and after["averaged"] == 16
    assert not same(kept, {n: t for n, t in weights.items() if n in kept}), "E is not W"


@pytest.mark.parametrize("is_closed", [False, True])
def test_the_warm_up_of_an_average_goes_on_where_it_was(is_closed):
    def taught(*breaks):
        """Without momentum nothing but the average could tell that there was a second compile."""
        task = make().optimizer(rn.SGD(lr=0.1)).ema(0.99, warmup=True).compile(report="none")
        for epochs in (1, 2, 3):
            task.fit(epochs=epochs, verbose=0)
            if epochs in breaks:
                if is_closed:
                    task.close()
                task.compile(report="none")
        return task

    whole, broken = taught(), taught(1, 2)
    assert same(average(whole), average(broken)) and same(whole.state_dict(), broken.state_dict())
    assert broken.executor.updater.scalars["averaged"] == 24
    assert broken.executor.updater.scalars["applied"] == 8
    broken.executor.updater.scalars.write(averaged=0)  # a control: as if it began anew
    for task in (whole, broken):
        task.fit(epochs=4, verbose=0)
    assert not same(average(whole), average(broken))


def test_the_warm_up_of_an_average_that_is_told_later_begins_with_it():
    task = make().compile(report="none")
    task.fit(epochs=1, verbose=0)
    task.ema(0.99, warmup=True).compile(report="none")
    scalars = task.executor.updater.scalars
    assert scalars["averaged"] == 0
    task.fit(epochs=2, verbose=0)
    assert scalars["averaged"] == 8
    assert scalars["ema_rate"] == pytest.approx(1 - 9 / 18)  # the last of its 8 updates


def test_an_average_that_is_told_later_starts_at_the_weights():
    task = compiled()
    task.fit(epochs=1, verbose=0)
    task.ema(0.9).compile(report="none")
    memory = task.require().memory
    weights = memory.region("W")
    assert torch.equal(memory.region("E")[: weights.numel()], weights)


def plateau(factor=0.5):
    return rn.ReduceLROnPlateau(base_lr=0.1, patience=0, threshold=1.0, factor=factor)


def test_the_schedule_goes_on_while_it_is_the_same():
    task = make(optimizer=rn.SGD(), valid=loader(shuffle=False)).scheduler(plateau())
    task.compile(report="none")
    task.fit(epochs=4, verbose=0)
    state = task.rates.state_dict()
    assert state["reductions"] > 0
    task.scheduler(plateau()).compile(report="none")
    assert task.rates.state_dict() == state
    task.scheduler(plateau(0.25)).compile(report="none")
    assert task.rates.state_dict()["reductions"] == 0


def kept_model():
    torch.manual_seed(3)
    model = Net()
    with torch.no_grad():
        model.gain.copy_(torch.arange(4.0))
        model.norm.running_mean.fill_(0.5)
        model.norm.num_batches_tracked.fill_(7)
    return model


def fresh(keep, precision="32-true", initializer=None):
    task = make(kept_model() if keep else Net(), precision=precision).ema(0.9)
    if keep or initializer is not None:
        task.init("keep" if keep else initializer)
    return task.compile(report="none")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("keep", [False, True])
def test_reset_and_fit_have_the_bits_of_a_fresh_fit(keep, precision):
    task = fresh(keep, precision)
    start = (task.state_dict(), task.state_hash(), int(task.model.seen))
    task.fit(epochs=2, verbose=0)
    end, history = task.state_hash(), task.history.history
    assert end != start[1]
    task.reset()
    assert (int(task.model.seen), task.state_hash()) == (start[2], start[1])
    assert same(start[0], task.state_dict())
    task.fit(epochs=2, verbose=0)
    assert task.state_hash() == end and task.history.history == history


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("is_closed", [False, True])
def test_reset_goes_behind_a_second_compile(keep, is_closed):
    task = fresh(keep)
    start = task.state_hash()
    task.fit(epochs=1, verbose=0)
    if is_closed:
        task.close()
    task.compile(report="none").reset()
    assert task.state_hash() == start


def test_reset_keeps_what_a_rule_keeps():
    initializer = rn.Initializer().parameter("gain", "keep")
    task = fresh(False, initializer=initializer)
    start = task.state_hash()
    task.fit(epochs=1, verbose=0)
    assert task.reset().state_hash() == start


def test_a_seed_that_comes_too_late_is_refused_and_changes_nothing():
    class Draws(Net):
        def forward(self, x):
            return super().forward(torch.nn.functional.dropout(x, 0.5, self.training))

    task = make(Draws(), seed=None).compile(report="none")
    before, seed = task.state_hash(), task.seed
    with pytest.raises(RuntimeError, match="compiled without a seed and draws from torch's own"):
        task.reset(seed=5)
    assert (task.state_hash(), task.seed, task.seed_given) == (before, seed, False)
    late, early = (make(Net(), seed=seed).compile(report="none") for seed in (None, 5))
    assert late.reset(seed=5).state_hash() == early.state_hash()
    with pytest.raises(RuntimeError, match=r"task\.compile\(\) first"):
        (uncompiled := make(Net(), seed=1)).reset(seed=5)
    assert uncompiled.seed == 1


def test_a_late_seed_is_refused_where_attention_was_left_and_nothing_was_tried(monkeypatch):
    """As on CUDA without a seed; without data at compile no pass has shown that it draws."""
    left = functools.partial(layers.swap_dropouts, attention=False)
    with monkeypatch.context() as patch:
        patch.setattr(layers, "swap_dropouts", lambda module, **_: left(module))
        task = rn.Task(Encoder(), device="cpu").loss(rn.CrossEntropyLoss())
        task.optimizer(rn.SGD(lr=0.1)).compile(report="none")
    seed = task.seed
    with pytest.raises(RuntimeError, match=r"attention that drops, in body\.layers\.0\.self_attn"):
        task.reset(seed=5)
    assert task.seed == seed and task.compile(report="none").reset(seed=5).seed == 5


def test_another_initializer_judges_the_start_and_not_what_training_made_of_it():
    task = fresh(False)
    task.fit(epochs=1, verbose=0)
    other = rn.Initializer().parameter("first.weight", "zeros")
    task.init(other).compile(report="none").reset()
    assert task.state_hash() == fresh(False, initializer=other).state_hash()
    assert float(task.state_dict()["scale"]) == 2.0


def test_keep_that_is_told_later_means_the_module_of_then():
    task = fresh(False)
    task.fit(epochs=1, verbose=0)
    task.init("keep").compile(report="none")
    start, seen = task.state_dict(), int(task.model.seen)
    task.fit(epochs=2, horizon="keep", verbose=0)
    task.reset()
    assert same(start, task.state_dict()) and int(task.model.seen) == seen == 8


def test_the_sums_of_a_running_epoch_are_kept():
    task = compiled(optimizer=rn.SGD(lr=1e-2))
    task.fit(max_steps=3, verbose=0)
    task.metrics("top5").compile(report="none").fit(epochs=1, horizon="keep", verbose=0)
    whole = compiled(optimizer=rn.SGD(lr=1e-2))
    whole.fit(epochs=1, verbose=0)
    assert task.history.history["loss"] == whole.history.history["loss"]
    assert task.state_hash() != whole.state_hash(), "moments and what counts them start anew"


class Stop(rn.Callback):
    """Ends training after so many steps."""

    def __init__(self, steps):
        self.steps = steps

    def on_train_batch_end(self, batch, logs):
        self.task.stop_training = self.task.attempted_steps == self.steps


@pytest.mark.parametrize(
    "before, steps, after, again", [(1, 2, 2, 0), (2, 1, 1, 0), (1, 3, 2, 1), (2, 2, 4, 0)]
)
def test_another_accumulate_in_mid_epoch_loses_no_batch(before, steps, after, again, caplog):
    x, seen = torch.arange(24.0).reshape(24, 1), []
    module = torch.nn.Linear(1, 2)
    task = rn.Task(module, seed=1, device="cpu").loss(rn.CrossEntropyLoss())
    task.optimizer(rn.SGD(lr=0.01)).accumulate(before)
    task.data(rn.Loader.from_arrays(x, torch.arange(24) % 2, batch_size=4, shuffle=True))
    task.compile(report="none")
    module.register_forward_pre_hook(lambda _, given: seen.append(given[0][:, 0].tolist()))
    task.fit(epochs=1, verbose=0, callbacks=[Stop(steps)])
    first = len(seen)
    assert first == before * steps
    task.accumulate(after).compile(report="none")
    del seen[first:]  # what compile looked at
    task.fit(epochs=1, verbose=0)
    assert task.epoch == 1
    fresh = seen[first + again :]
    assert sorted(sum(seen[:first] + fresh, [])) == list(range(24))
    assert seen[first : first + again] == seen[first - again : first]
    assert bool(again) == any("come once more" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("before, steps, after, again", [(1, 4, 2, 0), (2, 2, 1, 0), (1, 3, 2, 1)])
def test_a_resume_with_another_accumulate_loses_no_batch(before, steps, after, again, tmp_path):
    x, seen = torch.arange(24.0).reshape(24, 1), []

    def task_of(accumulate):
        module = torch.nn.Linear(1, 2)
        task = rn.Task(module, seed=1, device="cpu", run_dir=tmp_path).loss(rn.CrossEntropyLoss())
        task.optimizer(rn.SGD(lr=0.01)).accumulate(accumulate)
        task.data(rn.Loader.from_arrays(x, torch.arange(24) % 2, batch_size=4, shuffle=True))
        task.compile(report="none")
        module.register_forward_pre_hook(lambda _, given: seen.append(given[0][:, 0].tolist()))
        return task

    task_of(before).fit(epochs=1, verbose=0, callbacks=[Stop(steps)])
    resumed = task_of(after)
    resumed.fit(epochs=1, verbose=0, resume="auto", allow=["recipe"])
    first = before * steps
    assert resumed.epoch == 1
    assert sorted(sum(seen[:first] + seen[first + again :], [])) == list(range(24))
    assert seen[first : first + again] == seen[first - again : first]
