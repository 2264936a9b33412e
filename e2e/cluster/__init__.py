"""A real Kubernetes on one machine: control plane, fake GPU nodes, or a node that runs pods.

`python -m cluster up` starts one; `cluster.core.Cluster` is the same thing for Python and pytest.
"""
