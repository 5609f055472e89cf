"""An emulated cluster in network namespaces: see README.md for the manual and the topology format."""
