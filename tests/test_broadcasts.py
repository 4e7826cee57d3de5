"""Outputs (N, 1) against targets (N,): all pairs of them, which a function may mean or not."""

import logging

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import renaissance as rn
from renaissance.broadcasts import watched
from renaissance.foreign_losses import as_loss

pytestmark = pytest.mark.timeout(60)

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(12, 3)).astype(np.float32), rng.normal(size=12).astype(np.float32)


def told(caplog):
    texts = [r.getMessage() for r in caplog.records if "every output with every" in r.getMessage()]
    caplog.clear()
    return texts


PAIRS = {
    "difference": lambda output, target: ((output - target) ** 2).mean(),
    "reversed": lambda output, target: (target - output).abs().mean(),
    "of a function": lambda output, target: (target * output.sigmoid().log()).mean(),
    "float": lambda output, target: (output - target.double().float()).square().mean(),
    "where": lambda output, target: torch.where(target > 0, output, -output).mean(),
    "huber": lambda output, target: F.huber_loss(output, target),
    "divergence": lambda output, target: F.kl_div(output, target),
}


@pytest.mark.filterwarnings("ignore:Using a target size", "ignore:reduction")  # torch's own
@pytest.mark.parametrize("function", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((4,), (4, 1)), ((4, 1, 5), (4, 5))])
def test_pairs_of_all_outputs_and_all_targets_are_told_with_their_shapes(function, shapes, caplog):
    if shapes[0] == (4, 1, 5):
        shapes = ((5, 1, 5), (5, 5))
    ours, theirs = shapes
    watched(function, "the loss f")(torch.rand(ours), torch.rand(theirs))
    (text,) = told(caplog)
    both = tuple(torch.broadcast_shapes(ours, theirs))
    assert text.startswith("the loss f compares every output with every target")
    assert f"outputs {ours} meet targets {theirs}, torch broadcasts them to {both}. " in text
    assert "output.reshape(target.shape)" in text


FINE = {
    "squeezed": ((4, 1), (4,), lambda o, t: (o.squeeze(1) - t).square().mean()),
    "column": ((4, 1), (4,), lambda o, t: F.l1_loss(o[:, 0], t)),
    "reshaped": ((4, 1), (4,), lambda o, t: F.mse_loss(o, t.view_as(o))),
    "all pairs, said so": ((4, 1), (4,), lambda o, t: (o - t[None]).square().mean()),
    "pairs of targets": ((4, 1), (4,), lambda o, t: ((t[:, None] < t) * o).mean()),
    "a product": ((4, 1), (4,), lambda o, t: t @ o),
    "a number": ((4, 1), (4,), lambda o, t: o.mean() - t.mean()),
    "mean removed": ((4, 3), (4, 3), lambda o, t: (o - t.mean(0)).square().mean()),
    "quantiles": ((4, 1), (4,), lambda o, t: (o * torch.tensor([0.1, 0.9])).mean()),
    "weights of classes": ((4, 3), (4,), lambda o, t: (o * torch.ones(3)).sum(1).sub(t).mean()),
    "one of one": ((1, 1), (1,), lambda o, t: (o - t).square().mean()),
    "classes": ((4, 3), (4,), lambda o, t: F.cross_entropy(o, t.long())),
}


@pytest.mark.parametrize("ours, theirs, function", FINE.values(), ids=FINE)
def test_what_is_meant_is_not_told(ours, theirs, function, caplog):
    output = torch.rand(ours, requires_grad=True)
    result = watched(function, "f")(output, torch.rand(theirs))
    assert torch.isfinite(result).all() and told(caplog) == []


def test_only_the_first_call_is_watched_and_nothing_that_is_compiled(caplog):
    function = watched(PAIRS["difference"], "f")
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    x, y = torch.rand(4, 1), torch.rand(4)
    assert compiled(x, y) == PAIRS["difference"](x, y) and told(caplog) == []
    assert function(x, y) == PAIRS["difference"](x, y) and len(told(caplog)) == 1
    assert function(x, y) == PAIRS["difference"](x, y) and told(caplog) == []


def mean_square(output, target):
    return ((output - target) ** 2).mean()


def task_of(loss, y=Y, **recipe):
    task = rn.Task(nn.Linear(3, 1), seed=1, device="cpu", threads=1).loss(loss)
    return task.optimizer(rn.SGD(lr=0.1)).metrics(*recipe.get("metrics", ()))


def test_a_task_tells_it_once_at_compile_or_else_at_the_first_step(caplog):
    task = task_of(mean_square).data(rn.Loader.from_arrays(X, Y, batch_size=4, workers=0))
    task.compile(report="none")
    (text,) = told(caplog)
    assert text.startswith("the loss mean_square") and "(2, 1) meet targets (2,)" in text
    task.fit(epochs=2, verbose=0)
    assert told(caplog) == []

    task = task_of(mean_square).compile(report="none")
    assert told(caplog) == []
    for _ in range(2):
        task.train_on_batch(X, Y)
    (text,) = told(caplog)
    assert "outputs (12, 1) meet targets (12,), torch broadcasts them to (12, 12)" in text


def test_a_metric_is_told_of_too(caplog):
    def error(output, target):
        return (output - target).abs().mean()

    def squeezed(output, target):
        return mean_square(output.squeeze(1), target)

    task = task_of(squeezed, metrics=[error]).compile(report="none")
    task.train_on_batch(X, Y)
    (text,) = told(caplog)
    assert text.startswith("the metric 'error' compares every output")


@pytest.mark.parametrize(
    "loss",
    [rn.MSELoss(), rn.BCEWithLogitsLoss(), as_loss(nn.L1Loss()), as_loss(nn.HuberLoss())],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_whose_meaning_is_known_refuse_it(loss, caplog):
    task = task_of(loss).compile(report="none")
    with pytest.raises(ValueError, match=r"outputs \(12, 1\), received \(12,\); reshape one"):
        task.train_on_batch(X, np.abs(Y) > 0.5)
    assert told(caplog) == []


@pytest.fixture(autouse=True)
def listening(caplog):
    caplog.set_level(logging.WARNING, "renaissance")
