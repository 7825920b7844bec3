//! Faults of etcd that only its data or its own API can cause: a full store, and a backup put back.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Testbed;
use super::data::copy_folder;
use crate::components::{Component, http_client};

/// Programs that read the store through kube-apiserver. After a backup is put back they start again, as etcd's
/// documentation asks: their caches are newer than the store.
const READERS: [Component; 3] = [Component::ControllerManager, Component::Scheduler, Component::Kwok];

impl Testbed {
    /// Raises or clears etcd's alarm `NOSPACE`: with it, etcd refuses every write and answers reads.
    pub async fn etcd_is_full(&self, full: bool) -> anyhow::Result<()> {
        let status = self.etcd("maintenance/status", &json!({})).await?;
        let action = if full { "ACTIVATE" } else { "DEACTIVATE" };
        let member = &status["header"]["member_id"];
        let alarm = json!({"action": action, "memberID": member, "alarm": "NOSPACE"});
        self.etcd("maintenance/alarm", &alarm).await.map(drop)
    }

    /// Stops etcd for as long as its data takes to copy; returns the folder of the copy.
    pub async fn back_up_etcd(&self) -> anyhow::Result<PathBuf> {
        let backup = self.data.path.join(format!("etcd-backup-{}", self.next()));
        self.stop(Component::Etcd).await?;
        copy_folder(&self.etcd_data(), &backup)?;
        self.start_again(Component::Etcd).await?;
        Ok(backup)
    }

    /// Puts a backup back, and starts etcd and everything that reads it through kube-apiserver again.
    pub async fn restore_etcd(&self, backup: &Path) -> anyhow::Result<()> {
        self.stop(Component::Apiserver).await?;
        self.stop(Component::Etcd).await?;
        let data = self.etcd_data();
        std::fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
        copy_folder(backup, &data)?;
        self.start_again(Component::Etcd).await?;
        self.start_again(Component::Apiserver).await?;
        for reader in READERS {
            self.stop(reader).await?;
            self.start_again(reader).await?;
        }
        Ok(())
    }

    fn etcd_data(&self) -> PathBuf {
        self.data.path.join("etcd")
    }

    /// A call of etcd's JSON gateway.
    async fn etcd(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let url = format!("http://127.0.0.1:{}/v3/{path}", self.running(Component::Etcd)?.port(0));
        let answer = http_client(None)?.post(url).json(body).send().await?.error_for_status()?;
        answer.json().await.context("etcd did not answer with JSON")
    }
}
