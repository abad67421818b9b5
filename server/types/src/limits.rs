//! Every limit, in one place, with their relations asserted when this compiles.

/// Largest request body, bytes.
pub const BODY_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Bytes that a client may still send after an answer that did not wait for its whole body. They are read and dropped, because
/// a socket that is closed over unread bytes resets the connection, and the client may lose the answer.
pub const LINGER_BYTES_MAX: usize = PLUGIN_BYTES_MAX;
/// How long that may take, milliseconds.
pub const LINGER_MS: u64 = 2_000;
/// How long that may take while the process stops: a client that leaves its request open must not hold it up. Counts once for the
/// response and once for the connection.
pub const LINGER_STOPPING_MS: u64 = 400;
/// Operations (reads + ranges + writes) of one transaction.
pub const OPS_PER_TXN_MAX: usize = 10_000;
/// Ranges of one transaction: each is compared with all writes above its snapshot.
pub const RANGES_PER_TXN_MAX: usize = 256;
/// Stores that one transaction may name.
pub const STORES_PER_TXN_MAX: usize = 64;
/// Bytes of a key; at least one.
pub const KEY_BYTES_MAX: usize = 10 * 1024;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Largest integer, either side of zero, that an `add` may start a missing row with: what every JSON library can hold.
pub const ADD_START_MAX: i64 = (1 << 53) - 1;
/// Bytes of the values that one request reads.
pub const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Nesting of a JSON document.
pub const JSON_DEPTH_MAX: usize = 64;
/// Transactions of one `batch-commit` request.
pub const TXNS_PER_REQUEST_MAX: usize = 10_000;
/// Commits of one stream that may wait for their verdicts; the server reads no further line before one has it.
pub const STREAM_COMMITS_MAX: usize = 1024;
/// Bytes of their lines. A longer commit waits alone.
pub const STREAM_BYTES_MAX: usize = 1024 * 1024;
/// Transactions of one epoch, all groups together: positions must fit a `Version`, one is the shared middle. Each member
/// takes its share of them. The other half of the positions is for those that seal before they know of a join.
pub const TXNS_PER_EPOCH_MAX: usize = 1 << 19;
/// Transactions that one batch takes before it is sealed.
pub const TXNS_PER_BATCH_MAX: usize = 65_536;
/// Bytes of keys and values that one batch takes before it is sealed.
pub const BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of transactions that may wait for an epoch before new ones are turned away (503).
pub const WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Nodes of a cluster, those included that join or are being removed.
pub const NODES_MAX: usize = 64;
/// Length of a node's address: a host name, a colon and a port.
pub const ADDRESS_BYTES_MAX: usize = 261;
/// Length of a store's, consumer's, plugin's or node's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Size of a plugin's component, bytes.
pub const PLUGIN_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of a plugin's configuration.
pub const PLUGIN_CONFIG_BYTES_MAX: usize = 64 * 1024;
/// Faults in a row after which a slot goes back to the plugin before, unless the configuration names another number.
pub const PLUGIN_FAULTS_MAX: u32 = 16;
/// Versions of plugins that a node keeps.
pub const PLUGIN_VERSIONS_MAX: usize = 1024;
/// Bytes of what a node says about a plugin that it cannot run.
pub const PLUGIN_PROBLEM_BYTES_MAX: usize = 1024;
/// Bytes that a node sends another one at a time of something that this one pulls.
pub const PART_BYTES_MAX: usize = 512 * 1024;
/// Bytes of the name of what a node pulls.
pub const PULLED_NAME_BYTES_MAX: usize = 256;
/// Stores of the service.
pub const STORES_MAX: usize = 1024;
/// Stores of a tenant that is not the service's own.
pub const STORES_PER_TENANT_MAX: usize = 64;
/// Skipped records of one store: each is an operator's decision, and all are kept.
pub const SKIPS_PER_STORE_MAX: usize = 10_000;
/// Offsets of consumers that are remembered.
pub const OFFSETS_MAX: usize = 4_096;
/// Offsets of the consumers of a tenant that is not the service's own.
pub const OFFSETS_PER_TENANT_MAX: usize = 256;
/// Changes of offsets and of watermarks that share an entry of the control log.
pub const READER_MOVES_MAX: usize = 512;
/// Keys that may be out at one time.
pub const KEYS_MAX: usize = 10_000;
/// Keys of a tenant that is not the service's own.
pub const KEYS_PER_TENANT_MAX: usize = 256;
/// Keys whose revocation is remembered, so that their use is recognised, beside the first one of each tenant.
pub const KEYS_REVOKED_KEPT: usize = 1_000;
/// Runs of proposers of which the last proposal is remembered, so that a repeat of it is recognised.
pub const PROPOSER_RUNS_KEPT: usize = 1_024;
/// Tenants that keys were ever created for.
pub const TENANTS_MAX: usize = 10_000;
/// Longest time until a key expires, seconds: a hundred years.
pub const KEY_EXPIRES_IN_S_MAX: u32 = 36_500 * 86_400;
/// How far a transaction id's time may be from `epoch_time`, milliseconds.
pub const ID_WINDOW_MS: u64 = 10 * 60 * 1000;
/// How far the clock of a cluster's node may be from those of the others, milliseconds, while it takes commits.
pub const CLOCKS_APART_MS_MAX: u64 = 60 * 1000;
/// How long history above the floor is kept, milliseconds of `epoch_time`.
pub const FLOOR_AGE_MS: u64 = 60 * 1000;
/// Bytes of history (versions, tombstones, range window) above which the floor rises earlier.
pub const WINDOW_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Bytes of the id and status table above which its oldest second is dropped.
pub const STATUS_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// How long a status stays readable, milliseconds.
pub const STATUS_AGE_MS: u64 = 24 * 60 * 60 * 1000;
/// Fixed epoch lengths, milliseconds.
pub const EPOCH_MS_MIN: u64 = 1;
/// Fixed epoch lengths, milliseconds.
pub const EPOCH_MS_MAX: u64 = 200;
/// Records of one LogPull page.
pub const LOG_PAGE_RECORDS_MAX: usize = 10_000;
/// How long a request may ask to wait, milliseconds.
pub const WAIT_MS_MAX: u64 = 60_000;

const _: () = {
    assert!(TXNS_PER_BATCH_MAX <= TXNS_PER_EPOCH_MAX);
    assert!(2 * TXNS_PER_EPOCH_MAX <= crate::ids::Version::POSITION_MAX as usize + 1);
    assert!(BATCH_BYTES_MAX >= BODY_BYTES_MAX);
    assert!(BATCH_BYTES_MAX + BODY_BYTES_MAX < u32::MAX as usize);
    assert!(WAITING_BYTES_MAX >= BATCH_BYTES_MAX);
    assert!(LINGER_STOPPING_MS <= LINGER_MS);
    assert!(LINGER_BYTES_MAX >= BODY_BYTES_MAX && LINGER_BYTES_MAX >= PLUGIN_BYTES_MAX);
    assert!(VALUE_BYTES_MAX < BODY_BYTES_MAX);
    assert!(TXNS_PER_REQUEST_MAX <= TXNS_PER_BATCH_MAX);
    assert!(STREAM_COMMITS_MAX <= TXNS_PER_REQUEST_MAX);
    assert!(STREAM_BYTES_MAX <= BODY_BYTES_MAX);
    assert!(STATUS_AGE_MS >= ID_WINDOW_MS);
    // What such a node has issued can be executed.
    assert!(2 * CLOCKS_APART_MS_MAX < ID_WINDOW_MS);
};
