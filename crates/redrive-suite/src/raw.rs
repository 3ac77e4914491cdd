//! What the rdkafka crate does not do: header names that are not UTF-8.

#![expect(unsafe_code, reason = "the crate panics on such names")]

use std::ffi::{CStr, CString};
use std::{ptr, slice};

use anyhow::{Result, bail};
use rdkafka::bindings as sys;
use rdkafka::message::BorrowedMessage;
use rdkafka::producer::{DefaultProducerContext, Producer, ThreadedProducer};

use crate::broker::Sent;

/// The headers of a message in their order.
pub(crate) fn headers(message: &BorrowedMessage<'_>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    // SAFETY: the message is alive, and so is everything in it.
    unsafe {
        let mut headers = ptr::null_mut();
        let none = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        if sys::rd_kafka_message_headers(message.ptr(), &raw mut headers) != none {
            return found;
        }
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        let mut get = |index| {
            let error = sys::rd_kafka_header_get_all(
                headers,
                index,
                &raw mut name,
                &raw mut value,
                &raw mut size,
            );
            (error == none).then(|| {
                let name = CStr::from_ptr(name).to_bytes().to_vec();
                let value = (!value.is_null())
                    .then(|| slice::from_raw_parts(value.cast::<u8>(), size).to_vec());
                (name, value)
            })
        };
        found.extend((0..).map_while(&mut get));
    }
    found
}

/// Sends a record as it is.
pub(crate) fn send(
    producer: &ThreadedProducer<DefaultProducerContext>,
    topic: &str,
    sent: &Sent,
) -> Result<()> {
    use sys::rd_kafka_vtype_t as Part;
    let topic = CString::new(topic)?;
    let part = |kind, set: &dyn Fn(&mut sys::rd_kafka_vu_s__bindgen_ty_1)| {
        let mut value = sys::rd_kafka_vu_s__bindgen_ty_1 { _pad: [0; 64] };
        set(&mut value);
        sys::rd_kafka_vu_t { vtype: kind, u: value }
    };
    let memory = |bytes: &Option<Vec<u8>>| sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
        ptr: bytes.as_ref().map_or(ptr::null_mut(), |it| it.as_ptr().cast_mut().cast()),
        size: bytes.as_ref().map_or(0, Vec::len),
    };
    let copy = sys::RD_KAFKA_MSG_F_COPY;
    // SAFETY: librdkafka copies everything before the call returns, and owns the headers if it succeeds.
    unsafe {
        let headers = sys::rd_kafka_headers_new(sent.headers.len());
        for (name, value) in &sent.headers {
            let bytes = memory(value);
            sys::rd_kafka_header_add(
                headers,
                name.as_ptr().cast(),
                name.len().try_into()?,
                bytes.ptr,
                bytes.size.try_into()?,
            );
        }
        let mut parts = vec![
            part(Part::RD_KAFKA_VTYPE_TOPIC, &|it| it.cstr = topic.as_ptr()),
            part(Part::RD_KAFKA_VTYPE_PARTITION, &|it| it.i32_ = sent.partition),
            part(Part::RD_KAFKA_VTYPE_MSGFLAGS, &|it| it.i = copy),
            part(Part::RD_KAFKA_VTYPE_KEY, &|it| it.mem = memory(&sent.key)),
            part(Part::RD_KAFKA_VTYPE_VALUE, &|it| it.mem = memory(&sent.value)),
            part(Part::RD_KAFKA_VTYPE_HEADERS, &|it| it.headers = headers),
        ];
        parts.extend(
            sent.timestamp.map(|at| part(Part::RD_KAFKA_VTYPE_TIMESTAMP, &|it| it.i64_ = at)),
        );
        let client = producer.client().native_ptr();
        let error = sys::rd_kafka_produceva(client, parts.as_mut_ptr(), parts.len());
        if !error.is_null() {
            sys::rd_kafka_headers_destroy(headers);
            let text =
                CStr::from_ptr(sys::rd_kafka_error_string(error)).to_string_lossy().into_owned();
            sys::rd_kafka_error_destroy(error);
            bail!("it could not be produced: {text}");
        }
    }
    Ok(())
}
