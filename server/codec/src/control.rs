//! Entries of the control log: stores and their pushes, plugins, limits, keys, members.

use tribunal_types::{
    ApiKey, Bounds, Component, ComponentReport, ControlChange, ControlEntry, ControlIndex, Detachment, Epoch,
    Existence, FilledBy, Generation, Generations, GroupId, GroupJoin, Incarnation, Isolation, Lsn, NamespaceId, NodeId,
    PluginActivation, PluginChoice, PluginSlot, ProposalId, Release, Roles, Skip, StoreId, StoreSpec, WriteKinds,
};

use crate::reader::{Malformed, Reader, take_flag};
use crate::readers::{put_reader_move, put_webhook, take_reader_move, take_webhook};
use crate::varint::{put_bytes, put_varint};
use crate::{Kind, put_head, take_head};

/// Encodes an entry.
#[must_use]
pub fn encode_control(entry: &ControlEntry) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    put_head(Kind::Control, &mut out);
    out.extend_from_slice(&entry.proposal.run.to_le_bytes());
    put_varint(entry.proposal.number, &mut out);
    put_change(&entry.change, &mut out);
    out
}

fn put_change(change: &ControlChange, out: &mut Vec<u8>) {
    out.push(kind_of(change));
    put_content(change, out);
}

/// Returns the byte that tells the kinds of changes apart. 10 is read only: an older form of 42.
fn kind_of(change: &ControlChange) -> u8 {
    match change {
        ControlChange::DeclareStore(_) => 0,
        ControlChange::ActivatePlugin(_) => 1,
        ControlChange::DetachPush(_) => 2,
        ControlChange::AttachPush { .. } => 3,
        ControlChange::SkipRecord(_) => 4,
        ControlChange::SetBounds(_) => 5,
        ControlChange::ForgetPlugin { .. } => 6,
        ControlChange::AssignPush { .. } => 7,
        ControlChange::ForkPush { .. } => 8,
        ControlChange::AnnounceComponent(_) => 9,
        ControlChange::RegisterWebhook { .. } => 11,
        ControlChange::RemoveWebhook { .. } => 12,
        ControlChange::AssignWebhook { .. } => 13,
        ControlChange::MoveReaders(_) => 14,
        ControlChange::CreateKey(_) => 16,
        ControlChange::RevokeKey { .. } => 17,
        ControlChange::JoinGroup(_) => 25,
        ControlChange::AdmitNode { voters, .. } if voters.is_empty() => 26,
        ControlChange::AdmitNode { .. } => 43,
        ControlChange::RemoveNode { .. } => 27,
        ControlChange::ForgetNode { .. } => 28,
        ControlChange::ClaimNode { .. } => 29,
        ControlChange::DrainNode { .. } => 30,
        ControlChange::SoleNode { .. } => 31,
        ControlChange::Lost => 32,
        ControlChange::AnnounceRelease { .. } => 40,
        ControlChange::SwitchGeneration(_) => 41,
        ControlChange::ReportComponent { .. } => 42,
    }
}

/// Appends what follows the kind.
fn put_content(change: &ControlChange, out: &mut Vec<u8>) {
    match change {
        ControlChange::DeclareStore(spec) => put_store(spec, out),
        ControlChange::ActivatePlugin(activation) => put_activation(activation, out),
        ControlChange::AnnounceComponent(component) => put_component(component, out),
        ControlChange::ReportComponent { digest, node, report } => {
            out.extend_from_slice(digest);
            put_node_id(*node, out);
            put_report(report, out);
        }
        ControlChange::ForgetPlugin { digest } => out.extend_from_slice(digest),
        ControlChange::DetachPush(detachment) => put_detachment(detachment, out),
        ControlChange::AttachPush { store } | ControlChange::RemoveWebhook { store } => put_store_id(*store, out),
        ControlChange::SkipRecord(skip) => put_skip(skip, out),
        ControlChange::AssignPush { store, replaces, node }
        | ControlChange::AssignWebhook { store, replaces, node } => {
            put_store_id(*store, out);
            put_varint(replaces.0, out);
            put_node_id(*node, out);
        }
        ControlChange::ForkPush { store, generation, fork } => {
            put_store_id(*store, out);
            put_varint(generation.0, out);
            put_fork(fork.as_ref(), out);
        }
        ControlChange::RegisterWebhook { webhook, resumes } => {
            put_webhook(webhook, out);
            out.push(u8::from(*resumes));
        }
        ControlChange::MoveReaders(moves) => {
            put_varint(moves.len() as u64, out);
            moves.iter().for_each(|change| put_reader_move(change, out));
        }
        ControlChange::SetBounds(bounds) => put_bounds(bounds, out),
        ControlChange::CreateKey(key) => put_key(key, out),
        ControlChange::RevokeKey { id } => put_bytes(id.as_bytes(), out),
        ControlChange::AdmitNode { name, address, voters } => {
            put_bytes(name.as_bytes(), out);
            put_bytes(address.as_bytes(), out);
            if !voters.is_empty() {
                put_varint(voters.len() as u64, out);
                voters.iter().for_each(|voter| put_node_id(*voter, out));
            }
        }
        ControlChange::ClaimNode { node, directory } => {
            put_node_id(*node, out);
            out.extend_from_slice(&directory.to_le_bytes());
        }
        ControlChange::JoinGroup(join) => put_join(join, out),
        ControlChange::RemoveNode { node } | ControlChange::SoleNode { node } | ControlChange::ForgetNode { node } => {
            put_node_id(*node, out);
        }
        ControlChange::DrainNode { node, drained } => {
            put_node_id(*node, out);
            out.push(u8::from(*drained));
        }
        ControlChange::AnnounceRelease { node, release } => {
            put_node_id(*node, out);
            put_release(release, out);
        }
        ControlChange::SwitchGeneration(generation) => put_varint(u64::from(generation.0), out),
        ControlChange::Lost => {}
    }
}

fn put_node_id(node: NodeId, out: &mut Vec<u8>) {
    put_varint(u64::from(node.0), out);
}

fn take_node_id(reader: &mut Reader<'_>) -> Result<NodeId, Malformed> {
    Ok(NodeId(reader.number("node")?))
}

fn put_store_id(store: StoreId, out: &mut Vec<u8>) {
    put_varint(u64::from(store.0), out);
}

fn take_store_id(reader: &mut Reader<'_>) -> Result<StoreId, Malformed> {
    Ok(StoreId(reader.number("store")?))
}

/// Appends the fork position plus one: the log may have ended at 0.
pub(crate) fn put_fork(fork: Option<&Lsn>, out: &mut Vec<u8>) {
    put_varint(fork.map_or(0, |fork| fork.0.saturating_add(1)), out);
}

pub(crate) fn take_fork(reader: &mut Reader<'_>) -> Result<Option<Lsn>, Malformed> {
    Ok(reader.varint("position of a fork")?.checked_sub(1).map(Lsn))
}

pub(crate) fn put_detachment(detachment: &Detachment, out: &mut Vec<u8>) {
    put_store_id(detachment.store, out);
    put_varint(detachment.declared.0, out);
    put_varint(detachment.at.0, out);
    put_varint(detachment.acked.0, out);
    put_bytes(detachment.reason.as_bytes(), out);
}

pub(crate) fn put_skip(skip: &Skip, out: &mut Vec<u8>) {
    put_store_id(skip.store, out);
    put_varint(skip.lsn.0, out);
    put_varint(skip.at_ms, out);
    put_bytes(skip.by.as_bytes(), out);
    put_bytes(skip.reason.as_bytes(), out);
}

pub(crate) fn put_bounds(bounds: &Bounds, out: &mut Vec<u8>) {
    put_varint(bounds.window_bytes_max, out);
    put_varint(bounds.status_bytes_max, out);
    put_varint(u64::from(bounds.plugin_faults_max), out);
    put_varint(u64::from(bounds.partitions), out);
}

pub(crate) fn put_key(key: &ApiKey, out: &mut Vec<u8>) {
    put_bytes(key.id.as_bytes(), out);
    put_bytes(key.name.as_bytes(), out);
    put_varint(u64::from(key.namespace.0), out);
    put_bytes(key.namespace_name.as_bytes(), out);
    out.push(key.roles.bits());
    out.extend_from_slice(&key.secret_sha256);
    put_varint(key.created_ms, out);
    put_varint(key.expires_ms.unwrap_or(0), out);
}

pub(crate) fn put_join(join: &GroupJoin, out: &mut Vec<u8>) {
    put_node_id(join.group.node, out);
    put_varint(u64::from(join.group.incarnation.0), out);
    put_varint(join.first.0, out);
}

pub(crate) fn put_store(spec: &StoreSpec, out: &mut Vec<u8>) {
    put_store_id(spec.id, out);
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

pub(crate) fn put_slot(slot: &PluginSlot, out: &mut Vec<u8>) {
    match slot {
        PluginSlot::Rule => out.push(0),
        PluginSlot::Validator(level) => out.extend_from_slice(&[1, *level as u8]),
        PluginSlot::Adaptor(name) => {
            out.push(2);
            put_bytes(name.as_bytes(), out);
        }
    }
}

pub(crate) fn put_component(component: &Component, out: &mut Vec<u8>) {
    let Component { digest, name, world, bytes, uploaded_ms, config, signature } = component;
    out.extend_from_slice(digest);
    put_bytes(name.as_bytes(), out);
    put_bytes(world.as_bytes(), out);
    put_varint(*bytes, out);
    put_varint(*uploaded_ms, out);
    put_bytes(config.as_bytes(), out);
    put_bytes(signature.as_bytes(), out);
}

pub(crate) fn put_report(report: &ComponentReport, out: &mut Vec<u8>) {
    put_bytes(report.problem.as_bytes(), out);
    put_bytes(report.engine.as_bytes(), out);
}

pub(crate) fn take_report(reader: &mut Reader<'_>) -> Result<ComponentReport, Malformed> {
    Ok(ComponentReport { problem: reader.text("problem")?, engine: reader.text("engine")? })
}

pub(crate) fn put_release(release: &Release, out: &mut Vec<u8>) {
    put_bytes(release.version.as_bytes(), out);
    put_varint(u64::from(release.generations.oldest.0), out);
    put_varint(u64::from(release.generations.newest.0), out);
    put_bytes(release.engine.as_bytes(), out);
}

pub(crate) fn take_release(reader: &mut Reader<'_>) -> Result<Release, Malformed> {
    let version = reader.text("version of a release")?;
    let (oldest, newest) = (take_generation(reader)?, take_generation(reader)?);
    Ok(Release { version, generations: Generations { oldest, newest }, engine: reader.text("engine")? })
}

pub(crate) fn take_generation(reader: &mut Reader<'_>) -> Result<Generation, Malformed> {
    Ok(Generation(reader.number("generation")?))
}

pub(crate) fn put_activation(activation: &PluginActivation, out: &mut Vec<u8>) {
    let PluginChoice { slot, name, digest, host, config, announced } = &activation.choice;
    put_slot(slot, out);
    put_bytes(name.as_bytes(), out);
    out.extend_from_slice(digest);
    put_bytes(host.as_bytes(), out);
    put_bytes(config.as_bytes(), out);
    put_varint(activation.from.0, out);
    out.push(activation.by as u8 | u8::from(*announced) << 7);
    put_varint(activation.replaces.0, out);
    put_bytes(activation.who.as_bytes(), out);
    put_varint(activation.at_ms, out);
}

/// Decodes an entry.
///
/// # Errors
/// If the bytes are not an entry.
pub fn decode_control(bytes: &[u8]) -> Result<ControlEntry, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Control, &mut reader)?;
    let proposal = ProposalId { run: reader.u64_le("run of the proposer")?, number: reader.varint("proposal")? };
    let change = take_change(&mut reader)?;
    reader.finish("end of entry")?;
    Ok(ControlEntry { proposal, change })
}

fn take_change(reader: &mut Reader<'_>) -> Result<ControlChange, Malformed> {
    Ok(match reader.u8("kind of change")? {
        0 => ControlChange::DeclareStore(take_store(reader)?),
        1 => ControlChange::ActivatePlugin(take_activation(reader)?),
        9 => ControlChange::AnnounceComponent(take_component(reader)?),
        10 => ControlChange::ReportComponent {
            digest: reader.array("digest")?,
            node: take_node_id(reader)?,
            // Written before reports named an engine.
            report: ComponentReport { problem: reader.text("problem")?, engine: String::new() },
        },
        42 => ControlChange::ReportComponent {
            digest: reader.array("digest")?,
            node: take_node_id(reader)?,
            report: take_report(reader)?,
        },
        40 => ControlChange::AnnounceRelease { node: take_node_id(reader)?, release: take_release(reader)? },
        41 => ControlChange::SwitchGeneration(take_generation(reader)?),
        6 => ControlChange::ForgetPlugin { digest: reader.array("digest")? },
        2 => ControlChange::DetachPush(take_detachment(reader)?),
        3 => ControlChange::AttachPush { store: take_store_id(reader)? },
        4 => ControlChange::SkipRecord(take_skip(reader)?),
        5 => ControlChange::SetBounds(take_bounds(reader)?),
        7 => ControlChange::AssignPush {
            store: take_store_id(reader)?,
            replaces: ControlIndex(reader.varint("push")?),
            node: take_node_id(reader)?,
        },
        8 => ControlChange::ForkPush {
            store: take_store_id(reader)?,
            generation: ControlIndex(reader.varint("generation")?),
            fork: take_fork(reader)?,
        },
        11 => ControlChange::RegisterWebhook { webhook: take_webhook(reader)?, resumes: take_flag(reader)? },
        12 => ControlChange::RemoveWebhook { store: take_store_id(reader)? },
        13 => ControlChange::AssignWebhook {
            store: take_store_id(reader)?,
            replaces: ControlIndex(reader.varint("delivery")?),
            node: take_node_id(reader)?,
        },
        14 => {
            let count = reader.count(4, "changes of readers")?;
            let moves = (0..count).map(|_| take_reader_move(reader));
            ControlChange::MoveReaders(moves.collect::<Result<_, _>>()?)
        }
        16 => ControlChange::CreateKey(take_key(reader)?),
        17 => ControlChange::RevokeKey { id: reader.text("key id")? },
        25 => ControlChange::JoinGroup(take_join(reader)?),
        // As proposed, and as written before its leader added the voters.
        26 => {
            let name = reader.text("name of a node")?;
            ControlChange::AdmitNode { name, address: reader.text("address of a node")?, voters: Vec::new() }
        }
        43 => {
            let (name, address) = (reader.text("name of a node")?, reader.text("address of a node")?);
            let count = reader.count(1, "voters")?;
            let voters = (0..count).map(|_| reader.number("voter").map(NodeId)).collect::<Result<_, _>>()?;
            ControlChange::AdmitNode { name, address, voters }
        }
        27 => ControlChange::RemoveNode { node: take_node_id(reader)? },
        28 => ControlChange::ForgetNode { node: take_node_id(reader)? },
        29 => {
            let node = take_node_id(reader)?;
            ControlChange::ClaimNode { node, directory: reader.u64_le("directory of a node")? }
        }
        30 => ControlChange::DrainNode { node: take_node_id(reader)?, drained: take_flag(reader)? },
        31 => ControlChange::SoleNode { node: take_node_id(reader)? },
        32 => ControlChange::Lost,
        _ => return Err(reader.malformed("kind of change")),
    })
}

pub(crate) fn take_detachment(reader: &mut Reader<'_>) -> Result<Detachment, Malformed> {
    Ok(Detachment {
        store: take_store_id(reader)?,
        declared: ControlIndex(reader.varint("declaration")?),
        at: Epoch(reader.varint("epoch")?),
        acked: Lsn(reader.varint("acknowledged position")?),
        reason: reader.text("reason")?,
    })
}

pub(crate) fn take_skip(reader: &mut Reader<'_>) -> Result<Skip, Malformed> {
    Ok(Skip {
        store: take_store_id(reader)?,
        lsn: Lsn(reader.varint("position")?),
        at_ms: reader.varint("time")?,
        by: reader.text("actor")?,
        reason: reader.text("reason")?,
    })
}

pub(crate) fn take_bounds(reader: &mut Reader<'_>) -> Result<Bounds, Malformed> {
    Ok(Bounds {
        window_bytes_max: reader.varint("window bound")?,
        status_bytes_max: reader.varint("status bound")?,
        plugin_faults_max: reader.number("plugin faults")?,
        partitions: reader.number("partitions")?,
    })
}

pub(crate) fn take_join(reader: &mut Reader<'_>) -> Result<GroupJoin, Malformed> {
    let group = GroupId { node: take_node_id(reader)?, incarnation: Incarnation(reader.number("incarnation")?) };
    Ok(GroupJoin { group, first: Epoch(reader.varint("first epoch")?) })
}

pub(crate) fn take_key(reader: &mut Reader<'_>) -> Result<ApiKey, Malformed> {
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

pub(crate) fn take_store(reader: &mut Reader<'_>) -> Result<StoreSpec, Malformed> {
    let id = take_store_id(reader)?;
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

pub(crate) fn take_slot(reader: &mut Reader<'_>) -> Result<PluginSlot, Malformed> {
    Ok(match reader.u8("slot")? {
        0 => PluginSlot::Rule,
        1 => {
            let level = reader.u8("level")?;
            PluginSlot::Validator(Isolation::from_u8(level).ok_or_else(|| reader.malformed("level"))?)
        }
        2 => PluginSlot::Adaptor(reader.text("adaptor")?),
        _ => return Err(reader.malformed("slot")),
    })
}

pub(crate) fn take_component(reader: &mut Reader<'_>) -> Result<Component, Malformed> {
    Ok(Component {
        digest: reader.array("digest")?,
        name: reader.text("name of a plugin")?,
        world: reader.text("world")?,
        bytes: reader.varint("size")?,
        uploaded_ms: reader.varint("time")?,
        config: reader.text("plugin configuration")?,
        signature: reader.text("signature")?,
    })
}

pub(crate) fn take_activation(reader: &mut Reader<'_>) -> Result<PluginActivation, Malformed> {
    let mut choice = PluginChoice {
        slot: take_slot(reader)?,
        name: reader.text("module name")?,
        digest: reader.array("digest")?,
        host: reader.text("engine")?,
        config: reader.text("plugin configuration")?,
        announced: false,
    };
    let from = Epoch(reader.varint("from")?);
    let by = reader.u8("cause")?;
    choice.announced = by >> 7 != 0;
    Ok(PluginActivation {
        choice,
        from,
        by: FilledBy::ALL.get(usize::from(by & 0x7f)).copied().ok_or_else(|| reader.malformed("cause"))?,
        replaces: ControlIndex(reader.varint("replaced entry")?),
        who: reader.text("actor")?,
        at_ms: reader.varint("time")?,
    })
}

#[cfg(test)]
mod tests {
    use tribunal_types::{ConsumerOffset, ReaderMove};

    use super::*;
    use crate::readers::tests::{offset, webhook};

    fn check(change: &ControlChange) {
        let proposal = ProposalId { run: 0xfeed_beef_0123_4567, number: 300 };
        let entry = ControlEntry { proposal, change: change.clone() };
        let bytes = encode_control(&entry);
        assert_eq!(decode_control(&bytes).as_ref(), Ok(&entry));
        for cut in 0..bytes.len() {
            assert!(decode_control(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn entries_about_stores_survive_a_round_trip() {
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
        check(&ControlChange::DetachPush(Detachment {
            store: StoreId(7),
            declared: ControlIndex(3),
            at: Epoch(1 << 40),
            acked: Lsn(u64::MAX),
            reason: "gone for good".into(),
        }));
        check(&ControlChange::AttachPush { store: StoreId(7) });
        check(&ControlChange::AssignPush { store: StoreId(7), replaces: ControlIndex(1 << 40), node: NodeId(1023) });
        for fork in [None, Some(Lsn(0)), Some(Lsn(1 << 40))] {
            check(&ControlChange::ForkPush { store: StoreId(7), generation: ControlIndex(3), fork });
        }
        check(&ControlChange::SkipRecord(Skip {
            store: StoreId(7),
            lsn: Lsn(12),
            at_ms: 1_700_000_000_000,
            by: "somebody".into(),
            reason: "WRONGTYPE".into(),
        }));
    }

    #[test]
    fn entries_about_readers_survive_a_round_trip() {
        for resumes in [false, true] {
            check(&ControlChange::RegisterWebhook { webhook: webhook(7, 1 << 40), resumes });
        }
        check(&ControlChange::RemoveWebhook { store: StoreId(7) });
        check(&ControlChange::AssignWebhook { store: StoreId(7), replaces: ControlIndex(1 << 40), node: NodeId(1023) });
        let (namespace, store) = (NamespaceId(u32::MAX), StoreId(u32::MAX));
        let offset = ConsumerOffset { namespace, ..offset("search", u32::MAX, u64::MAX) };
        check(&ControlChange::MoveReaders(Vec::new()));
        check(&ControlChange::MoveReaders(vec![
            ReaderMove::Offset(offset),
            ReaderMove::Forget { namespace, name: "search".into(), store: None },
            ReaderMove::Forget { namespace, name: "search".into(), store: Some(store) },
            ReaderMove::Delivered { store, delivery: ControlIndex(1 << 40), lsn: Lsn(0) },
        ]));
    }

    #[test]
    fn entries_about_plugins_survive_a_round_trip() {
        let slots = [PluginSlot::Rule, PluginSlot::Validator(Isolation::Snapshot), PluginSlot::Adaptor("kv".into())];
        for slot in slots {
            let choice = PluginChoice {
                slot,
                name: "m".into(),
                digest: [9; 32],
                host: "w1".into(),
                config: "{}".into(),
                announced: false,
            };
            for (by, announced) in FilledBy::ALL.into_iter().flat_map(|by| [(by, false), (by, true)]) {
                check(&ControlChange::ActivatePlugin(PluginActivation {
                    choice: PluginChoice { announced, ..choice.clone() },
                    from: Epoch(77),
                    by,
                    replaces: ControlIndex(12),
                    who: "jo".into(),
                    at_ms: 1_700_000_000_000,
                }));
            }
        }
        check(&ControlChange::ForgetPlugin { digest: [9; 32] });
        check(&ControlChange::AnnounceComponent(Component {
            digest: [9; 32],
            name: "by-age".into(),
            world: "conflict-rule".into(),
            bytes: 70_000,
            uploaded_ms: 1_700_000_000_000,
            config: "{}".into(),
            signature: "ab".into(),
        }));
        for problem in ["", "too large"] {
            let (digest, node) = ([9; 32], NodeId(1023));
            let report = ComponentReport { engine: "wasm-1".into(), problem: problem.into() };
            check(&ControlChange::ReportComponent { digest, node, report });
        }
    }

    #[test]
    fn entries_about_nodes_survive_a_round_trip() {
        for voters in [vec![], vec![NodeId(2), NodeId(1023)]] {
            check(&ControlChange::AdmitNode { name: "a".into(), address: "a.example:7402".into(), voters });
        }
        check(&ControlChange::ClaimNode { node: NodeId(1023), directory: 0xfeed_beef_0123_4567 });
        check(&ControlChange::RemoveNode { node: NodeId(1023) });
        check(&ControlChange::ForgetNode { node: NodeId(3) });
        check(&ControlChange::SoleNode { node: NodeId(1023) });
        for drained in [false, true] {
            check(&ControlChange::DrainNode { node: NodeId(1023), drained });
        }
        let group = GroupId { node: NodeId(1023), incarnation: Incarnation(u32::MAX) };
        check(&ControlChange::JoinGroup(GroupJoin { group, first: Epoch(1 << 40) }));
        let generations = Generations { oldest: Generation(1), newest: Generation(u32::MAX) };
        let release = Release { version: "0.2.0".into(), generations, engine: "wasm-1".into() };
        check(&ControlChange::AnnounceRelease { node: NodeId(1023), release });
        check(&ControlChange::SwitchGeneration(Generation(u32::MAX)));
    }

    #[test]
    fn entries_about_keys_bounds_and_a_loss_survive_a_round_trip() {
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
        check(&ControlChange::SetBounds(Bounds {
            window_bytes_max: 1 << 30,
            status_bytes_max: u64::MAX,
            plugin_faults_max: 16,
            partitions: 4,
        }));
        check(&ControlChange::Lost);
    }
}
