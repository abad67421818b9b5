//! A document in which a placeholder is replaced by a word that differs between requests. All requests share the rest
//! of the document, so that a pending response occupies next to no memory.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

struct FilledBody {
    rest: &'static str,
    placeholder: &'static str,
    word: Bytes,
    bytes_left: u64,
}

/// Returns `document` with every occurrence of `placeholder` replaced by `word`.
pub(crate) fn filled(document: &'static str, placeholder: &'static str, word: String) -> Body {
    let places = document.matches(placeholder).count();
    let bytes_left = (document.len() - places * placeholder.len() + places * word.len()) as u64;
    Body::new(FilledBody { rest: document, placeholder, word: word.into(), bytes_left })
}

impl HttpBody for FilledBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            return Poll::Ready(None);
        }
        let bytes = match this.rest.strip_prefix(this.placeholder) {
            Some(rest) => {
                this.rest = rest;
                this.word.clone()
            }
            None => {
                let (text, rest) = this.rest.split_at(this.rest.find(this.placeholder).unwrap_or(this.rest.len()));
                this.rest = rest;
                Bytes::from_static(text.as_bytes())
            }
        };
        this.bytes_left -= bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_placeholder_is_replaced() {
        for (document, expected) in [("_a_b__c", "wordawordbwordwordc"), ("a_", "aword"), ("a", "a"), ("_", "word")] {
            let body = filled(document, "_", "word".into());
            assert_eq!(body.size_hint().exact(), Some(expected.len() as u64));
            assert_eq!(axum::body::to_bytes(body, 100).await.unwrap(), expected);
        }
    }
}
