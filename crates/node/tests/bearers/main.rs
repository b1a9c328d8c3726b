//! One conformance suite for all bearers, and tests of single ones.
//!
//! A bearer that this machine cannot open is reported as skipped, with the reason, on standard error, which the test
//! runner does not capture.

mod conformance;
mod fixtures;
mod host;
mod middleware;
mod recording;
mod udp;

/// Instantiates the suite for a fixture: a function that returns bearers of one medium.
macro_rules! conformance {
    ($name:ident) => {
        mod $name {
            use super::{conformance, fixtures};

            #[test]
            fn unicast_reaches_only_the_addressee() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::unicast);
            }

            #[test]
            fn broadcast_reaches_all_but_the_sender() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::broadcast);
            }

            #[test]
            fn every_size_up_to_the_mtu_arrives_whole() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::sizes);
            }

            #[test]
            fn invalid_frames_are_refused_and_counted() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::refusals);
            }

            #[test]
            fn thousand_frames_arrive_in_order() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::thousand_in_order);
            }

            #[test]
            fn runs_arrive_as_separate_frames() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::runs);
            }

            #[test]
            fn frames_of_other_bearers_are_not_sent() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::other_bearers);
            }

            #[test]
            fn counters_match_the_traffic() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::counters);
            }

            #[test]
            fn closed_bearer_does_not_disturb_the_others() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::close);
            }
        }
    };
}

conformance!(network);
conformance!(udp_unicast);
conformance!(udp_multicast);
conformance!(udp6_unicast);
conformance!(udp6_multicast);
conformance!(udp_replicast);
conformance!(host_nodes);
conformance!(ethernet);
conformance!(middleware_at_rest);
conformance!(middleware_with_delay);
