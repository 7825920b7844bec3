//! Signals that ask a process to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// How a process is asked to end. Listened for from the first moment: until then the kernel drops what is sent to the
/// first process of a container.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// Who asks a process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGTERM, as the kubelet sends it.
    Terminate,
    /// SIGINT, from a terminal.
    Interrupt,
}

impl Signals {
    /// # Errors
    /// Where the system does not let this process listen.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for SIGINT.
    pub async fn interrupted(&mut self) {
        self.interrupt.recv().await;
    }

    /// Waits for the next signal.
    pub async fn received(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.terminate.recv() => EndSignal::Terminate,
            _ = self.interrupt.recv() => EndSignal::Interrupt,
        }
    }
}
