//! The container image: an archive in the OCI image layout, which `podman load`, `skopeo` and `ctr` read, and with the
//! file manifest.json of `docker load`.

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::Release;
use crate::archive::Archive;
use crate::manifest::{Image, Project};
use crate::tree::{Site, gzip};

/// Makes the image for one architecture, in Go's names; returns its name and its bytes.
pub(crate) fn build(
    image: &Image,
    project: &Project,
    site: &Site,
    release: &Release,
    arch: &str,
) -> Result<(String, Vec<u8>)> {
    let mut layer = Archive::new("", release.time);
    layer.tree(&site.tree(&image.files)?)?;
    for (folder, mode) in &image.folders {
        // `run` before `run/utipc`.
        if let Some((parent, _)) = folder.split_once('/') {
            layer.folder(parent, 0o755)?;
        }
        layer.folder(folder, u32::from_str_radix(mode, 8).context("a folder's mode is octal")?)?;
    }
    let plain = layer.finish()?;
    let packed = gzip(&plain)?;
    let created = &release.created;
    let config = serde_json::to_vec(&json!({
        "created": created,
        "architecture": arch,
        "os": "linux",
        "config": {
            "User": image.user,
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "Env": ["PATH=/"],
            "WorkingDir": "/",
            "Volumes": {"/run/utipc": {}},
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "utipc",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.source": project.homepage,
                "org.opencontainers.image.licenses": project.license,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(&plain)]},
        "history": [{"created": created, "created_by": "cargo xtask package"}],
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &packed)],
    }))?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["platform"] = json!({"architecture": arch, "os": "linux"});
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": release.version});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    });
    let docker = json!([{
        "Config": blob(&config),
        "RepoTags": [format!("utipc:{}", release.version)],
        "Layers": [blob(&packed)],
    }]);
    let mut out = Archive::new("", release.time);
    out.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    out.file("index.json", 0o644, &serde_json::to_vec(&index)?)?;
    out.file("manifest.json", 0o644, &serde_json::to_vec(&docker)?)?;
    for bytes in [&config, &manifest, &packed] {
        out.file(&blob(bytes), 0o644, bytes)?;
    }
    Ok((format!("utipc-{}-{arch}.oci.tar", release.version), out.finish()?))
}

/// `sha256:…`
fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

fn blob(bytes: &[u8]) -> String {
    format!("blobs/sha256/{}", hex(bytes))
}

/// The SHA-256 of bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn descriptor(kind: &str, bytes: &[u8]) -> serde_json::Value {
    json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
}
