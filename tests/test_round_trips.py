"""Every name that a file can give reads, and reads back from the resolved file as the same."""

from pathlib import Path

import pytest
import yaml
from experiments import load as load

import renaissance as rn
from renaissance.config.experiment import load_experiment
from renaissance.config.kinds import BASES, BUILTIN


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
