"""Reports: counts by class against a loop, mistakes in order, pictures, comparison of runs."""

import math

import matplotlib.image
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from renaissance import report
from renaissance.report import ClassReport, as_pictures, compare, plot_pictures, read_metrics

NAN = math.nan
ANIMALS = ["cat", "dog", "owl"]
TARGETS = [0, 0, 1, 1, 1]
SCORES = [[9, 1, 0], [1, 2, 0], [0, 3, 0], [4, 4, 0], [NAN, 9, 0]]


def is_png(path):
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


# Classes


def test_counts_ties_and_nan():
    found = ClassReport(TARGETS, SCORES, ANIMALS)
    assert found.predicted.tolist() == [0, 1, 1, 0, -1], "the first of equal ones; NaN is wrong"
    assert found.counts.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert found.totals.tolist() == [2, 3, 0]
    assert found.accuracy == 2 / 5
    assert found.per_class.tolist()[:2] == [1 / 2, 1 / 3] and math.isnan(found.per_class[2])


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 40), st.integers(1, 5))
def test_counts_against_a_loop(data, n, k):
    targets = data.draw(arrays.arrays(np.int64, n, elements=st.integers(0, k - 1)))
    scores = data.draw(arrays.arrays(np.float32, (n, k), elements=st.floats(-9, 9, width=32)))
    found = ClassReport(targets, scores)
    expected = [[0] * k for _ in range(k)]
    for target, row in zip(targets, scores.tolist()):
        expected[target][row.index(max(row))] += 1
    assert found.counts.tolist() == expected
    rank = [sum(s > r[t] for s in r) + r[:t].count(r[t]) for t, r in zip(targets, scores.tolist())]
    assert found.accuracy == rank.count(0) / n, "the rank definition of the metrics"


def test_the_table_letter_by_letter():
    assert ClassReport(TARGETS, SCORES, ANIMALS).to_text() == (
        "class  samples  accuracy  most often taken for\n"
        "----------------------------------------------\n"
        "cat          2   50.00 %  dog (1)\n"
        "dog          3   33.33 %  cat (1)\n"
        "owl          0         -\n"
        "all          5   40.00 %\n"
    )


def test_mistakes_the_surest_first_and_nan_last():
    scores = [[0, 1.0], [0, 5.0], [5.0, 0], [NAN, 0], [0, 3.0]]
    found = ClassReport([0, 0, 0, 0, 0], scores)
    assert found.mistakes().tolist() == [1, 4, 0, 3]
    np.testing.assert_allclose(found.confidence()[:2], 1 / (1 + np.exp([-1.0, -5.0])), rtol=1e-15)


@pytest.mark.parametrize(
    "targets,scores,classes,message",
    [
        ([0, 1], [[1.0, 2.0]], None, r"targets \(2,\) and scores \(1, 2\) do not fit"),
        ([], np.zeros((0, 2)), None, "N at least 1"),
        ([2], [[1.0, 2.0]], None, "targets go from 2 to 2, but there are scores for 2 classes"),
        ([-1], [[1.0, 2.0]], None, "targets go from -1 to -1"),
        ([0], [[1.0, 2.0]], ["a"], "1 names for 2 classes"),
    ],
)
def test_what_does_not_fit(targets, scores, classes, message):
    with pytest.raises(ValueError, match=message):
        ClassReport(targets, scores, classes)


def test_pictures_of_a_class_report(tmp_path):
    generator = np.random.default_rng(0)
    targets = generator.integers(0, 10, 300)
    scores = generator.normal(size=(300, 10)) + 2 * np.eye(10)[targets]
    found = ClassReport(targets, scores, [f"class {k}" for k in range(10)])
    pictures = generator.integers(0, 256, (300, 8, 8, 3), dtype=np.uint8)
    for path in (
        found.plot_confusion(tmp_path / "confusion.png"),
        found.plot_per_class(tmp_path / "classes.png"),
        found.plot_mistakes(pictures, tmp_path / "mistakes.png", count=6),
    ):
        assert is_png(path) and matplotlib.image.imread(path).std() > 0.05
    right = ClassReport([0], [[1.0, 0.0]])
    with pytest.raises(ValueError, match="all 1 are right; nothing to draw"):
        right.plot_mistakes(pictures[:1], tmp_path / "none.png")


# Pictures


def test_layouts_are_told_apart():
    grey, hwc, chw = np.zeros((2, 5, 6)), np.zeros((2, 5, 6, 3)), np.zeros((2, 3, 5, 6))
    assert as_pictures(grey).shape == (2, 5, 6, 1)
    assert as_pictures(hwc).shape == as_pictures(chw).shape == (2, 5, 6, 3)
    assert as_pictures(torch.zeros(2, 1, 5, 6, dtype=torch.bfloat16)).shape == (2, 5, 6, 1)
    for wrong in (np.zeros((2, 5)), np.zeros((2, 4, 5, 6)), np.zeros((0, 5, 6))):
        with pytest.raises(ValueError, match="is not allowed; it must be"):
            as_pictures(wrong)


def test_normalisation_is_undone():
    raw = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), dtype=np.uint8)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    seen = ((raw / 255 - mean) / std).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(as_pictures(seen, mean, std), raw / 255, atol=1e-12)
    assert as_pictures(raw) is raw
    stretched = as_pictures(seen)
    assert stretched.min() == 0 and stretched.max() == 1


def test_a_grid_shows_the_pictures_in_order(tmp_path):
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]], dtype=np.uint8)
    pictures = np.broadcast_to(colours[:, None, None], (4, 9, 9, 3))
    path = plot_pictures(pictures, tmp_path / "grid.png", captions=list("abcd"), columns=2)
    drawn = (matplotlib.image.imread(path)[..., :3] * 255).round().astype(np.uint8)
    centres = {}
    for name, colour in zip("abcd", colours):
        rows, columns = np.nonzero((drawn == colour).all(axis=-1))
        assert len(rows) > 1000, f"{name} is missing"
        centres[name] = rows.mean(), columns.mean()
    assert centres["a"][1] < centres["b"][1] and centres["a"][0] < centres["c"][0]
    assert abs(centres["a"][0] - centres["b"][0]) < 2 and abs(centres["a"][1] - centres["c"][1]) < 2
    with pytest.raises(ValueError, match="3 captions for 4 pictures"):
        plot_pictures(pictures, path, captions=list("abc"))


# Runs

RUNS = {
    "adamw": [
        {"epoch": 0, "steps": 5, "loss": 1.0, "val_accuracy": 0.75, "learning_rate": 0.1},
        {"epoch": 1, "steps": 10, "loss": 0.5, "val_accuracy": 0.5, "learning_rate": 0.1},
    ],
    "sgd": [{"epoch": 0, "steps": 5, "loss": NAN, "val_accuracy": 0.625}],
    "empty": [],
}


def test_the_comparison_letter_by_letter():
    assert compare(RUNS) == (
        "run    epochs  best val_accuracy (epoch)  val_accuracy      loss\n"
        "----------------------------------------------------------------\n"
        "adamw       2               0.7500 (1) *      0.5000    0.5000\n"
        "sgd         1               0.6250 (1)        0.6250 *       -\n"
        "empty       0                        -             -         -\n"
    )


def test_losses_are_compared_downwards():
    runs = {"a": [{"epoch": 0, "val_loss": 2.0}], "b": [{"epoch": 0, "val_loss": 1.0}]}
    lines = compare(runs).splitlines()
    assert lines[2].count("*") == 0 and lines[3].count("*") == 2


def test_the_picture_of_a_comparison(tmp_path):
    assert is_png(report.plot_compare(RUNS, tmp_path / "compare.png", title="runs"))
    with pytest.raises(ValueError, match="none of the runs has an epoch"):
        report.plot_compare({"empty": []}, tmp_path / "none.png")


def test_metrics_of_a_table_the_last_row_of_an_epoch_counts(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,steps,loss,val_loss\n0,4,1.0,\n1,8,nan,0.5\n0,4,2.0,\n1,8\n")
    rows = read_metrics(path)
    assert rows == [{"epoch": 0, "steps": 4, "loss": 2.0}, {"epoch": 1, "steps": 8}]


def test_part_of_a_last_row_is_passed_over(tmp_path):
    path, table = tmp_path / "metrics.csv", "epoch,steps,loss,own\n0,4,2.0,\n1,8,1e-05,0.5\n"
    whole = {"epoch": 0, "steps": 4, "loss": 2.0}
    for cut in range(table.index("1,8"), len(table) + 1):
        path.write_text(table[:cut])
        first, *rest = read_metrics(path)
        fields = table[table.index("1,8") : cut].split(",")
        assert first == whole and len(rest) == (len(fields) == 4), cut
    assert rest == [{"epoch": 1, "steps": 8, "loss": 1e-5, "own": 0.5}]
    path.write_text(table.replace("0.5\n", "word\n"))
    with pytest.raises(ValueError, match="word"):
        read_metrics(path)
