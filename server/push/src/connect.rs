//! Connects to the endpoint of a store or webhook, for all transports.
//!
//! Must never: reveal the address that a name resolves to. Error texts are shown to tenants.

use tokio::net::TcpStream;

use crate::{EgressPolicy, TransportError};

/// Connects to one of the addresses of `endpoint` (`host:port`), all of which must be allowed.
///
/// # Errors
/// [`TransportError`], which names the endpoint as given, without the addresses that it resolves to.
pub(crate) async fn connect(egress: &EgressPolicy, endpoint: &str) -> Result<TcpStream, TransportError> {
    let mut last = TransportError::Broken(format!("`{endpoint}` does not resolve to any address"));
    for address in egress.resolve(endpoint).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|error| failed(endpoint, &error))?;
                return Ok(stream);
            }
            Err(error) => {
                tracing::debug!(endpoint, %address, %error, "a connection failed");
                last = failed(endpoint, &error);
            }
        }
    }
    Err(last)
}

fn failed(endpoint: &str, error: &std::io::Error) -> TransportError {
    TransportError::Broken(format!("cannot connect to `{endpoint}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_names_the_endpoint_but_no_address() {
        let endpoint = "localhost:1";
        let text = connect(&EgressPolicy::loopback(), endpoint).await.expect_err("nobody listens").to_string();
        assert!(text.contains(endpoint), "{text}");
        assert!(!text.contains("127.0.0.1") && !text.contains("::1"), "{text}");
    }
}
