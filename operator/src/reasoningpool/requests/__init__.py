"""Requests of a tier, from a log, from histograms of a metrics page, or as stated percentiles. Pure."""
