//! Free loopback ports for programs that want a number up front. A port is held by a bound socket that does not
//! listen until just before the program starts; the rest of the window is closed by starting again on a clash.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio::net::TcpSocket;

/// A loopback port that nobody else can bind while this value lives. Connections to it are refused.
pub(crate) struct Reserved {
    socket: TcpSocket,
    port: u16,
}

impl Reserved {
    /// Reserves a port of the system's choice.
    pub(crate) fn any() -> anyhow::Result<Self> {
        Self::exactly(0)
    }

    /// Reserves this port: the one a stopped program will need again.
    pub(crate) fn exactly(port: u16) -> anyhow::Result<Self> {
        let what = || format!("cannot reserve port {port} on 127.0.0.1");
        let socket = TcpSocket::new_v4().with_context(what)?;
        // Connections of the program that had the port may still linger in TIME_WAIT.
        socket.set_reuseaddr(true).with_context(what)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).with_context(what)?;
        let port = socket.local_addr().with_context(what)?.port();
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
