//! `images`: consumers load all their items while the publisher sends updates at full rate. How long does that take,
//! and up to which rate do all images and all updates arrive?
//!
//! With the vendor's ProvPerf and ConsPerf if they are installed, else with our own load programs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use utipc_bench_kit::progress;
use utipc_bench_kit::stats::Spread;

use super::between::Between;
use super::chain::{Chain, Plan};
use super::options::Options;
use super::place::{Backbone, Place};
use super::search;
use super::throughput::setup;
use super::vendor::{self, Job};

/// Updates per second, unless the options name another rate.
const RATE: u64 = 2_000_000;
/// Time in which all images have to arrive.
pub(super) const WITHIN: Duration = Duration::from_secs(5);
/// Time limit at the first rate: a longer time is a figure too.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time for which the rate has to be kept once all images are there.
const KEPT: Duration = Duration::from_secs(3);
const WARM_UP: Duration = Duration::from_millis(500);
/// The search ends when the highest good and the lowest bad rate are within this factor.
const NEAR: f64 = 1.08;
const TRIES: usize = 7;

/// One load of all items.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) rate: u64,
    /// Seconds until all images had arrived, or why they had not.
    pub(super) seconds: Result<f64, String>,
    /// Updates per second afterwards.
    pub(super) output: f64,
    /// Whether the rate was kept afterwards, and no update was lost.
    kept: bool,
}

impl Load {
    /// Whether all images arrived in time, and all updates after them.
    pub(super) fn is_good(&self) -> bool {
        self.kept && self.seconds.as_ref().is_ok_and(|seconds| *seconds <= WITHIN.as_secs_f64())
    }

    fn json(&self) -> Value {
        let (seconds, why) = (self.seconds.as_ref().ok(), self.seconds.as_ref().err());
        json!({ "rate": self.rate, "images_s": seconds, "failed": why, "out_per_s": self.output, "good": self.is_good() })
    }
}

/// The loads with the same programs in between.
#[derive(Clone, Debug)]
pub(super) struct PathLoads {
    pub(super) between: Between,
    /// At the stated rate.
    pub(super) stated: Vec<Load>,
    /// At the highest good rate, if that was searched.
    pub(super) highest: Vec<Load>,
}

impl PathLoads {
    /// Seconds until all images had arrived at the stated rate; `None` if they did not each time.
    pub(super) fn seconds(&self) -> Option<Spread> {
        let all: Option<Vec<f64>> = self.stated.iter().map(|load| load.seconds.clone().ok()).collect();
        all.filter(|all| !all.is_empty()).map(|all| all.into_iter().collect())
    }

    /// Updates per second at the highest good rate.
    pub(super) fn rate(&self) -> Option<Spread> {
        (!self.highest.is_empty()).then(|| self.highest.iter().map(|load| load.output).collect())
    }
}

/// All results.
#[derive(Clone, Debug)]
pub(super) struct ImagesTest {
    /// Whether publisher and consumer are the vendor's.
    pub(super) is_vendor: bool,
    pub(super) items: usize,
    pub(super) rate: u64,
    pub(super) paths: Vec<PathLoads>,
    /// The error that ended the measurements, if one did.
    pub(super) failed: Option<String>,
}

impl ImagesTest {
    /// Measures all paths, with caches and writes as by default.
    pub(super) fn run(options: &Options) -> Self {
        let folder = vendor::folder();
        let mut test = Self {
            is_vendor: folder.is_some(),
            items: options.items,
            rate: options.rate.unwrap_or(RATE),
            paths: Between::ALL
                .map(|between| PathLoads { between, stated: Vec::new(), highest: Vec::new() })
                .into(),
            failed: None,
        };
        let loader = Loader { options, folder };
        test.failed = test.measure(&loader).err().map(|why| format!("{why:#}"));
        test
    }

    fn measure(&mut self, loader: &Loader<'_>) -> Result<()> {
        let options = loader.options;
        // In turn, so that all paths find the machine in the same state.
        for _ in 0..options.repeat() {
            for path in &mut self.paths {
                path.stated.push(loader.load(path.between, self.rate, PATIENCE)?);
            }
        }
        if options.rate.is_some() {
            return Ok(());
        }
        let mut rates = Vec::new();
        for path in &self.paths {
            let holds = |rate| Ok(loader.load(path.between, rate, WITHIN)?.is_good());
            rates.push(search::highest(self.rate, NEAR, TRIES, holds)?);
        }
        for _ in 0..options.repeat() {
            for (path, rate) in self.paths.iter_mut().zip(&mut rates) {
                while *rate > 1_000 {
                    let load = loader.load(path.between, *rate, WITHIN)?;
                    if load.is_good() {
                        path.highest.push(load);
                        break;
                    }
                    *rate = *rate * 24 / 25;
                }
            }
        }
        Ok(())
    }

    /// The highest rate of a path divided by the direct one.
    pub(super) fn share(&self, between: Between) -> Option<f64> {
        let rate = |wanted| self.paths.iter().find(|path| path.between == wanted)?.rate();
        Some(rate(between)?.median / rate(Between::Nothing)?.median)
    }

    pub(super) fn json(&self) -> Value {
        let each = |loads: &[Load]| loads.iter().map(Load::json).collect::<Value>();
        let paths = self.paths.iter().map(|path| {
            json!({ "between": path.between, "stated": each(&path.stated), "highest": each(&path.highest) })
        });
        json!({
            "vendor": self.is_vendor, "items": self.items, "rate": self.rate,
            "paths": paths.collect::<Value>(), "failed": self.failed,
        })
    }
}

/// Starts new instances of publisher, consumer and the programs in between for each load.
struct Loader<'a> {
    options: &'a Options,
    /// The vendor's programs.
    folder: Option<PathBuf>,
}

impl Loader<'_> {
    fn load(&self, between: Between, rate: u64, within: Duration) -> Result<Load> {
        let place = Place::new(Backbone::Lanes)?;
        let load = match &self.folder {
            Some(folder) => {
                let (items, time) = (self.options.items, KEPT);
                let job = Job { between, cache: true, prompt: true, items, rate, loading: within, time };
                let run = vendor::run(folder, &place, &job)?;
                let missing = format!("{} of {items} images arrived", run.loaded);
                Load { rate, seconds: run.images_s.ok_or(missing), output: run.output, kept: run.clean }
            }
            None => self.own_load(&place, between, rate, within),
        };
        if self.folder.is_none() {
            let text = match &load.seconds {
                Ok(seconds) => format!("all images after {seconds:.2} s, then {:.0}/s", load.output),
                Err(why) => why.clone(),
            };
            progress(&format!("images {}: {rate}/s: {text}", between.name()));
        }
        Ok(load)
    }

    fn own_load(&self, place: &Place, between: Between, rate: u64, within: Duration) -> Load {
        let failed =
            |why: anyhow::Error| Load { rate, seconds: Err(format!("{why:#}")), output: 0.0, kept: false };
        let base = setup(self.options, Backbone::Lanes, "images", true).plan;
        let plan = Plan {
            distributor: (between == Between::Chain).then_some(true),
            server: (between != Between::Nothing).then_some(true),
            loading_rate: rate,
            load_time: within + KEPT,
            prompt: true,
            ..base
        };
        let chain = Chain::start(place, &plan);
        let mut chain = match chain {
            Ok(chain) => chain,
            Err(why) => return failed(why),
        };
        let seconds = chain.startup_s();
        match chain.stop().and_then(|_| chain.measure(place, rate, WARM_UP, KEPT)) {
            Ok(window) => Load { rate, seconds: Ok(seconds), output: window.output, kept: window.is_clean() },
            Err(why) => failed(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(rate: u64, seconds: Result<f64, &str>) -> Load {
        Load { rate, seconds: seconds.map_err(str::to_owned), output: rate as f64, kept: true }
    }

    #[test]
    fn late_images_and_lost_rates_are_not_good() {
        assert!(load(7, Ok(4.9)).is_good() && !load(7, Ok(5.1)).is_good());
        assert!(!load(7, Err("3 of 9 images arrived")).is_good());
        assert!(!Load { kept: false, ..load(7, Ok(1.0)) }.is_good());
    }

    #[test]
    fn share_is_that_of_the_direct_pair() {
        let path = |between, stated: &[Result<f64, &str>], highest: &[u64]| PathLoads {
            between,
            stated: stated.iter().map(|seconds| load(2_000_000, *seconds)).collect(),
            highest: highest.iter().map(|rate| load(*rate, Ok(1.0))).collect(),
        };
        let test = ImagesTest {
            is_vendor: true,
            items: 100_000,
            rate: RATE,
            paths: vec![
                path(Between::Nothing, &[Ok(0.5)], &[4_000_000, 3_900_000, 4_100_000]),
                path(Between::P2ps, &[Ok(1.0), Ok(3.0), Ok(2.0)], &[3_000_000]),
                path(Between::Chain, &[Ok(1.0), Err("9 of 100000 images arrived")], &[]),
            ],
            failed: None,
        };
        assert_eq!((test.share(Between::P2ps), test.share(Between::Chain)), (Some(0.75), None));
        assert_eq!(test.paths[1].seconds().map(|seconds| seconds.median), Some(2.0));
        assert!(test.paths[2].seconds().is_none());
        let seen = test.json();
        assert_eq!(seen["paths"][2]["stated"][1]["failed"], "9 of 100000 images arrived");
    }
}
