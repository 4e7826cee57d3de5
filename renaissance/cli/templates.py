"""Texts of experiments that ``renaissance new`` writes."""

import json
import re


def digits(name: str) -> str:
    """A small complete experiment of this name; quotes where YAML would read something else."""
    is_plain = re.fullmatch(r"\w[\w.-]*", name) and not re.match(r"[\d.]", name)
    is_word = is_plain and name.lower() not in ("null", "true", "false")
    return DIGITS.format(name=name if is_word else json.dumps(name, ensure_ascii=False))


#: A network on the handwritten digits that scikit-learn ships; ``{name}`` is filled in.
DIGITS = """\
# Handwritten digits, 8 x 8: about 97 % right after some seconds, on any computer.
# Every key is a keyword of a Python constructor; `renaissance config show` prints all defaults.
name: {name}
seed: 123 # the same seed gives the same bits
model: {{type: mlp, hidden: [64, 64], num_classes: 10, in_features: 64}}
data:
  train:
    type: digits
    split: train
    batch_size: 64
    shuffle: true
    transforms: [{{type: normalize, mean: [0.3], std: [0.38]}}]
  valid:
    type: digits
    split: test
    batch_size: 256
    transforms: [{{type: normalize, mean: [0.3], std: [0.38]}}]
loss: {{type: cross_entropy}}
optimizer: {{type: adamw, weight_decay: 0.01}}
scheduler: {{type: cosine, base_lr: 3e-3, warmup: 2, warmup_unit: epoch}}
fit: {{epochs: 20}}
"""
