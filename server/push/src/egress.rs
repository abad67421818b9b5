//! Addresses that the server may connect to on behalf of a user: no internal address, unless an operator has listed it.
//!
//! A store's endpoint comes from the API, so without this check it would give access to the operator's network. Every
//! address that a name resolves to is checked, and the connection is made to a checked address, never to the name: a
//! second resolution could return other addresses.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;

use crate::TransportError;

/// Maximum number of concurrent name look-ups. Each look-up occupies a thread until the system gives up, however long
/// its caller waits, and other work needs such threads, too.
const LOOKUPS_MAX: usize = 64;
/// Maximum number of concurrent look-ups of one policy: hanging names do not block the look-ups of other policies.
const LOOKUPS_OF_POLICY_MAX: usize = 16;

static LOOKUPS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS_MAX)));

/// The internal networks that may be connected to. Empty: public addresses only. Clones share the limit of concurrent
/// look-ups, so each tenant gets a separate policy.
#[derive(Clone, Debug)]
pub struct EgressPolicy {
    allowed: Vec<AllowedNet>,
    lookups: Arc<Semaphore>,
}

impl Default for EgressPolicy {
    fn default() -> Self {
        EgressPolicy::new(Vec::new())
    }
}

impl EgressPolicy {
    /// Creates a policy that allows public addresses and these networks.
    #[must_use]
    pub fn new(allowed: Vec<AllowedNet>) -> Self {
        EgressPolicy { allowed, lookups: Arc::new(Semaphore::new(LOOKUPS_OF_POLICY_MAX)) }
    }

    /// Creates the policy of a development server: loopback and public addresses.
    #[must_use]
    pub fn loopback() -> Self {
        EgressPolicy::new(vec![
            AllowedNet { net: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8, port: None },
            AllowedNet { net: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128, port: None },
        ])
    }

    /// Checks one address.
    ///
    /// # Errors
    /// [`TransportError::Refused`] if it is not public and not listed.
    pub fn check(&self, address: SocketAddr) -> Result<(), TransportError> {
        let ip = address.ip().to_canonical();
        match inside(ip) {
            Some(kind) if !self.allowed.iter().any(|net| net.contains(ip, address.port())) => {
                Err(TransportError::Refused(format!(
                    "{address} is a {kind} address; the service's operator can allow it in `push.allow`, for another \
                     namespace than `default` in `push.tenants.NAMESPACE.allow`"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Resolves `endpoint` (`host:port`), and returns its addresses after checking all of them.
    ///
    /// # Errors
    /// [`TransportError::Refused`] if an address is not allowed; [`TransportError::Broken`] if the name does not resolve.
    pub async fn resolve(&self, endpoint: &str) -> Result<Vec<SocketAddr>, TransportError> {
        let addresses = addresses_of(endpoint, &self.lookups)
            .await
            .map_err(|e| TransportError::Broken(format!("`{endpoint}` does not resolve: {e}")))?;
        if addresses.is_empty() {
            return Err(TransportError::Broken(format!("`{endpoint}` does not resolve to any address")));
        }
        for address in &addresses {
            // The error must not reveal the address that a name resolves to.
            self.check(*address).map_err(|refused| match (refused, endpoint.parse::<SocketAddr>()) {
                (TransportError::Refused(_), Err(_)) => TransportError::Refused(format!(
                    "`{endpoint}` resolves to an address that is not allowed; the service's operator can allow it in \
                     `push.allow`, for another namespace than `default` in `push.tenants.NAMESPACE.allow`"
                )),
                (refused, _) => refused,
            })?;
        }
        Ok(addresses)
    }
}

async fn addresses_of(endpoint: &str, share: &Arc<Semaphore>) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = endpoint.parse() {
        return Ok(vec![address]);
    }
    let endpoint = endpoint.to_owned();
    one_of([share, &LOOKUPS], move || endpoint.to_socket_addrs().map(Iterator::collect)).await?
}

/// Runs a look-up on a thread that may block. Takes a permit of the caller's share first, then one of all, so that a
/// look-up waiting for its share takes nothing from the others.
async fn one_of<T: Send + 'static>(
    [share, all]: [&Arc<Semaphore>; 2],
    look_up: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let own = Arc::clone(share).acquire_owned().await.map_err(io::Error::other)?;
    let permit = (own, Arc::clone(all).acquire_owned().await.map_err(io::Error::other)?);
    let looked_up = tokio::task::spawn_blocking(move || {
        let found = look_up();
        // Returned here and not when the caller gives up: the thread keeps running.
        drop(permit);
        found
    });
    Ok(looked_up.await?)
}

/// A network, or one address, with an optional port: `10.0.0.0/8`, `127.0.0.1:6379`, `::1`, `[fd00::]/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedNet {
    net: IpAddr,
    prefix: u8,
    port: Option<u16>,
}

impl AllowedNet {
    fn contains(&self, ip: IpAddr, port: u16) -> bool {
        if self.port.is_some_and(|only| only != port) {
            return false;
        }
        match (self.net, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                net.to_bits() & mask == ip.to_bits() & mask
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                net.to_bits() & mask == ip.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for AllowedNet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not of the form `address`, `address:port` or `address/prefix`");
        if let Ok(address) = text.parse::<SocketAddr>() {
            let net = address.ip().to_canonical();
            return Ok(AllowedNet { net, prefix: bits(net), port: Some(address.port()) });
        }
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address = address.trim_start_matches('[').trim_end_matches(']');
        let net = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let prefix = prefix.map_or(Ok(bits(net)), str::parse).map_err(|_| wrong())?;
        if prefix > bits(net) { Err(wrong()) } else { Ok(AllowedNet { net, prefix, port: None }) }
    }
}

impl fmt::Display for AllowedNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.net, port).fmt(f),
            None => write!(f, "{}/{}", self.net, self.prefix),
        }
    }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Returns the kind of an internal address; `None` for a public one.
fn inside(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => inside_v4(ip),
        IpAddr::V6(ip) => inside_v6(ip),
    }
}

fn inside_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = ip.octets();
    match (a, b, c) {
        (127, ..) => Some("loopback"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Some("private"),
        (169, 254, _) => Some("link-local"),
        (100, 64..=127, _) => Some("carrier-internal"),
        (0, ..) => Some("unspecified"),
        (224..=239, ..) => Some("multicast"),
        (240..=255, ..) => Some("reserved"),
        // Azure's own services, only reachable from inside its networks.
        (168, 63, 129) if d == 16 => Some("cloud-internal"),
        (192, 0, 0 | 2) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => Some("special-purpose"),
        _ => None,
    }
}

fn inside_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let s = ip.segments();
    let embedded = |hi: u16, lo: u16| Ipv4Addr::from_bits(u32::from(hi) << 16 | u32::from(lo));
    if ip.is_loopback() {
        return Some("loopback");
    }
    match s {
        // Other notations of an IPv4 address: NAT64 (64:ff9b::/96), 6to4 (2002::/16).
        [0x64, 0xff9b, 0, 0, 0, 0, hi, lo] => inside_v4(embedded(hi, lo)),
        [0x2002, hi, lo, ..] => inside_v4(embedded(hi, lo)),
        // IPv4-compatible addresses and the rest of ::/32, local NAT64, Teredo, documentation.
        [0, 0, ..] | [0x64, 0xff9b, 1, ..] | [0x2001, 0, ..] | [0x2001, 0xdb8, ..] => Some("special-purpose"),
        [first, ..] if first & 0xfe00 == 0xfc00 => Some("private"),
        [first, ..] if first & 0xffc0 == 0xfe80 || first & 0xffc0 == 0xfec0 => Some("link-local"),
        [first, ..] if first & 0xff00 == 0xff00 => Some("multicast"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(policy: &EgressPolicy, address: &str) -> bool {
        policy.check(address.parse().expect("an address")).is_ok()
    }

    #[test]
    fn internal_addresses_are_refused_in_every_notation() {
        let policy = EgressPolicy::default();
        for address in [
            "127.0.0.1:6379",
            "127.9.9.9:1",
            "0.0.0.0:80",
            "10.1.2.3:80",
            "172.31.0.1:80",
            "192.168.1.1:80",
            "169.254.169.254:80",
            "168.63.129.16:80",
            "[::ffff:168.63.129.16]:32526",
            "100.64.0.1:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[::1]:80",
            "[::]:80",
            "[::ffff:127.0.0.1]:80",
            "[::ffff:10.0.0.1]:80",
            "[::127.0.0.1]:80",
            "[64:ff9b::10.0.0.1]:80",
            "[2002:7f00:1::]:80",
            "[2001:0:1::1]:80",
            "[fe80::1]:80",
            "[fd12::1]:80",
            "[ff02::1]:80",
        ] {
            assert!(!allows(&policy, address), "{address}");
        }
        for address in
            ["9.9.9.9:443", "168.63.129.17:80", "172.32.0.1:80", "[2620:fe::fe]:443", "[64:ff9b::9.9.9.9]:80"]
        {
            assert!(allows(&policy, address), "{address}");
        }
    }

    #[test]
    fn only_listed_networks_are_allowed() {
        let nets = ["127.0.0.1:6379", "10.2.0.0/16", "[fd00::]/8"].map(|net| net.parse().expect("a network"));
        let policy = EgressPolicy::new(nets.to_vec());
        for address in ["127.0.0.1:6379", "[::ffff:127.0.0.1]:6379", "10.2.255.1:5", "[fd77::1]:5"] {
            assert!(allows(&policy, address), "{address}");
        }
        for address in ["127.0.0.1:6380", "127.0.0.2:6379", "10.3.0.1:5", "[fe80::1]:5", "[::1]:6379"] {
            assert!(!allows(&policy, address), "{address}");
        }
        for wrong in ["", "localhost", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "::/129"] {
            assert!(wrong.parse::<AllowedNet>().is_err(), "{wrong}");
        }
        assert_eq!(policy.allowed[1].to_string(), "10.2.0.0/16");
        assert!("0.0.0.0/0".parse::<AllowedNet>().expect("a network").contains("1.2.3.4".parse().expect("an ip"), 1));
    }

    #[tokio::test]
    async fn a_lookup_that_its_caller_gave_up_keeps_its_permit_until_it_ends() {
        let (lookups, (go_on, half_way)) = (Arc::new(Semaphore::new(1)), std::sync::mpsc::channel::<()>());
        let share = Arc::new(Semaphore::new(1));
        let (begun, at_work) = tokio::sync::oneshot::channel();
        let look_up = {
            let (share, lookups) = (Arc::clone(&share), Arc::clone(&lookups));
            tokio::spawn(async move {
                let hangs = move || {
                    let _ = begun.send(());
                    let _ = half_way.recv();
                };
                one_of([&share, &lookups], hangs).await
            })
        };
        at_work.await.expect("it begins");
        look_up.abort();
        assert!(look_up.await.is_err_and(|ended| ended.is_cancelled()));
        assert_eq!((lookups.available_permits(), share.available_permits()), (0, 0), "its thread goes on");
        go_on.send(()).expect("it waits");
        assert_eq!(one_of([&share, &lookups], || 7).await.expect("there is a thread again"), 7);
    }

    #[tokio::test]
    async fn lookups_of_one_policy_leave_room_for_those_of_others() {
        let (all, hanging) = (Arc::new(Semaphore::new(LOOKUPS_MAX)), EgressPolicy::default());
        let (go_on, half_way) = std::sync::mpsc::channel::<()>();
        let half_way = Arc::new(std::sync::Mutex::new(half_way));
        let look_ups: Vec<_> = (0..2 * LOOKUPS_MAX)
            .map(|_| {
                let (share, all, half_way) = (Arc::clone(&hanging.clone().lookups), Arc::clone(&all), half_way.clone());
                let hangs = move || drop(half_way.lock().map(|half_way| half_way.recv()));
                tokio::spawn(async move { one_of([&share, &all], hangs).await })
            })
            .collect();
        while hanging.lookups.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(all.available_permits(), LOOKUPS_MAX - LOOKUPS_OF_POLICY_MAX);
        let other = EgressPolicy::default();
        assert_eq!(one_of([&other.lookups, &all], || 7).await.expect("there is a thread"), 7);
        // The waiting look-ups proceed now.
        drop(go_on);
        for look_up in look_ups {
            assert!(look_up.await.is_ok_and(|ended| ended.is_ok()));
        }
    }

    #[tokio::test]
    async fn names_are_checked_by_the_addresses_they_resolve_to() {
        let refused = EgressPolicy::default().resolve("localhost:6379").await;
        assert!(matches!(refused, Err(TransportError::Refused(_))), "{refused:?}");
        let allowed = EgressPolicy::loopback().resolve("localhost:6379").await.expect("loopback is listed");
        assert!(allowed.iter().all(|address| address.ip().is_loopback() && address.port() == 6379));
    }
}
