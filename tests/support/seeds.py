"""Seeds of random tests."""
import os
import secrets


def seeds(*fixed: int) -> list[int]:
    """`fixed`, the same in every test of everything, and TIDECAST_FRESH fresh ones (the soaks)."""
    return [*fixed, *(secrets.randbelow(10**9) for _ in range(int(os.environ.get("TIDECAST_FRESH", 0))))]
