//! Plugins of the fake node: it echoes requests, and fills one slot.

use std::future::ready;

use tribunal_service::plugins::*;
use tribunal_service::{ServiceError, ServiceFuture};
use tribunal_types::{ControlIndex, Epoch, Isolation, PluginSlot};

use super::FakeNode;

fn version(bytes: u64) -> Version {
    Version {
        digest: [0xab; 32],
        version: "1.2.3".into(),
        about: "Decides.".into(),
        bytes,
        uploaded_ms: Some(7),
        signed: None,
        measured: Some(Measured {
            fuel_per_call: 100,
            fuel_per_item: 20,
            budget_per_item: u64::MAX,
            behaviour: [1; 32],
            levels: vec![Isolation::Snapshot],
            misses: vec![(Isolation::Serializable, "write skew".into())],
        }),
    }
}

fn activation(request: Activate) -> Activation {
    Activation {
        control: ControlIndex(5),
        slot: request.slot.unwrap_or(PluginSlot::Rule),
        name: request.name,
        digest: request.digest.unwrap_or([0xab; 32]),
        config: request.config,
        config_digest: [2; 32],
        by: "activate",
        who: Some(request.who),
        at_ms: Some(1_767_225_600_000),
        since: None,
        until: None,
        from: request.from.unwrap_or(Epoch(0)),
        empties: false,
        replaces: None,
        declare_again: Vec::new(),
    }
}

impl PluginApi for FakeNode {
    fn upload(&self, upload: Upload) -> ServiceFuture<'_, Uploaded> {
        if upload.bytes.is_empty() {
            return Box::pin(ready(Err(ServiceError::ClientMistake {
                code: "plugin_refused",
                pointer: String::new(),
                detail: "there is nothing".into(),
            })));
        }
        Box::pin(ready(Ok(Uploaded {
            world: upload.world.unwrap_or_else(|| "conflict-rule".into()),
            version: Version {
                signed: upload.signature.map(|signature| ("release".into(), format!("{:02x}", signature[63]))),
                ..version(upload.bytes.len() as u64)
            },
            checks: vec![("shuffled batches".into(), 150), (upload.config, 1)],
            created: upload.name != "known",
        })))
    }

    fn overview(&self) -> ServiceFuture<'_, Overview> {
        let plugin = |name: &str, world: &str| Plugin {
            name: name.into(),
            world: world.into(),
            builtin: false,
            versions: vec![version(3)],
        };
        let active = activation(Activate { name: "known".into(), ..Activate::default() });
        let health = Health { calls: 2, items: 10, fuel: 55, faults: vec![("trap", 1)], ..Health::default() };
        let slot = Slot { history: vec![active.clone()], active, since: Some(Epoch(4)), pending: None, health };
        let plugins = vec![plugin("idle", "conflict-rule"), plugin("known", "conflict-rule")];
        Box::pin(ready(Ok(Overview { plugins, slots: vec![slot] })))
    }

    fn activate(&self, request: Activate) -> ServiceFuture<'_, Activation> {
        if request.name == "unknown" {
            return Box::pin(ready(Err(ServiceError::NotFound { what: "such plugin".into() })));
        }
        Box::pin(ready(Ok(activation(request))))
    }

    fn roll_back(&self, name: String, slot: Option<PluginSlot>, who: String) -> ServiceFuture<'_, Activation> {
        let request = Activate { name, slot, who, ..Activate::default() };
        Box::pin(ready(Ok(Activation { by: "rollback", ..activation(request) })))
    }

    fn deactivate(&self, request: Deactivate) -> ServiceFuture<'_, Activation> {
        let Deactivate { name, slot, from, who } = request;
        let empties = matches!(slot, Some(PluginSlot::Adaptor(_)));
        let replaces = Replaced { control: ControlIndex(4), name: "later".into(), digest: [3; 32], from: Epoch(70) };
        let request = Activate { name, slot, from, who, ..Activate::default() };
        Box::pin(ready(Ok(Activation { by: "deactivate", empties, replaces: Some(replaces), ..activation(request) })))
    }

    fn delete(&self, _name: String, digest: Option<PluginDigest>) -> ServiceFuture<'_, Vec<PluginDigest>> {
        Box::pin(ready(Ok(vec![digest.unwrap_or([0xab; 32])])))
    }
}
