//! One line of a batch or of a commit stream.

use tribunal_service::Catalog;
use tribunal_types::TxnId;

use crate::request::body::utf8;
use crate::request::caller::CallerContext;
use crate::request::plain_commit::commit_document;
use crate::request::txn_body::{ParsedCommit, TxnSeed};
use crate::response::field_error::Path;
use crate::response::problem::ProblemResponse;

/// A line that is not a valid commit.
pub(crate) struct RefusedLine {
    /// The id in the line, if it can be parsed.
    pub id: TxnId,
    /// The error. It names the line.
    pub problem: ProblemResponse,
}

/// Parses the line with this number.
pub(crate) fn commit_line(
    line: &[u8],
    number: u64,
    catalog: &Catalog,
    caller: &CallerContext,
) -> Result<ParsedCommit, RefusedLine> {
    let refused = |id: TxnId, problem: ProblemResponse| RefusedLine { id, problem: problem.at_line(number) };
    let text = utf8(line).map_err(|problem| refused(TxnId::default(), problem))?;
    let seed = TxnSeed { catalog, caller, id: None, at: Path::Root, bytes_hint: text.len() };
    let parsed = commit_document(text, seed)
        .map_err(|malformed| refused(TxnId::default(), ProblemResponse::of_syntax(&malformed.on_line(number))))?;
    if parsed.errors.is_empty() {
        return Ok(parsed);
    }
    Err(refused(parsed.txn.id, ProblemResponse::of_errors(&parsed.errors)))
}
