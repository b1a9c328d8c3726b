//! One conformance suite for every bearer, and what only one of them does.
//!
//! A bearer that this machine cannot open is reported as skipped, with the reason, on standard
//! error whatever the test runner captures.

#[path = "bearers/conformance.rs"]
mod conformance;
#[path = "bearers/fixtures.rs"]
mod fixtures;
#[path = "bearers/local.rs"]
mod local;
#[path = "bearers/middleware.rs"]
mod middleware;
#[path = "bearers/recording.rs"]
mod recording;
#[path = "bearers/udp.rs"]
mod udp;

/// Instantiates the suite for a fixture: a function that gives bearers which all see one another.
macro_rules! conformance {
    ($name:ident) => {
        mod $name {
            use super::{conformance, fixtures};

            #[test]
            fn unicast_reaches_the_addressee_alone() {
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
            fn what_cannot_be_carried_is_refused_and_counted() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::refusals);
            }

            #[test]
            fn a_thousand_frames_arrive_in_order() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::thousand_in_order);
            }

            #[test]
            fn runs_arrive_as_separate_frames() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::runs);
            }

            #[test]
            fn frames_of_other_bearers_stay() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::other_bearers);
            }

            #[test]
            fn counters_tell_what_passed() {
                fixtures::run(stringify!($name), fixtures::$name, conformance::counters);
            }

            #[test]
            fn a_closed_bearer_is_gone_and_the_others_go_on() {
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
conformance!(local_nodes);
conformance!(ethernet);
conformance!(middleware_at_rest);
conformance!(middleware_with_delay);
