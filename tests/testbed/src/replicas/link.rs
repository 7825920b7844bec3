//! TCP proxy between one replica and kube-apiserver that can be cut. While cut, no bytes pass in either direction, no
//! end notices, and new connections get no answer. After healing, bytes in flight are either lost, as by a firewall
//! that forgot the connections, or arrive late, as by TCP retransmission: a request may then arrive long after its
//! sender gave it up.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::accept::accept;

/// Above the number of connections of a replica.
const CONNECTIONS: usize = 256;

/// The link. Drop it to end all its connections.
#[derive(Debug)]
pub(crate) struct Link {
    port: u16,
    whole: watch::Sender<bool>,
    /// Number of times that connections were lost.
    losses: watch::Sender<u32>,
    // Ends its task when it is dropped.
    _running: JoinSet<()>,
}

impl Link {
    /// Links a free port to this one, both on loopback.
    pub(crate) async fn to(target: u16) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on loopback")?;
        let port = listener.local_addr()?.port();
        let ((whole, seen), (losses, lost)) = (watch::channel(true), watch::channel(0));
        let mut running = JoinSet::new();
        running.spawn(accept(listener, CONNECTIONS, move |client| {
            let connection = connection(client, target, seen.clone(), lost.clone());
            async move { connection.await.unwrap_or_default() }
        }));
        Ok(Self { port, whole, losses, _running: running })
    }

    /// Address for clients.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Heals the link; bytes in flight are lost and old connections reset.
    pub(crate) fn heal(&self) {
        // In this order, or some bytes would pass.
        self.losses.send_modify(|losses| *losses += 1);
        self.whole.send_replace(true);
    }

    /// Heals the link; bytes in flight arrive.
    pub(crate) fn heal_and_deliver(&self) {
        self.whole.send_replace(true);
    }
}

async fn connection(
    mut client: TcpStream,
    target: u16,
    mut whole: watch::Receiver<bool>,
    mut lost: watch::Receiver<u32>,
) -> anyhow::Result<()> {
    whole.wait_for(|whole| *whole).await?;
    lost.mark_unchanged();
    let mut server = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, target))).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let there = pump(from_client, to_server, whole.clone());
        let back = pump(from_server, to_client, whole);
        tokio::select! {
            // Check for loss first, or some waiting bytes would pass.
            biased;
            _ = lost.changed() => {}
            pumped = async { tokio::try_join!(there, back) } => return pumped.map(|_| ()),
        }
    }
    client.set_zero_linger()?;
    server.set_zero_linger()?;
    Ok(())
}

/// Copies bytes and the end of the stream one way, while the link is up.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut whole: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        whole.wait_for(|whole| *whole).await?;
        let mut cut = whole.clone();
        let read = tokio::select! {
            read = from.read(&mut bytes) => read?,
            cut = cut.wait_for(|whole| !*whole) => { cut?; continue }
        };
        whole.wait_for(|whole| *whole).await?;
        if read == 0 {
            return Ok(to.shutdown().await?);
        }
        to.write_all(&bytes[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Wait before asserting that nothing arrived.
    const SILENCE: Duration = Duration::from_millis(300);
    const SOON: Duration = Duration::from_secs(10);

    async fn echo() -> anyhow::Result<(u16, JoinSet<()>)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        Ok((port, serving))
    }

    async fn read_byte(stream: &mut TcpStream, wait: Duration) -> Option<u8> {
        timeout(wait, stream.read_u8()).await.ok().and_then(Result::ok)
    }

    #[tokio::test]
    async fn cut_holds_bytes_until_healed() -> anyhow::Result<()> {
        let (server, _serving) = echo().await?;
        let link = Link::to(server).await?;
        let mut old = TcpStream::connect((Ipv4Addr::LOCALHOST, link.port())).await?;
        old.write_u8(1).await?;
        assert_eq!(read_byte(&mut old, SOON).await, Some(1));
        link.cut();
        old.write_u8(2).await?;
        let mut new = TcpStream::connect((Ipv4Addr::LOCALHOST, link.port())).await?;
        new.write_u8(3).await?;
        assert_eq!(read_byte(&mut old, SILENCE).await, None);
        assert_eq!(read_byte(&mut new, SILENCE).await, None);
        link.heal_and_deliver();
        assert_eq!(read_byte(&mut old, SOON).await, Some(2));
        assert_eq!(read_byte(&mut new, SOON).await, Some(3));
        Ok(())
    }

    #[tokio::test]
    async fn loses_bytes_in_flight_and_accepts_new_connections() -> anyhow::Result<()> {
        let (server, _serving) = echo().await?;
        let link = Link::to(server).await?;
        let mut old = TcpStream::connect((Ipv4Addr::LOCALHOST, link.port())).await?;
        old.write_u8(1).await?;
        assert_eq!(read_byte(&mut old, SOON).await, Some(1));
        link.cut();
        old.write_u8(2).await?;
        link.heal();
        let read = timeout(SOON, old.read_u8()).await?;
        assert!(read.is_err(), "it came through: {read:?}");
        let mut new = TcpStream::connect((Ipv4Addr::LOCALHOST, link.port())).await?;
        new.write_u8(3).await?;
        assert_eq!(read_byte(&mut new, SOON).await, Some(3));
        Ok(())
    }
}
