//! The counters of each component: plain integers of one thread, which publishes them once a second.

use super::published::component;

component! {
    /// Metrics of one worker's mounts.
    Mounts by "worker" {
        Gauge mounts "mounts_open" "Mounts connected now",
        Counter accepted "mounts_accepted" "Mounts accepted so far",
        Counter refused "mounts_refused" "Connections refused because the limit of mounts was reached",
        Gauge pending "mounts_pending" "Connections that have not logged in",
        Counter crowded "mounts_crowded_out" "Connections closed because newer ones had not logged in either",
        Gauge streams "mounts_streams" "Streams open now, over all mounts",
        Gauge waiting "mounts_requests_waiting" "Requests of mounts without a response now",
        Counter messages_in "mounts_messages_in" "Messages received from mounts",
        Counter bytes_in "mounts_bytes_in" "Bytes received from mounts",
        Counter messages_out "mounts_messages_out" "Messages queued for mounts, mostly updates",
        Counter bytes_out "mounts_bytes_out" "Bytes written to mounts",
        Counter writes "mounts_writes" "Writes to sockets of mounts",
        Counter writes_full "mounts_writes_full" "Writes that found the socket's send buffer full",
        Gauge bytes_waiting "mounts_bytes_waiting" "Bytes that wait to be written to mounts now",
        Gauge buffers "mounts_output_buffers" "Output buffers of mounts in use now",
        Gauge buffers_high "mounts_output_buffers_high" "Most output buffers that a mount connected now has held at once",
        Gauge turn_longest "mounts_turn_longest_us" "Longest turn of the worker's thread so far, microseconds; 0 for the main thread",
        Counter turns_long "mounts_turns_long" "Turns of the worker's thread of more than 20 ms",
    }
}

component! {
    /// Metrics of a program's hub and items.
    Hub by "hub" {
        Gauge services "hub_services" "Services known now",
        Gauge items "hub_items" "Items open now",
        Counter updates "hub_updates_in" "Updates received from upstreams",
        Counter refreshes "hub_refreshes_in" "Refreshes received from upstreams; each part counts",
        Counter statuses "hub_statuses_in" "Statuses received from upstreams",
        Counter late "hub_late" "Messages for streams that are not open, mostly after a close",
        Counter early "hub_early" "Updates dropped because they came before the first refresh of their stream",
        Counter requests "hub_requests" "Requests of items sent to upstreams",
        Counter timeouts "hub_timeouts" "Requests to upstreams without a response in time",
        Counter stale_requests "hub_stale_requests" "Items requested again because they stayed suspect while their upstream was up",
        Counter held_back "hub_requests_held_back" "Requests held back because their upstream has ended the connection at them twice or more",
        Counter refused "hub_refused" "Requests of mounts or sinks that the hub refused",
        Counter cached_images "hub_images_from_cache" "Images sent from the cache",
        Counter cache_errors "hub_cache_errors" "Messages that the cache could not apply; their items are no longer cached",
        Gauge cache_bytes "hub_cache_bytes" "Bytes of cached values now, estimated between two measurements",
        Counter evictions "hub_cache_evictions" "Items whose cached values were dropped because the cache exceeded its budget (cache.total-mib)",
        Counter denied "hub_connections_denied" "Connections closed because their host is in no allowed network",
        Gauge pending "hub_publishers_pending" "Connections of publishers that have not logged in",
        Counter crowded "hub_publishers_crowded_out" "Connections closed because newer ones had not logged in either",
        Gauge turn_longest "hub_turn_longest_us" "Longest turn of the program's main thread and of that of the feeds so far, microseconds",
        Counter turns_long "hub_turns_long" "Turns of these threads of more than 20 ms",
    }
}

component! {
    /// Metrics of one session with an upstream.
    Upstream by "upstream" {
        Gauge state "upstream_state" "State of the session with the upstream: 2 open, 1 being opened, 0 none",
        Counter messages "upstream_messages_in" "Messages of items received from the upstream",
        Counter bytes "upstream_bytes_in" "Bytes received from the upstream",
        Counter reconnects "upstream_reconnects" "Times the session with the upstream was opened again or resynchronised",
    }
}

component! {
    /// Metrics of a program's endpoints on the backbone.
    Backbone by "end" {
        Gauge away "backbone_away" "1 while the backbone is unavailable because utipcd does not run",
        Counter lost "backbone_ends_lost" "Times the backbone was lost because its utipcd died",
        Gauge held "backbone_requests_held" "Requests of sinks that wait because the sink's window has no space for the images",
    }
}

component! {
    /// Metrics of a program's source end of the backbone.
    Source by "source" {
        Counter packets "backbone_packets_out" "Packets multicast on feeds",
        Counter messages "backbone_messages_out" "Messages in packets multicast on feeds",
        Counter bytes "backbone_bytes_out" "Bytes of packets multicast on feeds",
        Counter images "backbone_images_out" "Images sent to single sinks",
        Counter left "backbone_sinks_left" "Connections to sinks that have ended",
        Counter cuts "backbone_sink_cuts" "Times a sink was disconnected from its feeds because it was too slow",
        Counter waits "backbone_waits" "Times a feed waited for a sink",
        Counter stalls "backbone_sink_stalls" "Times a sink stopped reading and fell behind",
        Counter late_packets "backbone_late_packets_out" "Packets sent to sinks that were behind",
        Counter foreign "backbone_foreign_credits" "Credits ignored because they came from no sink of this source",
        Gauge behind "backbone_sinks_behind" "Sinks that are behind now",
        Gauge backlog "backbone_backlog_bytes" "Bytes kept now for sinks that are behind",
    }
}

component! {
    /// Metrics of a program's sink end of the backbone.
    Sink by "sink" {
        Counter packets "backbone_packets_in" "Packets read from feeds",
        Counter messages "backbone_messages_in" "Messages received from sources and passed to the hub",
        Counter bytes "backbone_bytes_in" "Bytes of packets read from feeds",
        Counter lost "backbone_sources_lost" "Sources on the backbone lost, for any reason",
        Counter cuts "backbone_cuts" "Times a source disconnected this sink from its feeds because the sink was too slow",
        Counter gaps "backbone_gaps" "Times entries of a feed were lost",
        Counter asked_again "backbone_images_asked_again" "Images requested again because the feed had already passed them",
        Counter foreign "backbone_foreign_packets" "Packets dropped because they did not come from the source that they name",
    }
}
