//! Free loopback ports for programs that need a port number in advance. A bound socket that does not listen holds a
//! port until just before the program starts. If the port is still taken, the program starts again with another.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// Below Linux's range for outgoing connections (`net.ipv4.ip_local_port_range`), above well-known ports.
const LISTENED: Range<u16> = 20_000..32_768;
/// Number of ports tried.
const ATTEMPTS: u16 = 100;

/// A loopback port that was free a moment ago.
pub fn free_port() -> anyhow::Result<u16> {
    let reserved = PortReservation::any()?;
    let port = reserved.port();
    reserved.release();
    Ok(port)
}

/// Whether a program ended because another one had taken its port, by what it logged.
pub(crate) fn was_taken(log: &str) -> bool {
    // Go and Rust.
    ["address already in use", "Address already in use"].iter().any(|words| log.contains(words))
}

/// Loopback port that no other socket can bind while this value lives. Connections to it are refused.
pub(crate) struct PortReservation {
    socket: TcpSocket,
    port: u16,
}

impl PortReservation {
    /// Reserves a port outside the range of outgoing connections, so that none takes it between two listeners of a
    /// program.
    pub(crate) fn any() -> anyhow::Result<Self> {
        let random = RandomState::new();
        let spread = |attempt: u16| {
            let offset = random.hash_one(attempt) % u64::from(LISTENED.end - LISTENED.start);
            LISTENED.start + u16::try_from(offset).unwrap_or_default()
        };
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            // With SO_REUSEADDR, another reservation could bind the same address.
            match Self::bound(spread(attempt), false) {
                Ok(reserved) => return Ok(reserved),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no port was tried")?)
    }

    /// Reserves this port, for the restart of a program.
    pub(crate) fn exactly(port: u16) -> anyhow::Result<Self> {
        // Connections of the stopped program may linger in TIME_WAIT.
        Self::bound(port, true)
    }

    fn bound(port: u16, reuse: bool) -> anyhow::Result<Self> {
        let what = || format!("cannot reserve port {port} on 127.0.0.1");
        let socket = TcpSocket::new_v4().with_context(what)?;
        socket.set_reuseaddr(reuse).with_context(what)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).with_context(what)?;
        Ok(Self { socket, port })
    }

    /// Port number.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Releases the port for the program that starts next.
    pub(crate) fn release(self) {
        drop(self.socket);
    }
}
