//! Faults of the API server and etcd: they stop, freeze and restart with their data. The API server reaches a program
//! on loopback through a Service.

use anyhow::{Context as _, ensure};
use tokio::io::AsyncReadExt as _;
use wva_testbed::{Component, Testbed, eventually};

use super::{API_SERVER, SOON, testbed};

#[tokio::test(flavor = "multi_thread")]
async fn api_server_reaches_loopback_and_restarts() -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let _alone = API_SERVER.write().await;
    let namespace = testbed.namespace("restart").await?;
    loopback(testbed, &namespace).await?;

    // Aggregated API servers read the CA of their callers from here.
    let path = r"-o=jsonpath={.data.requestheader-client-ca-file}{.data.requestheader-allowed-names}";
    let map = ["get", "configmap", "-n", "kube-system", "extension-apiserver-authentication", path];
    let trust = testbed.kubectl(&map).await?.success()?;
    assert!(trust.contains("BEGIN CERTIFICATE") && trust.contains("front-proxy-client"), "{trust}");

    let get = async || testbed.kubectl(&["get", "namespace", &namespace, "--request-timeout=2s"]).await;
    testbed.stop(Component::Apiserver).await?;
    let refused = get().await?;
    assert!(refused.stderr.contains("refused"), "{refused:?}");
    testbed.start_again(Component::Apiserver).await?;
    eventually("the API server to answer again", SOON, async || get().await?.success()).await?;
    assert!(testbed.start_again(Component::Apiserver).await.is_err(), "it runs already");

    testbed.pause(Component::Apiserver)?;
    let frozen = get().await?;
    testbed.resume(Component::Apiserver)?;
    assert!(!frozen.ok, "{frozen:?}");
    eventually("the API server to go on", SOON, async || get().await?.success()).await?;

    testbed.process(Component::Etcd)?.kill();
    testbed.start_again(Component::Etcd).await?;
    eventually("the API server to find its etcd again", SOON, async || get().await?.success()).await?;
    // The controllers work again too.
    testbed.namespace("new").await.map(|_| ())
}

/// A webhook through a loopback Service: the API server opens a TLS connection with the name of the Service.
async fn loopback(testbed: &Testbed, namespace: &str) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    testbed.loopback_service(namespace, "hook", port).await?;
    let webhook = format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: {namespace}}}
webhooks:
- name: hook.testbed.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 5
  namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
  rules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]
  clientConfig: {{service: {{namespace: {namespace}, name: hook, port: {port}, path: /}}}}
"
    );
    testbed.apply(&webhook).await?;
    let hello = async {
        let (mut connection, _) = listener.accept().await?;
        let mut hello = vec![0; 4096];
        let read = connection.read(&mut hello).await?;
        Ok::<_, anyhow::Error>(String::from_utf8_lossy(&hello[..read]).into_owned())
    };
    let create = eventually("a config map to be refused", SOON, async || {
        let made =
            testbed.kubectl(&["create", "configmap", "-n", namespace, "--dry-run=server", "c"]).await?;
        ensure!(!made.ok && made.stderr.contains("hook.testbed.example"), "{made:?}");
        Ok(())
    });
    let seen = tokio::time::timeout(SOON, async { tokio::try_join!(hello, create) });
    let (hello, ()) = seen.await.context("the API server did not call")??;
    assert!(hello.contains(&format!("hook.{namespace}.svc")), "{hello:?}");
    testbed.kubectl(&["delete", "validatingwebhookconfiguration", namespace]).await?.success().map(|_| ())
}
