"""A task from compile to close: compiled anew, reset, exported, its model free again."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from twelve import Normed, X, make, quiet, small

import renaissance as rn
from renaissance.models import mlp


def test_recompile_keeps_weights_and_counters_and_says_so(capsys):
    task = quiet(make(valid=False), epochs=1)
    weights = task.state_dict()
    task.optimizer(rn.SGD(lr=0.1))
    with pytest.raises(RuntimeError, match="compile"):
        task.fit(epochs=2)
    task.compile()
    assert "kept" in capsys.readouterr().out
    assert all(torch.equal(t, weights[n]) for n, t in task.state_dict().items())
    assert task.attempted_steps == 8
    task.fit(epochs=2, horizon="keep", verbose=0)
    assert task.attempted_steps == 16


def test_trained_statistics_demand_a_word_on_init():
    model = Normed()
    model(torch.from_numpy(X))
    with pytest.raises(RuntimeError, match="init"):
        make(model).compile(report="none")
    kept = {n: t.clone() for n, t in model.state_dict().items()}
    task = make(model).init("keep")
    task.compile(report="none")
    assert all(torch.equal(t, kept[n]) for n, t in task.state_dict().items())


def test_adding_a_layer_moves_nobody_elses_initial_weights():
    def weights(hidden):
        task = make(mlp(hidden, num_classes=4, in_features=12), valid=False)
        return task.compile(report="none").state_dict()

    a, b = weights([16]), weights([16, 16])
    first = next(iter(a))
    assert torch.equal(a[first], b[first])


def test_reset_starts_afresh():
    task = quiet(make(Normed(), seed=3), epochs=2)
    expected = task.state_hash()
    task.reset()
    assert task.epoch == task.global_step == 0 and task.history.epoch == []
    task.fit(epochs=2, verbose=0)
    assert task.state_hash() == expected


def test_close_gives_the_module_its_own_tensors():
    task = quiet(make(valid=False), epochs=1)
    weights = task.state_dict()
    task.close()
    assert all(torch.equal(t, weights[n]) for n, t in task.model.state_dict().items())
    quiet(make(task.model, valid=False), epochs=1)  # free for another task


def test_export_is_plain_and_equal():
    task = quiet(make(Normed(), precision="bf16-mixed", valid=False), epochs=1)
    module = task.export_module()
    assert all(torch.equal(t, task.state_dict()[n]) for n, t in module.state_dict().items())
    assert all(p.dtype == torch.float32 for p in module.parameters())
    assert isinstance(module.drop, nn.Dropout)
    task.close()
    module.train()(torch.from_numpy(X)).sum().backward()


def test_the_average_is_exported_by_name():
    task = quiet(make(Normed()).ema(0.9), epochs=2)
    hash_before = task.state_hash()
    plain, average = task.export_module(), task.export_module("ema")
    assert task.state_hash() == hash_before
    judged = {name: tensor.numpy() for name, tensor in task.snapshot_weights()["ema"].items()}
    for name, tensor in average.state_dict().items():
        if name in judged:
            assert np.array_equal(tensor.numpy(), judged[name])
            assert not torch.equal(tensor, plain.state_dict()[name])
        assert torch.equal(tensor, task.state_dict("ema")[name])
        assert torch.equal(tensor, task.state_dict(None)[name])
    with pytest.raises(ValueError, match="the task keeps no average"):
        quiet(make(Normed()), epochs=1).export_module("ema")


def test_what_is_exported_is_what_was_judged_or_it_is_said(caplog):
    def outputs(module, x=X):
        with torch.no_grad():
            return module.eval()(torch.as_tensor(x))

    task = make(Normed()).ema(0.9)
    history = quiet(task, epochs=2).history.history
    scores = {name: outputs(task.export_module(name)) for name in ("raw", "ema", None)}
    assert task.state_dict("raw") and caplog.text == ""
    for name, expected in scores.items():
        np.testing.assert_allclose(expected, task.predict(X, name), rtol=1e-5, atol=1e-6)
    assert torch.equal(scores[None], scores["ema"])
    assert not torch.allclose(scores["raw"], scores["ema"], atol=1e-3)

    batches = list(task.settings.valid.epoch(0))
    x, y = (torch.from_numpy(np.concatenate(part)) for part in list(zip(*batches))[:2])
    average, raw = (outputs(task.export_module(name), x) for name in ("ema", "raw"))
    assert history["val_loss"][-1] == pytest.approx(float(F.cross_entropy(average, y)), 1e-4)
    assert history["val_loss"][-1] != pytest.approx(float(F.cross_entropy(raw, y)), 1e-4)

    assert torch.equal(outputs(task.export_module()), scores["raw"])
    (record,) = caplog.records
    assert "task.export_module('ema') gives that one, ('raw') means these" in record.getMessage()
    task.export_module(), task.state_dict()
    assert len(caplog.records) == 1


def test_without_an_average_there_is_nothing_to_say_of_an_export(caplog):
    task = quiet(make(Normed()), epochs=1)
    for name, tensor in task.export_module().state_dict().items():
        assert torch.equal(tensor, task.state_dict()[name])
        assert torch.equal(tensor, task.export_module(None).state_dict()[name])
    assert caplog.text == "" and task.close() is None and task.state_dict()


def test_dropout_is_swapped_and_keyed():
    task = make(small(dropout=0.5), valid=False)
    task.compile(report="none")
    assert any(isinstance(m, rn.nn.Dropout) for m in task.model.modules())


def test_a_closed_task_leaves_torchs_dropouts_and_keeps_no_memory():
    model = nn.Sequential(
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(X.shape[1], 8), rn.nn.Dropout(0.1), nn.Linear(8, 4)
    )
    with quiet(make(model, valid=False), epochs=1):
        assert type(model[1]) is rn.nn.Dropout
    assert type(model[1]) is nn.Dropout and type(model[3]) is rn.nn.Dropout
    assert model[3]._scalars is None, "it would keep the regions alive"
    first = model[1](torch.ones(1, 1000))
    assert not torch.equal(first, model[1](torch.ones(1, 1000)))
    with pytest.raises(RuntimeError, match="give the model to rn.Task"):
        model(torch.from_numpy(X))


def test_frozen_and_unused_parameters_stay():
    model = Normed()
    model.spare = nn.Linear(3, 3)
    model.first.requires_grad_(False)
    task = make(model, valid=False)
    task.compile(report="none")
    names = {s.name for s in task.plan.parameters}
    assert not names & {"first.weight", "first.bias", "spare.weight", "spare.bias"}
    before = task.state_dict()
    task.fit(epochs=1, verbose=0)
    for name in ("first.weight", "spare.weight"):
        assert torch.equal(before[name], task.state_dict()[name])
    assert not torch.equal(before["last.weight"], task.state_dict()["last.weight"])
