"""ResNet-50, or another network, on a folder of pictures as ImageNet's.

    python examples/imagenet.py --data data/imagenet --epochs 90 --precision bf16-mixed

The folder holds train/CLASS and val/CLASS with pictures of any size; classes are the folder names.
"""

import argparse

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
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--size", type=int, default=224, help="height and width the network sees")
parser.add_argument("--precision", default="32-true", help="32-true, tf32, bf16-mixed, 16-mixed")
parser.add_argument("--seed", type=int, default=123)
parser.add_argument("--run-dir", help="keep metrics, curves and checkpoints in this folder")
parser.add_argument("--resume", action="store_true", help="go on where --run-dir stopped")
options = parser.parse_args()

train_pictures = ImageFolder(options.data, "train")
valid_pictures = ImageFolder(options.data, "val")
train = rn.Loader(
    train_pictures,
    batch_size=options.batch_size,
    shuffle=True,
    drop_last=True,
    transforms=[
        rn.RandomResizedCrop(options.size),
        rn.RandomHorizontalFlip(),
        rn.ColorJitter(0.4, 0.4, 0.4),
        rn.Normalize("imagenet"),
    ],
)
valid = rn.Loader(
    valid_pictures,
    batch_size=options.batch_size,
    transforms=[
        rn.Resize(options.size * 8 // 7),  # the shorter side: 256 for 224
        rn.CenterCrop(options.size),
        rn.Normalize("imagenet"),
    ],
)

task = rn.Task(
    NETWORKS[options.model](num_classes=train_pictures.num_classes),
    name="imagenet",
    seed=options.seed,
    precision=options.precision,
    run_dir=options.run_dir,
)
task.loss(rn.CrossEntropyLoss(label_smoothing=0.1)).metrics("accuracy", "top5")
# l2 reaches weights alone: biases and batch-norm's scale and shift are not decayed.
task.optimizer(rn.SGD(momentum=0.9).nesterov().l2(5e-5))
task.scheduler(rn.CosineAnnealingLR(base_lr=0.1 * options.batch_size / 256).warmup(5, unit="epoch"))
task.ema(0.9999, warmup=True)
task.data(train, valid)
task.compile()

history = task.fit(epochs=options.epochs, resume="auto" if options.resume else False)
last = {name: values[-1] for name, values in history.history.items()}
print(f"accuracy {last['val_accuracy']:.2%}, top 5 {last['val_top5_accuracy']:.2%}")
