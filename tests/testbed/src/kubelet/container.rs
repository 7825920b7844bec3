//! From a container's declaration to its process: arguments, variables, mounts, ports and user. An unsupported field
//! is an error that names it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Volume};
use serde_json::Value;

use super::{Node, Ports, files, network, run_helper};
use crate::Process;
use crate::ports::PortReservation;

/// User of the image, as in the Dockerfile.
const USER: &str = "65532";

const SCRIPT: &str = include_str!("container.sh");

/// Checks that this user may create the namespaces a container needs.
pub(super) async fn supported() -> anyhow::Result<()> {
    let mut args = namespaces();
    args.push("true");
    run_helper(Path::new("unshare"), &args).await.context(
        "pods need mount namespaces: run as root, or allow user namespaces to this user (sysctl \
         kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0)",
    )
}

fn root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn namespaces() -> Vec<&'static str> {
    if root() { vec!["--mount"] } else { vec!["--user", "--map-root-user", "--mount"] }
}

/// A container with its files in place, ready to start any number of times.
pub(super) struct PreparedContainer {
    root: PathBuf,
    mounts: Vec<(PathBuf, String)>,
    volumes: Vec<files::Volume>,
    ports: Ports,
    held: Vec<PortReservation>,
    proxy: network::Proxy,
}

impl PreparedContainer {
    /// Creates the root file system and the mounts of the pod's container in `folder`.
    pub(super) async fn new(
        node: &Arc<Node>,
        pod: &Pod,
        container: &Container,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let root = folder.join("root");
        if !root.exists() {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/image/rootfs.sh");
            let program = node.image_program(container);
            let [program, to] = [&program, &root].map(|path| path.to_string_lossy().into_owned());
            run_helper(&script, &[&program, &to]).await?;
        }
        let mut prepared = Self {
            root,
            mounts: Vec::new(),
            volumes: Vec::new(),
            ports: Ports::new(),
            held: Vec::new(),
            proxy: network::Proxy::start(node, pod.metadata.namespace.clone().unwrap_or_default()).await?,
        };
        prepared.mount(node, pod, container, folder).await?;
        prepared.take_ports(container)?;
        Ok(prepared)
    }

    /// Writes the volumes that the container mounts, and creates all mount points.
    async fn mount(
        &mut self,
        node: &Node,
        pod: &Pod,
        container: &Container,
        folder: &Path,
    ) -> anyhow::Result<()> {
        for mount in container.volume_mounts.iter().flatten() {
            ensure!(mount.sub_path.is_none(), "volumeMounts[{}].subPath is not supported", mount.name);
            let declared = declared(pod, &mount.name)?;
            let volume = files::Volume::write(node, pod, declared, &folder.join(&mount.name)).await?;
            self.mounts.push((volume.folder().to_owned(), mount.mount_path.clone()));
            self.volumes.push(volume);
            std::fs::create_dir_all(self.root.join(mount.mount_path.trim_start_matches('/')))?;
        }
        for file in ["etc/hosts", "etc/resolv.conf", "dev/null", "dev/zero", "dev/random", "dev/urandom"] {
            std::fs::write(self.root.join(file), "")?;
        }
        Ok(())
    }

    /// Reserves a loopback port for each port of the container, others than before.
    pub(super) fn take_ports(&mut self, container: &Container) -> anyhow::Result<()> {
        for port in container.ports.iter().flatten() {
            let local = PortReservation::any()?;
            self.ports.insert(u16::try_from(port.container_port)?, local.port());
            self.held.push(local);
        }
        Ok(())
    }

    /// Loopback ports, by container port.
    pub(super) fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Updates mounted config maps and secrets.
    pub(super) async fn refresh(&mut self, node: &Node, pod: &Pod) -> anyhow::Result<()> {
        for volume in &mut self.volumes {
            volume.refresh(node, pod).await?;
        }
        Ok(())
    }

    /// Starts the program, with the current values of config maps and secrets.
    pub(super) async fn start(
        &mut self,
        node: &Node,
        pod: &Pod,
        container: &Container,
    ) -> anyhow::Result<Process> {
        let name = pod.metadata.name.as_deref().context("a pod without a name")?;
        let command = self.command(node, container)?;
        let variables = self.variables(node, pod, container).await?;
        let read_only = container.security_context.as_ref().and_then(|c| c.read_only_root_filesystem);
        let mode = if read_only == Some(true) { "ro" } else { "rw" };
        let mut args: Vec<String> = namespaces().into_iter().map(str::to_owned).collect();
        args.extend(["sh".to_owned(), "-c".to_owned(), SCRIPT.to_owned(), "container".to_owned()]);
        args.extend([self.root.to_string_lossy().into_owned(), mode.to_owned()]);
        for (source, target) in &self.mounts {
            args.extend([source.to_string_lossy().into_owned(), target.clone()]);
        }
        args.push("--".to_owned());
        args.extend(variables.into_iter().map(|(name, value)| format!("{name}={value}")));
        args.push("chroot".to_owned());
        if root() {
            // A user namespace has a single user, who is not root outside.
            args.push(format!("--userspec={USER}:{USER}"));
        }
        args.push(self.root.to_string_lossy().into_owned());
        args.extend(command);
        self.held.drain(..).for_each(PortReservation::release);
        Process::spawn(name, Path::new("unshare"), &args, &[], &node.log(name))
    }

    fn command(&self, node: &Node, container: &Container) -> anyhow::Result<Vec<String>> {
        let mut command = container.command.clone().unwrap_or_default();
        if command.is_empty() {
            let program = node.image_program(container);
            let name = program.file_name().context("a program without a name")?;
            command.push(format!("/{}", name.to_string_lossy()));
        }
        command.extend(container.args.iter().flatten().cloned());
        command.into_iter().map(|word| self.here("args", &word)).collect()
    }

    /// Replaces a container port with its loopback port: `:9443`, `--address=:9443` and `--address=0.0.0.0:9443`.
    fn here(&self, field: &str, text: &str) -> anyhow::Result<String> {
        ensure!(!text.contains("$("), "{field}: {text:?}: references to variables are not supported");
        let Some((before, port)) = text.rsplit_once(':') else { return Ok(text.to_owned()) };
        let local = port.parse().ok().and_then(|port: u16| self.ports.get(&port));
        let before = before.strip_suffix("0.0.0.0").unwrap_or(before);
        let names_no_host = before.is_empty() || before.ends_with('=');
        Ok(match local {
            Some(local) if names_no_host => format!("{before}127.0.0.1:{local}"),
            _ => text.to_owned(),
        })
    }

    /// Variables of the kubelet, then of the image, then of the container.
    async fn variables(
        &self,
        node: &Node,
        pod: &Pod,
        container: &Container,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        ensure!(container.env_from.iter().flatten().next().is_none(), "envFrom is not supported");
        let mut variables = BTreeMap::from([
            ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("KUBERNETES_SERVICE_HOST".to_owned(), "127.0.0.1".to_owned()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), node.apiserver.to_string()),
            // All pods share one loopback here.
            ("WVA_DEBUG_BIND_ADDRESS".to_owned(), "127.0.0.1:0".to_owned()),
            // Names and addresses of Services, which only the proxy can resolve.
            ("HTTP_PROXY".to_owned(), format!("http://127.0.0.1:{}", self.proxy.port())),
            ("NO_PROXY".to_owned(), "127.0.0.1,localhost".to_owned()),
        ]);
        for variable in container.env.iter().flatten() {
            let value = value_of(node, pod, variable).await?;
            variables.insert(variable.name.clone(), self.here(&variable.name, &value)?);
        }
        Ok(variables)
    }
}

/// Volume of the pod with this name.
fn declared<'a>(pod: &'a Pod, name: &str) -> anyhow::Result<&'a Volume> {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.find(|volume| volume.name == name).with_context(|| format!("the pod declares no volume {name:?}"))
}

/// Value of a variable. A missing optional one is empty, which the program treats as unset.
async fn value_of(node: &Node, pod: &Pod, variable: &EnvVar) -> anyhow::Result<String> {
    let Some(from) = &variable.value_from else { return Ok(variable.value.clone().unwrap_or_default()) };
    let namespace = pod.metadata.namespace.as_deref().context("a pod without a namespace")?;
    let (found, key, optional) = if let Some(field) = &from.field_ref {
        return field_of(pod, &field.field_path);
    } else if let Some(of) = &from.config_map_key_ref {
        (files::config_map(node, namespace, &of.name).await?, &of.key, of.optional)
    } else if let Some(of) = &from.secret_key_ref {
        (files::secret(node, namespace, &of.name).await?, &of.key, of.optional)
    } else {
        bail!("env {}: only fieldRef, configMapKeyRef and secretKeyRef are supported", variable.name);
    };
    match found.and_then(|mut data| data.remove(key)) {
        Some(value) => {
            String::from_utf8(value).with_context(|| format!("env {} is not UTF-8", variable.name))
        }
        None if optional == Some(true) => Ok(String::new()),
        None => bail!("env {}: the referenced object has no key {key:?}", variable.name),
    }
}

/// A field of the pod, by its path: `metadata.namespace`.
pub(super) fn field_of(pod: &Pod, path: &str) -> anyhow::Result<String> {
    let object = serde_json::to_value(pod)?;
    let pointer = format!("/{}", path.replace('.', "/"));
    let value = object.pointer(&pointer).and_then(Value::as_str);
    value.map(str::to_owned).with_context(|| format!("fieldRef: the pod has no {path}"))
}
