//! Parses commits in the form that clients usually write, without `serde` and in less time: no commit of a batch is
//! decided before the whole batch is parsed.
//!
//! This module only finds the texts of members. Their meaning and their errors are determined in the same `Draft` as
//! for the parser of full JSON, which parses everything that this one does not handle.

use std::borrow::Cow;

use tribunal_types::OpKind;
use tribunal_types::limits::{OPS_PER_TXN_MAX, RANGES_PER_TXN_MAX};

use crate::request::json::{Scalar, document};
use crate::request::op_fields::{OR, OpFields, VALUE};
use crate::request::plain_json::{PlainJson, once};
use crate::request::txn_body::{Draft, MEMBER_PRIORITY, MEMBER_SNAPSHOTS, ParsedCommit, TxnSeed, listed_ops, op_names};
use crate::response::field_error::{Path, SyntaxError};

/// Parses a document that is one commit.
///
/// # Errors
/// Invalid syntax, or data after the document.
pub fn commit_document(text: &str, seed: TxnSeed<'_>) -> Result<ParsedCommit, SyntaxError> {
    let mut json = PlainJson::new(text);
    match plain_commit(&mut json, &seed) {
        Some(parsed) if json.is_over() => Ok(parsed),
        _ => document(text, seed),
    }
}

/// Parses a commit; `None` if it is not in the usual form, or contains an error.
pub fn plain_commit(json: &mut PlainJson<'_>, seed: &TxnSeed<'_>) -> Option<ParsedCommit> {
    let mut draft = Draft::new(seed);
    let (names, mut seen) = (draft.members(), 0);
    json.object(|json, name| {
        let index = names.iter().position(|known| *known == name)?;
        once(&mut seen, index)?;
        match index {
            MEMBER_SNAPSHOTS => json.object(|json, store| {
                let epoch = Scalar::Text(Cow::Borrowed(json.string()?));
                draft.add_snapshot(store, epoch, Path::Root);
                Some(())
            }),
            MEMBER_PRIORITY => None,
            index => match listed_ops(index) {
                Some(kind) => operations(json, &mut draft, kind),
                None => {
                    draft.set(index, Some(Scalar::Text(Cow::Borrowed(json.string()?))), Path::Root);
                    Some(())
                }
            },
        }
    })?;
    let parsed = draft.finish(Path::Root, Some(seen));
    parsed.errors.is_empty().then_some(parsed)
}

fn operations<'de>(json: &mut PlainJson<'de>, draft: &mut Draft<'_>, kind: OpKind) -> Option<()> {
    let names = op_names(kind);
    json.array(|json| {
        if draft.ops() >= OPS_PER_TXN_MAX || kind == OpKind::Range && draft.ranges() >= RANGES_PER_TXN_MAX {
            return None;
        }
        let (mut fields, mut seen) = (OpFields::none(), 0);
        json.object(|json, name| {
            let index = names.iter().position(|known| *known == name)?;
            once(&mut seen, index)?;
            match index {
                VALUE => fields.value = Some(json.value()?),
                OR => fields.or = Some(json.value()?),
                index => fields.set(index, json.string()?),
            }
            Some(())
        })?;
        draft.add_op(kind, fields, Path::Root);
        Some(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tribunal_service::Catalog;
    use tribunal_types::limits::VALUE_BYTES_MAX;
    use tribunal_types::{RowKey, StoreId, StoreSpec, TxnId};

    use super::*;
    use crate::request::caller::CallerContext;

    const ID: &str = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";

    fn catalog() -> Catalog {
        let spec = |id, name: &str| StoreSpec {
            id: StoreId(id),
            name: name.to_owned(),
            transactional: true,
            ..StoreSpec::default()
        };
        let name_row =
            |_, store: StoreId, key: &[u8]| RowKey { hi: u64::from(store.0), lo: xxhash_rust::xxh3::xxh3_64(key) };
        Catalog::new([spec(1, "kv"), spec(2, "orders")], Arc::new(name_row))
    }

    /// Parses a text in both ways. Returns whether the short way sufficed, after checking that both agree.
    fn is_plain(text: &str, id: Option<TxnId>) -> bool {
        let (catalog, caller) = (catalog(), CallerContext { origin: 7, ..CallerContext::default() });
        let seed = TxnSeed { catalog: &catalog, caller: &caller, id, at: Path::Root, bytes_hint: text.len() };
        let mut json = PlainJson::new(text);
        let plain = plain_commit(&mut json, &seed).filter(|_| json.is_over());
        let any = document(text, seed);
        assert_eq!(commit_document(text, seed), any, "{text}");
        let is_plain = plain.is_some();
        if let Some(plain) = plain {
            assert_eq!(Ok(plain), any, "{text}");
        }
        is_plain
    }

    #[test]
    fn usual_commits_are_read_in_the_short_way() {
        let members = [
            r#""isolation":"snapshot""#,
            r#""snapshots":{"kv":"8841"}"#,
            r#""reads":[{"store":"kv","key":"a"},{"key":"b","store":"kv","version":"9271508992"}]"#,
            r#""ranges":[{"store":"kv","start":"a","end":"b"},{"store":"kv"}]"#,
            r#""writes":[{"op":"put","store":"kv","key":"a","value":"12e4"},{"op":"delete","store":"kv","key":"b"},
                {"op":"add","store":"kv","key":"c","value":-3,"or":7},{"op":"insert","store":"kv","key":"d","value":{"a":["\u00e9",1e3],"a":2}},
                {"op":"update","store":"kv","key_b64":"/w==","value_b64":"AAE="}]"#,
            // A value is opaque: neither parser looks at the names in it.
            r#""ack":"applied""#,
            r#""epoch":"8842""#,
            r#""first_attempt_ms":"1765000000000""#,
        ];
        let id = crate::request::txn_body::txn_id(ID);
        for first in 0..members.len() {
            let mut order = members;
            order.rotate_left(first);
            let body = order.join(",");
            assert!(is_plain(&format!("{{{body}}}"), id), "{body}");
            assert!(is_plain(&format!(" {{ \"txn_id\" : \"{ID}\" , {body} }}\r\n"), None), "{body}");
            assert!(!is_plain(&format!("{{{body}}}"), None), "an item needs an id");
        }
        assert!(is_plain("{}", id) && is_plain(r#"{"reads":[],"writes":[ ]}"#, id));
    }

    #[test]
    fn everything_else_is_left_to_the_reader_of_all_of_json() {
        let id = crate::request::txn_body::txn_id(ID);
        for text in [
            "",
            "[]",
            "{",
            "{} {}",
            "{},",
            r#"{"isolation":null}"#,
            r#"{"isolation":"none"}"#,
            r#"{"isolation":"snapshot","isolation":"snapshot"}"#,
            r#"{"priority":7}"#,
            r#"{"epoch":7}"#,
            r#"{"other":1}"#,
            r#"{"\u0061ck":"durable"}"#,
            r#"{"snapshots":{"nowhere":"1"}}"#,
            r#"{"snapshots":{"kv":1}}"#,
            r#"{"snapshots":{"kv":"1","kv":"1"}}"#,
            r#"{"snapshots":{"kv":"1"},"reads":[{"store":"orders","key":"a"}]}"#,
            r#"{"reads":{}}"#,
            r#"{"reads":[1]}"#,
            r#"{"reads":[{"store":"kv"}]}"#,
            r#"{"reads":[{"store":"kv","key":""}]}"#,
            r#"{"reads":[{"store":"kv","key":"a\n"}]}"#,
            r#"{"reads":[{"store":"kv","key":"a","version":null}]}"#,
            r#"{"reads":[{"store":"kv","key":"a","version":"01"}]}"#,
            r#"{"reads":[{"store":"kv","key":"a"},{"store":"kv","key":"a"}]}"#,
            r#"{"reads":[{"store":"kv","key":"a","value":1}]}"#,
            r#"{"reads":[{"store":"kv","key":"a"}"#,
            r#"{"ranges":[{"store":"kv","start":"b","end":"a"}]}"#,
            r#"{"writes":[{"op":"put","store":"kv","key":"a"}]}"#,
            r#"{"writes":[{"op":"put","store":"kv","key":"a","value":"\ud800"}]}"#,
            r#"{"writes":[{"op":"put","store":"kv","key":"a","value":1e400}]}"#,
            r#"{"writes":[{"op":"put","store":"kv","key":"a","value":01}]}"#,
            r#"{"writes":[{"op":"put","store":"kv","key":"a","value":"x"y}]}"#,
            r#"{"writes":[{"op":"put","store":"kv","key":"a","value":}]}"#,
            r#"{"writes":[{"op":"add","store":"kv","key":"a","value":"1"}]}"#,
            r#"{"writes":[{"op":"add","store":"kv","key":"a","value":1,"or":"1"}]}"#,
            r#"{"writes":[{"op":"delete","store":"kv","key":"a","value":"x"}]}"#,
            r#"{"writes":[{"op":"put","store":"kv","key":"a","value":1,"value_b64":"AA=="}]}"#,
            "{\"writes\":[{\"op\":\"put\",\"store\":\"kv\",\"key\":\"a\",\"value\":\"\n\"}]}",
        ] {
            assert!(!is_plain(text, id), "{text}");
        }
    }

    #[test]
    fn both_ways_have_the_same_limits() {
        let id = crate::request::txn_body::txn_id(ID);
        let reads = |count: usize| {
            let reads: Vec<_> = (0..count).map(|n| format!(r#"{{"store":"kv","key":"{n}"}}"#)).collect();
            format!(r#"{{"reads":[{}]}}"#, reads.join(","))
        };
        assert!(is_plain(&reads(OPS_PER_TXN_MAX), id));
        assert!(!is_plain(&reads(OPS_PER_TXN_MAX + 1), id));
        let ranges = |count: usize| format!(r#"{{"ranges":[{}]}}"#, vec![r#"{"store":"kv"}"#; count].join(","));
        let with_snapshot = |body: String| body.replacen('{', r#"{"snapshots":{"kv":"1"},"#, 1);
        assert!(is_plain(&with_snapshot(ranges(RANGES_PER_TXN_MAX)), id));
        assert!(!is_plain(&with_snapshot(ranges(RANGES_PER_TXN_MAX + 1)), id));
        for (bytes, fits) in [(VALUE_BYTES_MAX - 2, true), (VALUE_BYTES_MAX - 1, false)] {
            let value = "v".repeat(bytes);
            let body = format!(r#"{{"writes":[{{"op":"put","store":"kv","key":"a","value":"{value}"}}]}}"#);
            assert_eq!(is_plain(&body, id), fits, "{bytes}");
        }
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        for (levels, fits) in [(61, true), (62, false), (500, false)] {
            let body = format!(r#"{{"writes":[{{"op":"put","store":"kv","key":"a","value":{}}}]}}"#, nested(levels));
            assert_eq!(is_plain(&body, id), fits, "{levels}");
        }
    }
}
