//! Whom we trust, and how we show who we are.

use std::path::Path;

use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::ssl::{SslConnector, SslMethod, SslVersion};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use redrive::config::Tls;

use crate::handler::HttpError;

/// The protocols that we offer, each with its length before it.
const PROTOCOLS: &[u8] = b"\x02h2\x08http/1.1";

/// Makes connections that are encrypted.
pub(crate) fn connector(tls: &Tls) -> Result<SslConnector, HttpError> {
    let ours =
        |error: ErrorStack| HttpError::new("tls", format!("TLS cannot be set up: {error}"), "");
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(ours)?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2)).map_err(ours)?;
    builder.set_alpn_protos(PROTOCOLS).map_err(ours)?;
    match &tls.ca {
        Some(file) => {
            let mut store = X509StoreBuilder::new().map_err(ours)?;
            for certificate in certificates("tls.ca", file)? {
                store.add_cert(certificate).map_err(ours)?;
            }
            builder.set_cert_store(store.build());
        }
        None => {
            // The OpenSSL that is built in does not know where this system has its certificates. Where there are none, no
            // service can be trusted, and each connection says so.
            let found = openssl_probe::probe();
            if let Some(file) = &found.cert_file {
                _ = builder.load_verify_locations(Some(file), None);
            }
            if let Some(directory) = &found.cert_dir {
                _ = builder.load_verify_locations(None, Some(directory));
            }
        }
    }
    if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
        let mut chain = certificates("tls.cert", cert)?.into_iter();
        if let Some(own) = chain.next() {
            builder.set_certificate(&own).map_err(ours)?;
        }
        for certificate in chain {
            builder.add_extra_chain_cert(certificate).map_err(ours)?;
        }
        let text = read("tls.key", key)?;
        // Asking a person for a password is no use here.
        let key_file = key.display();
        let key = PKey::private_key_from_pem_callback(&text, |_| Ok(0)).map_err(|_| {
            let message = format!("{key_file} is no key that can be read");
            HttpError::new("tls.key", message, "give a PEM file of a key without a password")
        })?;
        let is_its_key = builder.set_private_key(&key).and_then(|()| builder.check_private_key());
        is_its_key.map_err(|_| {
            let message = format!("{key_file} is not the key of {}", cert.display());
            HttpError::new("tls.key", message, "give the key that belongs to `cert`")
        })?;
    }
    Ok(builder.build())
}

fn certificates(key: &'static str, file: &Path) -> Result<Vec<X509>, HttpError> {
    let found = X509::stack_from_pem(&read(key, file)?).unwrap_or_default();
    if found.is_empty() {
        let message = format!("{} has no certificate that can be read", file.display());
        return Err(HttpError::new(key, message, "give a PEM file of certificates"));
    }
    Ok(found)
}

fn read(key: &'static str, file: &Path) -> Result<Vec<u8>, HttpError> {
    std::fs::read(file).map_err(|error| {
        let message = format!("{} cannot be read: {error}", file.display());
        HttpError::new(key, message, "give a file that is there and can be read")
    })
}
