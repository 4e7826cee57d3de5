"""The mechanism of descriptions, and one battery that every description of the package meets."""

import copy
import json
import pickle
import re

import numpy as np
import pydantic
import pytest

import renaissance as rn
from renaissance.foreign_losses import CallableLoss
from renaissance.schedules.schedule import Schedule
from renaissance.settings import (
    Setting,
    Value,
    declared,
    same,
    setting,
    signature_text,
    snake_case,
    value,
)

COSINE = rn.CosineAnnealingLR(
    base_lr=0.1, warmup=5, warmup_unit="epoch", warmup_start_lr=0.01, eta_min=1e-5, by="epoch"
)

#: Every description, with every setting away from its default.
EXAMPLES = [
    rn.SGD(lr=0.1, momentum=0.9, nesterov=True, l2=5e-4, lr_scales=(("head.*", 10.0),)),
    rn.SGD(weight_decay=0.01),
    rn.Adam(lr=1e-3, beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0.1, lr_scales=(("a", 0.5),)),
    rn.AdamW(lr=1e-3, beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0.1, lr_scales=(("a", 0.5),)),
    rn.LARS(
        lr=1.0,
        momentum=0.8,
        nesterov=True,
        weight_decay=1e-4,
        trust_coefficient=0.02,
        eps=1e-6,
        lr_scales=(("a", 0.5),),
    ),
    rn.ConstantLR(base_lr=0.1, warmup=10, warmup_unit="step", warmup_start_factor=0.1),
    rn.PolynomialLR(base_lr=0.1, power=1.5, end_lr=0.01),
    COSINE,
    rn.StepLR(30, 0.2, by="epoch", base_lr=0.1),
    rn.MultiStepLR((30, 60), 0.2, by="epoch", base_lr=0.1),
    rn.ExponentialLR(0.9, by="epoch", base_lr=0.1),
    rn.WSDLR(base_lr=0.1, decay_start=0.7, end_lr=0.01),
    rn.CosineAnnealingWithWarmRestartsLR(10, 2, by="epoch", base_lr=0.1, eta_min=0.01),
    rn.OneCycleLR(0.1, pct_start=0.4, div=10.0, final_div=100.0, by="epoch"),
    rn.ReduceLROnPlateau(
        base_lr=0.1,
        factor=0.5,
        patience=3,
        threshold=0.01,
        cooldown=2,
        min_lr=1e-4,
        monitor="val_accuracy",
        mode="max",
    ),
    COSINE.then(rn.ConstantLR(base_lr=0.01), at=30, unit="epoch"),
    rn.CrossEntropyLoss(label_smoothing=0.1, class_weights=(1.0, 2.0), ignore_index=255),
    rn.BCEWithLogitsLoss(pos_weight=[2.0, 0.5]),
    rn.MSELoss(),
    rn.InitRule("normal", std=0.1),
    rn.InitRule("kaiming_uniform", fan="fan_avg", gain=0.5),
    rn.InitRule("uniform", bound=0.1),
    rn.InitRule("constant", constant=2.0),
    rn.Initializer(
        conv="kaiming_uniform",
        linear="xavier_normal",
        attention={"kind": "normal", "std": 0.5},
        embedding="trunc_normal",
        norm=0.5,
        bias="ones",
        fan="fan_in",
        gain=2.0,
        zero_last_scale=True,
        parameters=(("head.*", rn.InitRule("zeros")),),
    ),
    rn.Ema(0.99, warmup=True),
    rn.Clip(norm=1.0),
    rn.Clip(value=0.5),
]
every = pytest.mark.parametrize("example", EXAMPLES, ids=lambda v: type(v).__name__)

#: Descriptions that hold a function, which is no data.
NOT_DATA = {CallableLoss, rn.LambdaLR}


def concrete(cls):
    """All descriptions below a class, but the bases that are not exported."""
    found = set()
    for sub in cls.__subclasses__():
        if sub.__module__.startswith("renaissance."):
            found |= {sub} | concrete(sub)
    return found


def test_the_battery_meets_every_description_of_this_layer():
    modules = {type(example).__module__ for example in EXAMPLES} | {"renaissance.foreign_losses"}
    bases = {"Optimizer", "Schedule", "WarmSchedule", "Loss"}
    wanted = {c for c in concrete(Value) if c.__module__ in modules and c.__name__ not in bases}
    assert wanted - {type(example) for example in EXAMPLES} == NOT_DATA


def test_the_battery_moves_every_setting():
    moved = {}
    for example in EXAMPLES:
        moved.setdefault(type(example), set()).update(example.changed())
    left = {cls.__name__: set(cls.Settings.model_fields) - names for cls, names in moved.items()}
    common = {"base_lr", "warmup", "warmup_unit", "warmup_start_lr", "warmup_start_factor", "by"}
    assert {k: v - common for k, v in left.items() if v - common} == {}


def rebuilt(data, cls):
    """A description from its data, descriptions inside by their type."""
    types = {type(example).type_name: type(example) for example in EXAMPLES}
    given = {}
    for name, item in data.items():
        if isinstance(item, dict) and issubclass(types[item["type"]], Schedule):
            inner = {k: v for k, v in item.items() if k != "type"}
            item = rebuilt(inner, types[item["type"]])
        given[name] = item
    return cls(**given)


@every
def test_prints_as_code_that_gives_it_back(example):
    namespace = {name: getattr(rn, name) for name in dir(rn) if not name.startswith("_")}
    assert eval(repr(example), {"__builtins__": {}}, namespace) == example  # noqa: S307


@every
def test_copies_and_pickles_are_equal(example):
    assert pickle.loads(pickle.dumps(example)) == example  # noqa: S301
    assert copy.deepcopy(example) == example == copy.copy(example)
    assert hash(pickle.loads(pickle.dumps(example))) == hash(example)  # noqa: S301


@every
def test_is_data_for_json(example):
    for defaults in (False, True):
        data = json.loads(json.dumps(example.to_dict(defaults=defaults), allow_nan=False))
        assert rebuilt(data, type(example)) == example


@every
def test_fluent_methods_equal_keywords(example):
    cls, changed = type(example), example.changed()
    needed = [name for name, field in cls.Settings.model_fields.items() if field.is_required()]
    made = cls(**{name: changed[name] for name in needed})
    if "warmup_unit" in changed:
        made = made.warmup(changed.pop("warmup"), unit=changed.pop("warmup_unit"))
    for name in reversed(list(changed)):
        made = getattr(made, name)(changed[name])
    assert made == example
    assert made.ready() is made


@every
def test_is_immutable(example):
    for name in example.changed():
        with pytest.raises(AttributeError, match="immutable"):
            setattr(example, name, 1)
        with pytest.raises(pydantic.ValidationError, match="frozen"):
            setattr(example.settings, name, 1)
    with pytest.raises(AttributeError, match="immutable"):
        example.anything = 1


@every
def test_an_unknown_name_is_an_error(example):
    with pytest.raises(TypeError, match=r"has no setting 'nonsense'.* Allowed: "):
        type(example)(**example.changed(), nonsense=1)
    with pytest.raises(AttributeError, match="has no setting 'nonsense'"):
        example.nonsense(1)


@every
def test_every_setting_is_documented_with_its_range(example):
    for name, field in type(example).Settings.model_fields.items():
        doc = field.description or ""
        assert len(doc) > 15 and doc[0] not in " " and doc.rstrip().endswith((".", "'")), name
        if field.annotation in (float, int):
            assert re.search(r"at least|above|from|between|any|\d to", doc), (name, doc)
        assert getattr(type(example), name).__doc__ == doc


@every
def test_has_a_json_schema(example):
    schema = type(example).Settings.model_json_schema()
    assert set(schema.get("properties", {})) == set(type(example).Settings.model_fields)
    json.dumps(schema)


def test_limits_in_a_json_schema_are_jsons():
    numbers = rn.AdamW.Settings.model_json_schema()["properties"]
    assert numbers["beta1"]["minimum"] == 0 and numbers["beta1"]["exclusiveMaximum"] == 1
    assert numbers["lr"]["anyOf"] == [{"minimum": 0, "type": "number"}, {"type": "null"}]
    items = rn.MultiStepLR.Settings.model_json_schema()["properties"]["milestones"]["anyOf"]
    assert items[0]["minItems"] == 1


def test_type_names_are_those_of_yaml():
    found = {type(example).__name__: type(example).type_name for example in EXAMPLES}
    assert found == {
        "SGD": "sgd",
        "Adam": "adam",
        "AdamW": "adamw",
        "LARS": "lars",
        "ConstantLR": "constant",
        "PolynomialLR": "polynomial",
        "CosineAnnealingLR": "cosine",
        "StepLR": "step",
        "MultiStepLR": "multistep",
        "ExponentialLR": "exponential",
        "WSDLR": "wsd",
        "CosineAnnealingWithWarmRestartsLR": "cosine_restarts",
        "OneCycleLR": "onecycle",
        "ReduceLROnPlateau": "plateau",
        "ThenLR": "then",
        "CrossEntropyLoss": "cross_entropy",
        "BCEWithLogitsLoss": "bce_with_logits",
        "MSELoss": "mse",
        "InitRule": "init_rule",
        "Initializer": "initializer",
        "Ema": "ema",
        "Clip": "clip",
    }


@value
class Sample(Value):
    """Something of every type."""

    number: Setting[float] = setting(default=1.0, ge=0, lt=10, kw_only=False, doc="A number.")
    count: Setting[int | None] = setting(default=None, ge=1, kw_only=False, doc="A count.")
    switch: Setting[bool] = setting(default=False, doc="A switch.")
    text: Setting[str] = setting(default="a", doc="A text.")
    pair: Setting[tuple[float, float]] = setting(default=(0.0, 1.0), doc="Two numbers.")
    items: Setting[tuple[int, ...]] = setting(default=(), max_length=3, doc="Whole numbers.")
    table: Setting[dict[str, float]] = setting(factory=dict, doc="Numbers by name.")


@pytest.mark.parametrize(
    "given, error, text",
    [
        ({"number": "0.5"}, TypeError, r"number = '0.5' \(str\) .* must be a number"),
        ({"number": True}, TypeError, r"number = True \(bool\) .* must be a number"),
        ({"number": None}, TypeError, r"number = None \(NoneType\) .* must be a number"),
        ({"number": float("nan")}, ValueError, "nan .* a finite number"),
        ({"number": float("inf")}, ValueError, "inf .* a finite number"),
        ({"number": -1}, ValueError, r"number = -1 \(int\) .* at least 0 and below 10"),
        ({"number": 10.0}, ValueError, "a number at least 0 and below 10"),
        ({"count": 2.0}, TypeError, r"count = 2.0 \(float\) .* a whole number"),
        ({"count": 0}, ValueError, "count = 0 .* at least 1"),
        ({"switch": 1}, TypeError, "switch = 1 .* True or False"),
        ({"switch": "yes"}, TypeError, "True or False"),
        ({"text": 3}, TypeError, "text = 3 .* a text"),
        ({"pair": 3}, TypeError, "pair = 3 .* a list or tuple"),
        ({"pair": (1.0,)}, TypeError, r"pair = \(1.0,\) .* item \[1\] is missing"),
        ({"pair": (1.0, "x")}, TypeError, r"pair\[1\] = 'x' \(str\) .* a number"),
        ({"items": (1, 2, 3, 4)}, ValueError, "at most 3 items"),
        ({"table": {"a": "b"}}, TypeError, "'b' .* a number"),
        ({"nunber": 1}, TypeError, "no setting 'nunber'; did you mean 'number'"),
    ],
)
def test_wrong_settings(given, error, text):
    with pytest.raises(error, match=text):
        Sample(**given)
    (name,) = given
    if name in Sample.Settings.model_fields:
        with pytest.raises(error, match=text):
            getattr(Sample(), name)(given[name])


def test_positional_arguments():
    assert Sample(2.0, 3) == Sample(number=2.0, count=3)
    with pytest.raises(TypeError, match=r"3 positional arguments, takes at most 2 \(number, count"):
        Sample(2.0, 3, True)
    with pytest.raises(TypeError, match="'number' twice"):
        Sample(2.0, number=3.0)
    with pytest.raises(TypeError, match=r"takes none; name them: AdamW\(\*, beta1=0.9"):
        rn.AdamW(0.9)
    with pytest.raises(TypeError, match=r"Ema needs the setting 'decay': Ema\(decay=...\)"):
        rn.Ema()


def test_a_switch_needs_no_argument_and_others_do():
    assert Sample().switch() == Sample(switch=True)
    with pytest.raises(TypeError, match=r"Sample\(\).number\(\) received no value"):
        Sample().number()


def test_a_setting_read_without_call_says_how():
    text = repr(rn.AdamW().beta1)
    assert "beta1 = 0.9 of AdamW" in text and ".settings.beta1" in text


def test_numbers_are_stored_as_declared():
    made = Sample(number=3, count=np.int64(4), pair=[1, np.float32(0.5)], items=[1, 2])
    assert repr(made) == "Sample(3.0, 4, pair=(1.0, 0.5), items=(1, 2))"
    assert type(made.settings.number) is float and type(made.settings.count) is int


def test_equality_is_of_one_class_and_exact():
    assert Sample() != rn.Ema(0.9) and Sample() != "Sample()"
    assert Sample(number=1.0) == Sample() and Sample(count=1) != Sample()
    assert not same(1, True) and not same(1, 1.0) and same({"a": (1,)}, {"a": (1,)})
    assert len({Sample(), Sample(number=1), Sample(number=2)}) == 2


def test_a_positional_after_a_keyword_is_printed_by_name():
    assert repr(Sample(count=3)) == "Sample(count=3)"
    assert repr(Sample(2.0, switch=True)) == "Sample(2.0, switch=True)"


def test_a_subclass_may_change_a_default():
    assert rn.StepLR().settings.by is None and rn.ConstantLR().settings.by == "step"
    assert [s.name for s in declared(rn.StepLR)].count("by") == 1
    assert signature_text(rn.StepLR).startswith("StepLR(step_size=None, gamma=0.1, *, by=None")


def test_what_is_no_data_says_so():
    with pytest.raises(TypeError, match=r"CallableLoss: mean = .* cannot be written as data"):
        CallableLoss(abs).to_dict()


def test_an_incomplete_value_waits_for_its_next_method():
    assert rn.SGD().nesterov().momentum(0.9) == rn.SGD(momentum=0.9, nesterov=True)
    with pytest.raises(ValueError, match="needs a momentum"):
        rn.SGD(nesterov=True)
    with pytest.raises(ValueError, match="needs a momentum"):
        rn.SGD().nesterov().ready()
    assert pickle.loads(pickle.dumps(rn.SGD().nesterov())) == rn.SGD().nesterov()  # noqa: S301


def test_snake_case():
    names = {"RandomResizedCrop": "random_resized_crop", "GPUCache": "gpu_cache", "Pad": "pad"}
    assert {name: snake_case(name) for name in names} == names
