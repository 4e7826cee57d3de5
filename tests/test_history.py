"""History: Keras' names, epochs without validation, NaN kept, resume appends, CSV, a picture."""

import csv
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from renaissance import figures
from renaissance.history import History

NAN = float("nan")


def some_history():
    history = History()
    history.append(0, 10, {"loss": 2.0, "accuracy": 0.1, "learning_rate": 1e-3})
    history.append(1, 20, {"loss": NAN, "accuracy": 0.2, "val_loss": 1.5, "learning_rate": 5e-4})
    history.append(2, 30, {"loss": 0.1 + 0.2, "accuracy": 0.3, "learning_rate": 0.0})
    return history


def test_lists_per_name_and_their_epochs():
    history = some_history()
    assert history.history["accuracy"] == [0.1, 0.2, 0.3]
    assert math.isnan(history.history["loss"][1])
    assert history.history["val_loss"] == [1.5] and history.epochs_of("val_loss") == [1]
    assert history.epoch == [0, 1, 2] and history.steps == [10, 20, 30] and len(history) == 3
    assert repr(history) == "History(3 epochs: loss, accuracy, learning_rate, val_loss)"
    assert repr(History()) == "History(0 epochs: nothing yet)"


def test_an_epoch_is_never_written_twice():
    history = some_history()
    with pytest.raises(RuntimeError, match=r"epoch 2 is there already \(the last one is 2\)"):
        history.append(2, 40, {})


def test_values_are_copied():
    logs = {"loss": 1.0}
    history = History()
    history.append(0, 1, logs)
    logs["loss"] = 2.0
    assert history.history == {"loss": [1.0]}


def test_resume_appends():
    first = some_history()
    resumed = History()
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for history in (first, resumed):
        history.append(3, 40, {"loss": 0.5, "val_loss": 0.25})
    assert repr(resumed.rows()) == repr(first.rows())
    assert resumed.epochs_of("val_loss") == [1, 3]


numbers = st.floats(allow_nan=True, allow_infinity=True)
rows = st.lists(st.dictionaries(st.sampled_from(["loss", "val_loss", "x"]), numbers), max_size=5)


@given(rows)
def test_state_goes_through_json_bit_for_bit(rows):
    history, again = History(), History()
    for epoch, row in enumerate(rows):
        history.append(epoch, 7 * epoch, row)
    history.params = {"epochs": 5, "metrics": ["loss"]}
    again.load_state_dict(json.loads(json.dumps(history.state_dict())))
    assert repr(again.state_dict()) == repr(history.state_dict())  # repr tells NaN and -0.0


def test_csv_keeps_every_bit_and_leaves_gaps_empty(tmp_path):
    path = some_history().to_csv(tmp_path / "deep" / "history.csv")
    assert path.read_text() == (
        "epoch,steps,loss,accuracy,learning_rate,val_loss\n"
        "0,10,2.0,0.1,0.001,\n"
        "1,20,nan,0.2,0.0005,1.5\n"
        "2,30,0.30000000000000004,0.3,0.0,\n"
    )
    with open(path) as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)][2] == 0.1 + 0.2


def test_plot_writes_a_picture(tmp_path):
    path = some_history().plot(tmp_path / "curves.png", title="mlp-mnist")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000
    with pytest.raises(RuntimeError, match="no epoch has ended yet"):
        History().plot(tmp_path / "none.png")


def test_titles_are_in_line_and_clear_of_a_power_of_ten(tmp_path, monkeypatch):
    """A learning rate's lifted its title above those of the other panels."""
    drawn = []
    save = figures.save
    monkeypatch.setattr(
        figures, "save", lambda figure, path: drawn.append(figure) or save(figure, path)
    )
    lines = [figures.Line("last", (1, 2), (scale, 2 * scale), "#000000") for scale in (1.0, 1e-4)]
    panels = [figures.Panel("loss", (lines[0],)), figures.Panel("rate", (lines[1],))]
    figures.draw_panels(panels, tmp_path / "two.png")
    loss, rate = drawn[0].axes
    titles = [axes._left_title.get_window_extent() for axes in (loss, rate)]
    power = rate.yaxis.get_offset_text()
    assert power.get_text() and titles[0].y0 == titles[1].y0
    assert not power.get_window_extent().overlaps(titles[1])


def test_plot_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'renaissance\[demo\]'"):
        some_history().plot(tmp_path / "curves.png")
