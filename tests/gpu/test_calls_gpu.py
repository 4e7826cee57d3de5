"""Every call of a task on a GPU, captured and eager, beside the same call on the CPU."""

import pathlib

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import renaissance as rn
from renaissance.lrfinder import sweep

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

DEVICE = "cuda"
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 12)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)
CLOSE = {"rtol": 1e-3, "atol": 1e-4}
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


class Net(nn.Module):
    """A batch-norm, so that there are buffers."""

    def __init__(self, outputs=3):
        super().__init__()
        self.body, self.norm = nn.Linear(12, 16), nn.BatchNorm1d(16)
        self.head = nn.Linear(16, outputs)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.body(x))))


class Pairs(nn.Module):
    """Gives a tuple."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 3), nn.Linear(12, 3)

    def forward(self, x):
        return self.one(x) + self.two(x), self.two(x).square().mean(1)


def loaders(y=Y, **options):
    train = rn.Loader.from_arrays(X, y, batch_size=32, shuffle=True, **options)
    return train, rn.Loader.from_arrays(X[:90], y[:90], batch_size=40)


def made(device, capture="auto", model=None, data=None, loss=None, **options):
    task = rn.Task(model or Net(), seed=3, device=device, **options)
    task.loss(loss or rn.CrossEntropyLoss()).data(*(data or loaders()))
    # Not Adam: before a batch-norm a bias has no gradient but rounding, which it would scale up.
    task.optimizer(rn.SGD(lr=0.05, momentum=0.9))
    if model is None:
        task.ema(0.9, warmup=True).clip(1.0)
    return task.compile(report="none", capture=capture, compile_model="off")


@pytest.fixture(params=["auto", "off"])
def both(request):
    """The same task twice: on the CPU and on the GPU."""
    tasks = made("cpu"), made(DEVICE, request.param)
    yield tasks
    for task in tasks:
        task.close()


def alike(call, both):
    """What a call gives on either, which must agree to rounding."""
    expected, found = (call(task) for task in both)
    torch.testing.assert_close(_plain(found), _plain(expected), **CLOSE)
    return found


def _plain(x):
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_plain(value) for value in x]
    return x.detach().cpu() if isinstance(x, torch.Tensor) else torch.as_tensor(x)


def train(task):
    return dict(task.fit(epochs=2, verbose=0).history)


def test_fit_evaluate_and_predict(both):
    alike(train, both)
    train_data, valid = loaders()
    theirs = DataLoader(TensorDataset(torch.from_numpy(X[:90]), torch.from_numpy(Y[:90])), 40)
    for weights in ("raw", "ema", None):
        alike(lambda task, w=weights: task.evaluate(valid, weights=w), both)
        alike(lambda task, w=weights: task.predict(valid, weights=w), both)
    alike(lambda task: task.evaluate(theirs), both)
    alike(lambda task: task.evaluate(task.settings.train), both)
    for given in (
        X[:50],
        torch.from_numpy(X[:50]),
        theirs,
        rn.Loader.from_arrays(X, batch_size=64),
    ):
        alike(lambda task, given=given: task.predict(given), both)
    found = alike(lambda task: task.predict(torch.from_numpy(X[:50]).to(task.device)), both)
    assert found.shape == (50, 3)


@pytest.mark.parametrize("capture", ["auto", "off"])
@pytest.mark.parametrize("data", [(), loaders()], ids=["no data", "data"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_task_that_only_looks(precision, data, capture, tmp_path):
    source = made("cpu", precision=precision)
    source.fit(epochs=1, verbose=0)
    folder = source.save(tmp_path / "kept")
    valid = loaders()[1]
    task = rn.Task(Net(), seed=4, device=DEVICE, precision=precision).ema(0.5)
    task.loss(rn.CrossEntropyLoss()).metrics("top2")
    if data:
        task.data(*data)
    task.compile(report="none", capture=capture)
    assert not task.executor.is_captured and not any(map(task.plan.has, "GMV"))
    assert task.load(folder).state_dict().keys() == source.state_dict().keys()
    close = CLOSE if precision == "32-true" else {"rtol": 0.05, "atol": 0.05}
    before = task.state_hash()
    for weights in ("raw", "ema"):
        for loader in (valid, *data):
            found = task.evaluate(loader, weights)
            expected = source.evaluate(loader, weights)
            assert found["loss"] == pytest.approx(expected["loss"], rel=0.05)
        np.testing.assert_allclose(task.predict(X, weights), source.predict(X, weights), **close)
    assert task.state_hash() == before
    with pytest.raises(RuntimeError, match=r"task\.optimizer"):
        task.train_on_batch(X[:20], Y[:20])
    task.data(*loaders()).optimizer(rn.SGD(lr=0.05)).compile(report="none", capture=capture)
    assert np.isfinite(task.fit(epochs=1, verbose=0).history["loss"][0])
    task.close()


def test_single_batches(both):
    alike(train, both)
    for x, y in ((X[:20], Y[:20]), (torch.from_numpy(X[:7]), torch.from_numpy(Y[:7]))):
        alike(lambda task, x=x, y=y: task.test_on_batch(x, y), both)
        alike(lambda task, x=x, y=y: task.train_on_batch(x, y), both)
        alike(lambda task: task.gradients(), both)
    with pytest.raises(ValueError, match="targets"):
        both[1].train_on_batch(X[:20], None)
    x, y = torch.from_numpy(X[:32]), torch.from_numpy(Y[:32])
    alike(lambda task: task.train_on_batch(x.to(task.device), y.to(task.device)), both)
    alike(lambda task: task.test_on_batch(x.to(task.device), y.to(task.device)), both)
    alike(lambda task: list(task.batch_at(1, 2)), both)
    alike(lambda task: list(task.batch_at(0, 6)), both)


def test_state_goes_out_and_comes_back(both, tmp_path):
    alike(train, both)
    alike(lambda task: task.state_dict(), both)
    alike(lambda task: task.state_dict("ema"), both)
    alike(lambda task: task.export_module().cpu().eval()(torch.from_numpy(X[:9])), both)
    cpu, gpu = both
    kept, before = gpu.snapshot_weights(), gpu.state_hash()
    gpu.fit(epochs=3, verbose=0)
    assert gpu.state_hash() != before
    gpu.restore_weights(kept)
    folder = cpu.save(tmp_path / "cpu")
    gpu.load(folder, allow=("environment", "recipe"))
    assert gpu.state_hash() == cpu.state_hash()
    torch.testing.assert_close(gpu.predict(X), cpu.predict(X), **CLOSE)
    alike(lambda task: dict(task.fit(epochs=4, verbose=0).history), both)


def test_a_run_goes_on_where_it_was_saved(both, tmp_path):
    _, gpu = both
    gpu.fit(max_steps=9, verbose=0)
    folder = gpu.save(tmp_path / "half")
    gpu.fit(epochs=4, verbose=0)
    other = made(DEVICE, "auto" if gpu.executor.is_captured else "off")
    other.load(folder)
    other.fit(epochs=4, verbose=0)
    assert other.state_hash() == gpu.state_hash()
    assert other.history.history == gpu.history.history
    first = gpu.reset().fit(epochs=1, verbose=0).history
    assert first == made(DEVICE, "off").fit(epochs=1, verbose=0).history


def test_what_only_looks_changes_nothing(both):
    alike(train, both)
    _, gpu = both
    before = gpu.state_hash()
    alike(lambda task: task.dry_run(3), both)
    found = alike(lambda task: list(sweep(task, steps=20).rates), both)
    gpu.summary(), gpu.evaluate(loaders()[1]), gpu.predict(X), repr(gpu), repr(gpu.plan)
    assert len(found) == 20 and gpu.state_hash() == before


def test_callbacks(both, tmp_path):
    seen = {}

    class Looks(rn.Callback):
        def on_epoch_end(self, epoch, logs):
            valid = loaders()[1]
            found = self.task.evaluate(valid, weights="raw")
            seen.setdefault(self.task.device.type, []).append(
                [found["loss"], *self.task.predict(valid)[0].tolist()]
            )
            with torch.no_grad():
                self.task.model.head.bias.mul_(0.5)

    def run(task):
        watch = rn.Score(lambda out, y: (out.argmax(1) == y).float().mean(), name="right")
        stop = rn.EarlyStopping("val_loss", patience=1, min_delta=0.5, restore_best=True)
        keep = rn.ModelCheckpoint("val_right", mode="max", folder=tmp_path / task.device.type)
        return dict(task.fit(epochs=5, verbose=0, callbacks=[watch, stop, keep, Looks()]).history)

    history = alike(run, both)
    assert 1 < len(history["val_right"]) < 5
    torch.testing.assert_close(seen[both[1].device.type], seen["cpu"], **CLOSE)
    alike(lambda task: task.state_dict(), both)


def test_closed_and_compiled_again(both):
    alike(train, both)
    cpu, gpu = both
    x = torch.from_numpy(X[:9])
    how = "auto" if gpu.executor.is_captured else "off"
    for task in both:
        task.close()
    cpu.model.eval(), gpu.model.eval()
    torch.testing.assert_close(
        gpu.model(x.to(next(gpu.model.parameters()).device)).cpu(), cpu.model(x), **CLOSE
    )
    cpu.compile(report="none")
    gpu.compile(report="none", capture=how, compile_model="off")
    alike(lambda task: dict(task.fit(epochs=4, verbose=0).history), both)


@pytest.mark.parametrize("capture", ["auto", "off"])
@pytest.mark.parametrize(
    "loss, y",
    [
        (rn.MSELoss(), X[:, :1]),
        (rn.BCEWithLogitsLoss(pos_weight=[1.0, 2.0, 3.0]), (X[:, :3] > 0).astype(np.float32)),
        (rn.CrossEntropyLoss(class_weights=[1.0, 2.0, 3.0], label_smoothing=0.1), Y),
        (rn.CrossEntropyLoss(ignore_index=2), Y),
        (lambda out, y: (out.logsumexp(1) - out.gather(1, y[:, None])[:, 0]).mean(), Y),
    ],
    ids=["regression", "multilabel", "weighted", "ignored", "own"],
)
def test_losses(loss, y, capture):
    outputs = 3 if y.ndim == 1 and y.dtype == np.int64 or y.ndim == 2 and y.shape[1] == 3 else 1
    both = [
        made(d, capture, loss=loss, data=loaders(y), model=Net(outputs)) for d in ("cpu", DEVICE)
    ]
    alike(train, both)
    alike(lambda task: task.evaluate(loaders(y)[1]), both)


@pytest.mark.parametrize("capture", ["auto", "off"])
@pytest.mark.parametrize("validation", [1, 2, ("step", 3)])
def test_accumulation_and_when_to_validate(capture, validation):
    histories = []
    for device in ("cpu", DEVICE):
        task = made(device, capture).accumulate(3)
        task.compile(report="none", capture=capture, compile_model="off")
        histories.append(task.fit(epochs=3, verbose=0, validation_freq=validation).history)
        assert [len(batch.ids) for batch in task.batch_at(0, 0)] == [32, 32, 32]
    torch.testing.assert_close(_plain(dict(histories[1])), _plain(dict(histories[0])), **CLOSE)


class Rows(torch.utils.data.Dataset):
    """A map-style data set of torch's kind."""

    def __len__(self):
        return 200

    def __getitem__(self, index):
        return X[index], int(Y[index])


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_a_dataloader_and_a_tuple_of_outputs(capture):
    def loss(output, y):
        return nn.functional.cross_entropy(output[0], y) + 0.1 * output[1].mean()

    def run(task):
        found = train(task) | {"evaluated": task.evaluate(DataLoader(Rows(), 50))}
        first, second = task.predict(DataLoader(Rows(), 50))
        return found | {"first": first, "second": second}

    data = DataLoader(Rows(), 32, shuffle=False), DataLoader(Rows(), 64)
    alike(run, [made(d, capture, Pairs(), data, loss) for d in ("cpu", DEVICE)])


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_mixed_precision_saves_and_goes_on(precision, tmp_path):
    whole = made(DEVICE, precision=precision)
    whole.fit(max_steps=9, verbose=0)
    folder = whole.save(tmp_path / "half")
    whole.fit(epochs=3, verbose=0)
    other = made(DEVICE, precision=precision)
    other.load(folder)
    other.fit(epochs=3, verbose=0)
    assert other.state_hash() == whole.state_hash()
    exported = other.export_module().cpu().eval()
    found, expected = (
        other.predict(X, weights="raw"),
        exported(torch.from_numpy(X)).detach().numpy(),
    )
    np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.05)


def test_the_command_line(tmp_path, monkeypatch, capsys):
    from renaissance.cli.main import main

    monkeypatch.chdir(tmp_path)
    quickstart = str(EXAMPLES / "quickstart.yaml")
    for arguments in (
        ["train", quickstart, "fit.epochs=2"],
        ["train", quickstart, "fit.epochs=2", "--resume", "auto"],
        ["evaluate", "runs/quickstart"],
        ["predict", "runs/quickstart", "--data", "valid"],
        ["plan", quickstart],
    ):
        assert main(arguments) in (0, None), arguments
    assert "val_accuracy" in capsys.readouterr().out
