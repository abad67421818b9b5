//! The control state, as one column of bytes in a state image.

use tribunal_types::{
    AnnouncedComponent, ClusterNode, ComponentReport, ControlImage, ControlIndex, DeclaredStore, Epoch, Generation,
    HeldKey, HeldWebhook, LastProposal, NamespaceId, NodeId, NodeStage, PastEntry, ProposalId, Pusher, RevokedKey,
    SlotEntry, SlotImage,
};

use crate::control::{
    put_activation, put_bounds, put_component, put_detachment, put_fork, put_join, put_key, put_release, put_report,
    put_skip, put_slot, put_store, take_activation, take_bounds, take_component, take_detachment, take_fork,
    take_generation, take_join, take_key, take_release, take_report, take_skip, take_slot, take_store,
};
use crate::reader::{Malformed, Reader, take_flag};
use crate::readers::{put_offset, put_webhook, take_offset, take_webhook};
use crate::varint::{put_bytes, put_varint};
use crate::{Kind, put_head, take_head_since};

/// The version without applied proposals: repeats were not recognised then.
const WITHOUT_PROPOSERS: u8 = 1;
/// The last version without pushing nodes and forks.
const WITHOUT_PUSHERS: u8 = 2;
/// The last version without addresses and removals of nodes, and without components uploaded to a cluster.
const WITHOUT_REMOVALS: u8 = 3;
/// The last version without the data directories of admitted nodes.
const WITHOUT_DIRECTORIES: u8 = 4;
/// The last version without the nodes' releases, and without the engines that components are ready for.
const WITHOUT_RELEASES: u8 = 5;
/// The last version without offsets of consumers and webhooks.
const WITHOUT_READERS: u8 = 5;

/// Encodes the state.
#[must_use]
pub fn encode_control_image(image: &ControlImage) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    put_head(Kind::ControlImage, &mut out);
    put_varint(image.index.0, &mut out);
    put_option(image.bounds.as_ref(), &mut out, put_bounds);
    put_list(&image.stores, &mut out, put_declared);
    put_list(&image.tenants, &mut out, |(name, namespace), out| {
        put_bytes(name.as_bytes(), out);
        put_varint(u64::from(namespace.0), out);
    });
    put_list(&image.keys, &mut out, |HeldKey { key, created, founded }, out| {
        put_key(key, out);
        put_varint(created.0, out);
        out.push(u8::from(*founded));
    });
    put_list(&image.revoked, &mut out, put_revoked);
    put_list(&image.slots, &mut out, |slot, out| {
        put_slot(&slot.slot, out);
        put_list(&slot.stack, out, put_slot_entry);
        put_option(slot.pending.as_ref(), out, put_slot_entry);
        put_list(&slot.history, out, |PastEntry { entry, until }, out| {
            put_slot_entry(entry, out);
            put_option(until.as_ref(), out, |epoch, out| put_varint(epoch.0, out));
        });
    });
    put_list(&image.nodes, &mut out, put_node);
    put_list(&image.proposers, &mut out, put_last_proposal);
    put_list(&image.components, &mut out, put_announced);
    put_varint(u64::from(image.generation.0), &mut out);
    put_list(&image.releases, &mut out, |(node, release), out| {
        put_varint(u64::from(node.0), out);
        put_release(release, out);
    });
    put_list(&image.offsets, &mut out, put_offset);
    put_list(&image.webhooks, &mut out, put_held_webhook);
    out
}

/// Decodes the state.
///
/// # Errors
/// If the bytes are not such a state.
pub fn decode_control_image(bytes: &[u8]) -> Result<ControlImage, Malformed> {
    let mut reader = Reader::new(bytes);
    let reader = &mut reader;
    let version = take_head_since(Kind::ControlImage, WITHOUT_PROPOSERS, reader)?;
    let image = ControlImage {
        index: ControlIndex(reader.varint("control index")?),
        bounds: take_option(reader, take_bounds)?,
        stores: take_list(reader, |reader| take_declared(reader, version))?,
        tenants: take_list(reader, |reader| {
            Ok((reader.text("name of a namespace")?, NamespaceId(reader.number("namespace")?)))
        })?,
        keys: take_list(reader, |reader| {
            let key = take_key(reader)?;
            Ok(HeldKey { key, created: ControlIndex(reader.varint("creation")?), founded: take_flag(reader)? })
        })?,
        revoked: take_list(reader, take_revoked)?,
        slots: take_list(reader, take_slot_image)?,
        nodes: if version > WITHOUT_REMOVALS {
            take_list(reader, |reader| take_node(reader, version))?
        } else {
            take_named_nodes(reader)?
        },
        proposers: if version == WITHOUT_PROPOSERS { Vec::new() } else { take_list(reader, take_last_proposal)? },
        components: if version <= WITHOUT_REMOVALS {
            Vec::new()
        } else {
            take_list(reader, |reader| take_announced(reader, version))?
        },
        generation: if version <= WITHOUT_RELEASES { Generation::FIRST } else { take_generation(reader)? },
        releases: if version <= WITHOUT_RELEASES {
            Vec::new()
        } else {
            take_list(reader, |reader| Ok((NodeId(reader.number("node")?), take_release(reader)?)))?
        },
        offsets: if version <= WITHOUT_READERS { Vec::new() } else { take_list(reader, take_offset)? },
        webhooks: if version <= WITHOUT_READERS { Vec::new() } else { take_list(reader, take_held_webhook)? },
    };
    reader.finish("end of the control state")?;
    Ok(image)
}

fn put_list<T>(list: &[T], out: &mut Vec<u8>, put: impl Fn(&T, &mut Vec<u8>)) {
    put_varint(list.len() as u64, out);
    list.iter().for_each(|item| put(item, out));
}

fn take_list<'a, T>(
    reader: &mut Reader<'a>,
    take: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = reader.count(2, "length of a list")?;
    (0..count).map(|_| take(reader)).collect()
}

fn put_option<T>(option: Option<&T>, out: &mut Vec<u8>, put: impl Fn(&T, &mut Vec<u8>)) {
    out.push(u8::from(option.is_some()));
    option.into_iter().for_each(|item| put(item, out));
}

fn take_option<'a, T>(
    reader: &mut Reader<'a>,
    take: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    if take_flag(reader)? { take(reader).map(Some) } else { Ok(None) }
}

fn put_node(node: &ClusterNode, out: &mut Vec<u8>) {
    put_varint(u64::from(node.id.0), out);
    put_bytes(node.name.as_bytes(), out);
    put_bytes(node.address.as_bytes(), out);
    put_option(node.directory.as_ref(), out, |directory, out| out.extend_from_slice(&directory.to_le_bytes()));
    put_varint(node.first_voters.len() as u64, out);
    node.first_voters.iter().for_each(|voter| put_varint(u64::from(voter.0), out));
    put_option(node.joined.as_ref(), out, put_join);
    out.push(node.stage as u8);
    out.push(u8::from(node.drained));
}

fn take_node(reader: &mut Reader<'_>, version: u8) -> Result<ClusterNode, Malformed> {
    let (id, name) = (NodeId(reader.number("node")?), reader.text("name of a node")?);
    let address = reader.text("address of a node")?;
    let directory = if version > WITHOUT_DIRECTORIES {
        take_option(reader, |reader| reader.u64_le("directory of a node"))?
    } else {
        None
    };
    let voters = reader.count(1, "voters")?;
    let first_voters = (0..voters).map(|_| reader.number("voter").map(NodeId)).collect::<Result<_, _>>()?;
    let joined = take_option(reader, take_join)?;
    let stage = match reader.u8("stage of a node")? {
        0 => NodeStage::Present,
        1 => NodeStage::Leaving,
        2 => NodeStage::Left,
        _ => return Err(reader.malformed("stage of a node")),
    };
    let drained = version > WITHOUT_DIRECTORIES && take_flag(reader)?;
    Ok(ClusterNode { id, name, address, directory, first_voters, joined, stage, drained })
}

/// Reads the nodes of earlier versions, which had a list of names and one of groups.
fn take_named_nodes(reader: &mut Reader<'_>) -> Result<Vec<ClusterNode>, Malformed> {
    let mut nodes = take_list(reader, |reader| {
        let (id, name) = (NodeId(reader.number("node")?), reader.text("name of a node")?);
        Ok(ClusterNode { id, name, ..ClusterNode::default() })
    })?;
    for join in take_list(reader, take_join)? {
        nodes.iter_mut().filter(|node| node.id == join.group.node).for_each(|node| node.joined = Some(join));
    }
    Ok(nodes)
}

fn put_declared(store: &DeclaredStore, out: &mut Vec<u8>) {
    put_store(&store.spec, out);
    put_varint(store.declared.0, out);
    put_varint(store.generation.0, out);
    put_option(store.detached.as_ref(), out, put_detachment);
    put_option(store.pusher.as_ref(), out, put_pusher);
    put_fork(store.fork.as_ref(), out);
    put_list(&store.skips, out, |(index, skip), out| {
        put_varint(index.0, out);
        put_skip(skip, out);
    });
}

fn put_pusher(pusher: &Pusher, out: &mut Vec<u8>) {
    put_varint(u64::from(pusher.node.0), out);
    put_varint(pusher.since.0, out);
}

fn put_held_webhook(held: &HeldWebhook, out: &mut Vec<u8>) {
    put_webhook(&held.webhook, out);
    put_varint(held.registered.0, out);
    put_option(held.deliverer.as_ref(), out, put_pusher);
}

fn take_held_webhook(reader: &mut Reader<'_>) -> Result<HeldWebhook, Malformed> {
    Ok(HeldWebhook {
        webhook: take_webhook(reader)?,
        registered: ControlIndex(reader.varint("registration")?),
        deliverer: take_option(reader, take_pusher)?,
    })
}

fn take_pusher(reader: &mut Reader<'_>) -> Result<Pusher, Malformed> {
    Ok(Pusher { node: NodeId(reader.number("node")?), since: ControlIndex(reader.varint("assignment")?) })
}

fn take_declared(reader: &mut Reader<'_>, version: u8) -> Result<DeclaredStore, Malformed> {
    let knows_pushers = version > WITHOUT_PUSHERS;
    Ok(DeclaredStore {
        spec: take_store(reader)?,
        declared: ControlIndex(reader.varint("declaration")?),
        generation: ControlIndex(reader.varint("generation")?),
        detached: take_option(reader, take_detachment)?,
        pusher: if knows_pushers { take_option(reader, take_pusher)? } else { None },
        fork: if knows_pushers { take_fork(reader)? } else { None },
        skips: take_list(reader, |reader| Ok((ControlIndex(reader.varint("skip")?), take_skip(reader)?)))?,
    })
}

fn put_revoked(key: &RevokedKey, out: &mut Vec<u8>) {
    put_bytes(key.id.as_bytes(), out);
    put_bytes(key.name.as_bytes(), out);
    out.extend_from_slice(&key.secret_sha256);
    put_varint(key.created.0, out);
    put_varint(key.revoked.0, out);
    out.push(u8::from(key.founded));
}

fn take_revoked(reader: &mut Reader<'_>) -> Result<RevokedKey, Malformed> {
    Ok(RevokedKey {
        id: reader.text("key id")?,
        name: reader.text("key name")?,
        secret_sha256: reader.array("hash of the secret")?,
        created: ControlIndex(reader.varint("creation")?),
        revoked: ControlIndex(reader.varint("revocation")?),
        founded: take_flag(reader)?,
    })
}

fn put_slot_entry(entry: &SlotEntry, out: &mut Vec<u8>) {
    put_varint(entry.index.0, out);
    put_activation(&entry.activation, out);
    put_option(entry.since.as_ref(), out, |epoch, out| put_varint(epoch.0, out));
    out.push(u8::from(entry.configured));
}

fn take_slot_entry(reader: &mut Reader<'_>) -> Result<SlotEntry, Malformed> {
    Ok(SlotEntry {
        index: ControlIndex(reader.varint("control index")?),
        activation: take_activation(reader)?,
        since: take_option(reader, take_epoch)?,
        configured: take_flag(reader)?,
    })
}

fn take_slot_image(reader: &mut Reader<'_>) -> Result<SlotImage, Malformed> {
    Ok(SlotImage {
        slot: take_slot(reader)?,
        stack: take_list(reader, take_slot_entry)?,
        pending: take_option(reader, take_slot_entry)?,
        history: take_list(reader, |reader| {
            Ok(PastEntry { entry: take_slot_entry(reader)?, until: take_option(reader, take_epoch)? })
        })?,
    })
}

fn put_last_proposal(last: &LastProposal, out: &mut Vec<u8>) {
    out.extend_from_slice(&last.proposal.run.to_le_bytes());
    put_varint(last.proposal.number, out);
    put_varint(last.index.0, out);
}

fn take_last_proposal(reader: &mut Reader<'_>) -> Result<LastProposal, Malformed> {
    let proposal = ProposalId { run: reader.u64_le("run of a proposer")?, number: reader.varint("proposal")? };
    Ok(LastProposal { proposal, index: ControlIndex(reader.varint("control index")?) })
}

fn put_announced(announced: &AnnouncedComponent, out: &mut Vec<u8>) {
    put_component(&announced.component, out);
    put_varint(announced.announced.0, out);
    put_varint(announced.reports.len() as u64, out);
    for (node, report) in &announced.reports {
        put_varint(u64::from(node.0), out);
        put_report(report, out);
    }
}

fn take_announced(reader: &mut Reader<'_>, version: u8) -> Result<AnnouncedComponent, Malformed> {
    Ok(AnnouncedComponent {
        component: take_component(reader)?,
        announced: ControlIndex(reader.varint("announcement")?),
        reports: take_list(reader, |reader| {
            let node = NodeId(reader.number("node")?);
            let report = match version {
                ..=WITHOUT_RELEASES => {
                    ComponentReport { problem: reader.text("problem")?, ..ComponentReport::default() }
                }
                _ => take_report(reader)?,
            };
            Ok((node, report))
        })?
        .into_iter()
        .collect(),
    })
}

fn take_epoch(reader: &mut Reader<'_>) -> Result<Epoch, Malformed> {
    Ok(Epoch(reader.varint("epoch")?))
}

#[cfg(test)]
mod tests {
    use tribunal_types::{
        ApiKey, Bounds, Component, ConsumerOffset, Detachment, FilledBy, Generations, GroupId, GroupJoin, Lsn,
        PluginActivation, PluginSlot, Release, Roles, Skip, StoreId, StoreSpec,
    };

    use super::*;
    use crate::readers::tests::{offset, webhook};

    fn store() -> DeclaredStore {
        let detachment = Detachment {
            store: StoreId(7),
            at: Epoch(9),
            acked: Lsn(4),
            declared: ControlIndex(7),
            reason: "dead".into(),
        };
        let skip = Skip { store: StoreId(7), lsn: Lsn(12), at_ms: 5, by: "jo".into(), reason: "WRONGTYPE".into() };
        DeclaredStore {
            spec: StoreSpec { id: StoreId(7), name: "orders".into(), ..StoreSpec::default() },
            declared: ControlIndex(7),
            generation: ControlIndex(8),
            detached: Some(detachment),
            pusher: Some(Pusher { node: NodeId(3), since: ControlIndex(10) }),
            fork: Some(Lsn(40)),
            skips: vec![(ControlIndex(9), skip)],
        }
    }

    fn held_key() -> HeldKey {
        let key = ApiKey { id: "0a".into(), roles: Roles::ALL, expires_ms: Some(3), ..ApiKey::default() };
        HeldKey { key, created: ControlIndex(5), founded: true }
    }

    fn revoked_key() -> RevokedKey {
        RevokedKey {
            id: "0b".into(),
            name: "jo".into(),
            secret_sha256: [3; 32],
            created: ControlIndex(2),
            revoked: ControlIndex(3),
            founded: true,
        }
    }

    fn slot() -> SlotImage {
        let activation = PluginActivation { by: FilledBy::Rollback, who: "jo".into(), ..PluginActivation::default() };
        let entry = SlotEntry { index: ControlIndex(4), activation, since: Some(Epoch(3)), configured: true };
        SlotImage {
            slot: PluginSlot::Adaptor("kv".into()),
            stack: vec![entry.clone(), SlotEntry::default()],
            pending: Some(entry.clone()),
            history: vec![PastEntry { entry, until: Some(Epoch(8)) }, PastEntry::default()],
        }
    }

    fn component() -> AnnouncedComponent {
        AnnouncedComponent {
            component: Component {
                digest: [9; 32],
                name: "by-age".into(),
                world: "conflict-rule".into(),
                bytes: 70_000,
                uploaded_ms: 5,
                config: "{}".into(),
                signature: "ab".into(),
            },
            announced: ControlIndex(280),
            reports: [
                (NodeId(1), ComponentReport { engine: "wasm-1".into(), problem: String::new() }),
                (NodeId(300), ComponentReport { engine: String::new(), problem: "too large".into() }),
            ]
            .into(),
        }
    }

    fn release() -> Release {
        let generations = Generations { oldest: Generation(69_999), newest: Generation(70_000) };
        Release { version: "0.2.0".into(), generations, engine: "wasm-1".into() }
    }

    fn node() -> ClusterNode {
        let group = GroupId { node: NodeId(1), ..GroupId::default() };
        ClusterNode {
            id: NodeId(1),
            name: "a".into(),
            address: "a:1".into(),
            directory: Some(u64::MAX),
            first_voters: vec![NodeId(2), NodeId(1023)],
            joined: Some(GroupJoin { group, first: Epoch(77) }),
            stage: NodeStage::Left,
            drained: true,
        }
    }

    fn held_webhook() -> HeldWebhook {
        HeldWebhook {
            webhook: webhook(7, 11),
            registered: ControlIndex(281),
            deliverer: Some(Pusher { node: NodeId(2), since: ControlIndex(282) }),
        }
    }

    fn image() -> ControlImage {
        let leaving = ClusterNode { id: NodeId(2), stage: NodeStage::Leaving, ..ClusterNode::default() };
        ControlImage {
            index: ControlIndex(300),
            bounds: Some(Bounds {
                window_bytes_max: 1 << 30,
                status_bytes_max: 9,
                plugin_faults_max: 16,
                partitions: 4,
            }),
            stores: vec![store(), DeclaredStore::default()],
            tenants: vec![("shop".into(), NamespaceId(5))],
            keys: vec![held_key()],
            revoked: vec![revoked_key()],
            slots: vec![slot(), SlotImage::default()],
            components: vec![component(), AnnouncedComponent::default()],
            generation: Generation(70_000),
            releases: vec![(NodeId(1), release()), (NodeId(300), Release::default())],
            nodes: vec![node(), leaving],
            offsets: vec![offset("search", 7, 12), ConsumerOffset::default()],
            webhooks: vec![held_webhook(), HeldWebhook::default()],
            proposers: vec![
                LastProposal { proposal: ProposalId { run: 0, number: 1 }, index: ControlIndex(299) },
                LastProposal { proposal: ProposalId { run: u64::MAX, number: u64::MAX }, index: ControlIndex(300) },
            ],
        }
    }

    #[test]
    fn the_control_state_survives_a_round_trip_and_no_part_of_it_is_missing() {
        for image in [ControlImage::default(), image()] {
            let bytes = encode_control_image(&image);
            assert_eq!(decode_control_image(&bytes).as_ref(), Ok(&image));
            for cut in 0..bytes.len() {
                assert!(decode_control_image(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    /// Encodes an image without stores, nodes, proposers and components as an earlier version did, which had a list of
    /// groups after the list of nodes, and no list of components; no earlier version has the two lists at the end.
    fn of_version(version: u8, image: &ControlImage) -> Vec<u8> {
        let mut bytes = encode_control_image(image);
        bytes[1] = version;
        // The sixth version added the first generation, no release, and no readers.
        assert_eq!((bytes.pop(), bytes.pop()), (Some(0), Some(0)));
        assert_eq!((bytes.pop(), bytes.pop()), (Some(0), Some(1)));
        bytes
    }

    #[test]
    fn a_state_of_an_earlier_version_is_read_without_what_it_does_not_know() {
        let none = ControlImage::default();
        let image = ControlImage {
            proposers: none.proposers,
            stores: none.stores,
            nodes: none.nodes,
            components: none.components,
            generation: none.generation,
            releases: none.releases,
            offsets: none.offsets,
            webhooks: none.webhooks,
            ..image()
        };
        assert_eq!(decode_control_image(&of_version(WITHOUT_READERS, &image)).as_ref(), Ok(&image));
        let third = of_version(WITHOUT_REMOVALS, &image);
        assert_eq!(decode_control_image(&third).as_ref(), Ok(&image));
        let mut named = third;
        let nodes = named.len() - 3;
        named.splice(nodes..nodes + 2, [1, 1, 1, b'a', 1, 1, 7, 77]);
        let group = GroupId { node: NodeId(1), incarnation: tribunal_types::Incarnation(7) };
        let joined = Some(GroupJoin { group, first: Epoch(77) });
        let node = ClusterNode { id: NodeId(1), name: "a".into(), joined, ..ClusterNode::default() };
        assert_eq!(decode_control_image(&named).map(|image| image.nodes), Ok(vec![node]));
        let second = of_version(WITHOUT_PUSHERS, &image);
        assert_eq!(decode_control_image(&second).as_ref(), Ok(&image));
        // The second version added only the list at the end, here an empty one.
        let mut first = of_version(WITHOUT_PROPOSERS, &image);
        assert_eq!(first.pop(), Some(0));
        assert_eq!(decode_control_image(&first), Ok(image));
        for other in [0, 7] {
            first[1] = other;
            assert!(decode_control_image(&first).is_err(), "version {other}");
        }
        // A member's report about a component did not name an engine.
        let report = ComponentReport { engine: String::new(), problem: "x".into() };
        let announced = AnnouncedComponent { reports: [(NodeId(3), report)].into(), ..AnnouncedComponent::default() };
        let mut bytes = Vec::new();
        put_announced(&announced, &mut bytes);
        assert_eq!(bytes.pop(), Some(0));
        assert_eq!(take_announced(&mut Reader::new(&bytes), WITHOUT_RELEASES), Ok(announced));
        // The fifth version added an absent directory after the address, and at the end that the node is not drained.
        let node = ClusterNode { id: NodeId(1), name: "a".into(), address: "b".into(), ..ClusterNode::default() };
        let mut bytes = Vec::new();
        put_node(&node, &mut bytes);
        assert_eq!((bytes.remove(5), bytes.pop()), (0, Some(0)));
        assert_eq!(take_node(&mut Reader::new(&bytes), WITHOUT_DIRECTORIES), Ok(node));
        // The third version added an absent pusher and an absent fork, before the list of skips.
        let mut store = Vec::new();
        put_declared(&DeclaredStore::default(), &mut store);
        let skips = store.split_off(store.len() - 1);
        assert_eq!((store.pop(), store.pop(), skips[0]), (Some(0), Some(0), 0));
        store.extend(skips);
        assert_eq!(take_declared(&mut Reader::new(&store), WITHOUT_PUSHERS), Ok(DeclaredStore::default()));
    }
}
