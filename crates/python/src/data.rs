//! Bytes that Python gives to send, and memory that it gives to receive into.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Data to be sent. `bytes` never change and are sent from where they are; others (`bytearray`, `memoryview`, arrays) are
/// copied, because another thread may change them meanwhile.
pub(crate) struct Outgoing<'py>(Bound<'py, PyBytes>);

impl<'py> Outgoing<'py> {
    /// # Errors
    /// `TypeError` if it is not bytes-like.
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

/// Memory to receive into: anything writable with the buffer protocol.
pub(crate) struct Room<'py> {
    view: Bound<'py, PyAny>,
    len: usize,
}

impl<'py> Room<'py> {
    /// # Errors
    /// `TypeError` if it cannot be written, `BufferError` if it is not in one piece.
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

    /// Puts what was received at its start.
    pub(crate) fn fill(&self, data: &[u8]) -> PyResult<()> {
        let py = self.view.py();
        let part = pyo3::types::PySlice::new(py, 0, data.len().cast_signed(), 1);
        self.view.set_item(part, PyBytes::new(py, data))
    }
}
