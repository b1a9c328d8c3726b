//! The container image: an archive in the OCI image layout, which `podman load`, `skopeo` and `ctr` read, and with the
//! file manifest.json of `docker load`.

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::manifest::Image;
use crate::stage::{folder, gzip, stage, tar};
use crate::tree::{Content, Entry, Site, Tree};

/// Makes the image for one architecture, in Go's names; returns its name and its bytes.
pub(crate) fn build(image: &Image, site: &Site, arch: &str) -> Result<(String, Vec<u8>)> {
    let Site { project, release, .. } = site;
    let work = site.work.join("image").join(arch);
    let layer = work.join("layer");
    stage(&site.tree(&image.files)?, &layer)?;
    for (path, mode) in &image.folders {
        folder(&layer.join(path), u32::from_str_radix(mode, 8).context("a folder's mode is octal")?)?;
    }
    let plain = tar(&layer, release.time)?;
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
    let mut out = Tree::new();
    let mut put = |path: String, bytes: Vec<u8>| {
        out.insert(path, Entry { mode: 0o644, content: Content::Bytes(bytes), is_config: false });
    };
    put("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
    put("index.json".into(), serde_json::to_vec(&index)?);
    put("manifest.json".into(), serde_json::to_vec(&docker)?);
    for bytes in [config, manifest, packed] {
        put(blob(&bytes), bytes);
    }
    stage(&out, &work.join("layout"))?;
    Ok((format!("utipc-{}-{arch}.oci.tar", release.version), tar(&work.join("layout"), release.time)?))
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
