"""`make demo`: a cluster, the operator in it, a tiny model in two tiers, and an answer from each."""
