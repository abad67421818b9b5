//! Entries of the control log: stores and their pushes, plugins, limits, keys.

use tribunal_types::{
    ApiKey, Bounds, ControlChange, ControlIndex, Detachment, Epoch, Existence, Isolation, Lsn, NamespaceId,
    PluginChoice, PluginSlot, Roles, Skip, StoreId, StoreSpec, WriteKinds,
};

use crate::reader::{Malformed, Reader};
use crate::varint::{put_bytes, put_varint};
use crate::{Kind, put_head, take_head};

/// Encodes a change.
#[must_use]
pub fn encode_control(change: &ControlChange) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    put_head(Kind::Control, &mut out);
    match change {
        ControlChange::DeclareStore(spec) => {
            out.push(0);
            put_store(spec, &mut out);
        }
        ControlChange::ActivatePlugin { choice, from } => {
            out.push(1);
            put_varint(from.0, &mut out);
            put_choice(choice, &mut out);
        }
        ControlChange::ForgetPlugin { digest } => {
            out.push(6);
            out.extend_from_slice(digest);
        }
        ControlChange::DetachPush(detachment) => {
            out.push(2);
            put_varint(u64::from(detachment.store.0), &mut out);
            put_varint(detachment.declared.0, &mut out);
            put_varint(detachment.at.0, &mut out);
            put_varint(detachment.acked.0, &mut out);
            put_bytes(detachment.reason.as_bytes(), &mut out);
        }
        ControlChange::AttachPush { store } => {
            out.push(3);
            put_varint(u64::from(store.0), &mut out);
        }
        ControlChange::SkipRecord(skip) => {
            out.push(4);
            put_varint(u64::from(skip.store.0), &mut out);
            put_varint(skip.lsn.0, &mut out);
            put_varint(skip.at_ms, &mut out);
            put_bytes(skip.by.as_bytes(), &mut out);
            put_bytes(skip.reason.as_bytes(), &mut out);
        }
        ControlChange::SetBounds(bounds) => {
            out.push(5);
            put_varint(bounds.window_bytes_max, &mut out);
            put_varint(bounds.status_bytes_max, &mut out);
            put_varint(u64::from(bounds.plugin_faults_max), &mut out);
        }
        ControlChange::CreateKey(key) => {
            out.push(16);
            put_bytes(key.id.as_bytes(), &mut out);
            put_bytes(key.name.as_bytes(), &mut out);
            put_varint(u64::from(key.namespace.0), &mut out);
            put_bytes(key.namespace_name.as_bytes(), &mut out);
            out.push(key.roles.bits());
            out.extend_from_slice(&key.secret_sha256);
            put_varint(key.created_ms, &mut out);
            put_varint(key.expires_ms.unwrap_or(0), &mut out);
        }
        ControlChange::RevokeKey { id } => {
            out.push(17);
            put_bytes(id.as_bytes(), &mut out);
        }
        ControlChange::Lost => out.push(32),
    }
    out
}

fn put_store(spec: &StoreSpec, out: &mut Vec<u8>) {
    put_varint(u64::from(spec.id.0), out);
    put_varint(u64::from(spec.namespace.0), out);
    put_bytes(spec.name.as_bytes(), out);
    out.push(
        spec.existence as u8
            | u8::from(spec.multi_version) << 1
            | u8::from(spec.transactional) << 2
            | u8::from(spec.adaptor.is_some()) << 3,
    );
    out.push(spec.takes.bits());
    if let Some(adaptor) = &spec.adaptor {
        put_bytes(adaptor.as_bytes(), out);
    }
    put_bytes(spec.adaptor_config.as_bytes(), out);
}

fn put_choice(choice: &PluginChoice, out: &mut Vec<u8>) {
    match &choice.slot {
        PluginSlot::Rule => out.push(0),
        PluginSlot::Validator(level) => out.extend_from_slice(&[1, *level as u8]),
        PluginSlot::Adaptor(name) => {
            out.push(2);
            put_bytes(name.as_bytes(), out);
        }
    }
    put_bytes(choice.name.as_bytes(), out);
    out.extend_from_slice(&choice.digest);
    put_bytes(choice.config.as_bytes(), out);
}

/// Decodes a change.
///
/// # Errors
/// If the bytes are not a change.
pub fn decode_control(bytes: &[u8]) -> Result<ControlChange, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Control, &mut reader)?;
    let change = match reader.u8("kind of change")? {
        0 => ControlChange::DeclareStore(take_store(&mut reader)?),
        1 => {
            let from = Epoch(reader.varint("from")?);
            ControlChange::ActivatePlugin { choice: take_choice(&mut reader)?, from }
        }
        6 => {
            let mut digest = [0; 32];
            digest.copy_from_slice(reader.take(32, "digest")?);
            ControlChange::ForgetPlugin { digest }
        }
        2 => ControlChange::DetachPush(Detachment {
            store: StoreId(reader.number("store")?),
            declared: ControlIndex(reader.varint("declaration")?),
            at: Epoch(reader.varint("epoch")?),
            acked: Lsn(reader.varint("acknowledged position")?),
            reason: reader.text("reason")?,
        }),
        3 => ControlChange::AttachPush { store: StoreId(reader.number("store")?) },
        4 => ControlChange::SkipRecord(Skip {
            store: StoreId(reader.number("store")?),
            lsn: Lsn(reader.varint("position")?),
            at_ms: reader.varint("time")?,
            by: reader.text("actor")?,
            reason: reader.text("reason")?,
        }),
        5 => ControlChange::SetBounds(Bounds {
            window_bytes_max: reader.varint("window bound")?,
            status_bytes_max: reader.varint("status bound")?,
            plugin_faults_max: reader.number("plugin faults")?,
        }),
        16 => ControlChange::CreateKey(take_key(&mut reader)?),
        17 => ControlChange::RevokeKey { id: reader.text("key id")? },
        32 => ControlChange::Lost,
        _ => return Err(reader.malformed("kind of change")),
    };
    reader.finish("end of change")?;
    Ok(change)
}

fn take_key(reader: &mut Reader<'_>) -> Result<ApiKey, Malformed> {
    Ok(ApiKey {
        id: reader.text("key id")?,
        name: reader.text("key name")?,
        namespace: NamespaceId(reader.number("namespace")?),
        namespace_name: reader.text("namespace name")?,
        roles: {
            let bits = reader.u8("roles")?;
            Roles::from_bits(bits).ok_or_else(|| reader.malformed("roles"))?
        },
        secret_sha256: reader.array("hash of the secret")?,
        created_ms: reader.varint("time")?,
        expires_ms: Some(reader.varint("expiry")?).filter(|at| *at > 0),
    })
}

fn take_store(reader: &mut Reader<'_>) -> Result<StoreSpec, Malformed> {
    let id = StoreId(reader.number("store")?);
    let namespace = NamespaceId(reader.number("namespace")?);
    let name = reader.text("store name")?;
    let flags = reader.u8("store flags")?;
    if flags >> 4 != 0 {
        return Err(reader.malformed("store flags"));
    }
    let takes =
        WriteKinds::from_bits(reader.u8("kinds of writes")?).ok_or_else(|| reader.malformed("kinds of writes"))?;
    Ok(StoreSpec {
        id,
        namespace,
        name,
        existence: if flags & 1 == 0 { Existence::Tracked } else { Existence::Declared },
        multi_version: flags & 2 != 0,
        transactional: flags & 4 != 0,
        takes,
        adaptor: if flags & 8 == 0 { None } else { Some(reader.text("adaptor")?) },
        adaptor_config: reader.text("adaptor configuration")?,
    })
}

fn take_choice(reader: &mut Reader<'_>) -> Result<PluginChoice, Malformed> {
    let slot = match reader.u8("slot")? {
        0 => PluginSlot::Rule,
        1 => {
            let level = reader.u8("level")?;
            PluginSlot::Validator(Isolation::from_u8(level).ok_or_else(|| reader.malformed("level"))?)
        }
        2 => PluginSlot::Adaptor(reader.text("adaptor")?),
        _ => return Err(reader.malformed("slot")),
    };
    Ok(PluginChoice {
        slot,
        name: reader.text("module name")?,
        digest: reader.array("digest")?,
        config: reader.text("plugin configuration")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: &ControlChange) {
        let bytes = encode_control(change);
        assert_eq!(decode_control(&bytes).as_ref(), Ok(change));
        for cut in 0..bytes.len() {
            assert!(decode_control(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn changes_survive_a_round_trip() {
        check(&ControlChange::DeclareStore(StoreSpec::default()));
        check(&ControlChange::DeclareStore(StoreSpec {
            id: StoreId(7),
            namespace: NamespaceId(u32::MAX),
            name: "orders".into(),
            existence: Existence::Declared,
            multi_version: true,
            transactional: true,
            adaptor: Some("redis".into()),
            adaptor_config: "{\"endpoint\":\"x\"}".into(),
            takes: WriteKinds::default(),
        }));
        let slots = [PluginSlot::Rule, PluginSlot::Validator(Isolation::Snapshot), PluginSlot::Adaptor("kv".into())];
        for slot in slots {
            check(&ControlChange::ActivatePlugin {
                choice: PluginChoice { slot, name: "m".into(), digest: [9; 32], config: "{}".into() },
                from: Epoch(77),
            });
        }
        check(&ControlChange::DetachPush(Detachment {
            store: StoreId(7),
            declared: ControlIndex(3),
            at: Epoch(1 << 40),
            acked: Lsn(u64::MAX),
            reason: "gone for good".into(),
        }));
        check(&ControlChange::AttachPush { store: StoreId(7) });
        check(&ControlChange::ForgetPlugin { digest: [9; 32] });
        check(&ControlChange::SkipRecord(Skip {
            store: StoreId(7),
            lsn: Lsn(12),
            at_ms: 1_700_000_000_000,
            by: "somebody".into(),
            reason: "WRONGTYPE".into(),
        }));
        for expires_ms in [None, Some(1_800_000_000_000)] {
            check(&ControlChange::CreateKey(ApiKey {
                id: "0a1b".into(),
                name: "jo".into(),
                namespace: NamespaceId(3),
                namespace_name: "shop".into(),
                roles: Roles::ALL,
                secret_sha256: [7; 32],
                created_ms: 1_700_000_000_000,
                expires_ms,
            }));
        }
        check(&ControlChange::RevokeKey { id: "0a1b".into() });
        check(&ControlChange::Lost);
        check(&ControlChange::SetBounds(Bounds {
            window_bytes_max: 1 << 30,
            status_bytes_max: u64::MAX,
            plugin_faults_max: 16,
        }));
    }
}
