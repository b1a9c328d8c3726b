//! The system's counters of sent packets in this network namespace.

use super::variant::Transport;

/// Packets that this transport has sent; each segment of a super-frame counts.
pub(super) fn packets_out(transport: Transport) -> Option<u64> {
    match transport {
        Transport::Tcp | Transport::TcpNagle => snmp(&read("/proc/net/snmp")?, "Tcp:", "OutSegs"),
        Transport::Udp => snmp(&read("/proc/net/snmp")?, "Udp:", "OutDatagrams"),
        Transport::Sctp => {
            let text = read("/proc/net/sctp/snmp")?;
            let line = text.lines().find(|line| line.starts_with("SctpOutSCTPPacks"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        }
        _ => None,
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// A value of a table of line pairs, one with names and one with numbers; each line begins with the name of its group.
fn snmp(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let column = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_group_and_name() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 2 64\nTcp: InSegs OutSegs RetransSegs\nTcp: 7 9 1\n";
        assert_eq!(snmp(text, "Tcp:", "OutSegs"), Some(9));
        assert_eq!(snmp(text, "Tcp:", "Nothing"), None);
        assert_eq!(snmp(text, "Udp:", "OutDatagrams"), None);
        assert!(packets_out(Transport::Tcp).is_some());
    }
}
