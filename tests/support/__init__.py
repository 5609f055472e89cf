"""Helpers of the end-to-end tests: processes with bounds, test trees, other people's clients, hostile peers."""
