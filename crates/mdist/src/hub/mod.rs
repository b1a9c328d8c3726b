//! Items and services between upstreams and sides: fan-in, cache use, stale and recovery rules. Pure: bytes, time and asks
//! in, one ordered [`Batch`] for the sides and orders for the upstreams out.

mod ask;
mod batch;
mod ids;

pub use ask::{Ask, ItemSpec, Target};
pub use batch::{Batch, Entry, FRAME_HEADER, Kind, MAX_FRAMED};
pub use ids::{ItemId, Now, SideId, Token, UpstreamId};
