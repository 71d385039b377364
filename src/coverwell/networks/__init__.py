"""Networks: each is a team that maps (member, batch, ...) to (member, batch, output)."""

from coverwell.networks.lstm import LSTM
from coverwell.networks.mlp import MLP
from coverwell.networks.resnet import ResNet18, imagenet_weights
from coverwell.networks.team import ImageNetwork, LoopTeam, Network, Team, network_from

__all__ = ["LSTM", "MLP", "ImageNetwork", "LoopTeam", "Network", "ResNet18", "Team", "imagenet_weights", "network_from"]
