"""A three-layer network on MNIST with the augmentation of the original system's comparison.

    python examples/mlp_mnist.py --data data/mnist --epochs 5 [--download]

The folder holds the four IDX files, gzipped or not, as they come or in torchvision's layout.
"""

import argparse

import renaissance as rn
from renaissance.datasets import MNIST
from renaissance.models import mlp

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", default="data/mnist", help="folder of the IDX files")
parser.add_argument("--download", action="store_true", help="fetch the files when missing")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--precision", default=None, help="32-true, tf32, bf16-mixed or 16-mixed")
parser.add_argument("--augment", action=argparse.BooleanOptionalAction, default=None)
parser.add_argument("--seed", type=int, default=123)
options = parser.parse_args()

# Heavy augmentation pays off over many epochs; a short run learns faster from plain pictures.
augment = options.epochs >= 20 if options.augment is None else options.augment
pictures = [rn.Pad(2), rn.RandomCrop(28), rn.RandomRotation(20), rn.RandomScale(0.8, 1.2)]
transforms = [*pictures, rn.Normalize("mnist"), rn.RandomErasing(0.5)] if augment else []
train = rn.Loader(
    MNIST(options.data, split="train", download=options.download),
    batch_size=200,
    shuffle=True,
    transforms=transforms or [rn.Normalize("mnist")],
)
valid = rn.Loader(
    MNIST(options.data, split="test"), batch_size=1000, transforms=[rn.Normalize("mnist")]
)

model = mlp([1024, 512, 256], num_classes=10, in_features=784)
task = rn.Task(model, name="mlp-mnist", seed=options.seed, precision=options.precision or "32-true")
task.loss(rn.CrossEntropyLoss().label_smoothing(0.1))
task.optimizer(rn.AdamW().beta1(0.9).beta2(0.999).eps(1e-8).weight_decay(1e-4))
task.scheduler(rn.CosineAnnealingLR().base_lr(1e-3).warmup(1, unit="epoch"))
task.data(train, valid)
task.compile()

history = task.fit(epochs=options.epochs)
print(f"test accuracy {history.history['val_accuracy'][-1]:.2%} after {options.epochs} epochs")
