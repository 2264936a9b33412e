"""The operator process: settings, wiring, Kopf handlers, leader election and health."""
