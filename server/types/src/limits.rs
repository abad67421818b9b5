//! Every limit in one place, with the relations between them asserted at compile time.

/// Largest request body, bytes.
pub const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Bytes that a client may still send after a response that did not wait for its whole body. They are read and dropped:
/// closing a socket over unread bytes resets the connection, and the client may lose the response.
pub const LINGER_BYTES_MAX: usize = PLUGIN_BYTES_MAX;
/// Time that this may take, milliseconds.
pub const LINGER_MS: u64 = 2_000;
/// Time that this may take while the process stops, milliseconds: a client that leaves its request open must not delay
/// the stop. Counts once for the response and once for the connection.
pub const LINGER_STOPPING_MS: u64 = 400;
/// Operations (reads + ranges + writes) of one transaction.
pub const OPS_PER_TXN_MAX: usize = 10_000;
/// Ranges of one transaction: each is compared with all writes above the transaction's snapshot.
pub const RANGES_PER_TXN_MAX: usize = 256;
/// Stores that one transaction may name.
pub const STORES_PER_TXN_MAX: usize = 64;
/// Bytes of a key; the minimum is one.
pub const KEY_BYTES_MAX: usize = 10 * 1024;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Largest absolute value of an `or`, to which an `add` adds if the row is missing: every JSON library can hold it.
pub const ADD_START_MAX: i64 = (1 << 53) - 1;
/// Bytes of the values that one request may read.
pub const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Nesting of a JSON document.
pub const JSON_DEPTH_MAX: usize = 64;
/// Transactions of one `batch-commit` request.
pub const TXNS_PER_REQUEST_MAX: usize = 10_000;
/// Commits of one stream that may await their verdicts; the server reads no further line until one of them is decided.
pub const STREAM_COMMITS_MAX: usize = 1024;
/// Bytes of these commits' lines. A longer commit waits alone.
pub const STREAM_BYTES_MAX: usize = 1024 * 1024;
/// Transactions of one epoch, across all groups: positions must fit a `Version`, and one position is the shared middle.
/// Each member takes its share. The other half of the positions is reserved for members that seal before they learn of
/// a join.
pub const TXNS_PER_EPOCH_MAX: usize = 1 << 19;
/// Transactions that one batch takes before it is sealed.
pub const TXNS_PER_BATCH_MAX: usize = 65_536;
/// Bytes of keys and values that one batch takes before it is sealed.
pub const BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of transactions that may wait for an epoch; beyond that, new ones are rejected (503). No tenant may have more of
/// them than are free, so one alone may have half.
pub const WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes that the responses to all callers of a node without access control may hold until they are taken.
pub const OPEN_RESPONSE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Nodes of a cluster, including nodes that are joining or being removed.
pub const NODES_MAX: usize = 64;
/// Length of a node's address: a host name, a colon and a port.
pub const ADDRESS_BYTES_MAX: usize = 261;
/// Length of a store's, consumer's, plugin's or node's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Size of a plugin's component, bytes.
pub const PLUGIN_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of a plugin's configuration.
pub const PLUGIN_CONFIG_BYTES_MAX: usize = 64 * 1024;
/// Consecutive faults after which a slot returns to its previous plugin, unless the configuration sets another number.
pub const PLUGIN_FAULTS_MAX: u32 = 16;
/// Versions of plugins that a node keeps.
pub const PLUGIN_VERSIONS_MAX: usize = 1024;
/// Bytes of a node's explanation why it cannot run a plugin.
pub const PLUGIN_PROBLEM_BYTES_MAX: usize = 1024;
/// Bytes that a node sends at a time to a node that pulls from it.
pub const PART_BYTES_MAX: usize = 512 * 1024;
/// Bytes of the name of a pulled object.
pub const PULLED_NAME_BYTES_MAX: usize = 256;
/// Stores of the service.
pub const STORES_MAX: usize = 1024;
/// Stores of a tenant other than the service's own.
pub const STORES_PER_TENANT_MAX: usize = 64;
/// Skipped records of one store: each is an operator's decision, and all are kept.
pub const SKIPS_PER_STORE_MAX: usize = 10_000;
/// Consumer offsets that are kept.
pub const OFFSETS_MAX: usize = 4_096;
/// Consumer offsets of a tenant other than the service's own.
pub const OFFSETS_PER_TENANT_MAX: usize = 256;
/// Changes of offsets and watermarks that share an entry of the control log.
pub const READER_MOVES_MAX: usize = 512;
/// Keys that may be valid at one time.
pub const KEYS_MAX: usize = 10_000;
/// Keys of a tenant other than the service's own.
pub const KEYS_PER_TENANT_MAX: usize = 256;
/// Revoked keys that are kept, so that their use is recognised, in addition to each tenant's first key.
pub const KEYS_REVOKED_KEPT: usize = 1_000;
/// Proposer runs whose last proposal is kept, so that its repetition is recognised.
pub const PROPOSER_RUNS_KEPT: usize = 1_024;
/// Tenants that ever had a key.
pub const TENANTS_MAX: usize = 10_000;
/// Longest time until a key expires, seconds: a hundred years.
pub const KEY_EXPIRES_IN_S_MAX: u32 = 36_500 * 86_400;
/// Maximum distance of a transaction id's time from `epoch_time`, milliseconds.
pub const ID_WINDOW_MS: u64 = 10 * 60 * 1000;
/// Maximum distance of a node's clock from those of the other nodes, milliseconds, while it takes commits.
pub const CLOCKS_APART_MS_MAX: u64 = 60 * 1000;
/// Age up to which history above the floor is kept, milliseconds of `epoch_time`.
pub const FLOOR_AGE_MS: u64 = 60 * 1000;
/// Bytes of history (versions, tombstones, range window) above which the floor rises earlier.
pub const WINDOW_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Bytes of the id and status table above which its oldest second is dropped.
pub const STATUS_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Time for which a status can be read, milliseconds.
pub const STATUS_AGE_MS: u64 = 24 * 60 * 60 * 1000;
/// Shortest fixed epoch length, milliseconds.
pub const EPOCH_MS_MIN: u64 = 1;
/// Longest fixed epoch length, milliseconds.
pub const EPOCH_MS_MAX: u64 = 200;
/// Records of one page of LogPull.
pub const LOG_PAGE_RECORDS_MAX: usize = 10_000;
/// Longest wait that a request may specify, milliseconds.
pub const WAIT_MS_MAX: u64 = 60_000;

const _: () = {
    assert!(TXNS_PER_BATCH_MAX <= TXNS_PER_EPOCH_MAX);
    assert!(2 * TXNS_PER_EPOCH_MAX <= crate::ids::Version::POSITION_MAX as usize + 1);
    assert!(BATCH_BYTES_MAX >= BODY_BYTES_MAX);
    assert!(BATCH_BYTES_MAX + BODY_BYTES_MAX < u32::MAX as usize);
    assert!(WAITING_BYTES_MAX / 2 >= BATCH_BYTES_MAX);
    assert!(LINGER_STOPPING_MS <= LINGER_MS);
    assert!(LINGER_BYTES_MAX >= BODY_BYTES_MAX && LINGER_BYTES_MAX >= PLUGIN_BYTES_MAX);
    assert!(VALUE_BYTES_MAX < BODY_BYTES_MAX);
    assert!(TXNS_PER_REQUEST_MAX <= TXNS_PER_BATCH_MAX);
    assert!(STREAM_COMMITS_MAX <= TXNS_PER_REQUEST_MAX);
    assert!(STREAM_BYTES_MAX <= BODY_BYTES_MAX);
    assert!(STATUS_AGE_MS >= ID_WINDOW_MS);
    // Ids issued by a node within this bound can be executed.
    assert!(2 * CLOCKS_APART_MS_MAX < ID_WINDOW_MS);
};
