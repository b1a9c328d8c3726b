//! Files in the style of `rmds.cnf`: lines `*component*parameter value`.
//!
//! A line names any number of components (a program, a service, a protocol) and one parameter. A text before the first
//! star is a host name: the line applies on that host only. Among matching lines one for the host wins, then the one
//! with more components, then the later one; settings of a service override those of a program (inferred, not
//! documented by the vendor). `!` and `#` begin comments; a colon after the parameter is allowed, as in X resources.
//! Unknown parameters are listed and are not errors.

use super::{Config, Error};

/// One line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: usize,
    /// The host that the line is for; none: all hosts.
    pub host: Option<String>,
    /// Components as written.
    pub components: Vec<String>,
    /// The parameter as written.
    pub parameter: String,
    /// The value, trimmed.
    pub value: String,
}

/// A line without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its number, from 1.
    pub number: usize,
    /// The line.
    pub text: String,
    /// Reason why it has no effect.
    pub why: &'static str,
}

impl std::fmt::Display for Ignored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: `{}` is ignored: {}", self.number, self.text, self.why)
    }
}

/// Splits a file into its lines; the second list has the lines that are not of this form.
#[must_use]
pub fn parse(text: &str) -> (Vec<Line>, Vec<Ignored>) {
    let (mut lines, mut ignored) = (Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['!', '#']) {
            continue;
        }
        let (path, value) = line.split_once([' ', '\t', ':']).unwrap_or((line, ""));
        let value = value.trim_start_matches([' ', '\t', ':']).trim_end();
        let (host, path) = path.split_once('*').unwrap_or((path, ""));
        let mut components: Vec<String> =
            path.split('*').filter(|c| !c.is_empty()).map(str::to_owned).collect();
        match components.pop() {
            // A program before the first star is no host: its star is missing.
            Some(parameter) if !value.is_empty() && !PROGRAMS.iter().any(|p| is(host, p)) => {
                let host = (!host.is_empty()).then(|| host.to_owned());
                lines.push(Line { number, host, components, parameter, value: value.to_owned() });
            }
            _ => ignored.push(Ignored { number, text: line.to_owned(), why: FORM }),
        }
    }
    (lines, ignored)
}

/// Applies a file to settings on the host named `this_host`; returns the lines without effect. Lines for other hosts
/// are skipped: one file serves many hosts.
///
/// # Errors
/// [`Error::Cnf`]: a known parameter has an invalid value.
pub fn apply(config: &mut Config, text: &str, this_host: &str) -> Result<Vec<Ignored>, Error> {
    let (mut lines, mut ignored) = parse(text);
    lines.retain(|line| line.host.as_deref().is_none_or(|host| is_host(host, this_host)));
    // The sort is stable: among lines with as many components the later one is applied later and wins.
    lines.sort_by_key(|line| (line.host.is_some(), line.components.len()));
    for line in &lines {
        if let Applied::Not(why) = set(config, line)? {
            let text = format!(
                "{}{}*{} {}",
                line.host.as_deref().unwrap_or_default(),
                line.components.iter().fold(String::new(), |t, c| t + "*" + c),
                line.parameter,
                line.value
            );
            ignored.push(Ignored { number: line.number, text, why });
        }
    }
    ignored.sort_by_key(|i| i.number);
    Ok(ignored)
}

/// Whether a line for `host` applies on `this_host`: the same name, ignoring case, or the same first label if one of
/// the two has no domain.
fn is_host(host: &str, this_host: &str) -> bool {
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let short = !host.contains('.') || !this_host.contains('.');
    host.eq_ignore_ascii_case(this_host) || (short && label(host) == label(this_host))
}

/// Whether a component is the program or protocol `name`; case does not matter. The successors of the vendor's `p2ps`
/// and `src_dist` are named `ads` and `adh`.
fn is(component: &str, name: &str) -> bool {
    let component = component.to_ascii_lowercase();
    let known = match component.as_str() {
        "ads" => "p2ps",
        "adh" => "src_dist",
        other => other,
    };
    known.eq_ignore_ascii_case(name)
}

const PROGRAMS: [&str; 3] = ["p2ps", "src_dist", "RRCP"];

/// The service of a line: its component that is not a program.
fn service_of(line: &Line) -> Option<&str> {
    line.components.iter().map(String::as_str).find(|c| !PROGRAMS.iter().any(|p| is(c, p)))
}

/// What became of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Applied {
    /// It has set something.
    Set,
    /// It has no effect, for this reason.
    Not(&'static str),
}

type Outcome = Result<Applied, Error>;

const FORM: &str = "it is not `*component*parameter value` or `host*component*parameter value`";
const UNKNOWN: &str = "the parameter is not known";
const ELSEWHERE: &str = "the parameter does not belong to this component";

fn set(config: &mut Config, line: &Line) -> Outcome {
    let program = |name: &str| line.components.iter().any(|c| is(c, name));
    // A line without components, or with only a service, applies to every program that has the parameter.
    let any = !PROGRAMS.iter().any(|p| program(p));
    let service = service_of(line);
    let mut outcome = Applied::Not(UNKNOWN);
    for (name, apply) in [
        ("p2ps", p2ps as fn(&mut Config, &Line, Option<&str>) -> Outcome),
        ("src_dist", src_dist),
        ("RRCP", |config, line, _| rrcp(config, line)),
    ] {
        let known = if any || program(name) {
            apply(config, line, service)?
        } else {
            // Other components try the parameter on a copy of the settings, to tell a misplaced parameter from
            // an unknown one.
            match apply(&mut Config::default(), line, service) {
                Ok(Applied::Not(why)) => Applied::Not(why),
                Ok(Applied::Set) | Err(_) => Applied::Not(ELSEWHERE),
            }
        };
        if known == Applied::Set || outcome == Applied::Not(UNKNOWN) {
            outcome = known;
        }
    }
    Ok(outcome)
}

fn p2ps(config: &mut Config, line: &Line, service: Option<&str>) -> Outcome {
    let p2ps = &mut config.p2ps;
    match (line.parameter.as_str(), service) {
        ("readBias", Some(service)) => {
            p2ps.service.entry(service.into()).or_default().read_bias = Some(number(line, 1, 1_000)?);
        }
        (_, Some(_)) => return Ok(Applied::Not(UNKNOWN)),
        ("tcpNoDelay", _) => p2ps.tcp_no_delay = truth(line)?,
        ("timedWrites", _) => p2ps.timed_writes = truth(line)?,
        ("flushInterval", _) => p2ps.flush_interval_ms = number(line, 0, 1_000)?,
        ("maxOutputBuffers", _) => p2ps.max_output_buffers = number(line, 1, 10_000_000)?,
        ("guaranteedOutputBuffers", _) => p2ps.guaranteed_output_buffers = number(line, 1, 10_000_000)?,
        ("poolSize", _) => p2ps.pool_size = number(line, 0, 10_000_000)?,
        ("latencyCalcEnabled", _) => p2ps.latency_calc.enabled = truth(line)?,
        ("latencyCalcMountBased", _) => p2ps.latency_calc.per_connection = truth(line)?,
        _ => return Ok(Applied::Not(UNKNOWN)),
    }
    Ok(Applied::Set)
}

fn src_dist(config: &mut Config, line: &Line, service: Option<&str>) -> Outcome {
    let src_dist = &mut config.src_dist;
    match (line.parameter.as_str(), service) {
        ("rrmpFlushInterval", Some(service)) => {
            src_dist.service.entry(service.into()).or_default().flush_interval_ms =
                Some(number(line, 0, 1_000)?);
        }
        (_, Some(_)) => return Ok(Applied::Not(UNKNOWN)),
        ("rrmpFlushInterval", None) => src_dist.defaults.flush_interval_ms = number(line, 0, 1_000)?,
        ("tcpNoDelay", _) => src_dist.tcp_no_delay = truth(line)?,
        ("latencyCalcEnabled", _) => src_dist.latency_calc.enabled = truth(line)?,
        ("latencyCalcServerBased", _) => src_dist.latency_calc.per_connection = truth(line)?,
        _ => return Ok(Applied::Not(UNKNOWN)),
    }
    Ok(Applied::Set)
}

fn rrcp(config: &mut Config, line: &Line) -> Outcome {
    let rrcp = &mut config.backbone.rrcp;
    let any = || number(line, 0, u32::MAX);
    match line.parameter.as_str() {
        "udpRecvBufSize" => config.backbone.tipc.receive_buffer_kib = Some(number(line, 1, 1 << 20)?),
        "udpSendBufSize" => config.backbone.tipc.send_buffer_kib = Some(number(line, 1, 1 << 20)?),
        "maxPktPoolSize" => rrcp.max_pkt_pool_size = any()?,
        "pktPoolLimitHigh" => rrcp.pkt_pool_limit_high = any()?,
        "pktPoolLimitLow" => rrcp.pkt_pool_limit_low = any()?,
        "packetTTL" => rrcp.packet_ttl = any()?,
        "ndata" => rrcp.ndata = any()?,
        "nrreq" => rrcp.nrreq = any()?,
        "tdata" => rrcp.tdata = any()?,
        "trreq" => rrcp.trreq = any()?,
        "twait" => rrcp.twait = any()?,
        "tbchold" => rrcp.tbchold = any()?,
        "tpphold" => rrcp.tpphold = any()?,
        "userQLimit" => rrcp.user_q_limit = any()?,
        "nmissing" => rrcp.nmissing = any()?,
        "disconnectOnGaps" => rrcp.disconnect_on_gaps = truth(line)?,
        "tcpControlPort" => rrcp.tcp_control_port = Some(line.value.clone()),
        "portRoamRange" => rrcp.port_roam_range = any()?,
        "hsmInterval" => rrcp.hsm_interval = any()?,
        "hsmInterface" => rrcp.hsm_interface = Some(line.value.clone()),
        "hsmMultAddress" => rrcp.hsm_mult_address = Some(line.value.clone()),
        "hsmPort" => rrcp.hsm_port = Some(line.value.clone()),
        "hashFiltering" => rrcp.hash_filtering = truth(line)?,
        _ => return Ok(Applied::Not(UNKNOWN)),
    }
    Ok(Applied::Set)
}

fn number(line: &Line, least: u32, most: u32) -> Result<u32, Error> {
    line.value.parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(|| {
        let allowed = if most == u32::MAX {
            "a whole number".into()
        } else {
            format!("a whole number, {least} to {most}")
        };
        bad(line, allowed)
    })
}

fn truth(line: &Line) -> Result<bool, Error> {
    match line.value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(bad(line, "True or False".into())),
    }
}

fn bad(line: &Line, allowed: String) -> Error {
    Error::Cnf { line: line.number, parameter: line.parameter.clone(), value: line.value.clone(), allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parameters of the vendor's throughput report.
    const REPORT: &str = "\
! as in the report
*IDN_RDF*rrmpFlushInterval       20
*p2ps*tcpNoDelay                 False
*p2ps*timedWrites                True
*p2ps*flushInterval              20
*p2ps*maxOutputBuffers           32000
*p2ps*guaranteedOutputBuffers    800
*p2ps*poolSize                   32000
*p2ps*latencyCalcMountBased      False
*p2ps*latencyCalcEnabled         False
*src_dist*latencyCalcServerBased False
*src_dist*latencyCalcEnabled     False
*RRCP*udpRecvBufSize             8192
*RRCP*maxPktPoolSize             200000
*RRCP*pktPoolLimitHigh           190000
*RRCP*pktPoolLimitLow            180000
*DF_RMDS*readBias                60
";

    #[test]
    fn every_parameter_of_the_report_is_accepted() {
        let mut config = Config::default();
        assert_eq!(apply(&mut config, REPORT, "here").unwrap(), []);
        config.check().unwrap();
        assert_eq!(config.src_dist.service("IDN_RDF").flush_interval_ms, 20);
        assert_eq!(config.src_dist.service("OTHER").flush_interval_ms, 0);
        assert!(!config.p2ps.tcp_no_delay && config.p2ps.timed_writes && config.src_dist.tcp_no_delay);
        assert_eq!(config.p2ps.flush_timer(), Some(std::time::Duration::from_millis(20)));
        assert_eq!(config.backbone.tipc.receive_buffer_kib, Some(8192));
        assert_eq!((config.p2ps.read_bias("DF_RMDS"), config.p2ps.read_bias("IDN_RDF")), (60, 8));
    }

    #[test]
    fn more_specific_line_wins_and_then_the_later_one() {
        let mut config = Config::default();
        let text = "*p2ps*tcpNoDelay True\n*tcpNoDelay: False\n*src_dist*IDN*rrmpFlushInterval 7\n\
                    *IDN*rrmpFlushInterval 8\n*rrmpFlushInterval 3\n*RRCP*ndata 1\n*rrcp*ndata 2\n";
        assert_eq!(apply(&mut config, text, "here").unwrap(), []);
        assert!(config.p2ps.tcp_no_delay && !config.src_dist.tcp_no_delay);
        assert_eq!(config.src_dist.service("IDN").flush_interval_ms, 7);
        assert_eq!(config.src_dist.service("OTHER").flush_interval_ms, 3);
        assert_eq!(config.backbone.rrcp.ndata, 2);
    }

    #[test]
    fn line_for_a_host_applies_on_that_host_only_and_wins() {
        let text = "Feed1*p2ps*poolSize 7\n*p2ps*poolSize 8\nfeed2*p2ps*poolSize 9\nfeed1*tcpNoDelay False\n\
                    feed2*p2ps*noSuchThing 1\nfeed2*p2ps*flushInterval never\n";
        for host in ["feed1", "FEED1", "feed1.example.org"] {
            let mut config = Config::default();
            assert_eq!(apply(&mut config, text, host).unwrap(), [], "{host}");
            assert_eq!(config.p2ps.pool_size, 7, "{host}");
            assert!(!config.p2ps.tcp_no_delay && !config.src_dist.tcp_no_delay, "{host}");
        }
        let mut config = Config::default();
        assert_eq!(apply(&mut config, text, "feed3").unwrap(), []);
        assert_eq!((config.p2ps.pool_size, config.p2ps.tcp_no_delay), (8, true));
        assert!(
            apply(&mut config, text, "feed2").unwrap_err().to_string().starts_with("line 6: flushInterval")
        );

        let ignored = apply(&mut config, "feed1.example.org*ads*nothing 5", "feed1").unwrap();
        assert_eq!(
            ignored[0].to_string(),
            format!("line 1: `feed1.example.org*ads*nothing 5` is ignored: {UNKNOWN}")
        );
        assert_eq!(apply(&mut config, "feed1.example.org*ads*nothing 5", "feed1.example.net").unwrap(), []);
    }

    #[test]
    fn ads_is_the_server_and_adh_the_distributor() {
        let mut config = Config::default();
        let text = "*ads*poolSize 7\n*ADH*latencyCalcEnabled True\n*adh*IDN*rrmpFlushInterval 5\n*adh*tcpNoDelay False";
        assert_eq!(apply(&mut config, text, "here").unwrap(), []);
        assert_eq!((config.p2ps.pool_size, config.src_dist.service("IDN").flush_interval_ms), (7, 5));
        assert!(config.src_dist.latency_calc.enabled && !config.p2ps.latency_calc.enabled);
        assert!(config.p2ps.tcp_no_delay && !config.src_dist.tcp_no_delay);
        assert_eq!(apply(&mut config, "*adh*poolSize 1", "here").unwrap()[0].why, ELSEWHERE);
    }

    #[test]
    fn unknown_parameters_are_listed_with_their_lines() {
        let mut config = Config::default();
        let text = "*p2ps*noSuchThing 5\nno star 1\n*p2ps*udpRecvBufSize 1\n*p2ps*poolSize\n\n# comment\n*RRCP*twait 9\n\
                    p2ps*poolSize 5";
        let ignored = apply(&mut config, text, "here").unwrap();
        let whys: Vec<(usize, &str)> = ignored.iter().map(|i| (i.number, i.why)).collect();
        assert_eq!(whys, [(1, UNKNOWN), (2, FORM), (3, ELSEWHERE), (4, FORM), (8, FORM)]);
        assert_eq!(config.backbone.rrcp.twait, 9);
        assert_eq!(config.backbone.tipc.receive_buffer_kib, None);
    }

    #[test]
    fn error_of_a_bad_value_names_line_and_remedy() {
        let error =
            apply(&mut Config::default(), "\n*p2ps*timedWrites maybe\n", "here").unwrap_err().to_string();
        assert_eq!(error, "line 2: timedWrites cannot be `maybe`: it must be True or False");
    }
}
