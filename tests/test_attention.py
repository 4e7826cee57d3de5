"""Layers that drop inside: attention and channels, keyed in the place of torch's."""

import numpy as np
import pytest
import torch
from droppers import Channels, Encoder
from torch import nn

import renaissance as rn
from renaissance import _native
from renaissance.nn import Attention, MultiheadAttention, bind_dropouts
from renaissance.nn.attention import PlainAttention, additive
from renaissance.nn.keyed import swap_dropouts

CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)


def scalars():
    """Region S of a task at its first step."""
    return torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8)


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pair(p=0.0, **options):
    """torch's layer without dropout, and ours that drops with probability p."""
    torch.manual_seed(0)
    plain = nn.MultiheadAttention(8, 2, dropout=0.5, **options)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.normal_()
    own = MultiheadAttention.of(plain)
    own.drop.p = p
    plain.dropout = 0.0
    return plain, own


FLOATS = rows(2 * 3, 5, 5, seed=7)
PADDING = torch.tensor([[False] * 5, [False, False, False, True, True], [True] + [False] * 4])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"attn_mask": CAUSAL},
        {"attn_mask": CAUSAL, "is_causal": True},
        {"attn_mask": torch.zeros(5, 5).masked_fill(CAUSAL, -torch.inf)},
        {"attn_mask": FLOATS},
        {"key_padding_mask": PADDING},
        {"key_padding_mask": PADDING, "attn_mask": CAUSAL.T & False},
        {"key_padding_mask": torch.zeros(3, 5).masked_fill(PADDING, -torch.inf)},
    ],
)
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bias": False}])
def test_without_a_drop_it_is_torchs_to_rounding(options, masks, need_weights):
    plain, own = pair(**options)
    x = rows(3, 5, 8) if options.get("batch_first") else rows(5, 3, 8)
    theirs, their_weights = plain(x, x, x, need_weights=need_weights, **masks)
    ours, weights = own(x, x, x, need_weights=need_weights, **masks)
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert (weights is None) == (not need_weights)
    if need_weights:
        assert torch.allclose(weights, their_weights, rtol=1e-5, atol=1e-6)


def test_other_widths_of_keys_and_values_and_a_sample_by_itself():
    plain, own = pair(kdim=4, vdim=6, batch_first=True)
    q, k, v = rows(3, 5, 8), rows(3, 7, 4, seed=1), rows(3, 7, 6, seed=2)
    for ours, theirs in zip(
        own(q, k, v, average_attn_weights=False), plain(q, k, v, average_attn_weights=False)
    ):
        assert ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(own(q[0], k[0], v[0]), plain(q[0], k[0], v[0])):
        assert ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_what_is_dropped_is_weights_and_the_rest_is_scaled():
    plain, own = pair(p=0.25, batch_first=True)
    bind_dropouts(own, scalars())
    x = rows(64, 12, 8)
    _, whole = plain(x, x, x, average_attn_weights=False)
    output, weights = own(x, x, x, average_attn_weights=False)
    kept = weights != 0
    assert torch.allclose(weights[kept], whole[kept] / 0.75, rtol=1e-5)
    count = weights.numel()
    assert abs(kept.float().mean() - 0.75) < 4 * (0.25 * 0.75 / count) ** 0.5
    values = (x @ plain.in_proj_weight[16:].T + plain.in_proj_bias[16:]).view(64, 12, 2, 4)
    mixed = torch.einsum("nhls,nshd->nlhd", weights, values).reshape(64, 12, 8)
    assert torch.allclose(output, plain.out_proj(mixed), rtol=1e-4, atol=1e-5)
    own.eval()
    assert torch.equal(own(x, x, x)[0], plain.eval()(x, x, x)[0])


def test_gradients_pass_through_what_was_kept():
    _, own = pair(p=0.5, batch_first=True)
    bind_dropouts(own.double(), scalars())
    own.drop.dropped = lambda w: w * (torch.arange(w.numel()).view(w.shape) % 2) * 2.0
    x = rows(2, 3, 8).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: own(x, x, x, need_weights=False)[0], x)


def made(network, seed=1, **options):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 5, 8)).astype(np.float32), rng.integers(0, 3, size=24)
    task = rn.Task(network, seed=seed, device="cpu", **options).optimizer(rn.AdamW(lr=1e-2))
    task.loss(rn.CrossEntropyLoss())
    return task.data(rn.Loader.from_arrays(x, y, batch_size=8, shuffle=True)).compile(report="none")


@pytest.mark.parametrize("network", [Encoder, Channels])
class TestTraining:
    def test_a_seed_repeats_it(self, network):
        hashes = []
        for seed in (1, 1, 2):
            task = made(network(), seed)
            task.fit(epochs=2, verbose=0)
            hashes.append(task.state_hash())
        assert hashes[0] == hashes[1] != hashes[2]

    def test_a_task_leaves_the_module_as_it_was(self, network):
        model = network()
        kinds = {name: type(part) for name, part in model.named_modules()}
        parameters, keys = list(model.parameters()), list(model.state_dict())
        task = made(model)
        assert {name: type(part) for name, part in model.named_modules()} != kinds
        assert list(model.state_dict()) == keys
        task.fit(epochs=1, verbose=0)
        plain = task.export_module()
        assert {name: type(part) for name, part in plain.named_modules()} == kinds
        task.close()
        assert {name: type(part) for name, part in model.named_modules()} == kinds
        assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
        x = rows(4, 5, 8)
        assert torch.allclose(plain.eval()(x), model.eval()(x), atol=1e-6)
        model.train()
        assert not torch.equal(model(x), model(x)), "it draws from torch's generators again"

    def test_mixed_precision(self, network):
        history = made(network(), precision="bf16-mixed").fit(epochs=3, verbose=0).history
        assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_query_that_looks_at_nothing_gives_zeros_and_moves_nothing(dtype):
    """Its row of softmax had no numbers, and gave none to the gradients of all keys."""
    attend = Attention(0.25)
    attend.bind(scalars(), 3)
    q, k, v = (rows(2, 2, n, 8, seed=n).to(dtype).requires_grad_() for n in (5, 6, 6))
    shown = torch.ones(2, 1, 5, 6, dtype=torch.bool)
    shown[0, :, 1] = False
    shown[1, :, :, 4:] = False
    found = attend(q, k, v, shown)
    weights = (q @ k.transpose(2, 3) / 8**0.5).exp() * shown
    total = weights.sum(3, keepdim=True)
    weights = weights / torch.where(total == 0, 1.0, total)
    expected = (weights * attend.dropped(torch.ones_like(weights))) @ v
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not found[0, :, 1].any()
    ours = torch.autograd.grad(found.square().sum(), (q, k, v))
    theirs = torch.autograd.grad(expected.square().sum(), (q, k, v))
    for own, right in zip(ours, theirs):
        torch.testing.assert_close(own, right, rtol=1e-4, atol=1e-5)
    assert not ours[0][0, :, 1].any()


def test_rows_without_heads_are_refused():
    attend = Attention(0.25)
    with pytest.raises(ValueError, match=r"received \(5, 8\).*write query.unsqueeze\(1\)"):
        attend(rows(5, 8), rows(5, 8), rows(5, 8))


def test_layers_with_more_keys_than_inputs_are_left_alone():
    class More(Encoder):
        def __init__(self):
            super().__init__()
            self.body = nn.MultiheadAttention(8, 2, 0.1, add_bias_kv=True, batch_first=True)

        def forward(self, x):
            return self.head(self.body(x, x, x, need_weights=False)[0].mean(1))

    assert swap_dropouts(More()) == []
    with pytest.raises(RuntimeError, match="in body"):
        made(More())


def test_channels_are_dropped_as_a_whole():
    drop = rn.nn.ChannelDropout(0.25, ndim=2)
    drop.bind(scalars(), layer=3)
    x = rows(64, 32, 4, 5).abs() + 1
    y = drop(x)
    kept = y[:, :, 0, 0] != 0
    expected = torch.where(kept[:, :, None, None], x / 0.75, 0.0)
    assert torch.allclose(y, expected, rtol=1e-6)
    assert abs(kept.float().mean() - 0.75) < 4 * (0.25 * 0.75 / kept.numel()) ** 0.5
    assert torch.equal(drop.eval()(x), x) and type(drop.plain()) is nn.Dropout2d


def test_rows_of_channels_too_are_dropped_by_a_dropout2d():
    drop = rn.nn.ChannelDropout(0.25, ndim=2)
    drop.bind(scalars(), layer=3)
    x = rows(64, 32, 7).abs() + 1
    kept = drop(x)[:, :, 0] != 0
    assert torch.allclose(drop(x), torch.where(kept[:, :, None], x / 0.75, 0.0), rtol=1e-6)


def test_a_layer_made_by_hand_drops_too():
    own = MultiheadAttention(8, 2, dropout=0.25, batch_first=True)
    bind_dropouts(own, scalars())
    x = rows(64, 12, 8)
    assert 0.2 < (own(x, x, x, average_attn_weights=False)[1] == 0).float().mean() < 0.3


def test_wrong_shapes_and_hints_are_refused():
    with pytest.raises(
        ValueError, match=r"takes \(N, C\) and 1 more dimensions, received \(4, 2\)"
    ):
        rn.nn.ChannelDropout(0.5, ndim=1)(torch.ones(4, 2))
    with pytest.raises(ValueError, match="ndim = 4 is not allowed; it takes 1, 2 or 3"):
        rn.nn.ChannelDropout(0.5, ndim=4)
    _, own = pair(p=0.5)
    x = rows(5, 3, 8)
    with pytest.raises(RuntimeError, match="is_causal=True says what kind attn_mask is"):
        own(x, x, x, is_causal=True)


class TestByHand:
    """`rn.nn.Attention`, what stands in the place of F.scaled_dot_product_attention."""

    def attend(self, p=0.0):
        layer = nn.ModuleDict({"attend": rn.nn.Attention(p)})
        bind_dropouts(layer, scalars())
        return layer["attend"]

    @pytest.mark.parametrize(
        "masks",
        [
            {},
            {"is_causal": True},
            {"attn_mask": torch.rand(5, 5) > 0.4},
            {"attn_mask": torch.randn(3, 1, 5, 5)},
            {"attn_mask": (torch.arange(5) < torch.tensor([[5], [2], [0]]))[:, None, None]},
        ],
    )
    def test_without_a_drop_it_is_torchs_to_rounding(self, masks):
        q, k, v = rows(3, 3, 2, 5, 8)
        expected = nn.functional.scaled_dot_product_attention(q, k, v, **masks)
        hidden = masks.get("attn_mask")
        bias = (
            hidden if hidden is None or hidden.is_floating_point() else additive(~hidden, q.dtype)
        )
        found = self.attend(1e-30).attend(q, k, v, bias, masks.get("is_causal", False))
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(self.attend().eval()(q, k, v, **masks), expected)

    def test_it_drops_what_a_layer_with_its_key_drops(self):
        _, own = pair(p=0.5, batch_first=True)
        bind_dropouts(own, scalars())
        x = rows(3, 5, 8)
        ours = self.attend(0.5)
        ours.layer = own.drop.layer
        q, k, v = own._projected([x, x, x], is_one=True)
        _, weights = own(x, x, x, average_attn_weights=False)
        assert torch.allclose(ours(q, k, v), weights @ v, rtol=1e-5, atol=1e-6)
        assert not torch.equal(ours(q, k, v), self.attend(0.5)(q, k, v))

    def test_a_seed_repeats_a_network_of_it_and_torchs_is_left_behind(self):
        class Attends(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.attend, self.last = (
                    nn.Linear(8, 24),
                    rn.nn.Attention(0.5),
                    nn.Linear(8, 3),
                )

            def forward(self, x):
                q, k, v = self.first(x).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
                return self.last(
                    self.attend(q, k, v, is_causal=True).transpose(1, 2).flatten(2).mean(1)
                )

        hashes = []
        for seed in (1, 1, 2):
            task = made(Attends(), seed)
            task.fit(epochs=2, verbose=0)
            hashes.append(task.state_hash())
        assert hashes[0] == hashes[1] != hashes[2]
        plain = task.export_module().attend
        assert isinstance(plain, PlainAttention) and plain.p == 0.5
        x = rows(1, 2, 4, 8)
        assert not torch.equal(plain(x, x, x), plain(x, x, x))

    def test_what_is_refused(self):
        x = rows(1, 2, 4, 8)
        with pytest.raises(ValueError, match="exclude each other"):
            self.attend(0.5)(x, x, x, attn_mask=torch.ones(4, 4).bool(), is_causal=True)
        with pytest.raises(RuntimeError, match="or use torch.nn.functional.scaled_dot_product"):
            rn.nn.Attention(0.5)(x, x, x)
