"""Learning rates that are set for many steps at once are those of each step."""

import small

import renaissance as rn


class Ahead:
    """Lets a compiled task's executor take several rates at once, and takes them one by one."""

    def __init__(self, task, room):
        self.executor, self.left, self.used, self.copies = task.executor, [], [], 0
        self.set_one, self.step_once = self.executor.set_rates, self.executor.step
        self.executor.rates_ahead = room
        self.executor.set_rates, self.executor.step = self.set_rates, self.step

    def set_rates(self, rates):
        assert 1 <= len(rates) <= self.executor.rates_ahead and not self.left
        self.left, self.copies = list(rates), self.copies + 1

    def step(self, batches, count):
        self.set_one([self.left[0]])
        samples = self.step_once(batches, count)
        self.used.append(self.left.pop(0))
        return samples


def made(**options):
    task = small.make(train=small.loader(batch_size=2), optimizer=rn.AdamW(), **options)
    task.scheduler(rn.CosineAnnealingLR(base_lr=1e-2).warmup(5, unit="step"))
    return task.compile(report="none")


def test_the_same_run_as_with_one_rate_at_a_time():
    plain, other = made(), made()
    ahead = Ahead(other, room=12)
    for task in (plain, other):
        task.fit(epochs=3, max_steps=70, verbose=0)
    rates = [plain.learning_rate_at(step) for step in range(70)]
    assert ahead.used == rates and len(set(rates)) > 60 and not ahead.left
    assert ahead.copies == 4 + 4 + 1  # of 32 steps 8, 8, 12, 4; then of 6
    assert plain.state_hash() == other.state_hash()
    assert plain.history.history == other.history.history


def test_a_fit_that_goes_on_in_the_middle_of_an_epoch():
    plain, other = made(), made()
    ahead = Ahead(other, room=62)
    for task in (plain, other):
        task.fit(epochs=2, max_steps=21, verbose=0)
        task.fit(epochs=2, verbose=0, horizon="stretch")
    assert len(ahead.used) == 64 and not ahead.left
    assert plain.state_hash() == other.state_hash()


def test_stopping_early_leaves_rates_that_the_next_fit_replaces():
    class Stop(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            self.task.stop_training = batch == 10

    plain, other = made(), made()
    ahead = Ahead(other, room=62)
    for task in (plain, other):
        task.fit(epochs=2, verbose=0, callbacks=[Stop()])
        ahead.left = []
        task.fit(epochs=2, verbose=0, horizon="stretch")
    assert len(ahead.used) == 64 and plain.state_hash() == other.state_hash()
