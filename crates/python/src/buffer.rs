//! The memory behind a Python object, by the buffer protocol or by DLPack. Nothing is copied.
//!
//! Why `unsafe`: the limited API of Python 3.10 declares neither `Py_buffer` nor its functions, so PyO3 does
//! not offer them to this module. They are declared here: every CPython since 3.3 exports them, and 3.11 made
//! the same layout part of the stable ABI. DLPack is a C structure behind a capsule. All pointers of both
//! become slices in [`Region`], and nowhere else.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3::{Py, ffi};

/// `PyBUF_STRIDES | PyBUF_FORMAT`, without `PyBUF_WRITABLE`: a buffer states itself whether it is read-only.
const STRIDES_AND_FORMAT: c_int = 0x18 | 0x4;
/// Letters of a buffer's format for references: objects, pointers, functions, text of C.
const ADDRESSES: &[u8] = b"O&PXz";

const SCATTERED: &str = "the buffer is not contiguous: its bytes do not lie in one piece (numpy.ascontiguousarray makes a copy that does)";
const SCATTERED_TENSOR: &str = "the tensor is not contiguous: its elements do not lie in one piece";
const READ_ONLY: &str = "the buffer is read-only, and this rank is to receive";
const READ_ONLY_TENSOR: &str = "the tensor is read-only, and this rank is to receive";
const OBJECTS: &str = "the buffer holds Python objects or pointers; it cannot be sent";
const NO_MEMORY: &str = "the buffer has a length and no memory";

/// CPython's `Py_buffer`.
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(of: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_IsContiguous(view: *const View, order: c_char) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// A buffer that an object has given out, until it is dropped. In a box, as its exporter may point into it.
struct Export(Box<View>);

impl Export {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(View {
            buf: null_mut(),
            obj: null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: null_mut(),
            shape: null_mut(),
            strides: null_mut(),
            suboffsets: null_mut(),
            internal: null_mut(),
        });
        // SAFETY: the object is alive, `view` can be written to and stays in its place; this thread holds Python's lock.
        match unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, STRIDES_AND_FORMAT) } {
            0 => Ok(Self(view)),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    fn is_contiguous(&self) -> bool {
        // SAFETY: a view that `PyObject_GetBuffer` has filled; `A` is C's order or Fortran's.
        unsafe { PyBuffer_IsContiguous(&raw const *self.0, b'A' as c_char) == 1 }
    }

    fn has_addresses(&self) -> bool {
        if self.0.format.is_null() {
            return false;
        }
        // SAFETY: not NULL; the protocol has it end with a zero byte and live as long as the view.
        let format = unsafe { CStr::from_ptr(self.0.format) };
        // Names of fields are between colons.
        let parts = format.to_bytes().split(|byte| *byte == b':').step_by(2);
        parts.flatten().any(|byte| ADDRESSES.contains(byte))
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Where the interpreter has ended already, so has the object.
        let _ = Python::try_attach(|_| {
            // SAFETY: filled by `PyObject_GetBuffer`, and released once; this thread holds Python's lock.
            unsafe { PyBuffer_Release(&raw mut *self.0) };
        });
    }
}

/// `DLTensor` of DLPack.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensorVersioned` of DLPack.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

/// Flags of [`Versioned`]: its memory is read-only; it is a copy, so that writes to it have no effect on the
/// original.
const FLAG_READ_ONLY: u64 = 1;
const FLAG_COPIED: u64 = 2;
/// Axes of a tensor at most; NumPy and torch have 64.
const MOST_AXES: usize = 1024;

impl Tensor {
    fn axes(&self) -> PyResult<usize> {
        let count = usize::try_from(self.ndim).ok().filter(|count| *count <= MOST_AXES);
        count
            .filter(|count| *count == 0 || !self.shape.is_null())
            .ok_or_else(|| PyValueError::new_err("the tensor has no shape"))
    }

    /// Bytes of all elements, and whether they lie one after the other, rows or columns first.
    fn length(&self) -> PyResult<(usize, bool)> {
        let axes = self.axes()?;
        if axes == 0 {
            return Ok((self.item(), true));
        }
        // SAFETY: DLPack has `ndim` lengths behind `shape`, and as many strides if there are any.
        let shape = unsafe { std::slice::from_raw_parts(self.shape, axes) };
        let elements =
            shape.iter().try_fold(1usize, |all, side| all.checked_mul(usize::try_from(*side).ok()?));
        let length = elements.and_then(|elements| elements.checked_mul(self.item()));
        let length = length.ok_or_else(|| PyValueError::new_err("the tensor is longer than memory"))?;
        if self.strides.is_null() || length == 0 {
            return Ok((length, true));
        }
        // SAFETY: as above.
        let strides = unsafe { std::slice::from_raw_parts(self.strides, axes) };
        let axes = || shape.iter().copied().zip(strides.iter().copied());
        Ok((length, follow(axes()) || follow(axes().rev())))
    }

    fn item(&self) -> usize {
        (usize::from(self.bits) * usize::from(self.lanes)).div_ceil(8)
    }
}

/// Whether elements lie one after the other, the first axis fastest. Lengths and strides are in elements.
fn follow(axes: impl Iterator<Item = (i64, i64)>) -> bool {
    let mut expected = 1i64;
    for (count, stride) in axes {
        if count > 1 && stride != expected {
            return false;
        }
        expected = expected.saturating_mul(count);
    }
    true
}

/// Keeps a region's memory in its place.
enum Owner {
    Buffer {
        _export: Export,
    },
    /// It owns the tensor until it is dropped, as its name stays as it is.
    Capsule {
        _capsule: Py<PyAny>,
    },
}

/// Memory in one piece that stays in its place until this is dropped.
pub(crate) struct Region {
    start: NonNull<u8>,
    length: usize,
    is_writable: bool,
    _owner: Owner,
}

// SAFETY: the pointers are used by the thread that has it, and released under Python's lock.
unsafe impl Send for Region {}

impl Region {
    fn new(start: *mut u8, length: usize, is_writable: bool, owner: Owner) -> PyResult<Self> {
        if isize::try_from(length).is_err() {
            return Err(PyValueError::new_err("the buffer is longer than memory"));
        }
        // A slice of nothing is not NULL either.
        let start = match NonNull::new(start) {
            Some(start) => start,
            None if length == 0 => NonNull::dangling(),
            None => return Err(PyValueError::new_err(NO_MEMORY)),
        };
        Ok(Self { start, length, is_writable, _owner: owner })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: its owner keeps `length` bytes there. Threads of Python that write there meanwhile change
        // the sent data, and are the caller's responsibility, as with every function that lets Python run
        // while it reads a buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// None if it was not asked for to be written to.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: as above, and its owner lets it be written to.
        self.is_writable.then(|| unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) })
    }
}

/// Memory for one call.
#[pyclass(frozen, module = "tidecast._native")]
pub(crate) struct Place(Mutex<Option<Region>>);

impl Place {
    fn new(region: Region) -> Self {
        Self(Mutex::new(Some(region)))
    }

    /// Its memory, which is let go of when that is dropped.
    pub(crate) fn take(&self) -> PyResult<Region> {
        self.0.lock().take().ok_or_else(|| PyRuntimeError::new_err("this place was used already"))
    }
}

#[pymethods]
impl Place {
    /// The memory of an object by the buffer protocol; `writable`: to be written to.
    #[staticmethod]
    fn of_buffer(of: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let export = Export::of(of)?;
        let refused = [
            (!export.is_contiguous(), SCATTERED),
            (writable && export.0.readonly != 0, READ_ONLY),
            (export.has_addresses(), OBJECTS),
        ];
        if let Some((_, why)) = refused.iter().find(|(is_so, _)| *is_so) {
            return Err(PyValueError::new_err(*why));
        }
        let (start, length) = (export.0.buf.cast(), export.0.len);
        let length = usize::try_from(length).map_err(|_| PyValueError::new_err(NO_MEMORY))?;
        Region::new(start, length, writable, Owner::Buffer { _export: export }).map(Self::new)
    }

    /// The memory of a DLPack capsule, which must be the host's.
    #[staticmethod]
    fn of_capsule(of: &Bound<'_, PyCapsule>, writable: bool) -> PyResult<Self> {
        let capsule = of;
        let (tensor, flags) = if capsule.is_valid_checked(Some(c"dltensor_versioned")) {
            let found = capsule.pointer_checked(Some(c"dltensor_versioned"))?.cast::<Versioned>();
            // SAFETY: a capsule of that name has that structure; its first fields are the same in all versions.
            let (major, flags) = unsafe { ((*found.as_ptr()).major, &raw const (*found.as_ptr()).flags) };
            if major != 1 {
                return Err(PyValueError::new_err(format!("DLPack version {major} is not known here")));
            }
            // SAFETY: the structure is of this version; the capsule, which keeps it, outlives the reference.
            unsafe { (&(*found.as_ptr()).tensor, flags.read()) }
        } else {
            let found = capsule.pointer_checked(Some(c"dltensor"))?.cast::<Tensor>();
            // SAFETY: a capsule of that name has that structure, whose first field is the tensor, and outlives the reference.
            (unsafe { found.as_ref() }, 0)
        };
        if writable && flags & (FLAG_READ_ONLY | FLAG_COPIED) != 0 {
            return Err(PyValueError::new_err(READ_ONLY_TENSOR));
        }
        let (length, is_dense) = tensor.length()?;
        if !is_dense {
            return Err(PyValueError::new_err(SCATTERED_TENSOR));
        }
        let offset = usize::try_from(tensor.byte_offset).map_err(|_| PyValueError::new_err(NO_MEMORY))?;
        let start = tensor.data.cast::<u8>().wrapping_add(offset);
        let owner = Owner::Capsule { _capsule: capsule.clone().into_any().unbind() };
        Region::new(start, length, writable, owner).map(Self::new)
    }
}
