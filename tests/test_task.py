"""The Task end to end on the CPU: what the README promises, and what goes wrong on the way."""

import random
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import renaissance as rn
from renaissance.models import mlp

rng = np.random.default_rng(0)
X = rng.normal(size=(230, 12)).astype(np.float32)
Y = (X @ rng.normal(size=(12, 4))).argmax(1)


def loader(n=230, batch_size=32, shuffle=True, **options):
    return rn.Loader.from_arrays(X[:n], Y[:n], batch_size=batch_size, shuffle=shuffle, **options)


def small(dropout=0.0):
    return mlp([16, 16], num_classes=4, in_features=12, dropout=dropout)


def make(model=None, *, seed=1, batch_size=32, n=230, valid=True, optimizer=None, **options):
    task = rn.Task(model or small(), seed=seed, device="cpu", **options)
    task.loss(rn.CrossEntropyLoss())
    task.optimizer(optimizer or rn.AdamW(lr=1e-2))
    task.data(loader(n, batch_size), loader(n, 100, shuffle=False) if valid else None)
    return task


def quiet(task, **options):
    task.compile(report="none")
    task.fit(verbose=0, **options)
    return task


class Normed(nn.Module):
    """Batch-norm, dropout and a tied matrix in a few lines."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(12, 16), nn.BatchNorm1d(16)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


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


def test_skipped_step_changes_nothing_but_is_counted():
    task = make(Normed(), valid=False).ema(0.9).clip(1.0)
    task.compile(report="none")
    task.train_on_batch(X[:32], Y[:32])
    before = {n: task.executor.memory.region(n).clone() for n in ("W", "M", "V", "E", "B")}
    bad = X[:32].copy()
    bad[3, 4] = np.inf
    task.train_on_batch(bad, Y[:32])
    for name, region in before.items():
        assert torch.equal(region, task.executor.memory.region(name)), name
    assert (task.global_step, task.skipped_steps, task.attempted_steps) == (1, 1, 2)
    assert task.state_dict()["norm.num_batches_tracked"] == 1


def test_many_skips_in_a_row_stop_the_run_and_name_the_parameter():
    x = X.copy()
    x[:, 0] = np.nan
    task = make(valid=False).data(rn.Loader.from_arrays(x, Y, batch_size=4))
    task.compile(report="none")
    weights = task.state_dict()
    with pytest.raises(rn.NonFiniteError, match=r"50 .*weight|50 .*bias"):
        task.fit(epochs=3, verbose=0)
    assert all(torch.equal(t, task.state_dict()[n]) for n, t in weights.items())


def test_the_samples_of_the_last_skipped_step_are_named():
    task = make(valid=False).data(rn.Loader.from_arrays(X * np.nan, Y, batch_size=4))
    task.accumulate(2).compile(report="none")
    # Step 50 is the 21st of the second epoch of 29, two batches each.
    ids = ", ".join(str(i) for i in range(160, 168))
    with pytest.raises(rn.NonFiniteError, match=f"its samples were {ids}\\."):
        task.fit(epochs=3, verbose=0)


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


def test_recompile_keeps_weights_and_counters_and_says_so(capsys):
    task = quiet(make(valid=False), epochs=1)
    weights = task.state_dict()
    task.optimizer(rn.SGD(lr=0.1))
    with pytest.raises(RuntimeError, match="compile"):
        task.fit(epochs=2)
    task.compile()
    assert "kept" in capsys.readouterr().out
    assert all(torch.equal(t, weights[n]) for n, t in task.state_dict().items())
    assert task.attempted_steps == 8
    task.fit(epochs=2, horizon="keep", verbose=0)
    assert task.attempted_steps == 16


def test_trained_statistics_demand_a_word_on_init():
    model = Normed()
    model(torch.from_numpy(X))
    with pytest.raises(RuntimeError, match="init"):
        make(model).compile(report="none")
    kept = {n: t.clone() for n, t in model.state_dict().items()}
    task = make(model).init("keep")
    task.compile(report="none")
    assert all(torch.equal(t, kept[n]) for n, t in task.state_dict().items())


def test_adding_a_layer_moves_nobody_elses_initial_weights():
    def weights(hidden):
        task = make(mlp(hidden, num_classes=4, in_features=12), valid=False)
        return task.compile(report="none").state_dict()

    a, b = weights([16]), weights([16, 16])
    first = next(iter(a))
    assert torch.equal(a[first], b[first])


def test_reset_starts_afresh():
    task = quiet(make(Normed(), seed=3), epochs=2)
    expected = task.state_hash()
    task.reset()
    assert task.epoch == task.global_step == 0 and task.history.epoch == []
    task.fit(epochs=2, verbose=0)
    assert task.state_hash() == expected


def test_close_gives_the_module_its_own_tensors():
    task = quiet(make(valid=False), epochs=1)
    weights = task.state_dict()
    task.close()
    assert all(torch.equal(t, weights[n]) for n, t in task.model.state_dict().items())
    quiet(make(task.model, valid=False), epochs=1)  # free for another task


def test_export_is_plain_and_equal():
    task = quiet(make(Normed(), precision="bf16-mixed", valid=False), epochs=1)
    module = task.export_module()
    assert all(torch.equal(t, task.state_dict()[n]) for n, t in module.state_dict().items())
    assert all(p.dtype == torch.float32 for p in module.parameters())
    assert isinstance(module.drop, nn.Dropout)
    task.close()
    module.train()(torch.from_numpy(X)).sum().backward()


def test_the_average_is_exported_by_name():
    task = quiet(make(Normed()).ema(0.9), epochs=2)
    hash_before = task.state_hash()
    plain, average = task.export_module(), task.export_module("ema")
    assert task.state_hash() == hash_before
    judged = {name: tensor.numpy() for name, tensor in task.snapshot_weights()["ema"].items()}
    for name, tensor in average.state_dict().items():
        if name in judged:
            assert np.array_equal(tensor.numpy(), judged[name])
            assert not torch.equal(tensor, plain.state_dict()[name])
        assert torch.equal(tensor, task.state_dict("ema")[name])
        assert torch.equal(tensor, task.state_dict(None)[name])
    with pytest.raises(ValueError, match="the task keeps no average"):
        quiet(make(Normed()), epochs=1).export_module("ema")


def test_dropout_is_swapped_and_keyed():
    task = make(small(dropout=0.5), valid=False)
    task.compile(report="none")
    assert any(isinstance(m, rn.nn.Dropout) for m in task.model.modules())


def test_a_closed_task_leaves_torchs_dropouts_and_keeps_no_memory():
    model = nn.Sequential(
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(X.shape[1], 8), rn.nn.Dropout(0.1), nn.Linear(8, 4)
    )
    with quiet(make(model, valid=False), epochs=1):
        assert type(model[1]) is rn.nn.Dropout
    assert type(model[1]) is nn.Dropout and type(model[3]) is rn.nn.Dropout
    assert model[3]._scalars is None, "it would keep the regions alive"
    first = model[1](torch.ones(1, 1000))
    assert not torch.equal(first, model[1](torch.ones(1, 1000)))
    with pytest.raises(RuntimeError, match="give the model to rn.Task"):
        model(torch.from_numpy(X))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(X.shape[1], 4)

    def forward(self, x):
        return self.last(x), x


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


def frozen():
    return small().requires_grad_(False)


@pytest.mark.parametrize(
    "use, error, text",
    [
        (lambda: make(frozen()).compile(), ValueError, "nothing to train: .* none of the model's"),
        (lambda: make(Pair()).compile(), TypeError, "gives tuple, CrossEntropyLoss takes one"),
        (
            lambda: make().data(loader(200, 20), rn.Loader.from_arrays(X, Y + 1, batch_size=9))
            .compile(),
            ValueError,
            r"validation data: target\[1\] = 4 is no class: the model gives 4",
        ),
        (
            lambda: make().optimizer(torch.optim.SGD(small().parameters(), lr=1.0)),
            TypeError,
            r"optimizer: torch.optim.sgd.SGD is not allowed; write task.optimizer\(rn.AdamW",
        ),
        (
            lambda: make().scheduler("cosine"),
            TypeError,
            r"scheduler: 'cosine' is not allowed; write task.scheduler\(rn.Cosine",
        ),
        (
            lambda: quiet(make(), epochs=1).predict(np.zeros((3, 12), np.uint8)),
            ValueError,
            r"uint8 pictures need the transforms of their data; write",
        ),
    ],
)  # fmt: skip
def test_what_a_task_does_not_take(use, error, text):
    with pytest.raises(error, match=text):
        use()


def test_what_is_called_is_not_assigned():
    task = make()
    with pytest.raises(AttributeError, match=r"called, not assigned to: task.optimizer\(SGD\(lr"):
        task.optimizer = rn.SGD(lr=0.5)
    assert task.settings.optimizer != rn.SGD(lr=0.5)
    task.stop_training = True  # what is an attribute stays one
    assert task.stop_training
    with pytest.raises(AttributeError, match=r"task.scheduler\(rn.ConstantLR\(base_lr=0.1\)\)"):
        task.learning_rate = 0.1


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


def test_skipped_updates_are_said(caplog):
    x = X[:64].copy()
    x[5] = np.nan
    task = make(valid=False)
    task.data(rn.Loader.from_arrays(x, Y[:64], batch_size=16, shuffle=True, seed=1))
    task.compile(report="none").fit(epochs=2, verbose=0)
    said = [r.getMessage() for r in caplog.records if "skipped" in r.getMessage()]
    assert len(said) == 2 and "epoch 2: 1 of 4 updates met infinities or NaN" in said[1]
    assert task.skipped_steps == 2


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


def test_frozen_and_unused_parameters_stay():
    model = Normed()
    model.spare = nn.Linear(3, 3)
    model.first.requires_grad_(False)
    task = make(model, valid=False)
    task.compile(report="none")
    names = {s.name for s in task.plan.parameters}
    assert not names & {"first.weight", "first.bias", "spare.weight", "spare.bias"}
    before = task.state_dict()
    task.fit(epochs=1, verbose=0)
    for name in ("first.weight", "spare.weight"):
        assert torch.equal(before[name], task.state_dict()[name])
    assert not torch.equal(before["last.weight"], task.state_dict()["last.weight"])


# What goes wrong says what came, what is allowed, and what to do.


def test_not_compiled_or_incomplete():
    task = rn.Task(small(), seed=1)
    with pytest.raises(RuntimeError, match="compile"):
        task.fit(epochs=1)
    with pytest.raises(RuntimeError, match=r"task\.loss"):
        task.compile()
    with pytest.raises(RuntimeError, match=r"task\.optimizer"):
        task.loss(rn.MSELoss()).compile()
    task.optimizer(rn.SGD(lr=1.0)).compile(report="none")
    with pytest.raises(RuntimeError, match=r"task\.data"):
        task.fit(epochs=1)


@pytest.mark.parametrize(
    "make_it, error, match",
    [
        (lambda: rn.Task(nn.Linear), TypeError, "torch.nn.Module"),
        (lambda: rn.Task(small(), device="cuda:99"), ValueError, "cuda:99"),
        (lambda: rn.Task(small(), device="gpu"), ValueError, "'auto', 'cpu', 'cuda'"),
        (lambda: rn.Task(small(), precision="fp16"), ValueError, "16-mixed"),
        (lambda: rn.Task(small(), seed=-1), ValueError, "seed"),
        (lambda: rn.Task(small()).optimizer("adam"), TypeError, r"write task.optimizer\(rn.AdamW"),
        (lambda: rn.Task(small()).accumulate(0), ValueError, "1 or more"),
        (lambda: rn.Task(small()).init("kaiming"), TypeError, "keep"),
        (lambda: make().compile(report="everything"), ValueError, "summary"),
        (lambda: make().compile(capture="yes"), ValueError, "'auto' or 'off'"),
    ],
)
def test_wrong_arguments(make_it, error, match):
    with pytest.raises(error, match=match):
        make_it()


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"batch_size": 32}, TypeError, "Loader"),
        ({"validation_split": 0.1}, TypeError, r"rn\.split"),
        ({"epochs": 0}, ValueError, "epochs"),
        ({"epohcs": 3}, TypeError, "did you mean 'epochs'"),
        ({"epochs": 1, "steps_per_epoch": 9}, ValueError, "1 to 8"),
        ({"epochs": 1, "checkpoint": "often"}, ValueError, "10min"),
        ({"epochs": 1, "validation_freq": 0}, ValueError, "validation_freq"),
        ({"epochs": 1, "resume": "auto"}, ValueError, "run_dir"),
    ],
)
def test_wrong_arguments_of_fit(options, error, match):
    task = make()
    task.compile(report="none")
    with pytest.raises(error, match=match):
        task.fit(verbose=0, **options)


def test_arrays_in_fit_say_what_to_write():
    task = make()
    task.compile(report="none")
    with pytest.raises(TypeError, match=r"rn\.Loader\.from_arrays"):
        task.fit(X, Y)


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"\(2, 12\)"):
        make(mlp([8], num_classes=4, in_features=13)).compile(report="none")
    with pytest.raises(ValueError, match="3 is no class: the model gives 3"):
        make(mlp([8], num_classes=3, in_features=12)).compile(report="none")


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


def test_longer_epochs_need_a_word_on_the_horizon():
    task = make().scheduler(rn.CosineAnnealingLR(base_lr=1e-2)).optimizer(rn.AdamW())
    quiet(task, epochs=2)
    with pytest.raises(ValueError, match="keep.*stretch"):
        task.fit(epochs=3, verbose=0)
    task.fit(epochs=3, horizon="keep", verbose=0)
    assert task.history.history["learning_rate"][-1] == 0.0


def test_batch_norm_and_a_last_batch_of_one():
    task = make(Normed(), n=225, batch_size=32)
    with pytest.raises(ValueError, match="batch of one"):
        task.compile(report="none")


def test_leftover_randomness_is_an_error_with_a_seed():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(12, 4)

        def forward(self, x):
            return nn.functional.dropout(self.inner(x), 0.5, self.training)

    with pytest.raises(RuntimeError, match="Noisy"):
        make(Noisy()).compile(report="none")
    make(Noisy(), seed=None).compile(report="none")


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
