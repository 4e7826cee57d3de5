"""The perceptron of bench_mlp.py trained by other libraries' `fit`, each in a process of its own.

    python benchmarks/mlp_peers.py keras --data FOLDER_OF_MNIST       # about 25 s, JAX underneath
    python benchmarks/mlp_peers.py lightning --data FOLDER_OF_MNIST   # about 25 s

Prints a line of JSON whenever a subject is done, the last one with all of them: subject ->
microseconds a step of each counted epoch (60,000 pictures are 300 steps), device and versions.
Each library in the way that is usual and fast in it: arrays or tensors in memory, no progress bar,
no logger, no checkpoints, no validation, a constant rate; Keras with one step a call of the
compiled function and with fifty. bench_mlp.py calls this.
"""

import argparse
import gzip
import json
import os
import pathlib
import time

import numpy as np

BATCH, WIDTHS, CLASSES = 200, (1024, 512, 256), 10
RATE, DECAY, SMOOTHING = 1e-3, 1e-4, 0.1


def mnist(folder, limit):
    """Normalised pictures (N, 784) float32 and class numbers (N,) int64 of the training files."""

    def read(name, offset):
        place = next(pathlib.Path(folder).rglob(f"{name}*"), None)
        if place is None:
            raise FileNotFoundError(f"{folder} has no {name}, gzipped or not")
        opened = gzip.open if place.suffix == ".gz" else open
        with opened(place, "rb") as file:
            return np.frombuffer(file.read(), np.uint8, offset=offset)

    x = read("train-images-idx3-ubyte", 16).reshape(-1, 784)[:limit]
    y = read("train-labels-idx1-ubyte", 8)[:limit]
    return (x.astype(np.float32) / 255 - 0.1307) / 0.3081, y.astype(np.int64)


def keras_fit(x, y, epochs, tell):
    """Keras 3 on JAX: `fit` on NumPy arrays."""
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import keras

    keras.mixed_precision.set_global_policy("mixed_bfloat16")

    class Clock(keras.callbacks.Callback):
        """Seconds of epochs; Keras has read the metrics of the last step when one ends."""

        def on_train_begin(self, logs=None):
            self.seconds = []

        def on_epoch_begin(self, epoch, logs=None):
            self._start = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            self.seconds.append(time.perf_counter() - self._start)

    one_hot = np.eye(CLASSES, dtype=np.float32)[y]
    versions, device = {"keras": keras.__version__, "jax": jax.__version__}, jax.devices()[0]
    rows = {}
    for steps in (1, 50):
        layers = [keras.layers.Dense(width, activation="relu") for width in WIDTHS]
        model = keras.Sequential(
            [keras.Input((784,)), *layers, keras.layers.Dense(CLASSES, dtype="float32")]
        )
        optimizer = keras.optimizers.AdamW(RATE, weight_decay=DECAY)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=SMOOTHING)
        model.compile(optimizer, loss, metrics=["accuracy"], steps_per_execution=steps)
        clock = Clock()
        history = model.fit(
            x, one_hot, batch_size=BATCH, epochs=epochs + 1, verbose=0, callbacks=[clock]
        )
        check_learned(history.history["accuracy"][-1])
        rows[f"Keras fit on JAX, steps_per_execution={steps}"] = clock.seconds[1:]
        tell(rows, device.platform, versions)


def lightning_fit(x, y, epochs, tell):
    """Lightning's `Trainer.fit` on a TensorDataset in memory, no workers."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    try:
        import lightning
    except ImportError:
        import pytorch_lightning as lightning

    class Perceptron(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            sizes, parts = (784, *WIDTHS), []
            for inputs, outputs in zip(sizes, sizes[1:]):
                parts += [nn.Linear(inputs, outputs), nn.ReLU()]
            self.layers = nn.Sequential(*parts, nn.Linear(sizes[-1], CLASSES))
            self.right, self.seen = 0, 0

        def training_step(self, batch, index):
            pictures, labels = batch
            logits = self.layers(pictures)
            self.right = self.right + (logits.detach().argmax(1) == labels).sum()
            self.seen += len(labels)
            return nn.functional.cross_entropy(logits, labels, label_smoothing=SMOOTHING)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=RATE, weight_decay=DECAY)

    class Clock(lightning.Callback):
        """Seconds of epochs, the device idle at both ends."""

        seconds = ()

        def on_train_epoch_start(self, trainer, module):
            synchronise()
            module.right, module.seen = 0, 0
            self._start = time.perf_counter()

        def on_train_epoch_end(self, trainer, module):
            synchronise()
            self.seconds = [*self.seconds, time.perf_counter() - self._start]

    def synchronise():
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=0)
    clock, module = Clock(), Perceptron()
    trainer = lightning.Trainer(
        max_epochs=epochs + 1, accelerator="auto", devices=1, precision="bf16-mixed", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[clock],
    )  # fmt: skip
    trainer.fit(module, loader)
    check_learned(float(module.right) / module.seen)
    rows = {"Lightning Trainer.fit, TensorDataset": clock.seconds[1:]}
    versions = {"lightning": lightning.__version__, "torch": torch.__version__}
    tell(rows, "gpu" if torch.cuda.is_available() else "cpu", versions)


def check_learned(accuracy):
    """RuntimeError when the last epoch's training accuracy is that of no working recipe."""
    if accuracy < 0.9:
        raise RuntimeError(f"the peer did not learn: training accuracy {accuracy:.3f}")


#: Name -> (function, epochs counted).
PEERS = {"keras": (keras_fit, 8), "lightning": (lightning_fit, 5)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--data", required=True, help="folder of MNIST's IDX files")
    parser.add_argument("--epochs", type=int, help="epochs that count, after one that does not")
    parser.add_argument("--limit", type=int, help="pictures, for a trial")
    options = parser.parse_args()
    run, epochs = PEERS[options.peer]
    x, y = mnist(options.data, options.limit)
    steps = -(-len(x) // BATCH)

    def tell(rows, device, versions):
        found = {name: [1e6 * s / steps for s in seconds] for name, seconds in rows.items()}
        line = json.dumps({"us": found, "device": device, "versions": versions})
        print(line, flush=True)

    run(x, y, options.epochs or epochs, tell)


if __name__ == "__main__":
    main()
