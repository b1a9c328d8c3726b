//! The counters of each component: plain integers of one thread, which publishes them once a second.

use super::published::component;

component! {
    /// One worker's mounts.
    Mounts by "worker" {
        Gauge mounts "mounts_open" "Mounts that are connected now",
        Counter accepted "mounts_accepted" "Mounts accepted so far",
        Counter refused "mounts_refused" "Connections refused because the limit of mounts was reached",
        Gauge streams "mounts_streams" "Streams open now, over all mounts",
        Gauge waiting "mounts_requests_waiting" "Requests without a response now",
        Counter messages_in "mounts_messages_in" "Messages received from mounts",
        Counter bytes_in "mounts_bytes_in" "Bytes received from mounts",
        Counter messages_out "mounts_messages_out" "Messages queued for mounts, mostly updates",
        Counter bytes_out "mounts_bytes_out" "Bytes written to mounts",
        Counter writes "mounts_writes" "Writes to sockets of mounts",
        Counter writes_full "mounts_writes_full" "Writes that found the socket's send buffer full",
        Gauge bytes_waiting "mounts_bytes_waiting" "Bytes that wait to be written now",
        Gauge buffers "mounts_output_buffers" "Output buffers in use now",
        Gauge buffers_high "mounts_output_buffers_high" "Most output buffers that a present mount has held at once",
    }
}

component! {
    /// The items of a program.
    Hub by "hub" {
        Gauge services "hub_services" "Services that are known now",
        Gauge items "hub_items" "Items open now",
        Counter updates "hub_updates_in" "Updates received from upstreams",
        Counter refreshes "hub_refreshes_in" "Refreshes received from upstreams; each part counts",
        Counter statuses "hub_statuses_in" "Statuses received from upstreams",
        Counter late "hub_late" "Messages for streams that are not open, mostly after a close",
        Counter early "hub_early" "Updates dropped because they came before the first refresh of their stream",
        Counter requests "hub_requests" "Requests sent upstream",
        Counter timeouts "hub_timeouts" "Requests without a response in time",
        Counter refused "hub_refused" "Requests refused",
        Counter cached_images "hub_images_from_cache" "Images served from the cache",
        Counter cache_errors "hub_cache_errors" "Messages with content that the cache cannot store; their items are uncached since",
    }
}

component! {
    /// One session with an upstream.
    Upstream by "upstream" {
        Gauge state "upstream_state" "2 while the session is open, 1 while it is being opened, 0 while there is none",
        Counter messages "upstream_messages_in" "Messages of items received",
        Counter bytes "upstream_bytes_in" "Bytes received",
        Counter reconnects "upstream_reconnects" "Times it was opened again or resynchronised",
    }
}

component! {
    /// A program's endpoints on the backbone.
    Backbone by "end" {
        Gauge away "backbone_away" "1 while the backbone is unavailable because utipcd does not run",
        Counter lost "backbone_ends_lost" "Times the backbone was lost because its utipcd died",
        Gauge held "backbone_requests_held" "Requests of sinks that wait because their window has no room for images",
    }
}

component! {
    /// The source end of the backbone.
    Source by "source" {
        Counter packets "backbone_packets_out" "Packets multicast",
        Counter messages "backbone_messages_out" "Messages in them",
        Counter bytes "backbone_bytes_out" "Bytes in them",
        Counter images "backbone_images_out" "Images sent to single sinks",
        Counter left "backbone_sinks_left" "Connections to sinks that have ended",
        Counter cuts "backbone_sink_cuts" "Sinks that were cut because they were too slow",
        Counter waits "backbone_waits" "Times a feed waited for a sink",
    }
}

component! {
    /// The sink end of the backbone.
    Sink by "sink" {
        Counter packets "backbone_packets_in" "Packets read from feeds",
        Counter messages "backbone_messages_in" "Messages passed to the hub",
        Counter bytes "backbone_bytes_in" "Bytes of those packets",
        Counter lost "backbone_sources_lost" "Sources lost, for any reason",
        Counter cuts "backbone_cuts" "Times a source cut this sink because it was too slow",
        Counter gaps "backbone_gaps" "Times entries of a feed were lost",
        Counter asked_again "backbone_images_asked_again" "Images requested again because the feed had passed them",
    }
}
