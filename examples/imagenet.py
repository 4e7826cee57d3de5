"""ResNet-50, or another network, on a folder of pictures as ImageNet's.

    python examples/imagenet.py --data data/imagenet --epochs 90 --precision bf16-mixed
    ... --model vgg16_bn --lr 0.01                          another network
    ... --optimizer lars --batch-size 4096 --accumulate 8   large batches, 512 pictures at a time
    ... --size 128 160 224 --epochs 18                      small pictures first, six epochs each

The folder holds train/CLASS and val/CLASS with pictures of any size; classes are the folder names.
"""

import argparse
import math
import pathlib

import renaissance as rn
from renaissance import models
from renaissance.datasets import ImageFolder

NETWORKS = {
    "resnet18": models.resnet18,
    "resnet50": models.resnet50,
    "vgg16_bn": models.vgg16_bn,
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", default="data/imagenet", help="folder of train/ and val/")
parser.add_argument("--model", choices=list(NETWORKS), default="resnet50")
parser.add_argument("--epochs", type=int, default=90)
parser.add_argument("--batch-size", type=int, default=256, help="pictures of an update")
parser.add_argument("--accumulate", type=int, default=1, help="parts of a batch, one by one")
parser.add_argument("--optimizer", choices=["sgd", "lars"], default="sgd")
parser.add_argument("--lr", type=float, help="highest rate; by default it follows the batch size")
parser.add_argument("--size", type=int, nargs="+", default=[224], help="height and width seen")
parser.add_argument("--precision", default="32-true", help="32-true, tf32, bf16-mixed, 16-mixed")
parser.add_argument("--seed", type=int, default=123)
parser.add_argument("--run-dir", help="keep metrics, curves and checkpoints in this folder")
parser.add_argument("--resume", action="store_true", help="go on where --run-dir stopped")
options = parser.parse_args()

train_pictures = ImageFolder(options.data, "train")
valid_pictures = ImageFolder(options.data, "val")
batch_size, last_size = options.batch_size // options.accumulate, options.size[-1]


def training_data(size):
    return rn.Loader(
        train_pictures,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        transforms=[
            rn.RandomResizedCrop(size),
            rn.RandomHorizontalFlip(),
            rn.ColorJitter(0.4, 0.4, 0.4),
            rn.Normalize("imagenet"),
        ],
    )


valid = rn.Loader(
    valid_pictures,
    batch_size=batch_size,
    transforms=[
        rn.Resize(last_size * 8 // 7),  # the shorter side: 256 for 224
        rn.CenterCrop(last_size),
        rn.Normalize("imagenet"),
    ],
)

task = rn.Task(
    NETWORKS[options.model](num_classes=train_pictures.num_classes),
    name="imagenet",
    seed=options.seed,
    precision=options.precision,
)
task.loss(rn.CrossEntropyLoss(label_smoothing=0.1)).metrics("accuracy", "top5")
# Decay reaches weights alone: biases and batch-norm's scale and shift are not decayed.
if options.optimizer == "sgd":
    lr = options.lr or 0.1 * options.batch_size / 256
    task.optimizer(rn.SGD(momentum=0.9).nesterov().l2(5e-5))
    task.scheduler(rn.CosineAnnealingLR(base_lr=lr).warmup(5, unit="epoch"))
else:
    lr = options.lr or 12 * math.sqrt(options.batch_size / 4096)
    task.optimizer(rn.LARS(momentum=0.9, weight_decay=5e-5))
    task.scheduler(rn.PolynomialLR(base_lr=lr, power=2).warmup(5, unit="epoch"))
task.ema(0.9999, warmup=True).accumulate(options.accumulate)

# One size, or one after the other for equally many epochs. A compile for other data keeps weights,
# position and schedule, which is drawn over all sizes; momentum and the average start anew.
steps = math.ceil(training_data(last_size).steps_per_epoch / options.accumulate)
task.horizon = rn.Horizon(total_steps=options.epochs * steps, steps_per_epoch=steps)
for stage, size in enumerate(options.size, start=1):
    if options.run_dir:  # each size has a folder of its own, so that --resume finds its place
        folder = pathlib.Path(options.run_dir)
        task.run_dir = folder if len(options.size) == 1 else folder / f"{stage}-of-{size}"
    task.data(training_data(size), valid).compile()
    history = task.fit(
        epochs=options.epochs * stage // len(options.size),
        resume="auto" if options.resume else False,
    )
last = {name: values[-1] for name, values in history.history.items()}
print(f"accuracy {last['val_accuracy']:.2%}, top 5 {last['val_top5_accuracy']:.2%}")
