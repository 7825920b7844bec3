//! Free loopback ports for programs that want a number up front. A port is held by a bound socket that does not
//! listen until just before the program starts; the rest of the window is closed by starting again on a clash.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// Below what Linux takes for outgoing connections (`net.ipv4.ip_local_port_range`), and above what services have.
const LISTENED: Range<u16> = 20_000..32_768;
/// Ports that are tried until one is free.
const ATTEMPTS: u16 = 100;

/// A loopback port that was free a moment ago, for a program that wants a number.
pub fn free_port() -> anyhow::Result<u16> {
    let reserved = PortReservation::any()?;
    let port = reserved.port();
    reserved.release();
    Ok(port)
}

/// A loopback port that nobody else can bind while this value lives. Connections to it are refused.
pub(crate) struct PortReservation {
    socket: TcpSocket,
    port: u16,
}

impl PortReservation {
    /// Reserves a port that the system gives to no outgoing connection: one that stands for a moment between two listeners
    /// of a program must not be lost to such.
    pub(crate) fn any() -> anyhow::Result<Self> {
        let random = RandomState::new();
        let spread = |attempt: u16| {
            let offset = random.hash_one(attempt) % u64::from(LISTENED.end - LISTENED.start);
            LISTENED.start + u16::try_from(offset).unwrap_or_default()
        };
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            // Others that reserve it as well would be let in where both reuse the address.
            match Self::bound(spread(attempt), false) {
                Ok(reserved) => return Ok(reserved),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no port was tried")?)
    }

    /// Reserves this port: the one a stopped program will need again.
    pub(crate) fn exactly(port: u16) -> anyhow::Result<Self> {
        // Connections of the program that had the port may still linger in TIME_WAIT.
        Self::bound(port, true)
    }

    fn bound(port: u16, reuse: bool) -> anyhow::Result<Self> {
        let what = || format!("cannot reserve port {port} on 127.0.0.1");
        let socket = TcpSocket::new_v4().with_context(what)?;
        socket.set_reuseaddr(reuse).with_context(what)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).with_context(what)?;
        Ok(Self { socket, port })
    }

    /// The number.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Gives the port up, for the program that is started next.
    pub(crate) fn release(self) {
        drop(self.socket);
    }
}
