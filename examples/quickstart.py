"""Train a small network on handwritten digits in a few seconds: the smallest complete run.

python examples/quickstart.py [--epochs 20] [--picture quickstart.png]
"""

import argparse

import renaissance as rn
from renaissance.datasets import Digits
from renaissance.models import mlp

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--picture", default="quickstart.png", help="where the loss curve goes")
options = parser.parse_args()

normalize = rn.Normalize(mean=[0.3], std=[0.38])
train = rn.Loader(Digits(split="train"), batch_size=64, shuffle=True, transforms=[normalize])
valid = rn.Loader(Digits(split="test"), batch_size=256, transforms=[normalize])

model = mlp([64, 64], num_classes=10, in_features=64)
task = rn.Task(model, name="quickstart", seed=123, threads=1)  # so small a network needs no more
task.loss(rn.CrossEntropyLoss())
task.optimizer(rn.AdamW(weight_decay=0.01))
task.scheduler(rn.CosineAnnealingLR(base_lr=3e-3).warmup(2, unit="epoch"))
task.data(train, valid)
task.compile()

history = task.fit(epochs=options.epochs)
history.plot(options.picture)
accuracy = history.history["val_accuracy"][-1]
print(f"test accuracy {accuracy:.2%} on {len(valid.dataset)} digits; curve in {options.picture}")
