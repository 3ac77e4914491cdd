//! Signing requests: HMAC with SHA-256 over the time and the body.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;
use redrive::config::Secret;

/// Signs with one secret.
pub(crate) struct Signature(PKey<Private>);

impl Signature {
    pub(crate) fn new(secret: &Secret) -> Result<Self, ErrorStack> {
        Ok(Self(PKey::hmac(secret.reveal().as_bytes())?))
    }

    /// `t=SECONDS,v1=HEX`.
    pub(crate) fn header(&self, body: &[u8], now: SystemTime) -> Result<HeaderValue, ErrorStack> {
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut text = format!("t={seconds},v1=");
        for byte in self.sign(seconds, body)? {
            // Writing to a String does not fail.
            _ = write!(text, "{byte:02x}");
        }
        Ok(HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("")))
    }

    fn sign(&self, seconds: u64, body: &[u8]) -> Result<Vec<u8>, ErrorStack> {
        let mut signer = Signer::new(MessageDigest::sha256(), &self.0)?;
        signer.update(format!("{seconds}.").as_bytes())?;
        signer.update(body)?;
        signer.sign_to_vec()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Made by Python: `hmac.new(b"secret", b"1700000000." + body, "sha256").hexdigest()`.
    #[test]
    fn signatures_are_those_that_python_makes() {
        let signature = Signature::new(&Secret::new("secret")).unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        for (body, hex) in [
            (&b"{}"[..], "b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163"),
            (b"", "4bc5f74d868b97888288889c5d9d65df02526f94c1592a79fdf4fe8b26e311e5"),
            (b"\x00\xff", "7230e3b43154bb38b3b2b911b839cef79e3c14a0bade271db0561b57d4ba1d69"),
        ] {
            let expected = format!("t=1700000000,v1={hex}");
            assert_eq!(signature.header(body, now).unwrap(), expected.as_str());
        }
    }
}
