"""Networks of torchvision in a task: they compile and take a step, or are refused by layer."""

import numpy as np
import pytest
import torch
from small import make
from torchvision import models, ops
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.densenet import DenseNet

import renaissance as rn
from renaissance.nn import StochasticDepth

pytestmark = pytest.mark.usefixtures("one_thread")

rng = np.random.default_rng(0)
X = rng.normal(size=(8, 3, 32, 32)).astype(np.float32)
Y = np.arange(8) % 2


def task_of(network, seed=1, **options):
    train = rn.Loader.from_arrays(X, Y, batch_size=4, workers=0)
    return make(network, train=train, seed=seed, optimizer=rn.SGD(lr=0.01), **options)


def convnext(probability=0.5):
    """ConvNeXt with stochastic depth, of a tiny size."""
    setting = [CNBlockConfig(8, 16, 2), CNBlockConfig(16, None, 2)]
    return models.ConvNeXt(setting, stochastic_depth_prob=probability, num_classes=2)


NETWORKS = {
    "resnet18": lambda: models.resnet18(num_classes=2),
    "mobilenet_v3_small": lambda: models.mobilenet_v3_small(num_classes=2),
    "shufflenet_v2_x0_5": lambda: models.shufflenet_v2_x0_5(num_classes=2),
    "densenet": lambda: DenseNet(8, (2, 2), 16, num_classes=2),
    "convnext": convnext,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_they_train(name):
    before = torch.random.get_rng_state()
    network = NETWORKS[name]()
    torch.random.set_rng_state(before)
    kinds = [type(part) for part in network.modules()]
    task = task_of(network).compile(report="none")
    weights = task.state_dict()
    assert np.isfinite(task.train_on_batch(X[:4], Y[:4])["loss"])
    trained = {n for n, p in network.named_parameters() if p.requires_grad}
    still = [n for n in trained if torch.equal(weights[n], task.state_dict()[n])]
    assert len(still) <= len(trained) // 10, still  # a dropped branch gets no gradient
    assert torch.equal(torch.random.get_rng_state(), before)
    task.close()
    assert [type(part) for part in network.modules()] == kinds


def test_what_draws_elsewhere_is_refused_by_name():
    network = DenseNet(8, (2, 2), 16, num_classes=2, drop_rate=0.2)
    with pytest.raises(
        RuntimeError, match=r"\(bernoulli_\) in features.denseblock1.denselayer1 \(_Den"
    ):
        task_of(network).compile()
    with pytest.raises(RuntimeError, match="use layers for it: compile puts keyed ones in"):
        task_of(network).compile()
    task_of(network, seed=None, deterministic=False).compile(report="none")


def test_several_outputs_are_refused_by_type():
    network = models.GoogLeNet(num_classes=2, init_weights=False)
    with pytest.raises(TypeError, match="the model gives GoogLeNetOutputs, CrossEntropyLoss takes"):
        task_of(network).compile()


class TestStochasticDepth:
    @pytest.fixture
    def layer(self):
        """A bound layer of its own task, p = 0.25."""
        network = torch.nn.Sequential(
            StochasticDepth(0.25), torch.nn.Flatten(), torch.nn.Linear(6, 4)
        )
        task = make(network).compile(report="none")
        task.model.train()
        yield task, network[0]
        task.close()

    def test_rows_are_dropped_whole_and_the_rest_is_scaled(self, layer):
        task, drop = layer
        x = torch.ones(4000, 6, requires_grad=True)
        y = drop(x)
        kept = y[:, 0] != 0
        assert torch.equal(y, torch.where(kept[:, None], x / 0.75, 0.0))
        # 4 standard errors of a share of 3/4 of 4000
        assert abs(float(kept.float().mean()) - 0.75) < 4 * (0.75 * 0.25 / 4000) ** 0.5
        y.sum().backward()
        assert torch.equal(x.grad, y.detach())
        assert torch.equal(drop(x), y), "the same step draws the same"
        task.train_on_batch(np.ones((4, 6), np.float32), np.zeros(4, np.int64))
        task.model.train()
        assert not torch.equal(drop(x), y), "the next one others"
        assert torch.equal(drop.eval()(x), x)

    def test_any_shape_and_half_precision(self, layer):
        _, drop = layer
        rows = drop(torch.ones(32, 1))[:, 0]
        pictures = drop(torch.ones(32, 3, 4, 5).contiguous(memory_format=torch.channels_last))
        assert torch.equal(pictures, rows[:, None, None, None].expand(32, 3, 4, 5))
        halves = drop(torch.ones(32, 7, dtype=torch.bfloat16))
        assert halves.dtype == torch.bfloat16 and torch.equal(halves[:, 0] != 0, rows != 0)

    def test_a_batch_is_dropped_as_one(self, layer):
        _, drop = layer
        drop.mode = "batch"
        shares = set()
        for number in range(64):
            drop.layer = number
            shares |= set(drop(torch.ones(16, 3)).unique().tolist())
            assert len(drop(torch.ones(16, 3)).unique()) == 1
        assert shares == {0.0, float(torch.tensor(1 / 0.75))}

    def test_a_seed_decides_and_torchs_generator_does_not(self):
        hashes = []
        for seed, torchs in ((1, 5), (1, 6), (2, 5)):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(torchs)
                task = task_of(convnext(), seed=seed).compile(report="none")
                task.fit(epochs=2, verbose=0)
                hashes.append(task.state_hash())
        assert hashes[0] == hashes[1] != hashes[2]

    def test_torchvisions_comes_back(self):
        task = task_of(convnext()).compile(report="none")
        assert any(type(part) is StochasticDepth for part in task.model.modules())
        plain = [part for part in task.export_module().modules() if "Stoch" in type(part).__name__]
        assert plain and all(type(part) is ops.StochasticDepth for part in plain)
        assert max(part.p for part in plain) == 0.5 and {part.mode for part in plain} == {"row"}

    def test_refusals(self):
        with pytest.raises(ValueError, match="mode = 'rows' is not allowed; it takes 'row' or 'ba"):
            StochasticDepth(0.5, "rows")
        with pytest.raises(ValueError, match="p = 1 is not allowed"):
            StochasticDepth(1)
        with pytest.raises(
            RuntimeError, match="draws from a task's seed.*torchvision.ops.StochasticDepth"
        ):
            StochasticDepth(0.5)(torch.ones(2, 2))
