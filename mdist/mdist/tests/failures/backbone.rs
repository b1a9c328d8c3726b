//! Bursts of requests over the backbone.

use crate::chain::{Backbone, LONG, Program, clients, until};
use crate::load_common::publisher;

#[test]
fn burst_of_a_hundred_thousand_images_disconnects_no_sink() {
    let (backbone, provider) = (Backbone::new(), publisher(20_000));
    let distributor = Program::src_dist(
        provider.address().unwrap(),
        &backbone,
        &["--cache", "false", "--metrics", "127.0.0.1:0"],
    );
    let server = Program::p2ps("127.0.0.1:0".parse().unwrap(), &backbone, &["--cache", "false"]);
    // These items are updated during the burst, so the feed is busy.
    let before = clients(server.addresses[0], 1_000, |options| options.reconnect = None);
    before.loaded(LONG).unwrap();
    let burst = clients(server.addresses[0], 100_000, |options| {
        options.compare = false;
        options.check = true;
        options.request_rate = 100_000_000;
        options.reconnect = None;
    });
    burst.loaded(LONG).unwrap();
    let seen = until(&burst, "updates", |seen| seen.counts.updates > 50_000);
    assert!(seen.counts.is_clean(), "{:?} {:?}", seen.counts, burst.disconnect_reasons());
    let page = distributor.page("/metrics");
    for none in ["mdist_backbone_sink_cuts_total", "mdist_backbone_sinks_left_total"] {
        let line = page.lines().find(|line| line.starts_with(none)).unwrap_or_default();
        assert!(line.ends_with(" 0"), "{line}\n{page}");
    }
    let page = server.page("/metrics");
    let gaps = page.lines().find(|line| line.starts_with("mdist_backbone_gaps_total")).unwrap_or_default();
    assert!(gaps.ends_with(" 0"), "{gaps}\n{page}");
}
