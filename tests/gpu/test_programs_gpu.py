"""Users' programs, captured: attention, fields, several outputs, edited weights."""

import numpy as np
import pytest
import torch
from droppers import Channels, Encoder
from torch import nn

import renaissance as rn
from renaissance import _native

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    # They lie in the regions, and cuDNN copies them.
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk"),
]

rng = np.random.default_rng(0)
X = rng.normal(size=(230, 5, 8)).astype(np.float32)
Y = rng.integers(0, 3, size=230)


class Recurrent(nn.Module):
    """Two layers with dropout between them, and noise on what they give."""

    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(8, 8, num_layers=2, dropout=0.5, batch_first=True)
        self.noise, self.head = rn.nn.Noise(), nn.Linear(8, 3)

    def forward(self, x):
        found = self.body(x)[0][:, -1]
        return self.head(found + 0.1 * self.noise(found))


class TwoHeads(nn.Module):
    """Two inputs that travel as one array, two outputs."""

    fields = rn.Fields(picture=(5, 8), age=float)

    def __init__(self):
        super().__init__()
        self.body, self.age, self.classes = nn.Linear(40, 16), nn.Linear(1, 16), nn.Linear(16, 3)

    def forward(self, packed):
        parts = self.fields.unpack(packed)
        hidden = self.body(parts["picture"].flatten(1)) + self.age(parts["age"][:, None])
        return {"classes": self.classes(torch.relu(hidden)), "size": hidden.square().mean(1)}


def of_classes(output, y):
    logits = output["classes"] if isinstance(output, dict) else output
    return nn.functional.cross_entropy(logits, y)


def made(model, capture="auto", x=X, **options):
    train = rn.Loader.from_arrays(x, Y, batch_size=32, shuffle=True)
    task = rn.Task(model, seed=3, device="cuda", **options).loss(of_classes)
    task.optimizer(rn.AdamW(lr=1e-2)).ema(0.9, warmup=True).data(train)
    return task.compile(report="none", capture=capture, compile_model="off")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("network", [Encoder, Channels, Recurrent])
def test_layers_that_drop_inside_give_the_eager_bits(network, precision):
    hashes = []
    for capture in ("auto", "off"):
        torch.manual_seed(0)
        home = "cpu" if capture == "auto" else "cuda"  # compile looks at a model where it finds it
        task = made(network().to(home), capture, precision=precision)
        task.fit(epochs=6, verbose=0)
        hashes.append(task.state_hash())
        task.close()
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    "network, compile_model", [(Encoder, "off"), (Encoder, "auto"), (Recurrent, "off")]
)
def test_every_replay_drops_others(network, compile_model):
    """At a rate of zero a step's loss moves by its masks alone."""
    torch.manual_seed(0)
    task = made(network()).optimizer(rn.SGD(lr=0.0))
    task.compile(report="none", compile_model=compile_model)
    losses = [task.train_on_batch(X[:32], Y[:32])["loss"] for _ in range(4)]
    assert len(set(losses)) == 4


def test_without_a_seed_attention_is_torchs_and_drops_anew():
    """A seed has it repeat, and pays for it: the weights of attention are computed in full."""
    train = rn.Loader.from_arrays(X, Y, batch_size=32)
    task = rn.Task(Encoder(), device="cuda").loss(of_classes).optimizer(rn.SGD(lr=0.0)).data(train)
    task.compile(report="none", compile_model="off")
    assert type(task.model.body.layers[0].self_attn) is nn.MultiheadAttention
    losses = [task.train_on_batch(X[:32], Y[:32])["loss"] for _ in range(4)]
    assert len(set(losses)) == 4
    with pytest.raises(RuntimeError, match="make the task with the seed"):
        task.reset(seed=1)
    seeded = made(Encoder())
    assert type(seeded.model.body.layers[0].self_attn) is rn.nn.MultiheadAttention


def test_masks_of_channels_are_those_of_the_cpu():
    x = torch.ones(64, 32, 3, 4)
    masks = []
    for device in ("cpu", "cuda"):
        drop = rn.nn.ChannelDropout(0.25, ndim=2)
        drop.bind(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8, device=device), layer=3)
        masks.append(drop(x.to(device)).cpu())
    assert torch.equal(*masks) and 0 < (masks[0] == 0).float().mean() < 0.5


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_fields_and_several_outputs(capture):
    packed = TwoHeads.fields.pack(picture=X, age=rng.normal(size=230))
    task = made(TwoHeads(), capture, x=packed)
    losses = task.fit(epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    found = task.predict(packed[:50], weights="raw")
    assert {name: part.shape for name, part in found.items()} == {"classes": (50, 3), "size": (50,)}
    expected = task.export_module().cpu().eval()(torch.from_numpy(packed[:50]))
    for name, part in found.items():
        np.testing.assert_allclose(part, expected[name].detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_data_without_targets_is_predicted(capture):
    task = made(Encoder(), capture)
    from_array = task.predict(X[:100])
    unlabelled = rn.Loader.from_arrays(X[:100], batch_size=64)
    labelled = rn.Loader.from_arrays(X[:100], Y[:100], batch_size=64)
    assert from_array.shape == (100, 3)
    np.testing.assert_allclose(task.predict(unlabelled), from_array, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(task.predict(labelled), task.predict(unlabelled))


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_weights_written_through_data_stay_written(capture):
    torch.manual_seed(0)
    task = made(Encoder(), capture, precision="bf16-mixed").optimizer(rn.SGD(lr=0.0))
    task.compile(report="none", capture=capture, compile_model="off")
    untouched = task.state_hash()
    assert task.state_hash() == untouched
    before = task.state_dict()["head.weight"].clone()
    task.model.head.weight.data.mul_(2)
    assert torch.equal(task.state_dict()["head.weight"], before.to(torch.bfloat16).float() * 2)
    task.fit(epochs=1, verbose=0)
    assert torch.equal(task.state_dict()["head.weight"], before.to(torch.bfloat16).float() * 2)
