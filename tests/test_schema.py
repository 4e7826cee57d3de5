"""The JSON schema says what the loader says."""

import json
from pathlib import Path

import pytest
import yaml
from minischema import fits

from renaissance.config.experiment import load_experiment, load_tree
from renaissance.config.kinds import Registry
from renaissance.config.schema import json_schema
from renaissance.config.yamltree import plain_value

GALLERY = Path(__file__).parent / "gallery"
SCHEMA = json_schema()


def test_is_plain_json():
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_what_loads_fits():
    experiment = load_experiment(GALLERY / "_base.yaml")
    for data in (
        plain_value(load_tree(GALLERY / "_base.yaml")),
        experiment.to_dict(),
        yaml.safe_load(experiment.to_yaml()),
    ):
        assert fits(data, SCHEMA, SCHEMA)


@pytest.mark.parametrize(
    "name",
    ["unknown_key", "unknown_section", "unknown_key_deep", "wrong_level", "seed_negative",
     "seed_too_large", "seed_quoted", "seed_true", "seed_exponent", "lr_text", "lr_quoted",
     "lr_negative", "switch_yes", "switch_number", "type_unknown", "type_missing", "type_dotted",
     "type_of_other_kind", "limit_broken", "literal", "model_width_type", "callback_argument",
     "fit_word", "precision", "transform_second"],
)  # fmt: skip
def test_what_is_refused_does_not_fit(name):
    data = plain_value(load_tree(GALLERY / f"{name}.yaml"))
    if name == "seed_exponent":
        data["seed"] = 1.5  # JSON has one kind of number: 1e3 is a whole one there
    assert not fits(data, SCHEMA, SCHEMA)


def test_every_name_and_every_text_is_there():
    registry = Registry()
    for kind, definition in SCHEMA["$defs"].items():
        models = definition["anyOf"][1:]
        assert [m["properties"]["type"]["const"] for m in models] == [
            f.name for f in registry.factories(kind)
        ]
    beta1 = next(
        m for m in SCHEMA["$defs"]["optimizer"]["anyOf"][1:] if "beta1" in m["properties"]
    )["properties"]["beta1"]
    assert beta1["type"] == "number" and beta1["exclusiveMaximum"] == 1 and beta1["default"] == 0.9
    assert beta1["description"]


def test_registered_names_appear():
    def my_net(width: int = 3):
        """A net."""

    registry = Registry()
    registry.register("model", "my_net", my_net)
    names = json_schema(registry)["$defs"]["model"]["anyOf"][0]["enum"]
    assert "my_net" in names and "my_net" not in SCHEMA["$defs"]["model"]["anyOf"][0]["enum"]
