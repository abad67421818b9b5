//! Memory of response encoders: an encoder exists from the first piece of its response until the last one is taken, and
//! needs much more memory than a piece. It counts towards the tenant's quota, as the response does; if there is no room
//! for it, the response is sent uncompressed.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT_ENCODING;
use axum::middleware::Next;
use axum::response::Response;

use crate::quota::{Reserved, Room};
use crate::response::marks::{Streamed, WholeBytes};

/// Size from which a response is compressed, if the client accepts that.
pub(crate) const COMPRESSED_BYTES_MIN: u64 = 1024;

/// Memory of a zstd encoder at its default level: a window of 2 MiB, tables, a block.
const ZSTD_BYTES: usize = 4 << 20;
/// Memory of a gzip encoder: a window, tables, buffers.
const GZIP_BYTES: usize = 512 << 10;

/// The reservation for an encoder, held until the response that carries it as an extension is taken.
#[derive(Clone, Debug)]
pub(crate) struct EncoderRoom(pub Arc<Reserved>);

/// The layer below compression. Records the size of a response, and reserves the memory that its encoder needs.
pub(crate) async fn reserve(request: Request, next: Next) -> Response {
    let wanted = encoder_bytes(request.headers()).zip(request.extensions().get::<Room>().cloned());
    let mut response = next.run(request).await;
    let whole = response.body().size_hint().exact();
    let is_long = whole.is_none_or(|bytes| bytes >= COMPRESSED_BYTES_MIN);
    let is_compressed = is_long && response.extensions().get::<Streamed>().is_none();
    let extensions = response.extensions_mut();
    if let Some(bytes) = whole {
        extensions.insert(WholeBytes(bytes));
    }
    if let Some((needed, room)) = wanted.filter(|_| is_compressed) {
        match room.reserve(needed) {
            Some(reserved) => drop(extensions.insert(EncoderRoom(Arc::new(reserved)))),
            None => drop(extensions.insert(Streamed)),
        }
    }
    response
}

/// Returns the memory of the largest encoder that a client accepts.
fn encoder_bytes(headers: &HeaderMap) -> Option<usize> {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().map(|value| {
        let text = value.as_bytes().to_ascii_lowercase();
        if contains(&text, b"zstd") || contains(&text, b"*") { ZSTD_BYTES } else { GZIP_BYTES }
    });
    accepted.max()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
