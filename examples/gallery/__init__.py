"""The gallery: networks as on-device training has them, each with data that it makes for itself.

python -m examples.gallery            # what there is
python -m examples.gallery lenet5     # plan it, prove it, train it
"""

from collections.abc import Mapping
from types import MappingProxyType

from examples.gallery import (
    autoencoder,
    lenet5,
    lstm_classifier,
    mobilenet_v2_bn,
    multi_loss,
    personalization,
    resnet,
    transfer,
    transformer,
)
from examples.gallery.example import WINDOW, Example

__all__ = ["GALLERY", "WINDOW", "Example"]

_EXAMPLES = (
    lenet5.EXAMPLE,
    resnet.RESNET18,
    resnet.RESNET50,
    mobilenet_v2_bn.EXAMPLE,
    transformer.EXAMPLE,
    lstm_classifier.EXAMPLE,
    autoencoder.EXAMPLE,
    transfer.EXAMPLE,
    personalization.BIASES,
    personalization.LAST,
    multi_loss.EXAMPLE,
)

#: Every example by name.
GALLERY: Mapping[str, Example] = MappingProxyType({example.name: example for example in _EXAMPLES})
