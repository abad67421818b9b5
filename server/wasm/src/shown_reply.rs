//! A storage's reply in the text of a fault: the input that an adaptor trapped on, for its author.

use std::fmt::Write;

use tribunal_types::{RespValue, StorageReply};

use crate::call::printable;

/// Bytes of a reply that are shown.
const SHOWN_BYTES_MAX: usize = 256;

/// Describes a reply on one line.
pub(crate) fn shown(reply: &StorageReply) -> String {
    let mut text = String::new();
    match reply {
        StorageReply::Resp(values) => {
            for value in values {
                if text.len() > SHOWN_BYTES_MAX {
                    break;
                }
                text.push_str(if text.is_empty() { "" } else { ", " });
                // Writing to a string succeeds.
                let _ = match value {
                    RespValue::Nil => text.write_str("nil"),
                    RespValue::Int(number) => write!(text, "integer {number}"),
                    RespValue::Text(bytes) => write!(text, "text {}", beginning(bytes)),
                    RespValue::Error(error) => write!(text, "error {}", beginning(error.as_bytes())),
                };
            }
        }
        StorageReply::Sql { affected, cell, error } => {
            let cell = cell.as_ref().map_or("none".to_owned(), |cell| beginning(cell.as_bytes()));
            let error = error.as_ref().map_or("none".to_owned(), |(state, message)| format!("{state} {message}"));
            let _ = write!(text, "{affected} rows affected, cell {cell}, error {}", beginning(error.as_bytes()));
        }
        StorageReply::Http { status, body } => {
            let _ = write!(text, "status {status}, body {}", beginning(body));
        }
        StorageReply::Raw(bytes) => text = beginning(bytes),
    }
    printable(&text, SHOWN_BYTES_MAX)
}

fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_shown_on_one_line_within_its_limit() {
        let resp = |values| shown(&StorageReply::Resp(values));
        assert_eq!(
            resp(vec![
                RespValue::Nil,
                RespValue::Int(-1),
                RespValue::Text(b"a\n".into()),
                RespValue::Error("ERR".into())
            ]),
            r"nil, integer -1, text a\n, error ERR"
        );
        assert!(resp(vec![RespValue::Text(vec![b'x'; 1000]); 1000]).len() <= SHOWN_BYTES_MAX);
        let error = Some(("42P01".into(), "no table".into()));
        let sql = shown(&StorageReply::Sql { affected: 2, cell: None, error });
        assert_eq!(sql, "2 rows affected, cell none, error 42P01 no table");
        assert_eq!(shown(&StorageReply::Http { status: 503, body: b"busy".into() }), "status 503, body busy");
    }
}
