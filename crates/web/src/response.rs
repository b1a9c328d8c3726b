//! Requests and responses.

/// Headers of every response. The page loads nothing from elsewhere, runs no inline script, and cannot be put into a
/// frame; other sites cannot read a response.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
     Cross-Origin-Resource-Policy: same-origin\r\n\
     Cross-Origin-Opener-Policy: same-origin\r\n\
     X-Content-Type-Options: nosniff\r\n\
     X-Frame-Options: DENY\r\n\
     Referrer-Policy: no-referrer\r\n\
     Cache-Control: no-store\r\n\
     Connection: close\r\n";

/// A request that has passed the server's checks. Its method is GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Path, without the query.
    pub path: &'a str,
    /// The text after `?`; empty without one.
    pub query: &'a str,
}

impl<'a> Request<'a> {
    pub(crate) fn new(target: &'a str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Self { path, query }
    }

    /// The value of a key of the query, decoded; `None` if the query does not have it.
    #[must_use]
    pub fn parameter(&self, key: &str) -> Option<String> {
        self.query.split('&').find_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name == key).then(|| decode(value))
        })
    }
}

/// Replaces `%xx` and `+`; what is not UTF-8 then becomes the replacement character.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let escaped = after.get(..2).filter(|_| *first == b'%').and_then(hex);
        bytes.push(match (first, escaped) {
            (_, Some(byte)) => byte,
            (b'+', _) => b' ',
            (other, _) => *other,
        });
        rest = after.get(if escaped.is_some() { 2.. } else { 0.. }).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Response {
    /// A response with a body of this content type.
    #[must_use]
    pub fn new(kind: &'static str, body: impl Into<String>) -> Self {
        Self { status: "200 OK", kind, body: body.into() }
    }

    /// A body in JSON.
    #[must_use]
    pub fn json(body: impl Into<String>) -> Self {
        Self::new("application/json", body)
    }

    /// Metrics in the OpenMetrics text format.
    #[must_use]
    pub fn metrics(body: impl Into<String>) -> Self {
        Self::new("application/openmetrics-text; version=1.0.0; charset=utf-8", body)
    }

    /// An error in one line; `status` has the code and its name.
    #[must_use]
    pub fn error(status: &'static str, why: impl std::fmt::Display) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{why}\n") }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self { status, kind, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{HEADERS}\r\n{body}"
        );
        head.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let request = Request::new("/api/watch?service=A%20B+C&item=%3Cx%3E&empty&bad=%zz%");
        assert_eq!(request.path, "/api/watch");
        for (key, value) in
            [("service", Some("A B C")), ("item", Some("<x>")), ("empty", Some("")), ("bad", Some("%zz%"))]
        {
            assert_eq!(request.parameter(key).as_deref(), value, "{key}");
        }
        assert_eq!(request.parameter("none"), None);
        assert_eq!(Request::new("/x"), Request { path: "/x", query: "" });
    }
}
