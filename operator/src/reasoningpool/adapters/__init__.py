"""The only importers of the Kubernetes client: requests and errors in our own words."""
