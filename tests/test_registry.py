"""Names of one's own in configurations: registered, offered by packages, checked like ours."""

import os
import re
import sys
from pathlib import Path

import pytest
from experiments import load as load

import renaissance as rn
from renaissance.config.experiment import load_experiment
from renaissance.config.factories import Call
from renaissance.config.kinds import REGISTRY, Registry
from renaissance.config.yamltree import ConfigError
from renaissance.settings import Value


class TestRegistry:
    def test_own_things_are_checked_like_ours(self, load):
        def my_net(width: int, *, depth: int = 2, act: str = "relu", scale: float = 1) -> object:
            """A net.

            Args:
                width: Units.
            """
            return ("net", width, depth, act, scale)

        registry = Registry()
        registry.register("model", "my_net", my_net)
        found = load("model: {type: my_net, width: 3, scale: 2}", registry=registry)
        assert found.model.build() == ("net", 3, 2, "relu", 2.0)
        assert load_experiment_again(found, registry) == found
        for more, what in [
            ("depth: 1", "model.width: is missing: Units."),
            ("width: 3, depht: 1", "model.depht: is no setting of my_net; did you mean 'depth'?"),
            ("width: wide", "model.width: wide is not allowed; it must be a whole number"),
        ]:
            with pytest.raises(ConfigError, match=re.escape(what)):
                load(f"model: {{type: my_net, {more}}}", registry=registry)

    def test_own_data_sets_metrics_losses_and_callbacks(self, load):
        class Mine:
            def __init__(self, folder: "str | os.PathLike[str]", seed: int = 0) -> None:
                self.folder, self.seed = folder, seed

            def __len__(self):
                return 4

            def as_arrays(self):
                import numpy as np

                return np.zeros((4, 2, 2), np.uint8), np.zeros(4, np.int64)

            def read(self, index):
                raise AssertionError

        registry = Registry()
        registry.register("dataset", "mine", Mine)
        registry.register("metric", "half", lambda: "half")
        registry.register("loss", "focal", lambda gamma=2.0: ("focal", gamma))
        registry.register("callback", "hello", lambda text="hi": text)
        found = load(
            "data: {train: {type: mine, folder: here, seed: 3, loader_seed: 4, batch_size: 2, "
            "transforms: []}}\nmetrics: [half, top5]\nloss: {type: focal, gamma: 1}\n"
            "callbacks: [hello, {type: hello, text: ho}]\n",
            registry=registry,
        )
        loader = found.data.train.build()
        assert loader.dataset.seed == 3 and loader.seed == 4
        assert loader.dataset.folder == str(Path("here").absolute())
        assert [c.build() for c in found.callbacks] == ["hi", "ho"]
        assert found.metrics[1] == "top5" and isinstance(found.metrics[0], Call)
        assert found.loss.build() == ("focal", 1)

    @pytest.mark.parametrize(
        ("arguments", "error", "what"),
        [
            (("modle", "x", int), ValueError, "did you mean 'model'"),
            (("model", "My Net", int), ValueError, "name = 'My Net' is not allowed"),
            (("model", "mlp", lambda: 0), ValueError, "exists already (built in)"),
            (("model", "x", 3), TypeError, "cannot be called"),
            (("optimizer", "x", lambda: 0), TypeError, "is no Optimizer"),
            (("transform", "x", Value), TypeError, "is no Transform"),
            (("model", "x", lambda type: 0), TypeError, "its parameter 'type'"),
            (("model", "x", lambda a, /: 0), TypeError, "takes no keyword"),
        ],
    )
    def test_what_cannot_be_registered(self, arguments, error, what):
        with pytest.raises(error, match=re.escape(what)):
            Registry().register(*arguments)

    def test_the_same_thing_twice_is_once(self):
        registry = Registry()

        def net():
            return 0

        registry.register("model", "net", net)
        registry.register("model", "net", net)
        registry.register("dataset", "digits2", net)
        registry.register("dataset", "digits2", net)
        with pytest.raises(ValueError, match="exists already"):
            registry.register("model", "net", lambda: 0)

    def test_an_installed_package_offers_names(self, load, tmp_path, monkeypatch):
        """A real distribution on the path; it is imported only when a file names it."""
        (tmp_path / "site" / "offer-1.0.dist-info").mkdir(parents=True)
        info = tmp_path / "site" / "offer-1.0.dist-info"
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offer\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[renaissance.model]\noffered = offering:net\n")
        (tmp_path / "site" / "offering.py").write_text(
            "def net(width: int = 1):\n    return width\n"
        )
        monkeypatch.syspath_prepend(tmp_path / "site")
        registry = Registry()
        assert "offered" in registry.names("model")
        load("", registry=registry)
        assert "offering" not in sys.modules
        assert load("model: {type: offered, width: 3}", registry=registry).model.build() == 3

    def test_public_register_reaches_the_default(self):
        def net():
            return 0

        rn.register("metric", "only_in_this_test", net)
        assert REGISTRY.find("metric", "only_in_this_test").make is net


def load_experiment_again(experiment, registry):
    Path("again.yaml").write_text(experiment.to_yaml())
    return load_experiment("again.yaml", registry=registry)
