//! A host's state from `/proc/net`: whether a program listens, and the device's drops.

use std::fs;

/// Whether a program in the network namespace of this process listens: a TCP socket, or a UDP socket with a
/// port.
pub(super) fn is_listening(pid: i32) -> bool {
    TABLES.iter().any(|table| {
        fs::read_to_string(format!("/proc/{pid}/net/{}", table.name))
            .is_ok_and(|text| table.shows_a_listener(&text))
    })
}

/// Frames that a device in the network namespace of this process dropped instead of sending.
pub(super) fn device_drops(pid: i32, device: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    sent_drops(&text, device).unwrap_or(0)
}

/// A table of sockets below `/proc/net`.
struct Table {
    name: &'static str,
    /// The state that a socket must be in: TCP_LISTEN; any will do for UDP.
    state: Option<&'static str>,
}

const TABLES: [Table; 4] = [
    Table { name: "tcp", state: Some("0A") },
    Table { name: "tcp6", state: Some("0A") },
    Table { name: "udp", state: None },
    Table { name: "udp6", state: None },
];

impl Table {
    /// Whether the table has a listening socket.
    fn shows_a_listener(&self, text: &str) -> bool {
        // Number, local address, remote address, state; after a line of titles.
        text.lines().skip(1).any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(2);
            let is_unconnected = fields
                .next()
                .is_some_and(|remote| remote.chars().all(|digit| digit == '0' || digit == ':'));
            is_unconnected && self.state.is_none_or(|state| fields.next() == Some(state))
        })
    }
}

/// Frames that a device dropped instead of sending, from the text of `/proc/net/dev`.
fn sent_drops(text: &str, device: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    // Eight fields of what was received; then bytes, packets, errors, drops.
    line.split_ascii_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TITLES: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr\n";

    #[test]
    fn listening_sockets_are_told_from_connected_ones() {
        let tcp = &TABLES[0];
        let listening = "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00\n";
        let connected = "   1: 0100007F:A1B2 0100007F:1F90 01 00000000:00000000 00:00\n";
        assert!(tcp.shows_a_listener(&format!("{TITLES}{connected}{listening}")));
        assert!(!tcp.shows_a_listener(&format!("{TITLES}{connected}")));
        assert!(!tcp.shows_a_listener(TITLES));
        assert!(!tcp.shows_a_listener("nonsense\n\n1\n"));
        let udp = &TABLES[2];
        let bound = "  52: 00000000:1CE8 00000000:0000 07 00000000:00000000 00:00\n";
        assert!(udp.shows_a_listener(&format!("{TITLES}{bound}")));
        assert!(!udp.shows_a_listener(&format!("{TITLES}{connected}")));
    }

    #[test]
    fn drops_are_read_from_the_devices_line() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets ...\n\
                    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                    wan0: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36\n";
        assert_eq!(sent_drops(text, "wan0"), Some(32));
        assert_eq!(sent_drops(text, "wan"), None);
        assert_eq!(sent_drops("", "wan0"), None);
    }
}
