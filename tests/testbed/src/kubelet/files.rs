//! Volumes of a pod as folders: config maps, secrets and projections, including the service account's token. As in a
//! kubelet, readers go through one symbolic link that is swapped, so that they see all files of one state.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, DownwardAPIVolumeFile, Pod, Secret, SecretProjection, ServiceAccount,
    ServiceAccountTokenProjection, Volume as Declared, VolumeProjection,
};
use kube::Api;
use kube::api::PostParams;

use super::container::field_of;
use super::{CALL, Node};
use crate::within;

/// Contents by file name.
type Contents = BTreeMap<String, Vec<u8>>;

/// Folder of a volume. [`Volume::refresh`] updates its config maps and secrets.
pub(super) struct Volume {
    folder: PathBuf,
    sources: Vec<VolumeProjection>,
    contents: Contents,
    states: u32,
}

impl Volume {
    /// Writes the volume of this pod below `folder`.
    pub(super) async fn write(
        node: &Node,
        pod: &Pod,
        declared: &Declared,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let sources = sources(declared).with_context(|| format!("volumes[{}]", declared.name))?;
        std::fs::create_dir_all(folder)?;
        let mut volume = Self { folder: folder.to_owned(), sources, contents: Contents::new(), states: 0 };
        let mut contents = Contents::new();
        for source in &volume.sources {
            contents.extend(read(node, pod, source).await?);
        }
        volume.swap(contents)?;
        Ok(volume)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads config maps and secrets again.
    pub(super) async fn refresh(&mut self, node: &Node, pod: &Pod) -> anyhow::Result<()> {
        let mut contents = self.contents.clone();
        for source in &self.sources {
            if source.service_account_token.is_none() {
                contents.extend(read(node, pod, source).await?);
            }
        }
        if contents == self.contents { Ok(()) } else { self.swap(contents) }
    }

    /// Writes a new state next to the current one and swaps the link.
    fn swap(&mut self, contents: Contents) -> anyhow::Result<()> {
        let before = self.folder.join(format!("..{}", self.states));
        self.states += 1;
        let state = format!("..{}", self.states);
        let folder = self.folder.join(&state);
        for (name, bytes) in &contents {
            let file = folder.join(name);
            let parent = file.parent().context("a file without a folder")?;
            std::fs::create_dir_all(parent)?;
            std::fs::write(&file, bytes)?;
            let first = Path::new(name).components().next().context("an empty file name")?;
            let link = self.folder.join(first);
            if link.symlink_metadata().is_err() {
                symlink(Path::new("..data").join(first), link)?;
            }
        }
        std::fs::create_dir_all(&folder)?;
        let link = self.folder.join("..data_tmp");
        symlink(&state, &link)?;
        std::fs::rename(&link, self.folder.join("..data"))?;
        if before.exists() {
            std::fs::remove_dir_all(before)?;
        }
        self.contents = contents;
        Ok(())
    }
}

/// Sources of a volume: a config map or a secret alone is a projection of one source.
fn sources(declared: &Declared) -> anyhow::Result<Vec<VolumeProjection>> {
    if let Some(projected) = &declared.projected {
        return Ok(projected.sources.clone().unwrap_or_default());
    }
    let config_map = declared.config_map.clone().map(|map| ConfigMapProjection {
        name: map.name,
        items: map.items,
        optional: map.optional,
    });
    let secret = declared.secret.clone().map(|secret| SecretProjection {
        name: secret.secret_name.unwrap_or_default(),
        items: secret.items,
        optional: secret.optional,
    });
    if config_map.is_none() && secret.is_none() {
        ensure!(declared.empty_dir.is_some(), "only configMap, secret, projected and emptyDir are supported");
        return Ok(Vec::new());
    }
    Ok(vec![VolumeProjection { config_map, secret, ..VolumeProjection::default() }])
}

async fn read(node: &Node, pod: &Pod, source: &VolumeProjection) -> anyhow::Result<Contents> {
    let namespace = pod.metadata.namespace.as_deref().context("a pod without a namespace")?;
    if let Some(declared) = &source.service_account_token {
        let token = token(node, pod, declared).await?;
        return Ok(Contents::from([(declared.path.clone(), token.into_bytes())]));
    }
    if let Some(fields) = &source.downward_api {
        let field = |item: &DownwardAPIVolumeFile| {
            let field = item.field_ref.as_ref().context("downwardAPI: only fieldRef is supported")?;
            anyhow::Ok((item.path.clone(), field_of(pod, &field.field_path)?.into_bytes()))
        };
        return fields.items.iter().flatten().map(field).collect();
    }
    let (kind, name, found, items, optional) = if let Some(map) = &source.config_map {
        ("ConfigMap", &map.name, config_map(node, namespace, &map.name).await?, &map.items, map.optional)
    } else if let Some(of) = &source.secret {
        ("Secret", &of.name, secret(node, namespace, &of.name).await?, &of.items, of.optional)
    } else {
        bail!("projected: only serviceAccountToken, configMap, secret and downwardAPI are supported");
    };
    let Some(mut data) = found else {
        ensure!(optional == Some(true), "{kind} {namespace}/{name} does not exist");
        return Ok(Contents::new());
    };
    let Some(items) = items else { return Ok(data) };
    let picked = items.iter().map(|item| {
        let bytes = data.remove(&item.key);
        let bytes = bytes.with_context(|| format!("{kind} {namespace}/{name} has no key {}", item.key))?;
        anyhow::Ok((item.path.clone(), bytes))
    });
    picked.collect()
}

/// Contents of a config map; `None` if it does not exist.
pub(super) async fn config_map(node: &Node, namespace: &str, name: &str) -> anyhow::Result<Option<Contents>> {
    let maps = Api::<ConfigMap>::namespaced(node.client.clone(), namespace);
    let Some(map) = within("reading a ConfigMap", CALL, maps.get_opt(name)).await? else { return Ok(None) };
    let text = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
    let binary = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
    Ok(Some(text.chain(binary).collect()))
}

/// Contents of a secret; `None` if it does not exist.
pub(super) async fn secret(node: &Node, namespace: &str, name: &str) -> anyhow::Result<Option<Contents>> {
    let secrets = Api::<Secret>::namespaced(node.client.clone(), namespace);
    let found = within("reading a Secret", CALL, secrets.get_opt(name)).await?;
    Ok(found.map(|secret| secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0)).collect()))
}

/// A token of the pod's service account, bound to the pod.
async fn token(node: &Node, pod: &Pod, declared: &ServiceAccountTokenProjection) -> anyhow::Result<String> {
    let namespace = pod.metadata.namespace.as_deref().context("a pod without a namespace")?;
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    let account = account.context("a pod without a service account")?;
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    };
    let spec = TokenRequestSpec {
        audiences: declared.audience.clone().map(|audience| vec![audience]),
        bound_object_ref: Some(bound),
        expiration_seconds: declared.expiration_seconds,
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts = Api::<ServiceAccount>::namespaced(node.client.clone(), namespace);
    let params = PostParams::default();
    let made = within("asking for a token", CALL, accounts.create_token_request(account, &params, &request));
    let status = made.await?.status.context("a TokenRequest without a status")?;
    status.token.context("a TokenRequest without a token")
}
