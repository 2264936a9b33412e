"""The objects of a tier's workload, one module per kind."""
