"""The servers come from zkfence's own pytest plugin, which is installed with it: see ``zkfence.testing.plugin``."""
