"""A small vision transformer of PyTorch for images of 32 x 32 pixels.

simfl run vit_of_torch.yaml
"""

import torch
from torch import nn


class ViT(nn.Module):
    """Logits [b, 10] of images [b, 3, 32, 32], as of Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929.

    The mean over patches takes the place of a class token.
    """

    def __init__(self, patch=4, width=96, heads=4, blocks=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (32 // patch) ** 2, width))
        block = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, blocks, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        """Return the logits of images x."""
        h = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(h + self.places)).mean(1))
