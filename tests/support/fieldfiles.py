"""Random files of one variable with every mix of attributes about the meaning of its values, and their reading by xarray and netCDF4."""
import base64
import pathlib
import random
import struct
import warnings

import numpy as np

FORMATS = ("zarr2", "zarr3", "netcdf4", "netcdf3", "hdf5")
KINDS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
SHAPE = (2, 3, 4, 5)
DIMENSIONS = ("time", "z", "y", "x")


class File:
    """One, by its seed."""

    def __init__(self, seed: int, form: str):
        self._chance = chance = random.Random(f"{seed} {form}")
        self.form, self.name = form, f"{seed}-{form}"
        kinds = ("i1", "i2", "i4", "f4", "f8") if form == "netcdf3" else KINDS
        order = ">" if chance.random() < 0.3 and form != "netcdf3" else "<"
        self.kind = np.dtype(chance.choice(kinds)).newbyteorder(order)
        self.said = self._attributes()
        self.fill = self.said.pop("_FillValue", None)
        self.stored = self._values()

    def _number(self) -> np.generic:
        """One that the array may well have."""
        kind, chance = self.kind.newbyteorder("="), self._chance
        if kind.kind == "f":
            return kind.type(chance.choice([-999.9, -9999.0, 0.0, 1e20, 0.1, float("inf"), chance.uniform(-50, 50)]))
        limits = np.iinfo(kind)
        return kind.type(chance.choice([limits.min, limits.max, 0, 1, limits.max // 2, chance.randint(-50 if limits.min else 0, 50)]))

    def _of_other_kind(self, value: np.generic) -> np.generic:
        """The same number of another kind, or one that the array cannot have."""
        if self._chance.random() < 0.3:
            return self._chance.choice([np.float64(1e300), np.int32(70_000), np.int16(-1), np.float64("nan"), np.float32(0.5)])
        kinds = [kind for kind in ("i1", "i2", "i4", "f4", "f8") if np.can_cast(type(value), kind, "same_kind") or kind == "f8"]
        with np.errstate(all="ignore"):
            return value.astype(self._chance.choice(kinds or ["f8"]))

    def _attributes(self) -> dict:
        chance, said = self._chance, {}
        likely = lambda part: chance.random() < part  # noqa: E731
        if likely(0.6):
            said["_FillValue"] = np.nan if self.kind.kind == "f" and likely(0.2) else self._number()
        if likely(0.4):
            value = self._number()
            said["missing_value"] = self._of_other_kind(value) if likely(0.4) else value
            if likely(0.3):
                said["missing_value"] = np.array([self._number() for _ in range(chance.randint(1, 3))])
        if likely(0.4):
            real = chance.choice([np.float32, np.float64])
            said |= {"scale_factor": real(chance.choice([0.01, 2, -0.5]))} if likely(0.8) else {}
            real = chance.choice([real, real, np.float64])
            said |= {"add_offset": real(chance.choice([273.15, -1]))} if likely(0.6) else {}
        # Of big-endian values xarray takes the fill value for another one then.
        if self.kind.kind in "iu" and self.kind.isnative and likely(0.3):
            said["_Unsigned"] = chance.choice(["true", "false"])
        # Of larger ones xarray shows what is left after an overflow.
        if likely(0.1) and "scale_factor" in said and self.kind.kind in "iu" and self.kind.itemsize <= 2:
            said["scale_factor"] = np.int32(2)
        if likely(0.2) and said.get("_Unsigned") != "true":
            low, high = sorted([self._number(), self._number()])
            said |= chance.choice([{"valid_min": low}, {"valid_max": high}, {"valid_range": np.array([low, high])}])
        # Of integers in days xarray shows missing ones as the least integer.
        return said | {"units": chance.choice(["K", "1", "days accumulated", *(["days"] if self.kind.kind == "f" else [])])}

    def _values(self) -> np.ndarray:
        """Some of the values that attributes name, and adjacent ones."""
        kind = self.kind.newbyteorder("=")
        rest = [self._number() for _ in range(20)]
        named = [value for name in ("missing_value", "valid_min", "valid_max", "valid_range") for value in np.ravel(self.said.get(name, []))]
        with np.errstate(all="ignore"):
            named = [np.asarray(value).astype(kind)[()] for value in [*named, *np.ravel([] if self.fill is None else self.fill)]]
            near = [np.nextafter(value, kind.type(0)) if kind.kind == "f" else value ^ kind.type(1) for value in named]
        if kind.kind == "f":
            rest += [np.nan, np.inf]
        if self.form in ("netcdf4", "netcdf3"):
            import netCDF4
            rest += [kind.type(netCDF4.default_fillvals[kind.str[1:]])]
        all_ = np.array([self._chance.choice(rest + named * 3 + near) for _ in range(int(np.prod(SHAPE)))], kind)
        return all_.astype(self.kind).reshape(SHAPE)

    def write(self, folder: pathlib.Path) -> str:
        """Makes it; returns its name for `field send`."""
        if self.form.startswith("zarr"):
            return f"{self._zarr(folder)}:v"
        if self.form == "hdf5":
            import h5py
            with h5py.File(folder / f"{self.name}.h5", "w") as file:
                file["v"] = self.stored
                said = self.said if self.fill is None else self.said | {"_FillValue": self.kind.type(self.fill)}
                # As programs in C and Fortran write them: of a fixed length, or in an array of one element.
                text = self._chance.choice([str, np.bytes_, lambda value: np.array([value.encode()])])
                file["v"].attrs.update({name: text(value) if isinstance(value, str) else value for name, value in said.items()})
            return f"{folder / self.name}.h5:v"
        path = folder / f"{self.name}.nc"
        self._netcdf(path, "NETCDF4" if self.form == "netcdf4" else "NETCDF3_CLASSIC", self.fill).close()
        return f"{path}:v"

    def _netcdf(self, path: pathlib.Path | str, form: str, fill: object, **how):
        import netCDF4
        file = netCDF4.Dataset(path, "w", format=form, **how)
        for name, count in zip(DIMENSIONS, SHAPE):
            file.createDimension(name, count)
        variable = file.createVariable("v", self.kind, DIMENSIONS, fill_value=fill,
                                       endian="big" if form == "NETCDF4" and not self.kind.isnative else "native")
        variable.set_auto_maskandscale(False)
        variable.setncatts(self.said)
        variable[:] = self.stored.astype(self.kind.newbyteorder("="))
        return file

    def _zarr(self, folder: pathlib.Path) -> pathlib.Path:
        import zarr
        path = folder / f"{self.name}.zarr"
        version = int(self.form[-1])
        group = zarr.open_group(path, mode="w", zarr_format=version)
        dimensions = {"dimension_names": DIMENSIONS} if version == 3 else {}
        fill = self.fill if version == 2 else np.nan if self.kind.kind == "f" else 0
        array = group.create_array("v", shape=SHAPE, dtype=self.kind, fill_value=fill, **dimensions)
        array[...] = self.stored
        said = {name: value if isinstance(value, str) else np.asarray(value).tolist() for name, value in self.said.items()}
        if version == 2:
            said["_ARRAY_DIMENSIONS"] = DIMENSIONS
        elif self.fill is not None:
            value = float(self.fill) if self.kind.kind == "f" else int(self.fill)
            said["_FillValue"] = base64.b64encode(struct.pack("<d", value)).decode() if self.kind.kind == "f" else value
        array.attrs.update(said)
        return path

    def judged(self, spec: str) -> np.ndarray | None:
        """The values in xarray, with NaN where netCDF4 masks; None if xarray itself fails."""
        import xarray
        path = spec.rpartition(":")[0]
        how = {"zarr2": {"engine": "zarr", "consolidated": False}, "hdf5": {"engine": "h5netcdf", "phony_dims": "access"}}
        how["zarr3"] = how["zarr2"]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                with xarray.open_dataset(path, **how.get(self.form, {"engine": "netcdf4"})) as opened:
                    values = opened["v"].values.astype("f8")
            except (KeyError, OverflowError, TypeError, ValueError):
                return None
            twin = self._netcdf(f"{self.name}.twin.nc", "NETCDF4", self._fill_of_twin(), diskless=True)
            with twin:
                variable = twin["v"]
                variable.set_auto_maskandscale(True)
                masked = np.ma.getmaskarray(variable[:])
            return np.where(masked, np.nan, values).astype("f4")

    def _fill_of_twin(self) -> object:
        """netCDF4 reads neither Zarr nor plain HDF5, but the same variable in memory. Where nothing was written only NetCDF has a value of its
        own, and not of single bytes."""
        if self.fill is not None or self.form.startswith("netcdf") and self.kind.itemsize > 1:
            return self.fill
        return np.nan if self.kind.kind == "f" else next(n for n in range(2, 120) if n not in self.stored)
