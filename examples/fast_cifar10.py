"""A nine-layer network on CIFAR-10, made to reach 94 % soon, as the public speed records do.

    python examples/fast_cifar10.py --data data/cifar10 --precision bf16-mixed [--download]

The folder holds CIFAR-10's files, or train/CLASS and test/CLASS with pictures of 32 x 32. What is
told is the time of training with the test at its end; compile, which comes before, is not in it.
"""

import argparse
import pathlib
import time

import renaissance as rn
from renaissance import models
from renaissance.datasets import CIFAR10, ImageFolder

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", default="data/cifar10", help="folder of the files or pictures")
parser.add_argument("--download", action="store_true", help="fetch CIFAR-10 when missing")
parser.add_argument("--width", type=int, default=64, help="channels of the first layer")
parser.add_argument("--epochs", type=int, default=16)
parser.add_argument("--batch-size", type=int, default=512)
parser.add_argument("--lr", type=float, default=0.4, help="highest rate, at a quarter of the way")
parser.add_argument("--precision", default="32-true", help="32-true, tf32, bf16-mixed, 16-mixed")
parser.add_argument("--seed", type=int, default=123)
parser.add_argument("--run-dir", help="keep metrics, curves and checkpoints in this folder")
options = parser.parse_args()


def pictures(split):
    if (pathlib.Path(options.data) / "train").is_dir():
        return ImageFolder(options.data, split)
    return CIFAR10(options.data, split, download=options.download)


normalize = rn.Normalize("cifar10")
train = rn.Loader(
    pictures("train"),
    batch_size=options.batch_size,
    shuffle=True,
    drop_last=True,
    transforms=[
        rn.RandomCrop(32, padding=4, padding_mode="reflect"),
        rn.RandomHorizontalFlip(),
        normalize,
        rn.Cutout(8),
    ],
)
valid = rn.Loader(pictures("test"), batch_size=1000, transforms=[normalize])

task = rn.Task(
    models.resnet9(num_classes=10, width=options.width),
    name="fast-cifar10",
    seed=options.seed,
    precision=options.precision,
    run_dir=options.run_dir,
)
task.loss(rn.CrossEntropyLoss(label_smoothing=0.2))
# l2 reaches weights alone: the scales and shifts of batch-norm are not decayed.
task.optimizer(rn.SGD(momentum=0.9).nesterov().l2(5e-4))
# A triangle: up on one line for a quarter of the epochs, down on another to 0.
task.scheduler(
    rn.PolynomialLR(base_lr=options.lr, power=1).warmup(options.epochs // 4, unit="epoch")
)
task.ema(0.99, warmup=True)  # what is tested is the average of about the last hundred steps
task.data(train, valid)
task.compile()

begin = time.perf_counter()
history = task.fit(epochs=options.epochs, validation_freq=options.epochs)
seconds = time.perf_counter() - begin
print(f"test accuracy {history.history['val_accuracy'][-1]:.2%} after {seconds:.1f} s")
