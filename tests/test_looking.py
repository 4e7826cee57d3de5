"""Tasks without an optimizer: they evaluate and predict, and say what training would need."""

import numpy as np
import pytest
import torch
from small import Net, X, Y, loader, make
from torch import nn

import renaissance as rn


def looking(model=None, *, seed=1, **options):
    """A task that has a loss alone."""
    task = rn.Task(Net() if model is None else model, seed=seed, device="cpu", **options)
    return task.loss(rn.CrossEntropyLoss())


def in_order():
    return loader(shuffle=False)


@pytest.fixture
def trained(tmp_path):
    """A trained task with an average, and its checkpoint."""
    task = make().ema(0.9).compile(report="none")
    task.fit(epochs=2, verbose=0)
    return task, task.save(tmp_path / "kept")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_modules_own_weights_are_what_it_looks_with(precision):
    torch.manual_seed(0)
    model = Net()
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.eval()
    with torch.no_grad():
        by_hand = model(torch.from_numpy(X))
        loss = nn.functional.cross_entropy(by_hand, torch.from_numpy(Y))
    task = looking(model, precision=precision).metrics("top2").compile(report="none")
    assert not any(task.plan.has(region) for region in "GMVEN")
    near = {"rtol": 1e-5, "atol": 1e-6} if precision == "32-true" else {"rtol": 0.05, "atol": 0.02}
    np.testing.assert_allclose(task.predict(X), by_hand.numpy(), **near)
    found = task.evaluate(in_order())
    assert list(found) == ["loss", "accuracy", "top2_accuracy"]
    np.testing.assert_allclose(found["loss"], float(loss), **near)
    assert task.test_on_batch(X, Y)["loss"] == pytest.approx(found["loss"], rel=1e-3)
    for name, tensor in task.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    assert task.reset().predict(X).tobytes() == task.compile(report="none").predict(X).tobytes()
    task.close()
    assert torch.equal(model.first.weight, expected["first.weight"])


@pytest.mark.parametrize("weights_only", [False, True])
def test_it_takes_the_weights_of_a_checkpoint_and_nothing_else(trained, weights_only):
    source, folder = trained
    task = looking(seed=2).ema(0.5).compile(report="none").load(folder, weights_only)
    assert not task.plan.has("M") and (task.epoch, task.global_step) == (0, 0)
    for weights in ("raw", "ema", None):
        assert task.predict(X, weights).tobytes() == source.predict(X, weights).tobytes()
        assert task.evaluate(in_order(), weights) == source.evaluate(in_order(), weights)
    exported = task.export_module().eval()
    with torch.no_grad():
        assert torch.equal(
            exported(torch.from_numpy(X)), source.export_module().eval()(torch.from_numpy(X))
        )


def test_averages_that_are_left_out_are_said(trained, caplog):
    source, folder = trained
    task = looking().compile(report="none").load(folder)
    assert "task.ema(decay)" in caplog.text
    assert task.predict(X).tobytes() == source.predict(X, "raw").tobytes()


def test_a_checkpoint_that_does_not_fit_is_refused(trained):
    task = looking(nn.Linear(6, 4)).compile(report="none")
    before = task.state_hash()
    with pytest.raises(rn.CheckpointError, match=r"first\.weight"):
        task.load(trained[1])
    assert task.state_hash() == before


@pytest.mark.parametrize(
    "call",
    [
        lambda task, _: task.fit(loader(), epochs=1, verbose=0),
        lambda task, _: task.train_on_batch(X, Y),
        lambda task, _: task.data(loader()).compile(report="none").dry_run(),
        lambda task, _: task.gradients(),
        lambda task, _: task.learning_rate_at(0),
        lambda task, folder: task.save(folder / "here"),
    ],
)
def test_training_says_what_is_missing(call, tmp_path):
    task = looking().compile(report="none")
    with pytest.raises(RuntimeError, match=r"no optimizer yet.*task\.optimizer\(rn\.AdamW"):
        call(task, tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_a_loss_it_predicts():
    model = Net().eval()
    with torch.no_grad():
        by_hand = model(torch.from_numpy(X)).numpy()
    task = rn.Task(model, seed=1, device="cpu").metrics("top2")
    task.data(rn.Loader.from_arrays(X, batch_size=8)).compile(report="none")
    np.testing.assert_allclose(task.predict(X), by_hand, rtol=1e-5, atol=1e-6)
    for call in (lambda: task.evaluate(in_order()), lambda: task.test_on_batch(X, Y)):
        with pytest.raises(RuntimeError, match=r"no loss yet: task\.loss"):
            call()
    task.loss(rn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="targets"):
        task.compile(report="none")


def test_layers_that_cannot_be_trained_can_be_looked_with():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 4, sparse=True)

        def forward(self, x):
            return self.table(x).mean(1)

    words = np.arange(12).reshape(4, 3) % 10
    assert looking(Sparse()).compile(report="none").predict(words).shape == (4, 4)
    norm = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=None)).requires_grad_(False)
    norm[1].running_mean.fill_(0.5)  # trained, which would ask for a word on init
    task = looking(norm).data(loader(batch_size=9)).compile(report="none")  # ends in one sample
    assert np.isfinite(task.evaluate(in_order())["loss"])
    assert torch.equal(task.state_dict()["1.running_mean"], torch.full((4,), 0.5))


def test_data_is_looked_at_in_evaluation_mode():
    task = looking().data(loader(), loader(shuffle=False)).compile(report="none")
    before = task.state_hash()
    wrong = rn.Loader.from_arrays(X, Y + 1, batch_size=8)  # there is no class 4
    with pytest.raises(ValueError, match="evaluate:"):
        task.evaluate(wrong)
    with pytest.raises(ValueError, match="validation data"):
        looking().data(loader(), wrong).compile(report="none")
    assert task.state_hash() == before
    assert len(task.batch_at(0, 0).ids) == 8


class TestAnOptimizerThatIsToldLater:
    def begun(self):
        torch.manual_seed(5)
        return looking().data(loader()).compile(report="none")

    def test_starts_as_a_new_task_does(self):
        task, fresh = self.begun(), make().compile(report="none")
        task.evaluate(in_order())
        task.optimizer(rn.AdamW(lr=1e-2)).compile(report="none")
        assert task.state_hash() == fresh.state_hash()
        assert task.fit(epochs=1, verbose=0).history == fresh.fit(epochs=1, verbose=0).history

    def test_goes_on_from_what_is_loaded(self, trained):
        source, folder = trained
        task = self.begun().load(folder)
        task.optimizer(rn.AdamW(lr=1e-2)).compile(report="none")
        assert task.predict(X).tobytes() == source.predict(X, "raw").tobytes()
        task.fit(epochs=1, verbose=0)
        assert task.reset().state_hash() == make().compile(report="none").state_hash()

    def test_may_be_taken_back(self):
        task = make().compile(report="none")
        task.fit(epochs=1, verbose=0)
        found, counted = task.evaluate(in_order()), task.global_step
        task.optimizer(None).compile(report="none")
        assert task.evaluate(in_order()) == found and not task.plan.has("M")
        task.optimizer(rn.AdamW(lr=1e-2)).compile(report="none")
        assert task.evaluate(in_order()) == found and (task.epoch, counted) == (1, 8)

    def test_keeps_the_modules_own_where_that_is_told(self):
        task = self.begun()
        before = task.predict(X).tobytes()
        task.optimizer(rn.AdamW(lr=1e-2)).init("keep").compile(report="none")
        assert task.predict(X).tobytes() == before

    def test_goes_on_from_what_was_drawn(self):
        task = self.begun()
        own = task.predict(X).tobytes()
        drawn = task.init_all().predict(X).tobytes()
        assert drawn != own
        task.optimizer(rn.AdamW(lr=1e-2)).compile(report="none")
        assert task.predict(X).tobytes() == drawn


def test_weights_may_be_drawn_or_brought():
    drawn = looking().init(rn.Initializer()).compile(report="none")
    assert drawn.predict(X).tobytes() == make().compile(report="none").predict(X).tobytes()
    weights = drawn.state_dict()
    brought = looking().pretrained(weights).compile(report="none")
    assert brought.predict(X).tobytes() == drawn.predict(X).tobytes()


def test_the_report_says_that_it_only_looks(capsys):
    looking().data(loader()).compile(report="all")
    text = capsys.readouterr().out
    assert text.count("only evaluates and predicts") == 3
    assert "113 in 8 tensors" in text and "the module's own are kept\n" in text


def test_a_reset_without_an_optimizer_draws_what_was_drawn_at_first():
    task = make().compile(report="none")
    first = task.state_dict()
    task.fit(epochs=1, verbose=0)
    task.optimizer(None).compile(report="none")
    task.reset()
    for name, tensor in task.state_dict().items():
        assert torch.equal(tensor, first[name]), name
    task.optimizer(rn.AdamW(lr=1e-2)).compile(report="none")
    assert task.state_hash() == make().compile(report="none").state_hash()
