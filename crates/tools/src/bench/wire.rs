//! Packets that the system has sent in this network namespace, by its own counters.

use super::party::Transport;

/// Packets that have left by this transport; segments of a super-frame each count.
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

/// A value of a table whose lines come in pairs, names and numbers, each with the name of its group.
fn snmp(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let column = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_table_is_read() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 2 64\nTcp: InSegs OutSegs RetransSegs\nTcp: 7 9 1\n";
        assert_eq!(snmp(text, "Tcp:", "OutSegs"), Some(9));
        assert_eq!(snmp(text, "Tcp:", "Nothing"), None);
        assert_eq!(snmp(text, "Udp:", "OutDatagrams"), None);
        assert!(packets_out(Transport::Tcp).is_some());
    }
}
