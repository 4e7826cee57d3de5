"""Pretrained weights and frozen layers: what is taken, what starts anew, what stays as it is."""

import numpy as np
import pytest
import safetensors.torch
import torch
from small import make

import renaissance as rn
from renaissance.assembly.build import Built
from renaissance.cli.main import main
from renaissance.cli.planning import Outlook
from renaissance.config.experiment import load_experiment

pytestmark = pytest.mark.usefixtures("one_thread")

rng = np.random.default_rng(3)
X = rng.normal(size=(24, 3, 8, 8)).astype(np.float32)
Y = rng.integers(0, 4, 24)


def network(classes=4):
    text = f"conv 4 3, bn, relu, conv 4 3, bn, relu, mean, flatten, linear {classes}"
    return rn.models.seq(text, (3, 8, 8))


@pytest.fixture
def trained(tmp_path):
    """A file of a network of 6 classes with nothing at its default, and its state dict."""
    torch.manual_seed(7)
    net = network(6)
    net.train()
    for _ in range(3):
        net(torch.randn(8, 3, 8, 8) * 2 + 1)
    state = {n: t if t.dtype == torch.int64 else t + 0.125 for n, t in net.state_dict().items()}
    safetensors.torch.save_file(state, tmp_path / "six.safetensors")
    return tmp_path / "six.safetensors", state


def small_task(net=None, seed=1, **options):
    train = rn.Loader.from_arrays(X, Y, batch_size=8, shuffle=True, workers=0)
    return make(network() if net is None else net, train=train, seed=seed, **options)


HEAD = ["linear1.*"]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_body_comes_from_the_file_and_the_head_from_the_seed(trained, precision):
    path, state = trained
    task = small_task(precision=precision).pretrained(path, skip=HEAD).compile(report="none")
    fresh = small_task(precision=precision).compile(report="none").state_dict()
    for name, tensor in task.state_dict().items():
        is_head = name.startswith("linear1")
        assert torch.equal(tensor, fresh[name] if is_head else state[name]), name
        assert is_head or not torch.equal(fresh[name], state[name]), name
    built: Built = task.require()
    assert (built.loaded, built.initialised) == (12, 8)


def test_a_state_dict_does_as_well_and_needs_no_counters(trained):
    path, state = trained
    bare = {n: t for n, t in state.items() if "num_batches" not in n}
    one = small_task().pretrained(path, skip=HEAD).compile(report="none")
    other = small_task().pretrained(bare, skip=HEAD).compile(report="none")
    assert one.state_dict()["bn1.num_batches_tracked"] == 3
    assert other.state_dict()["bn1.num_batches_tracked"] == 0
    assert torch.equal(one.state_dict()["bn1.running_var"], other.state_dict()["bn1.running_var"])


def test_the_average_starts_there_and_reset_goes_back(trained):
    path, state = trained
    task = small_task().ema(0.9).pretrained(path, skip=HEAD).compile(report="none")
    start = task.state_hash()
    average = task.state_dict("ema")
    assert torch.equal(average["conv1.weight"], state["conv1.weight"])
    assert torch.equal(average["bn2.running_mean"], state["bn2.running_mean"])
    task.fit(epochs=2, verbose=0)
    end = task.state_hash()
    assert end != start and task.reset().state_hash() == start
    task.fit(epochs=2, verbose=0)
    assert task.state_hash() == end


def test_a_second_compile_does_not_load_again(trained):
    path, _ = trained
    task = small_task().pretrained(path, skip=HEAD).compile(report="none")
    task.fit(epochs=1, verbose=0)
    weights = task.state_dict()
    path.unlink()
    task.compile(report="none")
    assert all(torch.equal(t, weights[n]) for n, t in task.state_dict().items())


@pytest.mark.parametrize(
    "skip,message",
    [
        ([], r"six.safetensors does not fit Blueprint: 'linear1.weight' is \[6, 4\], the model's "
             r"\[4, 4\]; 'linear1.bias' .*skip=\['linear1.\*'\]"),
        (["linear2.*"], r"skip = 'linear2.\*' matches no tensor .*did you mean 'linear1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(trained, skip, message):
    task = small_task().pretrained(trained[0], skip=skip)
    with pytest.raises(ValueError, match=message):
        task.compile(report="none")


def test_missing_and_foreign_tensors_are_named(trained):
    state = dict(trained[1])
    state["conv9.weight"] = state.pop("conv2.weight")
    task = small_task().pretrained(state, skip=HEAD)
    with pytest.raises(
        ValueError, match=r"'conv2.weight' is missing in the file; 'conv9.weight' is not in the mo"
    ):
        task.compile(report="none")


def test_refusals(tmp_path):
    task = small_task()
    with pytest.raises(ValueError, match=r"net.pth' is not allowed; it takes a .safetensors file"):
        task.pretrained("net.pth")
    with pytest.raises(TypeError, match="int is not allowed; it takes the path"):
        task.pretrained(3)
    with pytest.raises(TypeError, match=r"write skip=\['fc.\*'\]"):
        task.pretrained("a.safetensors", skip="fc.*")
    with pytest.raises(TypeError, match="'epoch' is of type int; it takes a state dict"):
        task.pretrained({"epoch": 3})
    with pytest.raises(FileNotFoundError, match=r"no file .*absent.safetensors"):
        task.pretrained(tmp_path / "absent.safetensors").compile()
    (tmp_path / "bad.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(rn.CheckpointError, match=r"bad.safetensors: is no readable safetensors"):
        task.pretrained(tmp_path / "bad.safetensors").compile()
    with pytest.raises(RuntimeError, match=r"init\('keep'\) keeps the module's own weights and"):
        task.init("keep").compile()
    task.pretrained(None).compile(report="none")


def stem_of(task):
    return {n: t for n, t in task.state_dict().items() if n.split(".")[0] in ("conv1", "bn1")}


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_frozen_layers_stay_whole_while_the_rest_moves(trained, precision):
    task = small_task(precision=precision, optimizer=rn.AdamW(lr=0.01, weight_decay=0.1))
    task.pretrained(trained[0], skip=HEAD).ema(0.5).freeze("conv1", "bn1").compile(report="none")
    before, stem = task.state_dict(), stem_of(task)
    assert task.gradients().keys() == {
        "conv2.weight", "bn2.weight", "bn2.bias", "linear1.weight", "linear1.bias"
    }  # fmt: skip
    task.fit(epochs=2, verbose=0)
    after = task.state_dict()
    counters = {n for n in after if n.endswith("num_batches_tracked")}
    moved = {n for n, t in after.items() if not torch.equal(t, before[n])}
    assert moved == set(before) - set(stem)  # num_batches_tracked as well
    assert {int(after[n]) - int(before[n]) for n in counters - set(stem)} == {task.attempted_steps}
    average = task.state_dict("ema")
    assert all(torch.equal(average[n], t) for n, t in stem.items() if n not in counters)


def test_frozen_norms_work_in_training_as_in_evaluation(trained):
    task = small_task().pretrained(trained[0], skip=HEAD).freeze("conv*", "bn*")
    task.compile(report="none")
    modes = []
    task.model.bn1.register_forward_hook(lambda module, *_: modes.append(module.training))
    task.model.relu1.register_forward_hook(lambda module, *_: modes.append(module.training))
    logged = task.train_on_batch(X[:8], Y[:8])["loss"]
    assert modes == [False, True]
    task = small_task().pretrained(trained[0], skip=HEAD).freeze("conv*", "bn*")
    task.compile(report="none")
    assert task.test_on_batch(X[:8], Y[:8])["loss"] == logged


def test_by_hand_only_parameters_stop(trained):
    net = network()
    net.bn1.requires_grad_(False)
    task = small_task(net).pretrained(trained[0], skip=HEAD).compile(report="none")
    before = task.state_dict()
    task.fit(epochs=1, verbose=0)
    after = task.state_dict()
    assert torch.equal(before["bn1.weight"], after["bn1.weight"])
    assert not torch.equal(before["bn1.running_mean"], after["bn1.running_mean"])


def test_thawing_leaves_what_was_frozen_by_hand(trained):
    net = network()
    net.conv2.requires_grad_(False)
    task = small_task(net).pretrained(trained[0], skip=HEAD).freeze("conv*", "bn1")
    task.compile(report="none").fit(epochs=1, verbose=0)
    task.freeze("bn1").compile(report="none")
    weights = task.state_dict()
    assert {n for n, p in net.named_parameters() if not p.requires_grad} == {
        "conv2.weight", "bn1.weight", "bn1.bias"
    }  # fmt: skip
    task.fit(epochs=2, verbose=0, horizon="keep")
    after = task.state_dict()
    assert not torch.equal(weights["conv1.weight"], after["conv1.weight"])
    assert torch.equal(weights["conv2.weight"], after["conv2.weight"])
    task.freeze().compile(report="none")
    assert net.bn1.weight.requires_grad and not task.executor.frozen_norms


def test_freeze_refuses_what_is_no_layer():
    task = small_task()
    with pytest.raises(
        ValueError, match=r"freeze: 'layer1' matches no layer of Blueprint; .*conv1"
    ):
        task.freeze("layer1").compile()
    with pytest.raises(TypeError, match=r"freeze: \['conv1'\] is not allowed; it takes names"):
        task.freeze(["conv1"])
    with pytest.raises(ValueError, match="'' names no layer"):
        task.freeze("")
    with pytest.raises(ValueError, match="nothing to train"):
        task.freeze("*").compile()


def test_a_resume_needs_the_same_frozen_layers(trained, tmp_path):
    def run(*layers):
        task = small_task(run_dir=tmp_path / "run").pretrained(trained[0], skip=HEAD)
        return task.freeze(*layers).compile(report="none")

    whole = small_task().pretrained(trained[0], skip=HEAD).freeze("conv1").compile(report="none")
    whole.fit(epochs=2, verbose=0)
    run("conv1").fit(epochs=1, verbose=0)
    with pytest.raises(ValueError, match=r"another recipe \(freeze"):
        run("conv2").fit(epochs=2, verbose=0, resume="auto")
    resumed = run("conv1")
    resumed.fit(epochs=2, verbose=0, resume="auto", horizon="stretch")
    assert resumed.state_hash() == whole.state_hash()


FILE = """
seed: 1
model:
  type: seq
  input_shape: [3, 8, 8]
  layers: ["2 * (conv 4 3, bn, relu)", "mean, flatten, linear 4"]
pretrained: {weights: six.safetensors, skip: ["linear1.*"]}
freeze: [conv1, bn1]
data: {train: {type: synthetic, num_samples: 16, size: 8, num_classes: 4, batch_size: 8}}
loss: cross_entropy
optimizer: {type: sgd, lr: 0.1}
"""


def test_a_file_says_the_same(trained):
    path, state = trained
    (path.parent / "run.yaml").write_text(FILE)
    experiment = load_experiment(path.parent / "run.yaml")
    assert experiment.pretrained.weights == str(path)  # relative to the file
    task = experiment.task().compile(report="none")
    task.fit(epochs=1, verbose=0)
    assert torch.equal(task.state_dict()["bn1.running_mean"], state["bn1.running_mean"])
    assert not torch.equal(task.state_dict()["conv2.weight"], state["conv2.weight"])
    resolved = path.parent / "resolved.yaml"
    resolved.write_text(experiment.to_yaml())
    assert load_experiment(resolved) == experiment
    assert Outlook.of(experiment).plan.hash() == task.plan.hash()
    path.unlink()
    load_experiment(resolved)  # a file opens nothing
    with pytest.raises(rn.ConfigError, match=r"freeze: .*'stem' matches no layer of Blueprint"):
        load_experiment(resolved, ["freeze=[stem]"])


def test_a_run_is_evaluated_without_the_file_it_started_from(trained, monkeypatch, capsys):
    folder = trained[0].parent
    monkeypatch.chdir(folder)
    (folder / "run.yaml").write_text(FILE)
    assert main(["train", "run.yaml", "fit.epochs=1", "name=tuned", "fit.verbose=0"]) == 0
    trained[0].unlink()
    assert main(["evaluate", "runs/tuned", "--data", "train"]) == 0
    assert "accuracy" in capsys.readouterr().out
