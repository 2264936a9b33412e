"""Reading a model: from a Hugging Face `config.json` to layers, KV geometry, parameters and weights. Pure."""

from reasoningpool.model.errors import GeometryError
from reasoningpool.model.geometry import Geometry, valid_tensor_parallel_sizes

__all__ = ["Geometry", "GeometryError", "valid_tensor_parallel_sizes"]
