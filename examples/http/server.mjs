// A service that takes records from Redrive, with Node's standard library alone.
//
//     SECRET=s3cr3t node examples/http/server.mjs 8080
//
// docs/http.md tells all about the protocol.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const SECRET = process.env.SECRET ?? "";
// What was done already. A service of yours keeps this in its database, in the transaction that does the work.
const done = new Set();

/** Whether a request comes from somebody who knows the secret, and is not an old one sent again. */
function isSigned(header, body, now, tolerance = 300) {
  const parts = Object.fromEntries(header.split(",").map((part) => part.split("=", 2)));
  if (!/^\d+$/.test(parts.t ?? "") || Math.abs(now - Number(parts.t)) > tolerance) return false;
  const expected = createHmac("sha256", SECRET).update(`${parts.t}.`).update(body).digest();
  const given = Buffer.from(parts.v1 ?? "", "hex");
  return given.length === expected.length && timingSafeEqual(given, expected);
}

/** The bytes behind a percent-encoded text. */
function decode(text) {
  const bytes = [];
  for (let at = 0; at < text.length; at += 1) {
    const hex = /^%[0-9a-fA-F]{2}/.test(text.slice(at, at + 3));
    bytes.push(hex ? Number.parseInt(text.slice(at + 1, at + 3), 16) : text.charCodeAt(at));
    if (hex) at += 2;
  }
  return Buffer.from(bytes);
}

/** The record's own headers: names to lists of values, which are text here, or null. */
function ownHeaders(request) {
  const headers = {};
  // Not `request.headers`, which joins a header that is there twice.
  for (const [name, values] of Object.entries(request.headersDistinct)) {
    if (name.startsWith("redrive-header-")) {
      const own = decode(name.slice("redrive-header-".length)).toString();
      headers[own] = [...(headers[own] ?? []), ...values.map((it) => decode(it).toString())];
    } else if (name === "redrive-null-header") {
      for (const it of values) {
        const own = decode(it).toString();
        headers[own] = [...(headers[own] ?? []), null];
      }
    }
  }
  return headers;
}

/** Here is your code: give 2xx when it is done, else say what went wrong. */
function handleRecord(record, idempotencyKey) {
  let order;
  try {
    order = record.value === null ? {} : JSON.parse(record.value);
  } catch {
    // Not retryable: it goes to the dead-letter topic, by the status alone.
    return [400, "not JSON"];
  }
  if (order.busy && record.delivery <= order.busy) return [503, "busy", { "retry-after": "1" }];
  // Whatever the policies say: nobody wants it.
  if (order.test) return [200, "a test", { "redrive-action": "drop" }];
  done.add(idempotencyKey);
  return [200, "thank you"];
}

const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  const answer = (status, text, headers = {}) => {
    response.writeHead(status, { "content-length": Buffer.byteLength(text), ...headers }).end(text);
  };
  const { headers } = request;
  if (SECRET && !isSigned(headers["redrive-signature"] ?? "", body, Date.now() / 1000)) {
    return answer(401, "not signed");
  }
  const record = {
    topic: headers["redrive-origin-topic"],
    key: headers["redrive-key"] === undefined ? null : decode(headers["redrive-key"]).toString(),
    value: headers["redrive-null"] === "true" ? null : body.toString(),
    delivery: Number(headers["redrive-delivery"]),
    is_last: headers["redrive-last-attempt"] === "true",
    headers: ownHeaders(request),
  };
  // The same record may come again: after a failure, or because an answer got lost.
  if (done.has(headers["idempotency-key"])) return answer(200, "done before");
  console.log(JSON.stringify(record));
  answer(...handleRecord(record, headers["idempotency-key"]));
});

server.listen(Number(process.argv[2] ?? 8080), "127.0.0.1", () => {
  console.error(`listening on ${server.address().port}`);
});
