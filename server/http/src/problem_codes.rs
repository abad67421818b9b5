//! The codes of problems, for the description of the API. `tests/problem_codes.rs` compares them with those
//! in the server's code.

use std::fmt::Write;

/// Each code, with its status and what it means. Sorted by status, then by code.
pub const PROBLEM_CODES: &[(&str, u16, &str)] = &[
    ("bad_base64", 400, "a binary key or value is not base64"),
    ("bad_name", 400, "a name has characters, or a length, that it may not have"),
    ("bad_number", 400, "a number is out of its range"),
    ("bad_parameter", 400, "a query parameter or header has a value that it may not have"),
    ("bad_secret", 400, "the secret of a webhook is too short or too long"),
    ("bad_session", 400, "the session token is not one that this service issued"),
    ("bad_txn_id", 400, "a transaction id is not a UUID of version 7"),
    ("bad_url", 400, "the URL of a webhook cannot be used; 422 if only a closer check finds that"),
    (
        "body_incomplete",
        400,
        "the connection was closed before the whole body had arrived, or its framing is not that of HTTP",
    ),
    ("duplicate_field", 400, "a field occurs twice in one object"),
    ("exclusive_fields", 400, "fields that exclude each other were sent together"),
    (
        "invalid_request",
        400,
        "several errors with different codes; `errors` lists them. The lowest of their statuses counts, so it may be another one",
    ),
    ("invalid_utf8", 400, "a text is not UTF-8"),
    ("malformed_head", 400, "the head of the request is not HTTP"),
    ("malformed_json", 400, "the body is not JSON; `line` and `column` say where"),
    ("missing_field", 400, "a required field is absent"),
    ("not_interoperable", 400, "a value that JSON parsers read differently, so that a storage could hold another one"),
    ("snapshot_required", 400, "the isolation level needs the snapshot that Begin has returned"),
    ("too_deep", 400, "JSON is nested too deeply"),
    ("unknown_field", 400, "an object has a field that the specification does not have"),
    ("unknown_op", 400, "a write has an operation that does not exist"),
    ("unknown_parameter", 400, "a query parameter does not exist for this route"),
    ("unknown_value", 400, "a field has a value that is not among its choices"),
    ("wrong_type", 400, "a field has the wrong JSON type"),
    ("key_expired", 401, "the API key has expired"),
    ("unauthenticated", 401, "the API key or token is missing, unknown or invalid"),
    ("forbidden", 403, "the caller's roles do not permit this request"),
    ("foreign_host", 403, "without access control, a node on loopback is not called by this name"),
    ("foreign_page", 403, "without access control, web pages of other origins are refused"),
    ("not_found", 404, "what the path or `namespace` names does not exist, or belongs to another namespace"),
    ("push_unregistered", 404, "no webhook is registered for this store"),
    ("row_missing", 404, "there is no such row; `applied` is the epoch that was read"),
    (
        "unknown_consumer",
        404,
        "no consumer of this name has stored an offset, or none in the store that the request names",
    ),
    ("unknown_route", 404, "no route has this path; `detail` names the nearest one"),
    ("unknown_store", 404, "a store that the request names is not declared in this namespace"),
    ("method_not_allowed", 405, "the path exists, with other methods"),
    ("not_acceptable", 406, "none of the media types in `accept` is available"),
    ("body_timeout", 408, "the body did not arrive in time"),
    ("in_flight", 409, "a transaction with this id is being decided; get its status"),
    ("last_operator_key", 409, "without this key, no operator could log in any more"),
    ("log_replaced", 410, "the position is of a log that this one has replaced"),
    ("log_truncated", 410, "records after the position are no longer in the log; start over from the store's state"),
    ("state_gone", 410, "the log of a store without an adaptor no longer holds all of its rows"),
    ("body_too_large", 413, "the body exceeds its limit"),
    ("key_too_long", 413, "a key exceeds its limit; 414 if the key is in the path"),
    ("line_too_long", 413, "a line of a stream exceeds its limit"),
    ("too_many", 413, "a list has more elements than allowed"),
    ("value_too_large", 413, "a value exceeds its limit"),
    ("target_too_long", 414, "the path and query exceed their limit"),
    ("unsupported_media_type", 415, "the body has a media type, or an encoding, that the route does not accept"),
    ("adaptor_invalid", 422, "the adaptor does not exist, or its configuration is wrong"),
    ("adaptor_omitted", 422, "the declaration would remove the store's adaptor without saying so"),
    (
        "add_unsupported",
        422,
        "`add` needs a store that applies records exactly once, and whose values the service knows",
    ),
    ("at_epoch_unsupported", 422, "an adaptor is deactivated at once, not at an epoch"),
    ("body_mismatch", 422, "the id was used with another body"),
    ("duplicate_row", 422, "a row occurs twice, in the reads or writes of a transaction or in an import"),
    ("empty_key", 422, "a key is empty"),
    ("empty_range", 422, "a range ends before it begins"),
    ("engines_differ", 422, "members run releases whose plugin engines differ"),
    ("existence_fixed", 422, "`existence` of a store with records or rows cannot be changed"),
    ("existence_omitted", 422, "the declaration would make a declared store tracked without saying so"),
    ("generation_unknown", 422, "a member cannot decide in the next generation"),
    ("last_majority", 422, "removing the node would leave no majority"),
    ("last_serving", 422, "draining the node would leave none that takes commits"),
    ("loaded_lsn_impossible", 422, "the log does not have the position that `loaded_lsn` names"),
    ("multi_version_omitted", 422, "the declaration would end the store's `multi_version` without saying so"),
    ("node_address_taken", 422, "another node has this address"),
    ("node_name_length", 422, "the name or address of a node is empty or too long"),
    ("node_name_taken", 422, "another node has this name"),
    ("not_a_member", 422, "the node is not a member yet, or is being removed"),
    ("not_active", 422, "the plugin is not active in that slot"),
    ("not_an_integer", 422, "`add` takes an integer"),
    ("not_detached", 422, "only a detached store, or one whose push has stopped, is attached"),
    ("not_stopped_there", 422, "only the record that the push has stopped at can be skipped"),
    ("nothing_before", 422, "the slot has no earlier activation to return to"),
    ("plugin_built_in", 422, "a built-in plugin is neither replaced nor deactivated"),
    ("plugin_config", 422, "the plugin refuses its configuration"),
    ("plugin_in_use", 422, "a slot holds this version of the plugin, or will, or a store uses the adaptor"),
    ("plugin_name_taken", 422, "another plugin has this name, or the same component has another name"),
    ("plugin_refused", 422, "the component is not a valid plugin, or does not pass its checks"),
    ("plugin_signature", 422, "the signature is missing, or of none of the configured signers"),
    ("plugins_native", 422, "the node runs its native policies, which no plugin can replace"),
    ("position_beyond_head", 422, "the log ends before the position"),
    ("read_after_snapshot", 422, "a read names a version later than the transaction's snapshot"),
    ("read_too_large", 422, "the rows exceed what one response may hold; read fewer at once"),
    ("records_truncated", 422, "the store cannot be made embedded: its log no longer has all of its records"),
    ("role_without_effect", 422, "a role that a key of this namespace cannot use"),
    ("runs_alone", 422, "the node is not a member of a cluster"),
    ("session_unknown", 422, "no node of this log has issued the session token; leave it out"),
    ("slot_misfit", 422, "the plugin does not fit the slot"),
    ("slot_required", 422, "the plugin fits several slots; name one"),
    ("storage_behind_log", 422, "the storage needs records that the log no longer has"),
    ("storage_in_use", 422, "another store already fills the storage that the adaptor and its settings name"),
    ("storage_refuses", 422, "the storage refuses the adaptor's requests, or follows another log"),
    ("store_damaged", 422, "the rows of the embedded store are damaged, and the log no longer has them: see `detail`"),
    ("store_declared", 422, "only a tracked store takes imported versions"),
    ("store_detached", 422, "nothing is pushed to the store; attach it. 503 for a Begin or read that names it"),
    ("store_embedded", 422, "an embedded store has no rows but those of its log"),
    ("store_has_imported_rows", 422, "a store with imported rows cannot become an embedded one"),
    ("store_not_embedded", 422, "the service has no rows of this store; read them from its storage"),
    ("store_not_named", 422, "the operation uses a store that `snapshots` does not name"),
    ("too_many_consumers", 422, "the tenant has its maximum of consumer offsets"),
    ("too_many_keys", 422, "the tenant or the service has its maximum of API keys or namespaces"),
    ("too_many_nodes", 422, "the cluster has its maximum of nodes"),
    ("too_many_plugins", 422, "the service keeps its maximum of plugin versions"),
    ("too_many_skips", 422, "too many records of the store were skipped"),
    ("too_many_stores", 422, "the tenant or the service has its maximum of stores"),
    ("too_weak", 422, "the validator accepts what the isolation level forbids"),
    (
        "txn_id_expired",
        422,
        "the time in the id is too far from the service's, and no verdict of the id is known; see `detail`",
    ),
    (
        "txn_id_forgotten",
        422,
        "the service has had to forget the ids of that time; an earlier request with the id may have been executed",
    ),
    ("url_refused", 422, "the webhook's address is in a network that is not allowed"),
    ("url_unresolved", 422, "the webhook's host name cannot be resolved"),
    ("verdict_truncated", 422, "the transaction was decided, and the log that has its verdict was truncated"),
    ("version_from_the_future", 422, "an imported version is later than the last epoch"),
    ("write_not_supported", 422, "the operation is not available for this store"),
    ("quota_exceeded", 429, "the tenant has too much in flight; nothing was decided"),
    ("rows_exceeded", 429, "the tracked stores of the tenant may have no more rows"),
    ("stored_bytes_exceeded", 429, "the embedded stores of the tenant may take no more bytes"),
    ("too_many_streams", 429, "the connection has its maximum of commit streams"),
    ("head_too_large", 431, "the headers exceed their limit"),
    ("internal", 500, "a fault of the service; please report it"),
    ("overloaded", 503, "the queues are full; nothing was decided"),
    (
        "stopping",
        503,
        "the node stopped before it answered: no transaction was decided, another change may have taken effect. Repeat it",
    ),
    ("store_lagging", 503, "the store has not applied what the request must see yet"),
    ("unavailable", 503, "the node cannot serve this now; `detail` says why"),
    ("outcome_unknown", 504, "the transaction, or the change, may have been accepted; `detail` says how to find out"),
];

/// Returns the codes as a list in Markdown, for the end of the API's description.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "\n\nProblems have these codes, by status. A later release may add some: handle a code that you do not know by its status and \
         `retryable`.\n\n| status | code | meaning |\n|---|---|---|\n",
    );
    for (code, status, meaning) in PROBLEM_CODES {
        let _ = writeln!(text, "| {status} | `{code}` | {meaning} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_names_no_code_twice() {
        let places: Vec<_> = PROBLEM_CODES.iter().map(|(code, status, _)| (*status, *code)).collect();
        assert!(places.is_sorted(), "{places:?}");
        let mut codes: Vec<_> = PROBLEM_CODES.iter().map(|(code, ..)| *code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), PROBLEM_CODES.len());
    }
}
