//! Tests of the link layer.

mod queues;
