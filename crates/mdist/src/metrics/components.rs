//! What each component counts. Plain integers: their thread adds to them, and publishes them when it has time.

use super::published::component;

component! {
    /// One worker's mounts.
    Mounts by "worker" {
        Gauge mounts "mounts_open" "Mounts that are connected now",
        Counter accepted "mounts_accepted" "Mounts that were ever accepted",
        Gauge streams "mounts_streams" "Item streams open now, all mounts together",
        Counter requests_in "mounts_requests_in" "Requests received from mounts",
        Counter messages_in "mounts_messages_in" "Messages of all classes received from mounts",
        Counter bytes_in "mounts_bytes_in" "Bytes received from mounts",
        Counter updates_out "mounts_updates_out" "Updates queued for mounts",
        Counter refreshes_out "mounts_refreshes_out" "Refreshes queued for mounts, parts counted singly",
        Counter statuses_out "mounts_statuses_out" "Statuses queued for mounts",
        Counter other_out "mounts_other_messages_out" "Messages of other classes queued for mounts",
        Counter bytes_out "mounts_bytes_out" "Bytes written to mounts",
        Counter writes "mounts_writes" "Writes to sockets of mounts",
        Counter writes_full "mounts_writes_full" "Writes that a socket did not take whole",
        Gauge buffers "mounts_output_buffers" "Output buffers in use now",
        Gauge pool_used "mounts_output_buffers_borrowed" "Output buffers borrowed from the pool now",
        Gauge buffers_high "mounts_output_buffers_high" "Most output buffers that one mount held since it connected",
    }
}

component! {
    /// The items of a program.
    Hub by "hub" {
        Gauge services "hub_services" "Services that are known now",
        Gauge services_up "hub_services_up" "Services that are up now",
        Gauge items "hub_items" "Items open now",
        Gauge items_suspect "hub_items_suspect" "Items whose data is suspect now",
        Gauge items_waiting "hub_items_waiting" "Items whose image has been asked for and has not come",
        Gauge recovering "hub_recovering" "Items that wait to be asked for again",
        Counter updates_in "hub_updates_in" "Updates received from upstreams",
        Counter refreshes_in "hub_refreshes_in" "Refreshes received from upstreams, parts counted singly",
        Counter statuses_in "hub_statuses_in" "Statuses received from upstreams",
        Counter other_in "hub_other_messages_in" "Messages of other classes received from upstreams",
        Counter unknown_in "hub_unknown_streams_in" "Messages from upstreams for streams that are not open",
        Counter malformed_in "hub_malformed_in" "Messages from upstreams that could not be decoded",
        Counter requests "hub_requests" "Requests sent upstream",
        Counter closes "hub_closes" "Closes sent upstream",
        Counter posts "hub_posts" "Posts passed upstream",
        Counter images_cached "hub_images_from_cache" "Images answered from the cache",
        Counter images_asked "hub_images_from_source" "Images answered by the source",
        Gauge cached "hub_cached_items" "Items with a cached image now",
        Gauge cache_bytes "hub_cache_bytes" "Memory of cached images in bytes, as last estimated",
        Counter cache_errors "hub_cache_errors" "Messages that could not be applied to a cached image, which was dropped then",
    }
}

component! {
    /// One connection to what supplies data.
    Upstream by "upstream" {
        Gauge up "upstream_up" "1 while logged in",
        Counter connects "upstream_connects" "Connections made",
        Counter failures "upstream_connect_failures" "Connections that were refused or lost",
        Counter messages_in "upstream_messages_in" "Messages received",
        Counter bytes_in "upstream_bytes_in" "Bytes received",
        Counter messages_out "upstream_messages_out" "Messages sent",
        Counter bytes_out "upstream_bytes_out" "Bytes sent",
        Counter reads "upstream_reads" "Reads of the socket",
    }
}

component! {
    /// The source end of the backbone.
    Source by "source" {
        Gauge sinks "backbone_sinks" "Sinks that are joined now",
        Counter joins "backbone_sink_joins" "Sinks that joined",
        Counter cuts "backbone_sink_cuts" "Sinks that were cut because they did not keep up",
        Counter multicasts "backbone_multicasts_out" "Multicasts sent",
        Counter messages "backbone_messages_out" "Messages in them",
        Counter bytes "backbone_bytes_out" "Bytes in them",
        Counter unicasts "backbone_unicasts_out" "Messages sent to single sinks: images, statuses, directory",
        Counter holds "backbone_holds" "Times the feed waited for a sink",
        Counter held_us "backbone_held_microseconds" "Microseconds the feed waited for sinks",
    }
}

component! {
    /// The sink end of the backbone.
    Sink by "sink" {
        Gauge sources "backbone_sources" "Sources that are joined now",
        Counter joins "backbone_source_joins" "Sources that were joined",
        Counter losses "backbone_source_losses" "Sources that were lost",
        Counter multicasts "backbone_multicasts_in" "Multicasts received",
        Counter messages "backbone_messages_in" "Messages in them",
        Counter bytes "backbone_bytes_in" "Bytes in them",
        Counter unicasts "backbone_unicasts_in" "Messages received from a source alone",
        Counter gaps "backbone_gaps" "Gaps in the numbers of a feed",
        Counter replayed "backbone_replayed" "Messages applied again from history after an image",
        Counter short_history "backbone_history_short" "Images asked for again because the history did not reach back",
    }
}
