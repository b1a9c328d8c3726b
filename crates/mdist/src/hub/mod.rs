//! Items and services between upstreams and sides: one upstream stream for any number of subscribers.
