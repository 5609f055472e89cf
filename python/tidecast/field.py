"""Fields that change by steps: the field of a receiver as NumPy arrays; and sending from within a simulation.

    import tidecast.field
    with tidecast.field.open("field") as f:      # the field that `tidecast field recv` receives
        while f.wait(60):
            print(f.step, f.loss, f.array.mean())

    with tidecast.field.Receiver("viz:7500", key="@field.key") as receiver:   # the same from within Python
        print(receiver.send)                     # the command for the other side

    with tidecast.field.Sender(to="viz:7500", shape=(256, 256, 256), key="@field.key") as sender:
        for step in simulation():
            sender.put(step.density)              # never waits: steps that cannot be sent are dropped and counted

Arrays are indexed ``[z, y, x]``. NumPy is needed. `tidecast field send` starts ``python3 -m tidecast.field feed`` to read NetCDF,
HDF5, Zarr and Python generators. The formats are in docs/field-format.md.
"""
from __future__ import annotations

if __name__ == "__main__":
    # Before NumPy is imported: its absence must be reported to the program, not shown as a traceback.
    import sys

    from ._field_feed import main

    sys.exit(main())

from typing import TYPE_CHECKING, Any

from ._field_memory import Closed, Entry, Field, FieldError, Slab, Volume, names, open

if TYPE_CHECKING:
    from ._field_receiver import Receiver
    from ._field_sender import Sender

__all__ = ["Closed", "Entry", "Field", "FieldError", "Receiver", "Sender", "Slab", "Volume", "names", "open"]


def __getattr__(name: str) -> Any:
    # Readers need no extension module.
    if name == "Receiver":
        from ._field_receiver import Receiver

        return Receiver
    if name == "Sender":
        from ._field_sender import Sender

        return Sender
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
