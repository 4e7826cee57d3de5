"""Experiments: what a file says is what the constructors get, and a resolved file reads equal."""

import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import renaissance as rn
from renaissance.config.experiment import (
    LOOKS,
    Experiment,
    differences,
    experiment_of,
    flatten,
    load_experiment,
    load_tree,
)
from renaissance.config.factories import Call
from renaissance.config.kinds import BASES, BUILTIN, REGISTRY, Registry
from renaissance.config.yamltree import ConfigError, Source, apply_override, parse_text
from renaissance.settings import Value

BASE = (Path(__file__).parent / "gallery" / "_base.yaml").read_text()


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load the base with text appended, from a file called x.yaml."""
    monkeypatch.chdir(tmp_path)

    def load(more="", *overrides, registry=None):
        Path("base.yaml").write_text(BASE)
        Path("x.yaml").write_text(f"extends: base.yaml\n{more}")
        chosen = {} if registry is None else {"registry": registry}
        return load_experiment("x.yaml", overrides, **chosen)

    return load


class TestReading:
    def test_the_tree_of_keys_is_the_tree_of_constructors(self, load):
        found = load()
        assert found.optimizer == rn.AdamW() and found.loss == rn.CrossEntropyLoss()
        assert found.scheduler == rn.CosineAnnealingLR(base_lr=1e-3)
        assert found.model.type == "mlp" and found.model.arguments["hidden"] == (16,)
        assert found.model.build()[1].weight.shape == (16, 64)
        loader = found.data.train.build()
        assert loader.batch_size == 64 and loader.shuffle and len(loader.dataset) == 1438
        assert loader.transforms == (rn.Normalize(mean=0.3, std=0.38),)
        assert found.fit.epochs == 2 and found.data.valid is None

    @pytest.mark.parametrize(
        ("more", "place", "wanted"),
        [
            ("name: no", "name", "no"),
            ("name: 012", "name", "012"),
            ("name: 12:30", "name", "12:30"),
            ("name: 1e-3", "name", "1e-3"),
            ("name: 2026-01-01", "name", "2026-01-01"),
            ("name: null", "name", None),
            ("name: 'null'", "name", "null"),
            ("optimizer: {eps: 1e-3}", "optimizer", rn.AdamW(eps=1e-3)),
            ("optimizer: {beta1: 0}", "optimizer", rn.AdamW(beta1=0.0)),
            ("optimizer: sgd", "optimizer", rn.SGD()),
            ("optimizer: {type: sgd, nesterov: true, momentum: .9}", "optimizer",
             rn.SGD(nesterov=True, momentum=0.9)),
            ("optimizer: {lr_scales: {head.*: 10, '*': 1e-1}}", "optimizer",
             rn.AdamW().lr_scale("head.*", 10.0).lr_scale("*", 0.1)),
            ("optimizer: {lr_scales: [[head.*, 10]]}", "optimizer",
             rn.AdamW().lr_scale("head.*", 10.0)),
            ("scheduler: {warmup: 2, warmup_unit: epoch}", "scheduler",
             rn.CosineAnnealingLR(base_lr=1e-3).warmup(2, unit="epoch")),
            ("scheduler: {type: multistep, base_lr: 1, milestones: [3, 5], by: epoch}", "scheduler",
             rn.MultiStepLR(base_lr=1.0, milestones=(3, 5), by="epoch")),
            ("scheduler: {type: then, at: 3, unit: step, first: {type: constant, base_lr: 1}, "
             "second: {type: cosine, base_lr: 1}}", "scheduler",
             rn.ConstantLR(base_lr=1.0).then(rn.CosineAnnealingLR(base_lr=1.0), at=3, unit="step")),
            ("loss: {class_weights: [1, 2.5]}", "loss",
             rn.CrossEntropyLoss(class_weights=(1.0, 2.5))),
            ("ema: 0.99", "ema", rn.Ema(0.99)),
            ("ema: {decay: 0.99, warmup: true}", "ema", rn.Ema(0.99, warmup=True)),
            ("clip: 1", "clip", rn.Clip(norm=1.0)),
            ("clip: {value: .5}", "clip", rn.Clip(value=0.5)),
            ("init: keep", "init", "keep"),
            ("init: {conv: xavier_normal, bias: 0.1, parameters: {'a.*': {kind: normal, std: 1}}}",
             "init", rn.Initializer().conv("xavier_normal").bias(0.1).parameter(
                 "a.*", rn.InitRule("normal", std=1.0))),
            ("metrics: [top5, top3]", "metrics", ("top5", "top3")),
            ("fit: {validation_freq: [step, 10]}", "fit.validation_freq", ("step", 10)),
            ("fit: {verbose: 2}", "fit.verbose", 2),
            ("fit: {keep: null, checkpoint: 10min}", "fit.keep", None),
            ("device: cuda:1", "device", "cuda:1"),
        ],
    )  # fmt: skip
    def test_by_the_type_of_the_setting(self, load, more, place, wanted):
        found = load(more)
        for name in place.split("."):
            found = getattr(found, name)
        assert found == wanted and type(found) is type(wanted)

    def test_sections_are_laid_on_those_of_the_base(self, load):
        assert load("fit: {keep: 7}").fit == Experiment.model_fields["fit"].default.model_copy(
            update={"epochs": 2, "keep": 7}
        )

    def test_a_base_lies_relative_to_its_file(self, tmp_path, monkeypatch):
        (tmp_path / "deep").mkdir()
        (tmp_path / "base.yaml").write_text(BASE.replace("seed: 1", "seed: one"))
        (tmp_path / "deep" / "x.yaml").write_text("extends: ../base.yaml\n")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError, match=r"^deep/\.\./base.yaml:3:7: seed: one is not"):
            load_experiment("deep/x.yaml")

    def test_reading_opens_no_data(self, load):
        found = load("data: {train: {type: mnist, root: nowhere, batch_size: 1}}")
        with pytest.raises(FileNotFoundError):
            found.data.train.build()

    def test_the_model_is_checked_without_its_memory(self, load):
        found = load("model: {hidden: [1000000, 1000000]}")  # would take 4 terabytes
        assert found.model.arguments["hidden"] == (1000000, 1000000)


class TestPaths:
    def root(self, load, root, *overrides):
        found = load(f"data: {{train: {{type: mnist, root: {root}, batch_size: 8}}}}", *overrides)
        return found.data.train.arguments["root"]

    def test_relative_to_the_file(self, load, tmp_path):
        assert self.root(load, "data/mnist") == str(tmp_path / "data" / "mnist")
        assert self.root(load, "../x") == str(tmp_path.parent / "x")

    def test_absolute_and_home(self, load, monkeypatch):
        monkeypatch.setenv("HOME", "/home/someone")
        assert self.root(load, "/data") == "/data"
        assert self.root(load, "~/data") == "/home/someone/data"

    def test_from_elsewhere_it_is_the_same(self, load, tmp_path, monkeypatch):
        self.root(load, "data")
        (tmp_path / "sub").mkdir()
        monkeypatch.chdir(tmp_path / "sub")
        found = load_experiment("../x.yaml")
        assert found.data.train.arguments["root"] == str(tmp_path / "data")

    def test_of_an_override_relative_to_the_current_folder(self, load, tmp_path):
        found = self.root(load, "data", "data.train.root=here")
        assert found == str(tmp_path / "here")


class TestOverrides:
    def test_are_typed_by_the_setting(self, load):
        found = load("", "fit.epochs=7", "--scheduler.base_lr=1e-5", "name=no", "data.train.seed=3")
        assert found.fit.epochs == 7 and found.scheduler.settings.base_lr == 1e-5
        assert found.name == "no" and found.data.train.arguments["seed"] == 3

    def test_reach_into_lists(self, load):
        found = load("", "data.train.transforms.0.std=0.5")
        assert found.data.train.arguments["transforms"] == (rn.Normalize(mean=0.3, std=0.5),)

    def test_another_type(self, load):
        assert load("", "optimizer=sgd", "optimizer.momentum=0.9").optimizer == rn.SGD(momentum=0.9)

    @pytest.mark.parametrize(
        ("argument", "line"),
        [
            ("fit.epochs=010", "command line:1:12: fit.epochs: 010 is not allowed; it must be a "
             "whole number (no leading zeros: write 10)"),
            ("fit.epoch=1", "command line:1:11: fit.epoch: is no setting; did you mean 'epochs'?"),
            ("epochs=1", "command line:1:8: epochs: is no setting; did you mean 'fit.epochs'?"),
            ("data.train.shuffle=yes", "command line:1:20: data.train.shuffle: yes is not allowed; "
             "it must be true or false (write true)"),
            ("fit.epochs=yes", "command line:1:12: fit.epochs: yes is not allowed; it must be a "
             "whole number\n"),
        ],
    )  # fmt: skip
    def test_wrong_ones_have_a_place(self, load, argument, line):
        with pytest.raises(ConfigError) as caught:
            load("", argument)
        assert f"{caught.value}\n".startswith(line)


def every_value():
    """One example of each class that a file can name, with its demanded settings."""
    needed = {
        "step": {"step_size": 2, "by": "epoch"},
        "multistep": {"milestones": [1, 2], "by": "epoch"},
        "exponential": {"gamma": 0.5, "by": "epoch"},
        "cosine_restarts": {"t_0": 2, "by": "epoch"},
        "onecycle": {"max_lr": 0.1, "base_lr": None},
        "then": {"first": {"type": "constant", "base_lr": 0.1}, "base_lr": None,
                 "second": {"type": "cosine", "base_lr": 0.1}, "at": 1, "unit": "epoch"},
        "normalize": {"preset": "mnist"},
        "pad": {"padding": 2},
        "random_rotation": {"degrees": 10},
        "random_scale": {"low": 0.5, "high": 2},
        "random_affine": {"degrees": [-5, 5]},
        "center_crop": {"size": 4},
        "random_crop": {"size": [4, 5]},
        "random_resized_crop": {"size": 4},
        "resize": {"size": 4},
        "cutout": {"size": 4},
        "gaussian_blur": {"kernel_size": 3},
    }  # fmt: skip
    for kind in BASES:
        for name in BUILTIN[kind]:
            extra = {"base_lr": 0.1} if kind == "scheduler" else {}
            given = {"type": name} | extra | needed.get(name, {})
            yield kind, {k: v for k, v in given.items() if v is not None}


@pytest.mark.parametrize(("kind", "data"), list(every_value()), ids=lambda v: str(v)[:30])
def test_every_name_reads_and_comes_back(load, kind, data, tmp_path):
    lists = {"transform": "transforms", "mix": "mix"}  # of a loader
    data = {"data": {"train": {lists[kind]: [data]}}} if kind in lists else {kind: data}
    found = load(yaml.safe_dump(data))
    Path("resolved.yaml").write_text(found.to_yaml())
    assert load_experiment("resolved.yaml") == found


def test_every_public_description_has_a_name():
    public = {thing for thing in vars(rn).values() if isinstance(thing, type)}
    for kind, base in BASES.items():
        wanted = {cls for cls in public if issubclass(cls, base) and cls is not base}
        wanted.discard(rn.LambdaLR)  # it holds a function, and a file holds data
        assert wanted <= set(BUILTIN[kind].values()), kind


def test_a_function_cannot_come_from_a_file(load):
    with pytest.raises(rn.ConfigError, match="lambda_lr"):
        load("scheduler: {type: lambda_lr}")


@pytest.mark.parametrize(
    "settings",
    [
        "mlp, hidden: [4], num_classes: 2, in_features: 8",
        "seq, layers: 'flatten, linear 10', input_shape: [1, 8, 8]",
        "seq, layers: [flatten, {type: linear, features: 10}], input_shape: [64]",
        "wide_resnet, depth: 10, widen: 1",
        "resnet18, num_classes: 10, stem: cifar",
        "vgg11_bn",
    ],
)
def test_models_read_and_come_back(load, settings):
    found = load(f"model: {{type: {settings}}}")
    Path("resolved.yaml").write_text(found.to_yaml())
    assert load_experiment("resolved.yaml") == found


@pytest.mark.parametrize(
    "settings",
    [
        "image_folder, root: here, split: train, classes: [a, no]",
        "image_folder, root: here, index_cache: off, in_memory: true",
        "image_folder, root: here, index_cache: cache",
        "cifar10, root: here, download: true",
        "synthetic, num_samples: 8, size: [4, 5], seed: 3, loader_seed: 5",
        "digits, split: test, workers: 0",
    ],
)
def test_data_sets_read_and_come_back(load, settings):
    found = load(f"data: {{train: {{type: {settings}, batch_size: 4, transforms: []}}}}")
    Path("resolved.yaml").write_text(found.to_yaml())
    assert load_experiment("resolved.yaml") == found


class TestResolved:
    def test_has_every_default_and_no_relative_path(self, load):
        found = load("data: {train: {type: mnist, root: data, batch_size: 8}}")
        data = flatten(yaml.safe_load(found.to_yaml()))
        assert data["optimizer.beta2"] == 0.999 and data["data.train.download"] is False
        assert os.path.isabs(data["data.train.root"]) and data["fit.log_every"] == 50

    @settings(max_examples=60, deadline=None)
    @given(name=st.text(max_size=20), lr=st.floats(0, 1e300), seed=st.integers(0, 2**64 - 1))
    def test_any_text_and_number_comes_back(self, tmp_path_factory, name, lr, seed):
        tree = parse_text(BASE, Source("base.yaml", Path.cwd()))
        found = experiment_of(tree)
        found = found.model_copy(
            update={"name": name, "seed": seed, "scheduler": rn.ConstantLR(base_lr=lr)}
        )
        path = tmp_path_factory.mktemp("resolved") / "x.yaml"
        path.write_text(found.to_yaml(), encoding="utf-8", newline="")
        assert load_experiment(path) == found

    def test_the_hash_is_of_what_changes_results(self, load):
        first = load()
        assert re.fullmatch(r"[0-9a-f]{8}", first.hash())
        assert load("# a comment\nseed: 1").hash() == first.hash()
        assert load("fit: {verbose: 2, log_every: 1, keep: 9}").hash() == first.hash()
        assert load("compile: {report: all}").hash() == first.hash()
        for more in ("seed: 2", "optimizer: {eps: 1e-7}", "fit: {epochs: 3}", "precision: tf32"):
            assert load(more).hash() != first.hash()
        assert set(LOOKS) <= set(flatten(first.to_dict()))

    def test_differences_are_by_path(self, load):
        first, second = load(), load("optimizer: {eps: 1e-7}\nema: .9")
        found = list(differences(first.to_dict(), second.to_dict()))
        assert ("optimizer.eps", 1e-8, 1e-7) in found and ("ema.decay", None, 0.9) in found
        assert len(found) == 5  # ema: null, and the three keys of its mapping


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


def read_or_refuse(text):
    """Any text is an experiment or well-formed lines."""
    try:
        tree = parse_text(text, Source("x.yaml", Path.cwd()))
        if getattr(tree, "entries", None):
            experiment_of(tree)
    except ConfigError as error:
        for line in str(error).splitlines():
            assert re.match(r"x\.yaml:\d+:\d+: \S", line), line


@pytest.mark.parametrize("key", ["\r", "a\nb", "\u2028"])
def test_a_key_with_a_line_break_is_refused_on_one_line(key):
    text = yaml.safe_dump(yaml.safe_load(BASE) | {"data": {key: None}})
    with pytest.raises(ConfigError) as found:
        experiment_of(parse_text(text, Source("x.yaml", Path.cwd())))
    lines = str(found.value).splitlines()
    assert len(lines) == 2 and all(line.startswith("x.yaml:") for line in lines)


WORDS = """010|1e-3|yes|null|[]|{}|[1, 2]|{type: sgd}|-1|1.5|'x'|x|{a: b}|!!x y|*a|{type: [1]}|
1e999|[[[[1]]]]|18446744073709551616"""
WORDS = [word.strip() for word in WORDS.split("|")]


@pytest.mark.timeout(120)
class TestFuzz:
    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_cut_and_spliced(self, data):
        begin = data.draw(st.integers(0, len(BASE)))
        end = data.draw(st.integers(begin, min(len(BASE), begin + 30)))
        middle = data.draw(st.sampled_from(WORDS) | st.text(max_size=6))
        read_or_refuse(BASE[:begin] + middle + BASE[end:])

    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_any_setting_of_any_form(self, data):
        values = yaml.safe_load(BASE)
        place = values
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            inner = place[key]
            if not (isinstance(inner, (dict, list)) and inner and data.draw(st.booleans())):
                break
            place = inner
        place[key] = data.draw(
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                lambda x: (
                    st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3)
                ),
                max_leaves=6,
            )
        )
        read_or_refuse(yaml.safe_dump(values, allow_unicode=True))

    @settings(max_examples=100, deadline=None)
    @given(st.sampled_from(sorted(flatten(yaml.safe_load(BASE)))), st.sampled_from(WORDS))
    def test_any_override(self, path, word):
        tree = load_tree(Path(__file__).parent / "gallery" / "_base.yaml")
        try:
            experiment_of(apply_override(tree, f"{path}={word}", 1))
        except ConfigError as error:
            assert all(re.match(r"\S.*:\d+:\d+: \S", line) for line in str(error).splitlines())


@pytest.mark.parametrize("setting", ["clip", "ema"])
def test_a_number_beyond_all_numbers_is_refused_in_its_place(load, setting):
    with pytest.raises(ConfigError, match=rf"x\.yaml:2:\d+: {setting}: 9+ is not allowed"):
        load(f"{setting}: {'9' * 400}\n")
