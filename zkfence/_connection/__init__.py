"""What makes `zkfence.connect` cheap, quick to stop, and discreet: kazoo's handler and connection, replaced in part."""
