//! Why a node cannot listen on an address, and the remedy.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

/// Returns why the node cannot listen on an address. `setting` is where the address is configured.
#[must_use]
pub fn cannot_listen(address: SocketAddr, setting: &str, error: &Error) -> String {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => format!("stop the process that uses the address, or choose another one ({setting})"),
        ErrorKind::AddrNotAvailable => format!(
            "no network interface of this machine has the address {}: choose one that it has, or {} for all of them ({setting})",
            address.ip(),
            if address.is_ipv4() { "0.0.0.0" } else { "[::]" }
        ),
        ErrorKind::PermissionDenied => format!(
            "user {} may not use port {}: ports below {} are privileged. Choose a higher one ({setting}), or start the process with the \
             capability CAP_NET_BIND_SERVICE",
            rustix::process::geteuid().as_raw(),
            address.port(),
            first_unprivileged_port()
        ),
        _ => format!("choose another address ({setting})"),
    };
    format!("cannot listen on {address}: {error}; {advice}")
}

fn first_unprivileged_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    text.trim().parse().unwrap_or(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_fits_what_is_wrong() {
        let told = |address: &str, kind: ErrorKind| {
            cannot_listen(address.parse().unwrap(), "`listen` in the configuration", &kind.into())
        };
        let in_use = told("127.0.0.1:7420", ErrorKind::AddrInUse);
        assert!(in_use.contains("stop the process that uses the address") && in_use.contains("`listen`"), "{in_use}");
        let privileged = told("0.0.0.0:80", ErrorKind::PermissionDenied);
        assert!(
            privileged.contains("may not use port 80") && privileged.contains("CAP_NET_BIND_SERVICE"),
            "{privileged}"
        );
        assert!(!privileged.contains("stop the process"), "{privileged}");
        let elsewhere = told("[fd00::9]:7420", ErrorKind::AddrNotAvailable);
        assert!(elsewhere.contains("no network interface") && elsewhere.contains("[::]"), "{elsewhere}");
    }
}
