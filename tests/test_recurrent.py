"""Recurrent layers of several layers, with keyed dropout between them in the place of torch's."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import renaissance as rn
from renaissance import _native
from renaissance.nn import bind_dropouts
from renaissance.nn.keyed import restore_dropouts, swap_dropouts

KINDS = {
    "lstm": (nn.LSTM, {}),
    "lstm with a projection": (nn.LSTM, {"proj_size": 3}),
    "gru": (nn.GRU, {}),
    "gru without bias": (nn.GRU, {"bias": False}),
    "rnn": (nn.RNN, {"nonlinearity": "relu"}),
}
every = pytest.mark.parametrize("kind", KINDS)
both_ways = pytest.mark.parametrize("bidirectional", [False, True])


pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pair(kind, **options):
    """torch's layer without dropout, and ours whose keyed dropouts let everything pass."""
    torch.manual_seed(0)
    layer, more = KINDS[kind]
    plain = layer(5, 6, num_layers=3, dropout=0.5, **more, **options)
    owner = nn.ModuleDict({"layer": plain})
    assert swap_dropouts(owner) == ["layer"]
    own = owner["layer"]
    for part in own.children():
        part.p = 0.0
    plain = copy.deepcopy(plain)
    plain.dropout = 0.0
    return plain, own


def leaves(found):
    output, states = found
    return [output, *(states if isinstance(states, tuple) else [states])]


@every
@both_ways
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_without_a_drop_it_is_torchs(kind, bidirectional, batch_first, given):
    plain, own = pair(kind, bidirectional=bidirectional, batch_first=batch_first)
    x, hx = rows(4, 7, 5), None
    if given:
        with torch.no_grad():
            _, hx = plain(x)
    theirs, ours = leaves(plain(x, hx)), leaves(own(x, hx))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    wanted = torch.autograd.grad(sum(a.sum() for a in theirs), list(plain.parameters()))
    found = torch.autograd.grad(sum(a.sum() for a in ours), list(own.parameters()))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@every
def test_packed_and_single_sequences(kind):
    plain, own = pair(kind, batch_first=True)
    packed = pack_padded_sequence(rows(4, 7, 5), [7, 2, 5, 3], True, enforce_sorted=False)
    (theirs, _), (ours, _) = plain(packed), own(packed)
    torch.testing.assert_close(ours.data, theirs.data, rtol=1e-5, atol=1e-6)
    assert pad_packed_sequence(ours, True)[1].tolist() == [7, 2, 5, 3]
    single = rows(7, 5)
    for a, b in zip(leaves(own(single)), leaves(plain(single)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@every
@pytest.mark.parametrize("batch_first", [False, True])
def test_what_is_dropped_lies_between_the_layers(kind, batch_first):
    plain, own = pair(kind, batch_first=batch_first)
    bind_dropouts(own, torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
    seen = []
    for part in own.children():
        part.p = 0.25
        part.register_forward_hook(lambda layer, x, y: seen.append((x[0], y)))
    x = rows(16, 9, 5)
    output, _ = own(x)
    assert len(seen) == 2
    for before, after in seen:
        kept = after != 0
        torch.testing.assert_close(after[kept], before[kept] / 0.75)
        share = (kept | (before == 0)).float().mean()
        assert abs(share - 0.75) < 0.25 and len(before) == (16 if batch_first else 9)
    found = seen[1][1] if batch_first else seen[1][1].transpose(0, 1)
    torch.testing.assert_close(output, own.parts[2](found)[0])
    own.eval(), plain.eval()
    torch.testing.assert_close(own(x)[0], plain(x)[0], rtol=0, atol=0)


class Reader(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.body = layer(4, 8, num_layers=2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


def made(model, seed=1, **options):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 5, 4)).astype(np.float32), rng.integers(0, 3, size=24)
    task = rn.Task(model, seed=seed, device="cpu", **options).loss(rn.CrossEntropyLoss())
    task.optimizer(rn.AdamW(lr=1e-2)).data(rn.Loader.from_arrays(x, y, batch_size=8, shuffle=True))
    return task.compile(report="none")


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
class TestTraining:
    def test_a_seed_repeats_it_and_weights_move(self, layer):
        hashes = []
        for seed in (1, 1, 2):
            task = made(Reader(layer), seed)
            before = {name: tensor.clone() for name, tensor in task.state_dict().items()}
            task.fit(epochs=2, verbose=0)
            hashes.append(task.state_hash())
            after = task.state_dict()
            assert not any(torch.equal(before[name], after[name]) for name in before)
        assert hashes[0] == hashes[1] != hashes[2]

    def test_a_task_leaves_the_module_as_it_was(self, layer):
        model = Reader(layer)
        keys, parameters = list(model.state_dict()), list(model.parameters())
        with made(model) as task:
            assert type(model.body) is not layer and list(model.state_dict()) == keys
            task.fit(epochs=1, verbose=0)
            plain = task.export_module()
        assert type(model.body) is type(plain.body) is layer
        assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
        x = rows(6, 5, 4)
        torch.testing.assert_close(plain.eval()(x), model.eval()(x))
        model.train()
        assert not torch.equal(model(x), model(x)), "it draws from torch's generators again"
        assert not hasattr(model.body, "parts") and list(model.body.children()) == []

    def test_mixed_precision_and_another_compile(self, layer):
        # torch's LSTM has no 16-bit products on some CPUs.
        precision = "32-true" if layer is nn.LSTM else "bf16-mixed"
        task = made(Reader(layer), precision=precision)
        task.fit(epochs=1, verbose=0)
        task.optimizer(rn.SGD(lr=0.1)).compile(report="none")
        assert np.isfinite(task.fit(epochs=2, verbose=0).history["loss"]).all()


def test_only_layers_that_drop_are_swapped():
    model = nn.ModuleList(
        [nn.LSTM(2, 2, 2), nn.GRU(2, 2, 1), nn.RNN(2, 2, 2, dropout=0.1), nn.LSTMCell(2, 2)]
    )
    assert swap_dropouts(model) == ["2"]
    restore_dropouts(model)
    assert type(model[2]) is nn.RNN


def test_weights_that_are_made_from_others_are_left_to_torch():
    with pytest.warns(FutureWarning, match="weight_norm"):
        normed = torch.nn.utils.weight_norm(
            nn.LSTM(4, 5, num_layers=2, dropout=0.3), "weight_hh_l1"
        )
    owner = nn.ModuleDict({"layer": normed})
    assert swap_dropouts(owner) == [] and owner["layer"] is normed
