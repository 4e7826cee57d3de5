"""Values of a whole data set: of all outputs and targets, not means over batches."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from torch import nn

import renaissance as rn

rng = np.random.default_rng(0)
X = rng.normal(size=(70, 4)).astype(np.float32)
Y = (X[:, 0] + rng.normal(size=70) > 0.5).astype(np.int64)


def loader(x=X, y=Y, **options):
    return rn.Loader.from_arrays(x, y, **{"batch_size": 16, **options})


def made(network=None, loss=None, data=None, **options):
    task = rn.Task(network or nn.Linear(4, 2), seed=1, device="cpu").optimizer(rn.AdamW(lr=1e-2))
    task.loss(loss or rn.CrossEntropyLoss())
    task.data(data or loader(shuffle=True), options.get("valid", data or loader()))
    return task.compile(report="none")


def f1(outputs, targets):
    return f1_score(targets, outputs.argmax(1))


def last(task):
    """F1 of the task's predictions, by hand."""
    return f1_score(Y, task.predict(X).argmax(1))


def test_it_is_that_of_the_whole_data_in_the_history_and_by_hand():
    task = made()
    watch = rn.Score(f1)
    history = task.fit(epochs=3, callbacks=[watch], verbose=0).history
    assert len(history["val_f1"]) == 3 and history["val_f1"][-1] == last(task)
    by_batch = [f1_score(Y[k : k + 16], task.predict(X).argmax(1)[k : k + 16]) for k in (0, 16, 32)]
    assert history["val_f1"][-1] != pytest.approx(np.mean(by_batch)), "a mean would be another"
    assert watch.measure() == watch.measure(loader(shuffle=True)) == last(task)
    half = loader(X[:40], Y[:40])
    assert watch.measure(half) == f1_score(Y[:40], task.predict(X[:40]).argmax(1))


def test_looking_changes_nothing():
    plain, watched = made(), made()
    plain.fit(epochs=2, verbose=0)
    watched.fit(epochs=2, verbose=0, callbacks=[rn.Score(f1)])
    assert plain.state_hash() == watched.state_hash()


def test_others_may_watch_it():
    task = made()
    scores = iter([0.5, 0.7, 0.6, 0.6, 0.9, 0.9])
    given = rn.Score(lambda outputs, targets: next(scores), name="f1")
    stop = rn.EarlyStopping("val_f1", patience=2, restore_best=True)
    assert len(task.fit(epochs=6, callbacks=[stop, given], verbose=0).epoch) == 4
    assert stop.best_epoch == 1 and stop.best == 0.7


@pytest.mark.parametrize("shuffle", [False, True])
def test_it_is_measured_when_the_data_is_validated(shuffle):
    task = made(valid=loader(shuffle=shuffle))
    other = rn.Score(f1, loader(X[:20], Y[:20]), name="first")
    history = task.fit(epochs=4, validation_freq=2, callbacks=[rn.Score(f1), other], verbose=0)
    assert history.epochs_of("val_f1") == [1, 3] and history.history["val_f1"][-1] == last(task)
    assert history.epochs_of("val_first") == [0, 1, 2, 3]


def test_averages_are_used_as_in_validation():
    task = rn.Task(nn.Linear(4, 2), seed=1, device="cpu").optimizer(rn.AdamW(lr=0.1)).ema(0.9)
    task.loss(rn.CrossEntropyLoss()).data(loader(shuffle=True), loader()).compile(report="none")
    watch = rn.Score(lambda outputs, targets: float(outputs.abs().sum()), name="size")
    history = task.fit(epochs=2, callbacks=[watch], verbose=0).history
    assert history["val_size"][-1] == watch.measure(weights="ema") != watch.measure(weights="raw")


def test_objects_of_torchmetrics_see_everything_at_once():
    metrics = pytest.importorskip("torchmetrics")
    y = (X @ rng.normal(size=(4, 1)) + rng.normal(size=(70, 1))).astype(np.float32)
    task = made(nn.Linear(4, 1), rn.MSELoss(), loader(y=y))
    kinds = [metrics.R2Score(), metrics.MeanSquaredError(squared=False)]
    history = task.fit(epochs=3, callbacks=[rn.Score(kind) for kind in kinds], verbose=0).history
    found = task.predict(X)
    assert history["val_R2Score"][-1] == pytest.approx(r2_score(y, found), rel=1e-5)
    assert history["val_MeanSquaredError"][-1] == pytest.approx(np.sqrt(np.mean((found - y) ** 2)))
    assert all(kind.update_count == 0 for kind in kinds), "nothing is kept"
    with pytest.raises(
        TypeError, match=r"R2Score\(\) is not allowed: it is a value of a whole data"
    ):
        task.metrics(metrics.R2Score()).compile(report="none")


def test_outputs_come_in_the_models_structure():
    class Two(nn.Linear):
        def forward(self, x):
            return {"scores": super().forward(x), "x": x}

    def auc(outputs, targets):
        return roc_auc_score(targets, outputs["scores"][:, 1] - outputs["scores"][:, 0])

    task = made(Two(4, 2), lambda output, y: nn.functional.cross_entropy(output["scores"], y))
    history = task.fit(epochs=2, callbacks=[rn.Score(auc)], verbose=0).history
    scores = task.predict(X)["scores"]
    assert history["val_auc"][-1] == roc_auc_score(Y, scores[:, 1] - scores[:, 0])


def test_torchs_loaders_and_float_targets():
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    task = made(valid=torch.utils.data.DataLoader(data, batch_size=16))
    assert task.fit(epochs=1, callbacks=[rn.Score(f1)], verbose=0).history["val_f1"] == [last(task)]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: rn.Score(lambda o, t: 1.0), ValueError, "a lambda has none; write a def"),
        (lambda: rn.Score("f1"), TypeError, "function = 'f1' is not allowed; it takes a function"),
        (
            lambda: rn.Score(f1, X),
            TypeError,
            "received ndarray; an rn.Loader or a torch DataLoader",
        ),
        (lambda: rn.Score(f1, name="loss"), ValueError, "the history uses it; take another"),
        (lambda: rn.Score(lambda o, t: o, name="all"), TypeError, r"gave \(70, 2\); it takes one"),
        (
            lambda: rn.Score(f1, loader(y=None)),
            ValueError,
            r"Score\('f1'\): the data has no targets; give them",
        ),
    ],
)
def test_what_is_wrong_is_said(make, error, text):
    with pytest.raises(error, match=text):
        made().fit(epochs=1, callbacks=[make()], verbose=0)


def test_without_validation_data_it_asks_for_some():
    with pytest.raises(ValueError, match=r"Score\('f1'\) has no data to look at; give task.data"):
        made(valid=None).fit(epochs=1, callbacks=[rn.Score(f1)], verbose=0)
