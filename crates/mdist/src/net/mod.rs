//! Descriptors and threads.
