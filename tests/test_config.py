"""Experiments: what a file says is what the constructors get, and a resolved file reads equal."""

import os
import re
from pathlib import Path

import pytest
import yaml
from experiments import BASE
from experiments import load as load
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
)
from renaissance.config.yamltree import ConfigError, Source, parse_text


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
