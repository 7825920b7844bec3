//! Process signals that request shutdown.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listener for SIGTERM and SIGINT. Start it first: the kernel drops signals that the first process of a container does
/// not listen for.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// A signal that requests shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGTERM, sent by the kubelet.
    Terminate,
    /// SIGINT, sent by a terminal.
    Interrupt,
}

impl Signals {
    /// Starts to listen.
    ///
    /// # Errors
    /// The system refused to install a handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for SIGINT.
    pub async fn recv_interrupt(&mut self) {
        self.interrupt.recv().await;
    }

    /// Waits for the next signal.
    pub async fn recv(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.terminate.recv() => EndSignal::Terminate,
            _ = self.interrupt.recv() => EndSignal::Interrupt,
        }
    }
}
