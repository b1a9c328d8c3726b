//! Data that Python sends, and buffers that it receives into.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Data to send. `bytes` are immutable and are sent in place; other types (`bytearray`, `memoryview`, arrays) are
/// copied, because another thread may change them during the call.
pub(crate) struct Outgoing<'py>(Bound<'py, PyBytes>);

impl<'py> Outgoing<'py> {
    /// # Errors
    /// `TypeError` if the data is not bytes-like.
    pub(crate) fn new(data: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return Ok(Self(bytes.clone()));
        }
        let copy = PyMemoryView::from(data)?.call_method0("tobytes")?;
        Ok(Self(copy.cast_into::<PyBytes>()?))
    }

    pub(crate) fn get(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A buffer to receive into: any writable object with the buffer protocol.
pub(crate) struct WritableBuffer<'py> {
    view: Bound<'py, PyAny>,
    len: usize,
}

impl<'py> WritableBuffer<'py> {
    /// # Errors
    /// `TypeError` if it is read-only, `BufferError` if it is not contiguous.
    pub(crate) fn new(buffer: &Bound<'py, PyAny>) -> PyResult<Self> {
        let view = PyMemoryView::from(buffer)?;
        if view.getattr("readonly")?.extract()? {
            return Err(PyTypeError::new_err(
                "the buffer is read-only (give a bytearray or a writable memoryview)",
            ));
        }
        let view = view.call_method1("cast", ("B",))?;
        let len = view.len()?;
        Ok(Self { view, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes `data` to the start of the buffer.
    pub(crate) fn fill(&self, data: &[u8]) -> PyResult<()> {
        let py = self.view.py();
        let part = pyo3::types::PySlice::new(py, 0, data.len().cast_signed(), 1);
        self.view.set_item(part, PyBytes::new(py, data))
    }
}
