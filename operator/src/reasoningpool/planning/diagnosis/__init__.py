"""What pods are doing and why they are not ready."""
