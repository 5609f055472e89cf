"""Experiments about mounts: many nodes start the same software at once, from a tree that none of them has."""
