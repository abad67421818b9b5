//! Bearer tokens: API keys, and tokens that somebody else signs. What nobody signed lets nobody in, whatever it says.
//!
//! An input that begins with `{` is what a token would say, its head and its claims on a line each, and is signed here with
//! the right secret: otherwise nothing after the check of the signature would ever be reached.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde_json::Value;
use tribunal_core::control::Effect;
use tribunal_types::{ApiKey, NamespaceId, Role};

use crate::auth::jwt::{JwtConfig, JwtGate};
use crate::auth::keys::{Found, Keys};

/// What tokens are signed with.
const SECRET: &[u8] = b"a secret that is long enough for it";
/// The one API key, and its secret part.
const KEY: (&str, &str) = ("0123456789abcdef", "the secret of the key");
const AUDIENCE: &str = "tribunal";
const TENANT: &str = "shop";

struct Door {
    keys: Keys,
    jwt: JwtGate,
    key: hmac::Key,
}

fn door() -> &'static Door {
    static DOOR: OnceLock<Door> = OnceLock::new();
    DOOR.get_or_init(|| {
        let file = std::env::temp_dir().join(format!("tribunal-fuzz-secret-{}", std::process::id()));
        std::fs::write(&file, SECRET).expect("written");
        let config =
            JwtConfig { algorithm: "HS256".into(), audience: AUDIENCE.into(), issuer: None, key_file: file.clone() };
        let jwt = JwtGate::new(&config).expect("a configuration that is right");
        std::fs::remove_file(file).expect("it was there");
        let mut keys = Keys::default();
        let key = ApiKey {
            id: KEY.0.into(),
            name: "engine".into(),
            namespace: NamespaceId(1),
            namespace_name: TENANT.into(),
            roles: [Role::Engine].into_iter().collect(),
            secret_sha256: digest(&SHA256, KEY.1.as_bytes()).as_ref().try_into().expect("32 bytes"),
            created_ms: 0,
            expires_ms: None,
        };
        keys.follow(&Effect::KeyCreated { key, founded: true });
        Door { keys, jwt, key: hmac::Key::new(hmac::HMAC_SHA256, SECRET) }
    })
}

/// Makes the door.
pub fn warm_up() {
    door();
}

/// Checks a token and tells whether it lets anybody in.
pub fn run(data: &[u8]) -> bool {
    let Door { keys, jwt, key } = door();
    let Ok(text) = str::from_utf8(data) else { return false };
    let token = match text.strip_prefix('{').and_then(|_| text.split_once('\n')) {
        Some((head, claims)) => {
            let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
            format!("{message}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(key, message.as_bytes())))
        }
        None => text.to_owned(),
    };
    if let Found::Valid(principal) = keys.find(&token, 0, || 0) {
        assert_eq!(token, format!("trb_{}_{}", KEY.0, KEY.1), "another key lets in");
        assert_eq!(principal.namespace, NamespaceId(1));
        return true;
    }
    let Ok(principal) = jwt.check(&token, |name| keys.namespace(name)) else { return false };
    // Judged once more, by other means.
    let parts: Vec<&str> = token.split('.').collect();
    let [head, claims, signed] = parts[..] else { panic!("{token} has {} parts", parts.len()) };
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).expect("it was read");
    let json = |part: &str| serde_json::from_slice::<Value>(&decoded(part)).expect("JSON");
    assert!(
        hmac::verify(key, format!("{head}.{claims}").as_bytes(), &decoded(signed)).is_ok(),
        "nobody signed {token}"
    );
    let (head, claims) = (json(head), json(claims));
    assert_eq!(head["alg"], "HS256");
    let names = |audience: &Value| audience == AUDIENCE;
    assert!(names(&claims["aud"]) || claims["aud"].as_array().is_some_and(|many| many.iter().any(names)), "{claims}");
    assert!(claims["exp"].as_f64().is_some_and(|expires| expires > 1.7e9), "{claims}");
    assert_eq!(Some(principal.namespace), keys.namespace(claims["namespace"].as_str().expect("a name")));
    let roles = claims["roles"].as_array().expect("a list");
    assert!(roles.iter().all(|role| role.as_str().and_then(Role::by_name).is_some()), "{claims}");
    true
}
