"""The running operator: settings, leadership, health, and the wiring of watches to pools."""
