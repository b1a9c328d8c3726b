//! The demo chain: its publisher's items reach a consumer through distributor, backbone and server.

use mdist::backbone::memory::Memory;
use mdist::config::Config;
use mdist::metrics::Metrics;
use mdist::server::demo::Chain;
use mdist::server::{Backbone, quotes};
use rssl::rwf::Real;

#[test]
fn consumer_gets_an_image_and_updates_of_every_requested_item() {
    let mut config = Config::default();
    config.p2ps.listen = vec!["127.0.0.1:0".into()];
    let backbone = Backbone::Memory(Memory::new());
    let chain = Chain::start(&config, &Metrics::new("p2ps"), &backbone, &backbone, 500).unwrap();
    let names = ["TRI.N", "any name", "äöü"];
    // Images and updates of each item.
    let mut seen = [(0_u32, 0_u32); 3];
    quotes::watch(chain.server.addresses[0], &names, |quote| {
        let price = |real: Option<Real>| real.expect("a quote without a price").to_f64();
        let (bid, ask) = (price(quote.bid), price(quote.ask));
        assert!(bid >= 0.99 && (ask - bid - 0.02).abs() < 1e-9, "bid {bid}, ask {ask}");
        let (images, updates) = &mut seen[quote.item];
        if quote.image {
            *images += 1;
        } else {
            assert!(*images > 0, "an update before the image of {}", names[quote.item]);
            *updates += 1;
        }
        seen.iter().all(|(images, updates)| *images > 0 && *updates > 3)
    })
    .unwrap();
    assert!(chain.published() > 9);
}
