"""The Task end to end on the CPU: what the README promises."""

import random
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from twelve import Normed, Pair, X, Y, loader, make, quiet, small

import renaissance as rn


def test_learns_and_reports():
    task = quiet(make(), epochs=15)
    history = task.history.history
    assert list(history) == ["loss", "accuracy", "learning_rate", "val_loss", "val_accuracy"]
    assert history["val_accuracy"][-1] > 0.9 and len(history["loss"]) == 15
    assert task.history.epoch == list(range(15))
    assert task.epoch == 15 and task.attempted_steps == task.global_step == 15 * 8


def test_two_runs_with_one_seed_are_equal_and_another_seed_is_not():
    hashes = [quiet(make(Normed(), seed=s), epochs=3).state_hash() for s in (5, 5, 6)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    "precision", ["32-true", pytest.param("bf16-mixed", marks=pytest.mark.timeout(240))]
)
def test_agrees_with_a_loop_by_hand(precision):
    """The step against torch's own optimizer on the same batches, from the same weights."""
    exact = precision == "32-true"
    adamw = rn.AdamW(lr=1e-2, weight_decay=0.1)
    n = 230 if exact else 224  # a short batch rounds its bf16 gradients at another scale
    task = make(optimizer=adamw if exact else rn.SGD(lr=0.1), precision=precision, n=n)
    task.compile(report="none")
    twin = small()
    twin.load_state_dict(task.state_dict())
    biases = [p for n, p in twin.named_parameters() if n.endswith("bias")]
    weights = [p for n, p in twin.named_parameters() if not n.endswith("bias")]
    optimizer = torch.optim.AdamW(
        [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}], lr=1e-2
    )
    if not exact:  # Adam would turn the rounding of a gradient near zero into a whole step
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for epoch in range(2):
        for step in range(task.settings.train.steps_per_epoch):
            batch = task.batch_at(epoch, step)
            with torch.autocast("cpu", torch.bfloat16, enabled=not exact):
                output = twin(batch.x.float())
            loss = nn.functional.cross_entropy(output.float(), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    task.fit(epochs=2, verbose=0)
    tolerance = 2e-6 if exact else 1e-6
    for name, tensor in twin.state_dict().items():
        assert torch.allclose(task.state_dict()[name], tensor, rtol=0, atol=tolerance), name


def test_global_generators_are_neither_read_nor_advanced():
    def states():
        return (
            torch.random.get_rng_state().tolist(),
            np.random.get_state()[1].tolist(),
            random.getstate(),
        )

    hashes = []
    for salt in (1, 2):
        torch.manual_seed(salt), np.random.seed(salt), random.seed(salt)
        task = make(Normed())
        before = states()
        quiet(task, epochs=1)
        assert states() == before
        hashes.append(task.state_hash())
    assert hashes[0] == hashes[1]


def test_two_tasks_at_the_same_time_do_not_meet():
    alone = [quiet(make(Normed(), seed=s), epochs=2).state_hash() for s in (1, 2)]
    a, b = make(Normed(), seed=1), make(Normed(), seed=2)
    a.compile(report="none"), b.compile(report="none")
    for epoch in (1, 2):
        a.fit(epochs=epoch, horizon="keep", verbose=0), b.fit(epochs=epoch, verbose=0)
    assert [a.state_hash(), b.state_hash()] == alone


def test_nothing_that_only_looks_changes_training():
    plain = quiet(make(Normed(), valid=False), epochs=3)
    looked = make(Normed(), valid=True)
    looked.compile(report="none")
    looked.fit(epochs=3, verbose=2, log_every=1, validation_freq=("step", 3))
    assert plain.state_hash() == looked.state_hash()


def test_fit_in_pieces_equals_fit_in_one():
    whole = quiet(make(Normed(), optimizer=rn.Adam(lr=1e-2)), epochs=3)
    pieces = make(Normed(), optimizer=rn.Adam(lr=1e-2))
    pieces.compile(report="none")
    for steps in (1, 7, 8, 13, 24):
        pieces.fit(epochs=3, max_steps=steps, verbose=0)
    assert pieces.state_hash() == whole.state_hash()
    assert pieces.history.history == whole.history.history


def test_accumulation_equals_the_large_batch():
    """Means over the samples of a window, the last and shorter one too."""
    sgd = rn.SGD(lr=0.1)
    large = quiet(make(batch_size=64, optimizer=sgd), epochs=2)
    small_batches = make(batch_size=32, optimizer=sgd).accumulate(2)
    quiet(small_batches, epochs=2)
    assert small_batches.global_step == large.global_step == 8
    for name, tensor in large.state_dict().items():
        assert torch.allclose(tensor, small_batches.state_dict()[name], atol=2e-6), name


def test_epoch_means_are_over_samples():
    task = make(optimizer=rn.SGD(lr=0.0 + 1e-30), valid=True)
    quiet(task, epochs=1)
    with torch.no_grad():
        output = task.model(torch.from_numpy(X))
        exact = nn.functional.cross_entropy(output.double(), torch.from_numpy(Y)).item()
        accuracy = (output.argmax(1).numpy() == Y).mean()
    history = task.history.history
    assert history["loss"][0] == pytest.approx(exact, rel=1e-6)
    assert history["val_loss"][0] == pytest.approx(exact, rel=1e-6)
    assert history["accuracy"][0] == history["val_accuracy"][0] == accuracy


def test_ema_evaluates_and_raw_weights_come_back():
    task = quiet(make(Normed(), valid=False).ema(0.9), epochs=2)
    before = task.state_hash()
    averaged, raw = task.evaluate(loader()), task.evaluate(loader(), weights="raw")
    assert averaged["loss"] != raw["loss"] and task.state_hash() == before
    view = {n: task.executor.memory.view("E", n) for n in task.state_dict() if "num" not in n}
    twin = Normed()
    twin.load_state_dict({**task.state_dict(), **view})
    with torch.no_grad():
        output = twin.eval()(torch.from_numpy(X))
    expected = nn.functional.cross_entropy(output, torch.from_numpy(Y)).item()
    assert averaged["loss"] == pytest.approx(expected, rel=1e-5)


def test_predict_is_in_index_order_and_float32():
    task = quiet(make(valid=False), epochs=1)
    direct = task.model.eval()(torch.from_numpy(X)).detach().numpy()
    for data in (X, torch.from_numpy(X), loader(shuffle=True)):
        predicted = task.predict(data)
        assert predicted.dtype == np.float32 and predicted.shape == (230, 4)
        assert np.allclose(predicted, direct, atol=1e-6)


def test_stop_training_in_mid_epoch_returns_at_once():
    class Stop(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            if self.task.attempted_steps == 11:
                self.task.stop_training = True

    task = make()
    task.compile(report="none")
    history = task.fit(epochs=3, callbacks=[Stop()], verbose=0)
    assert task.attempted_steps == 11 and len(history.epoch) == 1
    task.fit(epochs=3, verbose=0)
    assert task.history.history == quiet(make(), epochs=3).history.history


def test_single_steps_follow_a_schedule_once_its_length_is_said():
    cosine = rn.CosineAnnealingLR(base_lr=0.1)
    task = make(valid=False, optimizer=rn.AdamW()).scheduler(cosine).compile(report="none")
    with pytest.raises(RuntimeError, match=r"train_on_batch: CosineAnnealingLR.* task.horizon = "):
        task.train_on_batch(X[:32], Y[:32])
    task.horizon = rn.Horizon(total_steps=5, steps_per_epoch=5)
    rates = [task.train_on_batch(X[:32], Y[:32])["learning_rate"] for _ in range(5)]
    assert rates == pytest.approx(cosine.simulate(5), rel=1e-12)


@pytest.mark.parametrize(
    "schedule, needed",
    [
        (rn.ConstantLR(base_lr=0.1), False),
        (rn.ConstantLR(base_lr=0.1).warmup(3, unit="step"), False),
        (rn.StepLR(base_lr=0.1, step_size=3, by="step"), False),
        (rn.ReduceLROnPlateau(base_lr=0.1), False),
        (rn.CosineAnnealingLR(base_lr=0.1), True),
        (rn.OneCycleLR(max_lr=0.1), True),
    ],
)
def test_which_schedules_need_a_length(schedule, needed):
    assert schedule.needs_length == needed


def test_a_function_as_the_loss_takes_whatever_the_model_gives():
    def first_of(output, target):
        return F.cross_entropy(output[0], target)

    pair = quiet(make(Pair(), valid=False).loss(first_of), epochs=2)
    plain = quiet(make(Pair().last, valid=False).loss(F.cross_entropy), epochs=2)
    assert pair.history.history["loss"][-1] < pair.history.history["loss"][0]
    assert pair.evaluate(loader(230, 50, shuffle=False)).keys() == {"loss"}
    assert plain.history.history.keys() == pair.history.history.keys()


def test_a_task_says_what_it_is_and_where_it_stands():
    task = make()
    assert re.fullmatch(
        r"<Task of \w+: name='\w+', seed=\d+, device='cpu', precision='32-true', "
        r"loss=CrossEntropyLoss\(.*\), optimizer=.+; not compiled, 0 epochs, 0 steps>",
        repr(task),
    )
    quiet(task, epochs=2)
    assert repr(task).endswith("; compiled, 2 epochs, 16 steps>")
    assert re.fullmatch(r"<MemoryPlan: \d+ tensors, .*to_text\(\).*>", repr(task.plan))


def test_one_callback_needs_no_list():
    quiet(make(), epochs=1, callbacks=rn.TerminateOnNaN())


class Looks(rn.Callback):
    """Looks at the training data in the middle of every epoch, in every way there is."""

    def on_train_batch_end(self, batch, logs):
        if batch == 1:
            data = self.task.settings.train
            self.task.evaluate(data)
            self.task.predict(data)
            self.task.batch_at(0, 0)
            next(data.epoch(0))


def test_looking_at_the_training_data_does_not_move_it():
    plain = quiet(make(), epochs=2)
    looking = make().compile(report="none")
    looking.fit(epochs=2, verbose=0, callbacks=[Looks()])
    assert looking.state_hash() == plain.state_hash()


def test_the_training_data_may_be_the_validation_data():
    found = []
    for same in (False, True):
        task = make()
        train = task.settings.train
        task.data(train, train if same else rn.Loader.from_arrays(X, Y, batch_size=64))
        task.compile(report="none").fit(epochs=2, verbose=0, validation_freq=("step", 2))
        found.append((task.attempted_steps, task.state_hash()))
    assert found[0] == found[1]


def test_epochs_end_where_they_say_whatever_came_before():
    task = make(optimizer=rn.SGD(lr=0.01)).compile(report="none")
    for _ in range(3):
        task.train_on_batch(X[:32], Y[:32])
    task.fit(epochs=1, verbose=0)
    assert (task.epoch, task.position.step, task.attempted_steps) == (1, 0, 3 + 8)
    task.fit(epochs=2, steps_per_epoch=2, verbose=0)
    assert (task.epoch, task.position.step, task.attempted_steps) == (2, 0, 3 + 8 + 2)
    task.fit(epochs=3, verbose=0)
    assert (task.epoch, task.position.step, task.attempted_steps) == (3, 0, 3 + 8 + 2 + 8)
    task.fit(max_steps=40, verbose=0)
    assert (task.epoch, task.position.step, task.attempted_steps) == (5, 3, 40)
    task.fit(epochs=6, max_steps=41, verbose=0)
    assert (task.epoch, task.position.step, task.attempted_steps) == (5, 4, 41)


class Double(nn.Module):
    """A model that computes in float64 at its end."""

    def __init__(self):
        super().__init__()
        self.inner = small()

    def forward(self, x):
        return self.inner(x).double()


@pytest.mark.parametrize(
    "loss, targets",
    [
        (rn.CrossEntropyLoss(), Y),
        (rn.CrossEntropyLoss(class_weights=[1, 2, 3, 4]), Y),
        (rn.MSELoss(), np.eye(4, dtype=np.float32)[Y]),
        (rn.BCEWithLogitsLoss(), np.eye(4, dtype=np.float32)[Y]),
        (lambda output, target: ((output - target) ** 2).mean(), np.eye(4, dtype=np.float32)[Y]),
    ],
    ids=["classes", "weighted", "mse", "bce", "function"],
)
def test_outputs_in_float64_train_as_those_in_float32(loss, targets):
    losses, tasks = [], []
    for model in (Double(), small()):
        task = rn.Task(model, seed=1, device="cpu").loss(loss).optimizer(rn.SGD(lr=0.1))
        task.data(rn.Loader.from_arrays(X, targets, batch_size=32)).init("keep")
        with torch.no_grad():
            for k, parameter in enumerate(model.parameters()):
                generator = torch.Generator().manual_seed(k)
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
        task.compile(report="none")
        losses.append(task.fit(epochs=2, verbose=0).history["loss"])
        tasks.append(task)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0][1] < losses[0][0]
    for one, other in zip(*(task.state_dict().values() for task in tasks), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
