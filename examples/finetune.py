"""A pretrained network on one's own pictures: its stem frozen, its head made anew.

    python examples/finetune.py --data photos --weights resnet50.safetensors --epochs 10

The folder holds train/CLASS and val/CLASS with pictures of any size. The weights have torchvision's
names; a file of them is written once, nothing is fetched here:

    import safetensors.torch, torchvision
    net = torchvision.models.resnet50(weights="IMAGENET1K_V2")
    safetensors.torch.save_file(net.state_dict(), "resnet50.safetensors")
"""

import argparse

import renaissance as rn
from renaissance import models
from renaissance.datasets import ImageFolder

NETWORKS = {
    "resnet18": models.resnet18,
    "resnet34": models.resnet34,
    "resnet50": models.resnet50,
    "resnet101": models.resnet101,
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--data", default="data/photos", help="folder of train/ and val/")
parser.add_argument("--weights", default="data/resnet50.safetensors", help="a safetensors file")
parser.add_argument("--model", choices=list(NETWORKS), default="resnet50")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--size", type=int, default=224, help="height and width the network sees")
parser.add_argument("--precision", default="32-true", help="32-true, tf32, bf16-mixed, 16-mixed")
parser.add_argument("--seed", type=int, default=123)
parser.add_argument("--run-dir", help="keep metrics, curves and checkpoints in this folder")
options = parser.parse_args()

train_pictures = ImageFolder(options.data, "train")
train = rn.Loader(
    train_pictures,
    batch_size=options.batch_size,
    shuffle=True,
    drop_last=True,
    transforms=[
        rn.RandomResizedCrop(options.size, scale=(0.35, 1.0)),  # the network knows whole pictures
        rn.RandomHorizontalFlip(),
        rn.Normalize("imagenet"),
    ],
)
valid = rn.Loader(
    ImageFolder(options.data, "val"),
    batch_size=options.batch_size,
    transforms=[
        rn.Resize(options.size * 8 // 7),  # the shorter side: 256 for 224
        rn.CenterCrop(options.size),
        rn.Normalize("imagenet"),
    ],
)

task = rn.Task(
    NETWORKS[options.model](num_classes=train_pictures.num_classes),
    name="finetune",
    seed=options.seed,
    precision=options.precision,
    run_dir=options.run_dir,
)
task.pretrained(options.weights, skip=["fc.*"])  # the head starts from the seed
task.freeze("conv1", "bn1", "layer1")  # their batch-norm statistics stay too
task.loss(rn.CrossEntropyLoss(label_smoothing=0.1))
# A tenth of the usual rate for what is trained already, and all of it for the head.
task.optimizer(rn.SGD(momentum=0.9).nesterov().l2(1e-4).lr_scale("fc.*", 10))
task.scheduler(rn.CosineAnnealingLR(base_lr=0.01).warmup(1, unit="epoch"))
task.data(train, valid)
task.compile()

history = task.fit(epochs=options.epochs)
print(f"accuracy {history.history['val_accuracy'][-1]:.2%} on {', '.join(train_pictures.classes)}")
