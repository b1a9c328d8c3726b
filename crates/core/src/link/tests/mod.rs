//! Tests of the link layer.

mod captures;
mod data;
mod fsm;
mod handshake;
mod hostile;
mod pair;
mod path;
mod queues;
mod tunnel;
mod vectors;
