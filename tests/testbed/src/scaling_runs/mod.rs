//! Experiments on scaling: something of the cluster is short or fails while a model is under load, and a timeline tells
//! what became of its variants. Each starts a control plane of its own, with the nodes it needs.

mod cluster;
mod limited;
mod stock_out;
mod timeline;

use std::path::Path;

use crate::operations::Outcome;

pub use limited::limited;
pub use stock_out::stock_out;
pub use timeline::{Line, Timeline};

/// One of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// [`stock_out`].
    StockOut,
    /// [`limited`].
    Limited,
}

impl Experiment {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::StockOut, Self::Limited];

    /// Its name, on the command line too.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::StockOut => "stock-out",
            Self::Limited => "limited",
        }
    }

    /// What is done, and what must hold.
    #[must_use]
    pub fn contract(self) -> &'static str {
        match self {
            Self::StockOut => {
                "no node has a GPU for the new replica of the cheaper variant: it is Stuck after a minute, the dearer \
                 one grows in its place, and once there are GPUs the cheaper one recovers and grows again"
            }
            Self::Limited => {
                "the same with WVA_LIMITED_MODE: no pod is made that no node has room for, the dearer one grows at \
                 once, and once there are GPUs the cheaper one grows"
            }
        }
    }

    /// Runs it with this program; each line of the timeline is told as it happens.
    ///
    /// # Errors
    /// When it could not be carried out: no figures then.
    pub async fn run(self, wva: &Path, tell: Line) -> anyhow::Result<Outcome> {
        match self {
            Self::StockOut => Box::pin(stock_out(wva, tell)).await,
            Self::Limited => Box::pin(limited(wva, tell)).await,
        }
    }
}
