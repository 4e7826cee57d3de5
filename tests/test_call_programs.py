"""Random programs of a task's calls, beside a model of what must hold after each of them."""

import random

import numpy as np
import pytest
import torch
from small import Net, X, Y, loader, make
from torch import nn

import renaissance as rn

EPOCHS = 3
VALID = loader(40, shuffle=False)
DATA = {"A": loader(), "B": loader(32)}


class Line:
    """The unbroken run on A: what every task that takes part in it has after so many epochs."""

    def __init__(self, folder):
        task = make(train=DATA["A"]).compile(report="none")
        self.places, self.hashes, self.weights = [], [], []
        for epoch in range(EPOCHS + 1):
            if epoch:
                task.fit(epochs=epoch, verbose=0)
            self.places.append(task.save(folder / f"{epoch}"))
            self.hashes.append(task.state_hash())
            self.weights.append(task.state_dict())


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    return Line(tmp_path_factory.mktemp("line"))


class Program:
    """A task, and what is known of it.

    Attributes:
        told, made: What the task was told, and was told when it was compiled.
        epoch: That of its position.
        exact: The epoch of the line whose state it has, if it has one.
        weights: Its state dict.
        is_untold: It has only looked with the module's own weights.
        fitted: (data of the last fit, data told then).
        awaited: Data that the next fit must bring.
    """

    def __init__(self, line, seed):
        self.line, self.random = line, random.Random(seed)
        torch.manual_seed(seed)
        model = Net()
        self.own = {name: t.clone() for name, t in model.state_dict().items()}
        self.task = rn.Task(model, seed=1, device="cpu")
        self.told = {"loss": False, "optimizer": False, "data": None}
        self.made, self.first = None, None
        self.epoch, self.exact, self.weights = 0, None, self.own
        self.is_untold, self.fitted, self.awaited = True, None, None
        self.done = []

    def run(self, count):
        """Calls of any kind, mostly of a compiled task; training ones are likelier than others."""
        calls = [name for name in dir(self) if name.startswith("call_")]
        calls += ["call_fit", "call_resume", "call_load"] * 3
        begun = ["call_loss"] * (self.random.random() < 0.9) + ["call_optimizer", "call_compile"]
        for step in range(count):
            name = self.random.choice(calls)
            if self.made != self.told and self.random.random() < 0.7:
                name = "call_compile"
            name = begun[step] if step < len(begun) else name
            self.done.append(name[5:])
            getattr(self, name)()
            self.check()
        self.task.close()

    def check(self):
        found = self.task.model.state_dict()
        assert found.keys() == self.weights.keys()
        for name, tensor in found.items():
            assert torch.equal(tensor, self.weights[name]), name
        assert self.task.epoch == self.epoch
        if self.made == self.told:
            if self.exact is not None and self.made["optimizer"]:
                assert self.task.state_hash() == self.line.hashes[self.exact]

    def refused(self, *parts):
        """What a call that needs these parts must raise; None where it works."""
        if self.made is None:
            return "not compiled yet"
        if self.made != self.told:
            return "changed after compile"
        return next((f"no {part} yet" for part in parts if not self.made[part]), None)

    def tried(self, call, *parts, error=None):
        """Whether a call works; if it must not, that it says so."""
        text = self.refused(*parts)
        if text is None and error is None:
            call()
            return True
        with pytest.raises((RuntimeError, ValueError), match=text or error):
            call()
        return False

    # What is told.

    def call_loss(self):
        self.task.loss(rn.CrossEntropyLoss())
        self.tell(loss=True)

    def call_optimizer(self):
        is_told = self.random.random() < 0.7
        self.task.optimizer(rn.AdamW(lr=1e-2) if is_told else None)
        self.tell(optimizer=is_told)

    def call_data(self):
        name = self.random.choice("AAB")
        self.task.data(DATA[name])
        self.tell(data=name)

    def tell(self, **changes):
        self.told = {**self.told, **changes, "count": self.told.get("count", 0) + 1}

    def call_compile(self):
        if self.told["optimizer"] and not self.told["loss"]:
            with pytest.raises(RuntimeError, match="no loss yet"):
                self.task.compile(report="none")
            return
        self.task.compile(report="none")
        is_first, self.made = self.first is None, self.told
        if is_first:
            self.first = "drawn" if self.told["optimizer"] else "own"
        if self.is_untold and self.told["optimizer"]:
            self.weights, self.exact = self.line.weights[0], 0
            self.is_untold = False
        elif self.exact != 0:
            self.exact = None  # moments start from zero

    def call_close(self):
        self.task.close()
        self.made = None
        if self.exact != 0:
            self.exact = None

    # What trains.

    def call_fit(self):
        given = self.random.choice([None, None, "A", "B"])
        data = given or self.told["data"]
        error = None
        if data is None:
            error = "no data yet"
        elif self.awaited not in (None, data):
            error = "another data"

        def call():
            self.task.fit(given and DATA[given], epochs=self.epoch + 1, verbose=0)

        if self.tried(call, "optimizer", error=error):
            self.fitted, self.awaited = (data, self.told["data"]), None
            self.trained(data)

    def call_resume(self):
        given = self.random.choice([None, "A", "B"])
        data, epoch = given or self.told["data"], self.random.randrange(EPOCHS)
        error = {None: "no data yet", "A": None, "B": "another data"}[data]
        place = self.line.places[epoch]

        def call():
            self.task.fit(given and DATA[given], epochs=epoch + 1, verbose=0, resume=place)

        if self.tried(call, "optimizer", error=error):
            self.fitted, self.awaited = (data, self.told["data"]), None
            self.epoch = self.exact = epoch
            self.trained(data)

    def trained(self, data):
        self.epoch += 1
        is_on_line = self.exact == self.epoch - 1 < EPOCHS and data == "A"
        self.exact = self.epoch if is_on_line else None
        self.weights = self.line.weights[self.epoch] if is_on_line else self.task.state_dict()

    # What loads and starts afresh.

    def call_load(self):
        epoch, weights_only = self.random.randrange(EPOCHS + 1), self.random.random() < 0.3
        place = self.line.places[epoch]
        takes_all = not weights_only and self.made is not None and self.made["optimizer"]
        now = self.told["data"]
        if self.fitted is not None and self.fitted[1] == now:
            now = self.fitted[0]
        if now != "A" and self.told["data"] is not None:
            now = self.told["data"]
        error = "another data" if takes_all and now == "B" else None
        if not self.tried(lambda: self.task.load(place, weights_only), error=error):
            return
        is_same = self.exact == epoch
        self.weights, self.is_untold = self.line.weights[epoch], False
        self.exact = epoch if takes_all or is_same else None
        if takes_all:
            self.epoch, self.awaited = epoch, None
            if self.fitted != ("A", self.told["data"]):
                self.fitted = None
            if self.told["data"] is None and self.fitted is None:
                self.awaited = "A"

    def call_reset(self):
        if self.tried(self.task.reset):
            self.epoch, self.awaited = 0, None
            self.is_untold = not self.made["optimizer"] and self.first == "own"
            self.weights = self.own if self.is_untold else self.line.weights[0]
            self.exact = None if self.is_untold else 0

    def call_init_all(self):
        if self.tried(self.task.init_all):
            self.weights, self.is_untold = self.line.weights[0], False
            self.exact = None

    # What looks.

    def call_evaluate(self):
        def call():
            before = self.task.state_hash()
            found = self.task.evaluate(VALID)["loss"]
            scores, targets = self.scores(), torch.from_numpy(Y[:40])
            assert found == pytest.approx(float(nn.functional.cross_entropy(scores, targets)), 1e-5)
            assert self.task.state_hash() == before

        self.tried(call, "loss")

    def call_predict(self):
        def call():
            before = self.task.state_hash()
            found = self.task.predict(X[:40])
            np.testing.assert_allclose(found, self.scores().numpy(), rtol=1e-4, atol=1e-5)
            assert self.task.state_hash() == before

        self.tried(call)

    @torch.no_grad()
    def scores(self):
        model = Net()
        model.load_state_dict(self.weights)
        return model.eval()(torch.from_numpy(X[:40]))

    def call_save(self):
        place = self.line.places[0].parent / "of a program"
        if self.tried(lambda: self.task.save(place), "optimizer") and self.exact is not None:
            other = make(train=DATA["A"]).compile(report="none")
            is_other = self.awaited is None and (self.fitted or (self.told["data"],))[0] != "A"
            if is_other:
                return
            assert other.load(place).state_hash() == self.line.hashes[self.exact]
            other.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(8))
def test_a_program_leaves_what_it_must(line, seed):
    for part in range(3):
        program = Program(line, 1000 * part + seed)
        try:
            program.run(30)
        except BaseException as error:
            error.add_note(", ".join(program.done))
            raise
