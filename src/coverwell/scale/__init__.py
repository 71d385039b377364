"""Work that one machine is too small for: grids, predictions and fits on a Ray cluster (extra `ray`)."""

from coverwell.scale.ray_cluster import ClusterError
from coverwell.scale.ray_fit import fit_on_ray
from coverwell.scale.ray_predict import predict_dataset
from coverwell.scale.torch_workers import TorchWorkers

__all__ = ["ClusterError", "TorchWorkers", "fit_on_ray", "predict_dataset"]
