"""A residual network on CIFAR-10, or on any folder of small pictures.

    python examples/resnet_cifar10.py --data data/cifar10 --epochs 30 [--download]

The folder holds CIFAR-10's files, or train/CLASS and test/CLASS with pictures of 32 x 32.
On a GPU in minutes; on a CPU take --model small --epochs 2.
"""

import argparse
import pathlib

import renaissance as rn
from renaissance import models
from renaissance.datasets import CIFAR10, ImageFolder

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", default="data/cifar10", help="folder of the files or pictures")
parser.add_argument("--download", action="store_true", help="fetch CIFAR-10 when missing")
parser.add_argument("--model", choices=["resnet18", "small"], default="resnet18")
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=512)
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
    transforms=[rn.RandomCrop(32, padding=4), rn.RandomHorizontalFlip(), normalize, rn.Cutout(8)],
)
valid = rn.Loader(pictures("test"), batch_size=1000, transforms=[normalize])

if options.model == "small":
    model = models.wide_resnet(depth=10, widen=1)
else:
    model = models.resnet18(num_classes=10, stem="cifar")

task = rn.Task(
    model,
    name="resnet-cifar10",
    seed=options.seed,
    precision=options.precision,
    run_dir=options.run_dir,
)
task.loss(rn.CrossEntropyLoss(label_smoothing=0.1))
task.optimizer(rn.SGD(momentum=0.9).nesterov().l2(5e-4))
task.scheduler(rn.CosineAnnealingLR(base_lr=0.2).warmup(2, unit="epoch"))
task.data(train, valid)
task.compile()

history = task.fit(epochs=options.epochs)
print(f"test accuracy {history.history['val_accuracy'][-1]:.2%} after {options.epochs} epochs")
