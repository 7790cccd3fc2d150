//! Who may ask: this machine's own page, and whoever holds the token.
//!
//! A web page elsewhere can make a browser send requests to loopback. So the `Host` must be a name of this server (a foreign name that
//! resolves here is refused), an `Origin` must be the same as the `Host`, and a browser that says a request comes from another site is believed. There
//! are no CORS headers. Answers carry a policy under which the page can load nothing from elsewhere.

use crate::{app::App, problem::Problem};
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use sha2::{Digest, Sha256};
use std::{net::IpAddr, sync::Arc};

const POLICY: &str = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; worker-src 'self' blob:; \
                      object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
];

pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match refused(&app, &request) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn refused(app: &App, request: &Request) -> Option<Response> {
    let headers = request.headers();
    let forbidden = |code: &str, detail: String| {
        Some(Problem::new(StatusCode::FORBIDDEN, code, detail).into_response())
    };
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    // HTTP/1.1 always has one; a URI with an authority speaks for it.
    let host = text(header::HOST)
        .or_else(|| {
            request
                .uri()
                .authority()
                .map(axum::http::uri::Authority::as_str)
        })
        .unwrap_or_default();
    if !is_ours(host, &app.config.hosts) {
        return forbidden(
            "foreign_host",
            format!("`{}` is not a name of this server", host.escape_debug()),
        );
    }
    if let Some(origin) = text(header::ORIGIN)
        && origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"))
            != Some(host)
    {
        return forbidden(
            "foreign_origin",
            format!("`{}` may not use this server", origin.escape_debug()),
        );
    }
    let api = request.uri().path().starts_with("/api/");
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let site = text(HeaderName::from_static("sec-fetch-site"));
    if (api || changes) && site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return forbidden(
            "foreign_origin",
            "this request comes from another site".to_owned(),
        );
    }
    let kind = text(header::CONTENT_TYPE).map(|kind| {
        kind.split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    });
    if changes
        && kind
            .as_deref()
            .is_some_and(|kind| !matches!(kind, "application/json" | "application/octet-stream"))
    {
        let detail = "bodies are application/json or application/octet-stream";
        return Some(
            Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "bad_content_type",
                detail,
            )
            .into_response(),
        );
    }
    let token = app.config.token.as_deref()?;
    without_token(token, request, host)
}

/// `localhost:5000`, `127.0.0.1`, `[::1]:5000`; other names only when they were given.
fn is_ours(host: &str, given: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.');
    let address: Option<IpAddr> = name.parse().ok();
    name.eq_ignore_ascii_case("localhost")
        || address.is_some_and(|address| address.is_loopback())
        || given.iter().any(|given| {
            given.eq_ignore_ascii_case(name) || (given == ANY_ADDRESS && address.is_some())
        })
}

/// Among the hosts: any address may be typed, as when all of them are listened on.
pub const ANY_ADDRESS: &str = "*";

/// An answer for whoever does not hold the token; `None` lets the request through.
fn without_token(token: &str, request: &Request, host: &str) -> Option<Response> {
    let headers = request.headers();
    let cookie = cookie_name(host);
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    if bearer.is_some_and(|given| same(given.trim(), token))
        || cookies(headers, &cookie).any(|given| same(given, token))
    {
        return None;
    }
    let query = request.uri().query().unwrap_or_default();
    let given = query
        .split('&')
        .find_map(|part| part.strip_prefix("token="));
    if given.is_some_and(|given| same(given, token)) && request.method() == Method::GET {
        // Once, from the address bar: kept in a cookie that scripts cannot read, and gone from the address.
        let rest: Vec<&str> = query
            .split('&')
            .filter(|part| !part.starts_with("token="))
            .collect();
        let path = request.uri().path().trim_start_matches('/');
        let target = if rest.is_empty() {
            format!("/{path}")
        } else {
            format!("/{path}?{}", rest.join("&"))
        };
        let set = format!("{cookie}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000");
        let set = HeaderValue::from_str(&set).ok()?;
        return Some(([(header::SET_COOKIE, set)], Redirect::to(&target)).into_response());
    }
    let problem = Problem::new(
        StatusCode::UNAUTHORIZED,
        "token_required",
        "this server asks for its token",
    )
    .hint("open the address it printed, with its token, or send `Authorization: Bearer TOKEN`");
    Some(problem.into_response())
}

/// Cookies do not tell ports apart, so the name does.
fn cookie_name(host: &str) -> String {
    let port = host.rsplit_once(':').map_or("80", |(_, port)| port);
    format!(
        "twinscope_{}",
        port.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
    )
}

fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let all = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'));
    all.filter_map(move |cookie| cookie.trim().strip_prefix(name)?.strip_prefix('='))
}

/// In a time that does not tell how much of it is right.
fn same(given: &str, token: &str) -> bool {
    Sha256::digest(given) == Sha256::digest(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_ours() {
        for host in [
            "localhost",
            "localhost:5000",
            "LOCALHOST:1",
            "127.0.0.1:5000",
            "127.9.9.9",
            "[::1]:5000",
            "[::1]",
            "localhost.",
        ] {
            assert!(is_ours(host, &[]), "{host}");
        }
        for host in [
            "",
            "evil.com",
            "localhost.evil.com",
            "127.0.0.1.nip.io:5000",
            "192.168.0.1",
            "evil.com:127.0.0.1",
            "[::2]",
            "evil.localhost.com",
        ] {
            assert!(!is_ours(host, &[]), "{host}");
        }
        assert!(is_ours("gpu7:5000", &["gpu7".to_owned()]));
        assert!(
            is_ours("10.0.0.3:5000", &[ANY_ADDRESS.to_owned()])
                && !is_ours("evil.com", &[ANY_ADDRESS.to_owned()])
        );
    }
}
