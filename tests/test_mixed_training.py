"""Training on mixed batches: losses, metrics, equal bits everywhere, resuming, YAML."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

import renaissance as rn
from renaissance.config.experiment import ConfigError, load_experiment
from renaissance.datasets import Digits, Synthetic
from renaissance.models import mlp

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("one_thread")]

BOTH = (rn.Mixup(0.4), rn.CutMix())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(4 * 36, 10)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.conv(x))).flatten(1)))


def make(model=None, *, loss=None, mix=BOTH, workers=1, prefetch=2, run_dir=None, **more):
    form = {"transforms": [rn.Normalize(mean=[0.5] * 3, std=[0.5] * 3)], "workers": workers}
    train = rn.Loader(
        Synthetic(45, size=8, seed=1),
        batch_size=9,
        shuffle=True,
        mix=mix,
        prefetch=prefetch,
        **form,
    )
    valid = rn.Loader(Synthetic(20, size=8, seed=2), batch_size=8, **form)
    task = rn.Task(model or Net(), seed=3, device="cpu", run_dir=run_dir, threads=1, **more)
    task.loss(loss or rn.CrossEntropyLoss(label_smoothing=0.1)).optimizer(rn.AdamW(lr=0.01))
    return task.ema(0.9).accumulate(2).data(train, valid).compile(report="none")


def facts(task):
    return task.state_hash(), task.history.history


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_workers_and_prefetch_change_no_bit(precision):
    found = []
    for workers, prefetch in ((0, 0), (1, 2), (2, 5), (7, 1)):
        task = make(workers=workers, prefetch=prefetch, precision=precision)
        task.fit(epochs=3, verbose=0)
        found.append(facts(task))
    assert all(one == found[0] for one in found)
    history = found[0][1]
    assert history["loss"][-1] < history["loss"][0] and len(history["val_accuracy"]) == 3
    other = make(mix=[rn.Mixup(0.5), rn.CutMix()], precision=precision)
    other.fit(epochs=3, verbose=0)
    assert facts(other)[0] != found[0][0]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, tuple(np.linspace(0.5, 1.5, 10))])
def test_the_loss_of_a_step_is_torchs_with_probabilities(smoothing, weights):
    loss = rn.CrossEntropyLoss(label_smoothing=smoothing, class_weights=weights)
    task = make(mlp([16], num_classes=10, in_features=192), loss=loss)
    wide = task.export_module().double()
    batches = task.batch_at(0, 0)
    x, y = (torch.cat([getattr(batch, name) for batch in batches]) for name in "xy")
    assert y.shape == (18, 10) and y.dtype == torch.float32
    assert ((y > 0) & (y < 1)).any() and torch.allclose(y.sum(1), torch.ones(18))
    expected = F.cross_entropy(
        wide(x.double()),
        y.double(),
        weight=None if weights is None else torch.tensor(weights, dtype=torch.float64),
        label_smoothing=smoothing,
    )
    expected.backward()
    task.fit(max_steps=1, verbose=0)
    means = task.executor.tally.means("last")
    assert means["loss"] == pytest.approx(expected.item(), rel=1e-6)
    right = wide(x.double()).argmax(1) == y.argmax(1)
    assert means["accuracy"] == right.double().mean().item()
    found = task.gradients()
    for name, parameter in wide.named_parameters():
        assert torch.allclose(found[name].double(), parameter.grad, rtol=1e-4, atol=1e-7)


def test_validation_counts_classes_and_mixed_data_can_be_evaluated_too():
    task = make()
    task.fit(epochs=2, verbose=0)
    train, valid = task.settings.train, task.settings.valid
    logits = torch.from_numpy(task.predict(valid)).double()
    y = torch.from_numpy(np.concatenate([batch.y for batch in valid.epoch(0)]))
    found = task.evaluate(valid)
    assert found["loss"] == pytest.approx(
        F.cross_entropy(logits, y, label_smoothing=0.1).item(), rel=1e-5
    )
    assert found["accuracy"] == pytest.approx((logits.argmax(1) == y).double().mean().item())
    assert task.history.history["val_loss"][-1] == found["loss"]
    assert np.isfinite(task.evaluate(train)["loss"])


def test_a_target_of_one_half_each_counts_as_the_smaller_class():
    """Mixed by exactly one half, a sample is right when the smaller of its classes is predicted."""
    task = make()
    y = torch.zeros(2, 10)
    y[:, [4, 7]] = 0.5
    bias = task.model.last.bias
    with torch.no_grad():
        task.model.last.weight.zero_()
        bias.copy_(torch.eye(10)[4])
        assert task.test_on_batch(torch.zeros(2, 3, 8, 8), y)["accuracy"] == 1.0
        bias.copy_(torch.eye(10)[7])
        assert task.test_on_batch(torch.zeros(2, 3, 8, 8), y)["accuracy"] == 0.0


def test_a_fused_head_is_left_out_for_probabilities():
    """The head knows class numbers alone: reading probabilities as such would leave its memory."""
    task = make()
    met = []

    def head(output, target, sums):
        met.append(target.dtype)
        return output.sum(), torch.ones(())

    task.executor.passes.head = head
    task.evaluate(task.settings.train)
    assert met == []
    task.evaluate(task.settings.valid)
    assert met == [torch.int64] * 3


@pytest.mark.parametrize("stop", [1, 5])
def test_stopped_and_resumed_equals_unbroken(stop, tmp_path):
    unbroken = make()
    unbroken.fit(epochs=3, verbose=0)
    make(run_dir=tmp_path).fit(max_steps=stop, verbose=0)
    resumed = make(run_dir=tmp_path, workers=2)
    resumed.fit(epochs=3, verbose=0, resume="auto")
    assert facts(resumed) == facts(unbroken)


def test_resuming_refuses_another_mix(tmp_path):
    make(run_dir=tmp_path).fit(epochs=1, verbose=0)
    for mix, text in (((), r"mix: \['Mixup\(0.4\)', 'CutMix\(\)'\] then, None now"),
                      ([rn.Mixup(0.4)], r"then, \['Mixup\(0.4\)'\] now")):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            make(run_dir=tmp_path, mix=mix).fit(epochs=2, verbose=0, resume="auto")


def test_losses_of_equal_shapes_refuse_validation_data_of_classes():
    with pytest.raises(ValueError, match=r"validation data: BCEWithLogitsLoss needs targets of"):
        make(loss=rn.BCEWithLogitsLoss())
    with pytest.raises(ValueError, match=r"cannot compare outputs \(2, 12\) with targets \(2, 10"):
        make(mlp([4], num_classes=12, in_features=192))


def test_show_batch_draws_what_the_step_sees(tmp_path):
    task = make()
    task.show_batch(tmp_path / "a.png", count=4)
    task.settings.train.show_batch(tmp_path / "b.png", count=4, seed=3)
    task.settings.train.show_batch(tmp_path / "c.png", count=4, seed=4)
    a, b, c = (np.asarray(Image.open(tmp_path / f"{name}.png")) for name in "abc")
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    with pytest.raises(RuntimeError, match="show_batch draws what an rn.Loader gives"):
        rn.Task(Net(), seed=1).show_batch(tmp_path / "d.png")


YAML = """
seed: 7
device: cpu
threads: 1
model: {type: mlp, hidden: [16], num_classes: 10, in_features: 64}
data:
  train:
    type: digits
    split: train
    batch_size: 256
    shuffle: true
    mix: [{type: mixup, alpha: 0.2}, {type: cutmix}]
  valid: {type: digits, split: test, batch_size: 256}
loss: cross_entropy
optimizer: {type: adamw, lr: 0.01}
"""


def test_yaml_and_python_give_the_same_run(tmp_path):
    file = tmp_path / "mixed.yaml"
    file.write_text(YAML)
    experiment = load_experiment(file)
    described = experiment.task().compile(report="none")
    described.fit(epochs=2, verbose=0)
    train = rn.Loader(Digits(split="train"), batch_size=256, shuffle=True,
                      mix=[rn.Mixup(0.2), rn.CutMix()])  # fmt: skip
    valid = rn.Loader(Digits(split="test"), batch_size=256)
    model = mlp([16], num_classes=10, in_features=64)
    written = rn.Task(model, seed=7, device="cpu", threads=1, name="mlp")
    written.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=0.01)).data(train, valid)
    written.compile(report="none").fit(epochs=2, verbose=0)
    assert facts(described) == facts(written)
    (tmp_path / "resolved.yaml").write_text(experiment.to_yaml())
    assert load_experiment(tmp_path / "resolved.yaml") == experiment


@pytest.mark.parametrize(
    "wrong, text",
    [
        ("[{type: mixup}, {type: mixup}]", r"data.train.mix: .*a cutmix, or one of each with the"),
        ("[{type: cutmx}]", r"mix\[0\].type: 'cutmx' is no mix; did you mean 'cutmix'\?"),
        ("[{type: mixup, alpha: 0}]", r"mix\[0\].alpha: 0 is not allowed"),
        ("[{type: random_crop, size: 4}]", "'random_crop' is no mix"),
    ],
)
def test_yaml_errors_have_their_place(tmp_path, wrong, text):
    file = tmp_path / "mixed.yaml"
    file.write_text(YAML.replace("[{type: mixup, alpha: 0.2}, {type: cutmix}]", wrong))
    with pytest.raises(ConfigError, match=text):
        load_experiment(file)
