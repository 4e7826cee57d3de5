"""Metrics: ranks, ties, NaN, sums and counts."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import renaissance as rn
from renaissance.metrics import binary_accuracy, from_callable, rank, resolve_metrics, top_k

CE = rn.CrossEntropyLoss()


def numbers(pair):
    return tuple(float(x) for x in pair)


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.lists(st.integers(-3, 3), min_size=4, max_size=4), st.integers(0, 3)),
        min_size=1,
        max_size=20,
    ),
    k=st.integers(1, 6),
)
def test_rank_is_the_place_in_a_stable_sort(rows, k):
    output = torch.tensor([logits for logits, _ in rows], dtype=torch.float32)
    target = torch.tensor([label for _, label in rows])
    order = [sorted(range(4), key=lambda c, x=logits: (-x[c], c)) for logits, _ in rows]
    expected = [places.index(label) for places, (_, label) in zip(order, rows)]
    assert rank(output, target).tolist() == expected
    right = sum(place < k for place in expected)
    assert numbers(top_k(k)(output, target)) == (right, len(rows))


def test_ties_go_to_the_smaller_index_as_in_argmax():
    output = torch.zeros(3, 4)
    assert rank(output, torch.tensor([0, 1, 3])).tolist() == [0, 1, 3]
    assert numbers(top_k(1)(output, torch.tensor([0, 1, 0]))) == (2.0, 3.0)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_nan_is_wrong(k):
    nan = float("nan")
    output = torch.tensor([[nan, 1.0, 2.0], [0.0, nan, 0.0], [nan, nan, nan], [9.0, 1.0, 2.0]])
    assert numbers(top_k(k)(output, torch.tensor([2, 1, 0, 0]))) == (1.0, 4.0)


def test_infinities_are_ordered():
    inf = float("inf")
    output = torch.tensor([[-inf, inf, 0.0], [-inf, inf, 0.0], [-inf, -inf, -inf]])
    assert rank(output, torch.tensor([1, 0, 2])).tolist() == [0, 2, 2]


def test_pictures_and_ignored_targets():
    output = torch.zeros(1, 3, 2, 2)
    output[0, 1] = 1.0
    target = torch.tensor([[[1, 1], [0, 255]]])
    assert numbers(top_k(1, ignore_index=255)(output, target)) == (2.0, 3.0)
    assert numbers(top_k(1)(output, target)) == (2.0, 4.0)
    assert numbers(top_k(1, ignore_index=1)(output, target)) == (0.0, 2.0)


def test_probabilities_stand_for_their_most_probable_class():
    output = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    target = torch.tensor([[0.4, 0.3, 0.3], [0.5, 0.5, 0.0]])
    assert numbers(top_k(1)(output, target)) == (1.0, 2.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_agrees_with_argmax_and_topk(dtype):
    generator = torch.Generator().manual_seed(5)
    output = torch.randn(500, 20, generator=generator).to(dtype)
    target = torch.randint(0, 20, (500,), generator=generator)
    assert numbers(top_k(1)(output, target))[0] == (output.argmax(1) == target).sum()
    clear = torch.tensor(np.stack([np.random.default_rng(i).permutation(20) for i in range(500)]))
    five = clear.topk(5).indices == target[:, None]
    assert numbers(top_k(5)(clear.to(dtype), target))[0] == five.any(1).sum()


def test_counts_of_parts_add_up():
    generator = torch.Generator().manual_seed(5)
    output, target = torch.randn(10, 3, generator=generator), torch.arange(10) % 3
    parts = [numbers(top_k(1)(output[a:b], target[a:b])) for a, b in ((0, 4), (4, 8), (8, 10))]
    assert tuple(np.sum(parts, 0)) == numbers(top_k(1)(output, target))


def test_binary_accuracy():
    output = torch.tensor([[2.0, -1.0], [float("nan"), 0.0]])
    target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert numbers(binary_accuracy(output, target)) == (2.0, 4.0)


def test_resolve():
    assert [m.name for m in resolve_metrics((), CE)] == ["accuracy"]
    assert [m.name for m in resolve_metrics((), rn.MSELoss())] == []
    wanted = ("top5", "accuracy", "top10_accuracy", F.l1_loss, rn.Metric("mine", top_k(2)))
    found = [m.name for m in resolve_metrics(wanted, CE)]
    assert found == ["accuracy", "top5_accuracy", "top10_accuracy", "l1_loss", "mine"]
    assert [m.name for m in resolve_metrics(["binary_accuracy"], rn.BCEWithLogitsLoss())] == [
        "binary_accuracy"
    ]


def test_a_loss_that_is_a_function_leaves_accuracy_to_the_user():
    loss = rn.foreign_losses.as_loss(F.cross_entropy)
    assert [m.name for m in resolve_metrics((), loss)] == []
    accuracy, top2 = resolve_metrics(["accuracy", "top2"], loss)
    target = torch.tensor([0, -100, 1])
    assert numbers(accuracy.function(torch.eye(3), target)) == (1.0, 2.0)
    assert top2.name == "top2_accuracy"


def test_the_losss_ignored_class_is_no_sample():
    (accuracy,) = resolve_metrics((), rn.CrossEntropyLoss(ignore_index=1))
    assert numbers(accuracy.function(torch.eye(3), torch.tensor([0, 1, 0]))) == (1.0, 2.0)


@pytest.mark.parametrize(
    "wanted, loss, error, text",
    [
        (["acuracy"], CE, ValueError, "'acuracy' is unknown; did you mean 'accuracy'"),
        (["top0"], CE, ValueError, "'top0' is unknown; did you mean 'top5'"),
        (["top"], CE, ValueError, "'top' is unknown"),
        (["f1"], CE, ValueError, "'f1' is unknown; it takes"),
        (["top5"], rn.MSELoss(), ValueError, "needs classes as targets, which MSELoss has not"),
        (["accuracy"], rn.BCEWithLogitsLoss(), ValueError, "'binary_accuracy' compares"),
        (["top5", "top5"], CE, ValueError, "two metrics are called 'top5_accuracy'"),
        ([3], CE, TypeError, r"metric = 3 \(int\)"),
        ([["top2"]], CE, TypeError, r"\(list\) .*; several are separate argum"),
        ([rn.Metric], CE, TypeError, "metric = <class"),
        ([lambda output, target: output], CE, ValueError, "name = '<lambda>' is not allowed"),
    ],
)
def test_wrong_metrics(wanted, loss, error, text):
    with pytest.raises(error, match=text):
        resolve_metrics(wanted, loss)


@pytest.mark.parametrize("name", ["loss", "learning_rate", "val_x", "a b", "", "1st"])
def test_names_the_history_uses_or_cannot_hold(name):
    with pytest.raises(ValueError, match="a metric's name"):
        rn.Metric(name, top_k(1))
    with pytest.raises(TypeError, match="is no function"):
        rn.Metric("mine", 3)


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda output, target: output.mean(), (6.0, 4.0)),
        (lambda output, target: output[:, 0], (6.0, 4.0)),
        (lambda output, target: (output.sum() * 2, 8), (12.0, 8.0)),
        (lambda output, target: output.mean().reshape(1).bfloat16(), (6.0, 4.0)),
    ],
)
def test_what_a_function_may_give(function, expected):
    output = torch.arange(4.0).reshape(4, 1)
    assert numbers(from_callable("mine", function).function(output, output)) == expected


@pytest.mark.parametrize("function", [lambda o, t: 1.0, lambda o, t: o, lambda o, t: o[:2, 0]])
def test_what_a_function_may_not_give(function):
    metric = from_callable("mine", function)
    with pytest.raises(ValueError, match="'mine' gave .* for a batch of 4"):
        metric.function(torch.zeros(4, 2), torch.zeros(4))


@pytest.mark.parametrize(
    "name, output, target",
    [
        ("accuracy", (4, 3), torch.zeros(4, 1, dtype=torch.int64)),
        ("accuracy", (4, 3, 2), torch.zeros(4, 1, dtype=torch.int64)),
        ("top2", (4, 3), torch.zeros(1, dtype=torch.int64)),
        ("accuracy", (4, 3), torch.zeros(1, 3)),
        ("binary_accuracy", (4, 1), torch.zeros(4)),
    ],
)
def test_shapes_that_would_broadcast_are_refused(name, output, target):
    (metric,) = rn.metrics.resolve_metrics([name], rn.foreign_losses.as_loss(F.cross_entropy))
    with pytest.raises(ValueError, match=r"takes targets of shape .* received"):
        metric.function(torch.zeros(output), target)
